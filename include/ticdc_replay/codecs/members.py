"""JSON with all its members, repeated ones too, which ordinary parsers lose."""

import json
from typing import Any

from ticdc_replay.codecs.errors import MessageError

Object = tuple[tuple[str, Any], ...]
"""A JSON object with all its members, repeated ones too."""


def pairs_decoder(**numbers: Any) -> json.JSONDecoder:
    """A decoder that gives an ``Object`` for each object. *numbers* may be ``parse_int`` and ``parse_float``."""
    return json.JSONDecoder(object_pairs_hook=tuple, parse_constant=_no_constant, **numbers)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def as_object(value: Any, where: str) -> Object:
    """*value*, which such a decoder gave, as an object. Raises MessageError, which names *where*."""
    if not isinstance(value, tuple):
        raise MessageError("bad_value", f"{where} is not an object")
    return value
