"""One demo at a time per checkout: who runs it, and how it is asked to stop."""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from demo.embedded_stack.cache import CHECKOUT

FOLDER = CHECKOUT / ".demo"
STOP_SECONDS = 90.0
_LOCK = FOLDER / "lock"


class AlreadyRunningError(Exception):
    """A demo of this checkout runs already."""


@contextmanager
def only_one() -> Iterator[None]:
    """Be the one demo of this checkout. Raises AlreadyRunningError.

    The lock goes with the process, so that a killed demo does not block the next one.
    """
    FOLDER.mkdir(exist_ok=True)
    with _LOCK.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(
                f"a demo runs already (process {_pid()}); stop it with `make demo-stop`"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def is_running() -> bool:
    """Whether a demo of this checkout runs."""
    if not _LOCK.exists():
        return False
    with _LOCK.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def stop() -> bool:
    """Ask the running demo to stop and wait until it has; False when none runs. Raises TimeoutError."""
    if not is_running():
        return False
    os.kill(_pid(), signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while is_running():
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {_pid()} did not stop in {STOP_SECONDS:.0f} s")
        time.sleep(0.2)
    return True


def _pid() -> int:
    return int(_LOCK.read_text())
