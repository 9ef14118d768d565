"""Reads JSON documents once in a transaction, and replaces them by compare-and-swap."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactNotFoundError, PermanentError
from ticdc_replay.storage import ObjectStore

T = TypeVar("T")


class DocumentStore:
    """Documents in *store* by name, as canonical JSON. For one thread.

    What was read is read again only after ``forget_reads``, or if this session has written it.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._reads: dict[str, Any] = {}

    def read(self, name: str, kind: type[T]) -> T | None:
        """The document *name*; None if it does not exist. Raises PermanentError for one that this version does not know."""
        if name not in self._reads:
            self._reads[name] = self.read_now(name, kind)
        found: T | None = self._reads[name]
        return found

    def read_now(self, name: str, kind: type[T]) -> T | None:
        """As ``read``, always from the store. Thread-safe."""
        try:
            return self._decoded(name, self.store.get(name), kind)
        except ArtifactNotFoundError:
            return None

    def update(self, name: str, kind: type[T], change: Callable[[T | None], T]) -> None:
        """Replace the document by *change* of it, as ``ObjectStore.update`` does."""

        def changed(found: bytes | None) -> bytes:
            return canonical.encode(change(None if found is None else self._decoded(name, found, kind)))

        self._reads.pop(name, None)
        self.store.update(name, changed)

    def _decoded(self, name: str, content: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.ValidationError as error:
            raise PermanentError(
                f"{self.store.uri(name)}, of the ledger of lake tables: {error}. A newer version has written it: use that one "
                "here, too"
            ) from error

    def put(self, name: str, document: object) -> None:
        """Make *document* that called *name*."""
        self._reads.pop(name, None)
        self.store.put(name, canonical.encode(document))

    def delete(self, name: str) -> None:
        """Remove the document, if it exists."""
        self._reads.pop(name, None)
        self.store.delete(name)

    def forget_reads(self) -> None:
        """Have everything read again."""
        self._reads.clear()
