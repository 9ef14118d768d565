"""The contract of an object store: where artefacts live and where claim-check objects are read from."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from ticdc_replay.domain.errors import MissingAbilityError, ObjectAlteredError, ObjectTooLargeError

if TYPE_CHECKING:
    from ticdc_replay.storage.deletion import ObjectDeletion

NO_VERSION = "null"
"""The version id of an object that was written while its store kept no versions."""


class ObjectInfo(msgspec.Struct, frozen=True, order=True):
    """One stored object. ``name`` is relative to the store's root; ``size`` in bytes; ``etag`` as the store gives it."""

    name: str
    size: int
    etag: str
    last_modified: datetime
    version_id: str | None = None
    """Where the store keeps versions and was asked for them; ``NO_VERSION`` for an object from before it did."""

    def difference(self, expected: "ObjectInfo") -> str:
        """What this object differs in from *expected*, as text; empty where it is the same.

        Times are compared to the second, versions only if *expected* names one: not every request gives more.
        """
        if self.etag != expected.etag:
            return f"ETag {self.etag}, {expected.etag} expected"
        if self.size != expected.size:
            return f"{self.size} bytes, {expected.size} expected"
        if int(self.last_modified.timestamp()) != int(expected.last_modified.timestamp()):
            return f"last modified {self.last_modified}, {expected.last_modified} expected"
        if expected.version_id not in (None, self.version_id or NO_VERSION):
            return f"version {self.version_id}, {expected.version_id} expected"
        return ""


class ObjectStore(ABC):
    """Objects below one root URI. Thread-safe. Names are relative, with ``/`` between parts, never starting with one.

    Every method may raise TransientError (throttled, timed out, server away), AuthenticationError (the message names
    the connection) or PermanentError (bucket missing, access denied).
    """

    scheme: ClassVar[str]
    root: str
    """The URI of the root, without trailing slash."""

    def uri(self, name: str) -> str:
        """The URI of *name*."""
        return f"{self.root}/{name}"

    @abstractmethod
    def get(self, name: str, max_bytes: int | None = None, etag: str | None = None) -> bytes:
        """The content of *name*, in one request.

        Raises ArtifactNotFoundError, and before any content is read ObjectAlteredError where *etag* is given and is not the
        object's, and ObjectTooLargeError over *max_bytes*.
        """

    def fetch(self, name: str, max_bytes: int | None = None, etag: str | None = None) -> bytes:
        """As ``get``, for many objects from many threads."""
        return self.get(name, max_bytes, etag)

    @abstractmethod
    def info(self, name: str) -> ObjectInfo | None:
        """What is known of *name*, None where it does not exist."""

    @abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Store *content*, replacing what is there. A reader sees the old or the new content, never a part."""

    @abstractmethod
    def put_once(self, name: str, content: bytes) -> bool:
        """Store *content* if nothing is there, atomically. True if written, False if an equal object was there already.

        Raises ArtifactExistsError where another content is there.
        """

    @abstractmethod
    def update(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        """Store *change* of the content of *name*, None where nothing is there; of several writers none overwrites another's.

        Where another writer comes in between, *change* is called again with what that one left. Equal content is not written. An
        error that *change* raises leaves the object as it is. Raises TransientError where others never cease to write.
        """

    @abstractmethod
    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """The objects whose name starts with *prefix* and sorts after *after*, in order of name (by code point)."""

    @abstractmethod
    def folders(self, prefix: str) -> Iterator[str]:
        """The folders directly in the folder *prefix*, in order: whole names that end with a slash, as *prefix* does.

        Costs by their number, not by what they hold. In a file system some may be empty.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove *name*; nothing happens where it does not exist."""

    def deletion(self) -> "ObjectDeletion":
        """Deletion of objects that did not change since they were listed, and its undo: for claim-check stores.

        Raises MissingAbilityError if this kind of store does not support it.
        """
        raise MissingAbilityError(
            f"the store {self.root} can't delete an object on the condition that it did not change ({self.scheme}://); "
            "a claim-check store that is reconciled must be able to"
        )

    def require(self, name: str, found_etag: str, found_size: int, etag: str | None, max_bytes: int | None) -> None:
        """Raise ObjectAlteredError where *name* has another ETag than *etag*, ObjectTooLargeError over *max_bytes*."""
        if etag is not None and found_etag != etag:
            raise ObjectAlteredError(f"{self.uri(name)} has ETag {found_etag}, {etag} expected")
        if max_bytes is not None and found_size > max_bytes:
            raise ObjectTooLargeError(f"{self.uri(name)} has {found_size} bytes; at most {max_bytes} are allowed")

    @abstractmethod
    def now(self) -> datetime:
        """This moment by the clock that sets ``last_modified``, to the second (rounded down)."""

    @abstractmethod
    def arrow_filesystem(self) -> tuple[Any, str]:
        """A ``pyarrow.fs.FileSystem`` and the path of the root in it, for Parquet."""
