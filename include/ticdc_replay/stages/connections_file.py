"""The private file that brings a Spark driver its connections."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ticdc_replay.domain.connections import Connections


@contextmanager
def private_file(connections: Connections) -> Iterator[Path]:
    """A file with *connections* that only this user can read, in a folder of its own; gone afterwards.

    Its path is for the environment variable ``jobspec.CONNECTIONS_FILE_VARIABLE`` of the driver: never for a command line.
    """
    with tempfile.TemporaryDirectory(prefix="ticdc-replay-") as folder:
        path = Path(folder) / "connections.json"
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(msgspec.json.encode(connections))
        yield path
