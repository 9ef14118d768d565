"""The contract of an object store: where artefacts live and where claim-check objects are read from."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar

import msgspec


class ObjectInfo(msgspec.Struct, frozen=True, order=True):
    """One stored object. ``name`` is relative to the store's root; ``size`` in bytes; ``etag`` as the store gives it."""

    name: str
    size: int
    etag: str
    last_modified: datetime


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
    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """The objects whose name starts with *prefix* and sorts behind *after*, in order of name (by code point)."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove *name*; nothing happens where it does not exist."""

    @abstractmethod
    def arrow_filesystem(self) -> tuple[Any, str]:
        """A ``pyarrow.fs.FileSystem`` and the path of the root in it, for Parquet."""
