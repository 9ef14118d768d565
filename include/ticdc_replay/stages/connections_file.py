"""The private file that brings a Spark driver its connections."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ticdc_replay.domain.connections import Connections
from ticdc_replay.jobspec import SUBMITTER_FILE


@contextmanager
def private_file(connections: Connections) -> Iterator[Path]:
    """A file with *connections* that only this user can read, in a folder of its own; gone afterwards.

    The lock on ``jobspec.SUBMITTER_FILE`` beside it lasts until then, or until this process ends, however it does: so a driver
    notices that its submitter is gone.

    The path is for the environment variable ``jobspec.CONNECTIONS_FILE_VARIABLE`` of the driver: never for a command line.
    """
    with tempfile.TemporaryDirectory(prefix="ticdc-replay-") as folder:
        path = Path(folder) / "connections.json"
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(msgspec.json.encode(connections))
        with (Path(folder) / SUBMITTER_FILE).open("wb") as lock:  # what this process executes does not inherit it
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield path
