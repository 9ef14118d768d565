"""JSON documents that are named by their content: ``<beginning><sha256>.json``."""

from typing import Any, TypeVar

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.storage.base import ObjectStore

T = TypeVar("T")


def put_document(store: ObjectStore, beginning: str, value: Any) -> str:
    """Put *value* as canonical JSON; its name. A repeat does no harm."""
    content = canonical.encode(value)
    name = f"{beginning}{canonical.digest(content)}.json"
    store.put_once(name, content)
    return name


def read_documents(store: ObjectStore, beginning: str, kind: type[T]) -> list[T]:
    """All documents whose names have this *beginning*. Raises msgspec.ValidationError with the path inside the document."""
    return [msgspec.json.decode(store.get(info.name), type=kind) for info in store.list(beginning)]
