"""Objects as files below a folder of this machine (or one that all machines mount)."""

import contextlib
import errno
import fcntl
import os
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import (
    ArtifactExistsError,
    ArtifactNotFoundError,
    ConfigError,
    PermanentError,
    TransientError,
)
from ticdc_replay.storage.abilities import TRIED, Ability
from ticdc_replay.storage.base import ObjectInfo, ObjectStore
from ticdc_replay.storage.deletion import ObjectDeletion
from ticdc_replay.storage.file_abilities import try_links, try_locks
from ticdc_replay.storage.file_deletion import FileDeletion
from ticdc_replay.storage.names import check_name

TEMPORARY_PREFIX = ".ticdc-replay-"
"""Of files that are being written; what readers of folders leave out."""
_LOCK_FILE = f"{TEMPORARY_PREFIX}lock"
"""Stays in its folder: whoever removed it would let two in."""
_TRANSIENT_ERRNO = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT}
    | {errno.ESTALE, errno.ETIMEDOUT}
)


class FileStore(ObjectStore):
    """A folder. Writes go to a temporary file beside the target, then appear under their name in one step.

    ``now`` is this machine's clock, also where the folder is another one's.
    """

    scheme: ClassVar[str] = "file"

    def __init__(self, folder: Path) -> None:
        if not folder.is_absolute():
            raise ConfigError(f"{folder} must be an absolute path")
        self._folder = folder
        self.root = folder.as_uri().rstrip("/")

    @classmethod
    def open(cls, uri: str, connection: Connection | None) -> "FileStore":
        """The store of ``file:///folder``; *connection* must be None."""
        if connection is not None:
            raise ConfigError(f"{uri!r} is a local folder and takes no connection, but {connection.conn_id!r} is given")
        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise ConfigError(f"{uri!r} must look like file:///absolute/folder")
        return cls(Path(unquote(parts.path)))

    def get(self, name: str, max_bytes: int | None = None, etag: str | None = None) -> bytes:
        with self.errors("read", name):
            try:
                with self.path(name).open("rb") as file:
                    found = _info(name, os.fstat(file.fileno()))
                    self.require(name, found.etag, found.size, etag, max_bytes)
                    return file.read()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise ArtifactNotFoundError(f"{self.uri(name)} does not exist") from None

    def info(self, name: str) -> ObjectInfo | None:
        path = self.path(name)
        with self.errors("look up", name):
            try:
                return _info(name, path.stat()) if path.is_file() else None
            except (FileNotFoundError, NotADirectoryError):
                return None

    def put(self, name: str, content: bytes) -> None:
        with self.errors("write", name):
            self._replace(self.path(name), content)

    def put_once(self, name: str, content: bytes) -> bool:
        with self.errors("write", name):
            TRIED.once((self.root,), Ability.LINK, lambda: try_links(self._folder))
            target = self.path(name)
            temporary = self._write_temporary(target, content)
            try:
                os.link(temporary, target)
            except FileExistsError:
                if self.get(name) == content:
                    return False
                raise ArtifactExistsError(f"{self.uri(name)} exists with other content; it is never replaced") from None
            finally:
                temporary.unlink(missing_ok=True)
            _sync_folder(target.parent)
            return True

    def update(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        with self.errors("write", name):
            TRIED.once((self.root,), Ability.LOCK, lambda: try_locks(self._folder))
            target = self.path(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with _alone(target.parent):
                found = target.read_bytes() if target.is_file() else None
                wanted = change(found)
                if wanted != found:
                    self._replace(target, wanted)

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        with self.errors("list", prefix):
            yield from self._walk(self._folder, "", prefix, after)

    def folders(self, prefix: str) -> Iterator[str]:
        with self.errors("list", prefix):
            try:
                with os.scandir(self.path(prefix.removesuffix("/"))) as entries:
                    names = sorted(f"{prefix}{entry.name}/" for entry in entries if entry.is_dir())
            except FileNotFoundError:
                return
        yield from names

    def delete(self, name: str) -> None:
        with self.errors("delete", name), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self.path(name).unlink()

    def deletion(self) -> ObjectDeletion:
        return FileDeletion(self)

    def now(self) -> datetime:
        return datetime.now(UTC).replace(microsecond=0)

    def arrow_filesystem(self) -> tuple[Any, str]:
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem(), str(self._folder)

    def path(self, name: str) -> Path:
        """The file of the object *name*. Raises PermanentError where *name* reaches outside the folder."""
        return self._folder / check_name(name)

    @contextlib.contextmanager
    def errors(self, doing: str, name: str) -> Iterator[None]:
        """Raise an OSError as one of the library's errors; *doing* is a verb, *name* the object or prefix."""
        try:
            yield
        except OSError as error:
            kind = TransientError if error.errno in _TRANSIENT_ERRNO else PermanentError
            raise kind(f"cannot {doing} {self.uri(name)}: {error.strerror or error}") from error

    def _replace(self, target: Path, content: bytes) -> None:
        temporary = self._write_temporary(target, content)
        try:
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)

    def _write_temporary(self, target: Path, content: bytes) -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    def _walk(self, folder: Path, folder_name: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Files below *folder* in the byte order of their whole names: a folder sorts as its name with a slash.

        A link to a file is none: who takes it for an object of its own lets go of the file that it needs.
        """
        try:
            entries = [(entry.name + "/" if entry.is_dir() else entry.name, entry) for entry in os.scandir(folder)]
        except FileNotFoundError:
            return
        for entry_name, entry in sorted(entries, key=lambda pair: pair[0]):
            name = folder_name + entry_name
            if entry_name.endswith("/"):
                if name < after and not after.startswith(name):
                    continue  # all that is in it sorts before *after*, too
                if name.startswith(prefix) or prefix.startswith(name):
                    yield from self._walk(Path(entry.path), name, prefix, after)
            elif name.startswith(prefix) and name > after and not entry_name.startswith(TEMPORARY_PREFIX):
                if entry.is_symlink():
                    continue
                try:
                    yield _info(name, entry.stat())
                except FileNotFoundError:
                    continue  # deleted since the folder was read


def _info(name: str, status: os.stat_result) -> ObjectInfo:
    etag = f"{status.st_mtime_ns:x}-{status.st_size:x}"
    return ObjectInfo(name, status.st_size, etag, datetime.fromtimestamp(status.st_mtime, UTC))


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other updates in *folder* out, of any thread, process or machine. The lock ends with the process that holds it."""
    with (folder / _LOCK_FILE).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sync_folder(folder: Path) -> None:
    """Make a new name in *folder* survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
