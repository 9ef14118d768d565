"""Parquet through obstore, so that Arrow has the same credentials as everything else, and they refresh."""

from collections.abc import Sequence
from typing import Any, NoReturn

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError
from pyarrow import fs

from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.storage.obstores.errors import NOT_FOUND, translate, without_query

_BUFFER_BYTES = 8 * 1024 * 1024


def arrow_files(store: Any, bucket: str) -> fs.PyFileSystem:
    """A file system with the objects of *store*, which is all of *bucket*. Paths begin with the bucket, as in Arrow's own."""
    return fs.PyFileSystem(_Objects(store, bucket))


class _Objects(fs.FileSystemHandler):  # type: ignore[misc]
    """What readers and writers of Parquet ask for. Folders are names only: they are never made and never removed."""

    def __init__(self, store: Any, bucket: str) -> None:
        self._store = store
        self._bucket = bucket

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Objects) and other._store == self._store and other._bucket == self._bucket

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return "obstore"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        folder = self._key(selector.base_dir)
        found = []
        try:
            for batch in obstore.list(self._store, folder or None):
                for meta in batch:
                    path = f"{self._bucket}/{meta['path']}"
                    if selector.recursive or "/" not in path.removeprefix(f"{selector.base_dir.rstrip('/')}/"):
                        found.append(_file(path, meta))
        except (BaseError, OSError) as error:
            raise _error(error) from None
        return found

    def create_dir(self, path: str, recursive: bool) -> None:
        pass  # a name with a slash makes the folder

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        try:
            return pa.PythonFile(_Reader(obstore.open_reader(self._store, self._key(path))), mode="r")
        except (BaseError, OSError) as error:
            raise _error(error) from None

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        writer = obstore.open_writer(self._store, self._key(path), buffer_size=_BUFFER_BYTES)
        return pa.PythonFile(_Writer(writer), mode="w")

    def open_append_stream(self, path: str, metadata: object) -> NoReturn:
        raise _unsupported("append to")

    def delete_file(self, path: str) -> NoReturn:
        raise _unsupported("delete")

    def delete_dir(self, path: str) -> NoReturn:
        raise _unsupported("delete")

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> NoReturn:
        raise _unsupported("delete")

    def delete_root_dir_contents(self) -> NoReturn:
        raise _unsupported("delete")

    def move(self, src: str, dest: str) -> NoReturn:
        raise _unsupported("move")

    def copy_file(self, src: str, dest: str) -> NoReturn:
        raise _unsupported("copy")

    def _key(self, path: str) -> str:
        return path.removeprefix(self._bucket).strip("/")

    def _info(self, path: str) -> fs.FileInfo:
        try:
            return _file(path, obstore.head(self._store, self._key(path)))
        except NOT_FOUND:
            return fs.FileInfo(path, fs.FileType.NotFound)
        except (BaseError, OSError) as error:
            raise _error(error) from None


class _Reader:
    """obstore's reader, whose errors are as ``_error`` says."""

    def __init__(self, file: "obstore.ReadableFile") -> None:
        self._file = file
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._file.close()

    def read(self, size: int | None = None) -> Any:
        try:
            return self._file.read(None if size is None or size < 0 else size)
        except (BaseError, OSError) as error:
            raise _error(error) from None

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def size(self) -> int:
        return self._file.size


class _Writer:
    """obstore's writer. The object appears when it is closed."""

    def __init__(self, file: "obstore.WritableFile") -> None:
        self._file = file

    @property
    def closed(self) -> bool:
        return self._file.closed()

    def write(self, content: Any) -> int:
        try:
            return self._file.write(memoryview(content).cast("B"))
        except (BaseError, OSError) as error:
            raise _error(error) from None

    def flush(self) -> None:
        pass  # of an object only the whole can be seen

    def close(self) -> None:
        if not self._file.closed():
            try:
                self._file.close()
            except (BaseError, OSError) as error:
                raise _error(error) from None

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def _file(path: str, meta: Any) -> fs.FileInfo:
    return fs.FileInfo(path, fs.FileType.File, size=meta["size"], mtime=meta["last_modified"])


def _error(error: Exception) -> Exception:
    """An OSError, as Arrow and its callers expect it, unless a retry doesn't help: then it is one of the library's."""
    if isinstance(error, NOT_FOUND):
        return FileNotFoundError(without_query(error))
    meant = translate(error, "cannot read or write Parquet")
    # Arrow's reader gets an error of the network as an OSError.
    is_refused = isinstance(meant, PermanentError) and (isinstance(error, BaseError) or "status code: 40" in str(error))
    return meant if is_refused else OSError(without_query(error))


def _unsupported(doing: str) -> NotImplementedError:
    return NotImplementedError(f"Arrow's file system of a store does not {doing} files")
