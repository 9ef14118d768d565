"""The structs that msgspec reads rows of a known form into."""

from typing import Any

import msgspec


def struct(name: str, fields: Any, **options: Any) -> Any:
    """A struct without garbage collection: it holds no cycles, and a tenth of the time is saved."""
    return msgspec.defstruct(name, fields, gc=False, **options)
