"""One demo at a time in one folder: who runs it, and how it is asked to stop."""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from demo.embedded_stack.cache import CHECKOUT

FOLDER = CHECKOUT / ".demo"
STOP_SECONDS = 90.0


class AlreadyRunningError(Exception):
    """Another demo uses the folder."""


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Be the one demo of *folder*, which is made if absent. Raises AlreadyRunningError.

    The lock goes with the process, so that a killed demo does not block the next one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _lock_file(folder).open("a+") as lock:
        if not _try_lock(lock):
            raise AlreadyRunningError(f"a demo runs already (process {_pid(folder)}); stop it with `make demo-stop`")
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def is_running(folder: Path) -> bool:
    """Whether a demo uses *folder*."""
    if not _lock_file(folder).exists():
        return False
    with _lock_file(folder).open("a+") as lock:
        return not _try_lock(lock)


def stop(folder: Path) -> bool:
    """Ask the demo that uses *folder* to stop and wait until it has; False when there is none. Raises TimeoutError."""
    if not is_running(folder):
        return False
    os.kill(_pid(folder), signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while is_running(folder):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {_pid(folder)} did not stop in {STOP_SECONDS:.0f} s")
        time.sleep(0.2)
    return True


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_file(folder: Path) -> Path:
    return folder / "lock"


def _pid(folder: Path) -> int:
    return int(_lock_file(folder).read_text())
