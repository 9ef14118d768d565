"""The contract of a protocol's native reader: how the extension reads its messages, and what it has to know of rows of one form.

It knows the functions of the extension's ``Decoder`` for its protocol; ``decode.read.native`` does the rest for all.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ticdc_replay.domain.column_types import BaseType
from ticdc_replay.domain.events import RowEvent, Shape
from ticdc_replay.domain.limits import is_unicode
from ticdc_replay.domain.messages import RawMessage

NOT_AS_WRITTEN = (ValueError, RecursionError)
"""What a parser raises for a message that the codec made sense of some other way."""
_NOT_PLAIN = frozenset('"\\') | {chr(code) for code in range(32)}


class Wire(NamedTuple):
    """How rows of a form look on the wire."""

    table: bytes
    """What names their table, and stands where the protocol has it."""
    columns: tuple[tuple[bytes, ...], ...]
    """By column, what stands before its value, or says what the value is."""
    seed: int
    """Of fingerprints, see the codecs."""


class NativeReader(NamedTuple):
    """How the rows of one split are read natively."""

    read: Callable[[list[RawMessage]], Any]
    """The ``Decoder``'s function for messages."""
    read_object: Callable[..., tuple[bool, bool]]
    """Its function for a claim-check object: takes content and row, returns whether it took them and whether it panicked."""
    add_form: Callable[..., None]
    """Its function that learns a form of rows."""
    wire: Callable[[RawMessage, RowEvent, Shape], Wire | None]
    """How rows like this one, which came in this message, look; None where they are not as TiCDC writes them."""
    bytes_as: Callable[[BaseType], str]
    """The extension's name of how cells of a binary type are written that have this type on the wire."""
    text_as: Callable[[BaseType], str]
    """As ``bytes_as``, of character types and JSON."""
    is_wrapped: bool
    """Whether a claim-check object holds key and value in JSON, rather than the value alone."""


def is_plain(text: str) -> bool:
    """Whether JSON has *text* as it is."""
    return is_unicode(text) and _NOT_PLAIN.isdisjoint(text)
