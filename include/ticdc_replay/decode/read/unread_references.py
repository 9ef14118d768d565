"""Claim-check references that can't be followed: in messages that can't be decoded, and in locations that nobody understands.

The object of such a message is no orphan: it is needed once the message can be read or is mended by hand. So object names are
searched for in the bytes, and a message that may hold a name which can't be found counts as unsearched.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.canal.members import documents
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.open.framing import VERSION, split
from ticdc_replay.domain.events import Event, Reference, RowEvent, Undecodable
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.large_messages.compression import CompressionError, decompress
from ticdc_replay.large_messages.locations import object_name, object_names_in

NO_ORDINAL = -1
"""The ordinal of a reference that was found in a message from which no event could be read."""

_ESCAPE = re.compile(rb"\\(?:u00([0-7][0-9a-fA-F])|(/))")
_PLAIN = re.compile(rb'\s*(?:\{\s*["}]|\Z)')
"""How JSON begins. No LZ4 frame begins so, and a block of snappy can't: after its length it would copy what is not there."""
_MARKER, _OPEN_MARKER = b"claimCheckLocation", b'"ccl"'
_LOCATION = {
    _MARKER: re.compile(rb'claimCheckLocation"\s*:\s*"([^"]*)"'),
    _OPEN_MARKER: re.compile(rb'"ccl"\s*:\s*"([^"]*)"'),
}


class UnreadReferences(NamedTuple):
    """References that stand in the bytes of a message and in none of its events.

    ``complete`` is False where it may hold others, too: it is no JSON from end to end, compressed or not, and no frames of JSON,
    or has a location without a name of an object; and it is not plainly of a declared protocol that has none.
    """

    references: tuple[Reference, ...]
    complete: bool


_NONE = UnreadReferences((), complete=True)


class Unsearched:
    """The messages of a split that may need objects which nobody knows, in the order in which they were met."""

    def __init__(self) -> None:
        self._ranges: list[OffsetRange] = []

    def add(self, message: RawMessage) -> None:
        """Note *message*, once however often it is added in a row."""
        last = self._ranges[-1] if self._ranges else None
        if last is not None and (last.topic, last.partition) == (message.topic, message.partition):
            if last.start <= message.offset < last.end:
                return
            if last.end == message.offset:
                self._ranges[-1] = OffsetRange(last.topic, last.partition, last.start, last.end + 1)
                return
        self._ranges.append(OffsetRange(message.topic, message.partition, message.offset, message.offset + 1))

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """Their offsets."""
        return tuple(self._ranges)


def unread_references(message: RawMessage, events: Sequence[Event], codec: Codec) -> UnreadReferences:
    """The references that *message* holds beside those of *events*, which is what *codec* could decode of it.

    Its bytes are read as every protocol writes them, compressed or not, up to what the codec may decompress: what it can't read
    is often of another configuration of the changefeed. Too many are found rather than too few: each protects an object.
    """
    max_bytes = codec.decompressed_max_bytes
    if not any(isinstance(event, Undecodable) and event.reference is None for event in events):
        return _NONE
    raw_key, raw_value = message.key or b"", message.value or b""
    if max(len(raw_key), len(raw_value)) > max_bytes:
        return UnreadReferences((), complete=False)
    key = _ESCAPE.sub(_unescaped, raw_key)
    readings = _readings(raw_value, max_bytes)
    values = [_ESCAPE.sub(_unescaped, text) for text in readings]
    names = dict.fromkeys(name for text in (key, raw_value, *values) for name in object_names_in(text))
    # What is in frames refers to objects in its keys only, and what is not has no key that refers to any.
    whole = _are_frames(raw_key, raw_value) if raw_key.startswith(VERSION) else any(map(_is_json, readings))
    every_marker_has_its_name = _has_names(key, _OPEN_MARKER) and all(_has_names(text, _MARKER) for text in values)
    known = {
        event.reference.object_name
        for event in events
        if isinstance(event, RowEvent | Undecodable) and event.reference is not None
    }
    return UnreadReferences(
        tuple(Reference(name, name) for name in names if name not in known),
        complete=(every_marker_has_its_name and whole) or codec.has_no_location(message),
    )


def _has_names(text: bytes, marker: bytes) -> bool:
    """Whether each location after *marker* in *text* names an object; names elsewhere, such as in a row's key, don't count."""
    locations = _LOCATION[marker].findall(text)
    named = all(object_name(location.decode(errors="replace")) for location in locations)
    return named and len(locations) == text.count(marker)


def _are_frames(key: bytes, value: bytes) -> bool:
    try:
        for event, _ in split(key, value):
            msgspec.json.decode(event.decode(errors="replace"))  # texts may be no UTF-8
    except (MessageError, msgspec.DecodeError, RecursionError):
        return False
    return True


def _is_json(text: bytes) -> bool:
    """Whether *text* is objects of JSON from end to end, or nothing."""
    try:
        return not text or all(True for _ in documents(text))
    except MessageError:
        return False


def _readings(value: bytes, max_bytes: int) -> list[bytes]:
    """What *value* may say: itself where it is not compressed, or can't be decompressed."""
    if _PLAIN.match(value):
        return [value]
    return [*_decompressed(value, max_bytes)] or [value]


def _decompressed(value: bytes, max_bytes: int) -> Iterator[bytes]:
    for compression in ("lz4", "snappy"):
        try:
            yield decompress(value, compression, max_bytes)
        except CompressionError:
            continue


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return bytes((int(escape[1], 16),)) if escape[1] else b"/"
