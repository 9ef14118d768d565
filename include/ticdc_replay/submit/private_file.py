"""The private file that brings a Spark driver its connections."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ticdc_replay.domain.connections import Connections
from ticdc_replay.jobspec import SUBMITTER_FILE

_PREFIX = "ticdc-replay-"


@contextmanager
def private_file(connections: Connections) -> Iterator[Path]:
    """A file with *connections* that only this user can read, in a folder of its own; gone afterwards.

    The lock on ``jobspec.SUBMITTER_FILE`` beside it lasts until then, or until this process ends, however it does: so a driver
    notices that its submitter is gone, and the next start removes the files of submitters that were killed.

    The path is for the environment variable ``jobspec.CONNECTIONS_FILE_VARIABLE`` of the driver: never for a command line.
    """
    remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = Path(name)
        new = folder / "new"
        with new.open("wb") as lock:  # what this process executes does not inherit it
            fcntl.flock(lock, fcntl.LOCK_EX)
            new.rename(folder / SUBMITTER_FILE)  # under its name it is locked from the first moment
            path = folder / "connections.json"
            with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(msgspec.json.encode(connections))
            yield path


def remove_abandoned() -> None:
    """Remove the private files of this user, below ``TMPDIR``, whose process has ended without doing so; never one in use."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / SUBMITTER_FILE, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:  # not such a folder, or another process has just removed it
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue  # its process lives
        finally:
            os.close(lock)
