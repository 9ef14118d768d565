"""Reading and writing Parquet through Arrow's filesystems, as tasks of a load do."""

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyarrow import ArrowInvalid
from pyarrow.fs import LocalFileSystem, copy_files

from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactNotFoundError, TransientError
from ticdc_replay.storage.file import TEMPORARY_PREFIX


@contextmanager
def file_errors(doing: str) -> Iterator[None]:
    """Turns Arrow's errors about files into those of the library; *doing* says what failed and where."""
    try:
        yield
    except FileNotFoundError as error:
        raise ArtifactNotFoundError(f"cannot {doing}: {error}; decode the window again") from error
    except OSError as error:
        raise TransientError(f"cannot {doing}: {error}") from error
    except ArrowInvalid as error:
        raise ArtifactCorruptError(f"cannot {doing}: {error}; decode the window again") from error


def make_parent(filesystem: Any, path: str) -> None:
    """Make the folder of *path* where a filesystem has folders: S3 would get an empty object for each."""
    if isinstance(filesystem, LocalFileSystem):
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)


@contextmanager
def whole_file(filesystem: Any, path: str) -> Iterator[str]:
    """A local path to write to. Leaving without an error puts the file under *path* in one step; an error leaves what
    was there, unlike Arrow's streams, which then finish a part of the object."""
    if isinstance(filesystem, LocalFileSystem):
        make_parent(filesystem, path)
        temporary = Path(path).with_name(f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
        try:
            yield str(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    else:
        with tempfile.TemporaryDirectory(prefix="ticdc-replay-") as folder:
            yield f"{folder}/file"
            copy_files(f"{folder}/file", path, source_filesystem=LocalFileSystem(), destination_filesystem=filesystem)
