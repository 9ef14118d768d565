"""Claim-check objects, whatever the protocol: their wrapper, and whether an object is of the message that refers to it."""

import re
from typing import Any

import msgspec

from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.members import pairs_decoder
from ticdc_replay.domain.events import Event, Image, LargeMessage, Operation, RowEvent, Shape, Undecodable


class Wrapped(msgspec.Struct):
    """What a wrapped claim-check object holds: what would have been the Kafka record."""

    key: bytes | None
    value: bytes


class SharedImage(Image):
    """An image of an object that many rows may refer to. Keys are computed once for all of them."""

    _key: tuple[Any, ...] | str | None = None
    _by_handle_key: dict[tuple[str, ...], "SharedImage"] | None = None

    def key(self) -> tuple[Any, ...]:
        """As ``Image.key``; the same one each time. Raises ValueError, with a part of its text."""
        if self._key is None:
            try:
                self._key = super().key()
            except ValueError as error:
                self._key = str(error)[:_MOST_DETAIL]
        if isinstance(self._key, str):
            raise ValueError(self._key)
        return self._key

    def with_handle_key(self, names: tuple[str, ...]) -> "SharedImage":
        """This image with the handle key *names*; the same one each time, but for rows with many others."""
        known = self._by_handle_key
        if known is None or (len(known) >= _MOST_HANDLE_KEYS and names not in known):
            known = self._by_handle_key = {}
        if names not in known:
            columns = tuple(column._replace(is_handle_key=column.name in names) for column in self.shape.columns)
            known[names] = SharedImage(Shape(columns), self.values)
        return known[names]


class _Object(msgspec.Struct):
    pass


_OBJECT = msgspec.json.Decoder(_Object)
_WRAPPER = msgspec.json.Decoder(Wrapped)
_PAIRS = pairs_decoder()
_SHOWN_CHARACTERS, _SHOWN_CELLS = 200, 8
_MOST_DETAIL = 2_000
_MOST_HANDLE_KEYS = 16
_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]")


def may_refer(value: bytes) -> bool:
    """Whether the JSON object *value* may have a member ``claimCheckLocation``; also where it is no object from end to end."""
    return b"claimCheckLocation" in value or may_name_object(value) or not is_object(value)


def may_name_object(text: bytes) -> bool:
    """Whether something in *text* ends as the name of an object does, as damage may hide what it is. Cheap: 1 µs for 1 kB.

    Also where letters are escaped.
    """
    return b".json" in text or has_escaped_letter(text)


def has_escaped_letter(text: bytes) -> bool:
    """Whether a letter in *text* may be escaped. TiCDC escapes none, but a member that is written so is the same for JSON."""
    return b"\\u00" in text and _ESCAPED_LETTER.search(text) is not None


def is_object(text: bytes) -> bool:
    """Whether *text* is one JSON object from end to end; 1 µs for 1 kB."""
    try:
        _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def states_once(document: bytes, name: str) -> bool:
    """Whether the JSON object *document* has one member called *name*: of two, parsers return the last,
    and nothing would refer to the other object. False for what is no JSON object."""
    try:
        members = _PAIRS.decode(document.decode(errors="surrogateescape"))
    except (ValueError, RecursionError):
        return False
    return isinstance(members, tuple) and [member for member, _ in members].count(name) == 1


def unwrap(content: bytes) -> Wrapped:
    """Key and value in the object *content*, which is JSON with base64; compressed as the message would have been.

    Raises MessageError where it is no such JSON.
    """
    try:
        return _WRAPPER.decode(content)
    except (ValueError, RecursionError) as error:
        raise MessageError("claim_check_unreadable", str(error)) from None


def shared(found: Event) -> Event:
    """*found*, read from an object, for many rows: the time for each depends on the row, not on the object."""
    if not isinstance(found, RowEvent):
        return found
    after, before = (image and SharedImage(*image) for image in (found.after, found.before))
    return found._replace(after=after, before=before)


def in_place_of(small: RowEvent, found: Event) -> Event:
    """What stands in the place of *small*, now that *found* was read from the object it refers to.

    The whole row, with the ordinal and reference of *small*. An ``Undecodable`` where *found* is one, is no whole row
    (``claim_check_unreadable``), or is of another event than *small* (``claim_check_mismatch``).
    """
    if isinstance(found, Undecodable):
        return _refused(small, found.reason, found.detail)
    if not isinstance(found, RowEvent):
        return _refused(small, "claim_check_unreadable", f"a {type(found).__name__} instead of a row")
    if found.large is not None:
        return _refused(small, "claim_check_unreadable", "a reduced row instead of a whole one")
    try:
        different = difference(small, found)
    except ValueError as error:
        return _refused(small, "bad_cell", f"handle key: {error}")
    if different is not None:
        return _refused(small, "claim_check_mismatch", f"not of the message that refers to it: {different}")
    return found._replace(ordinal=small.ordinal, large=LargeMessage.CLAIM_CHECK, reference=small.reference)


def difference(small: RowEvent, whole: RowEvent) -> str | None:
    """What shows that *whole* is of another event than *small*; None if nothing does.

    An ``UPSERT`` may turn out to be an update: of an update that left the key alone, the reduced old image can be empty.
    Raises ValueError for a handle key that can't be of its columns' types.
    """
    for name, mine, its in (
        ("schema", small.schema, whole.schema),
        ("table", small.table, whole.table),
        ("commitTs", small.commit_ts, whole.commit_ts),
    ):
        if mine != its:
            return f"{name} {_shown(its)} instead of {_shown(mine)}"
    if small.operation is not whole.operation and (small.operation, whole.operation) != (
        Operation.UPSERT,
        Operation.UPDATE,
    ):
        return f"operation {whole.operation} instead of {small.operation}"
    for name, reduced, image in (("new", small.after, whole.after), ("old", small.before, whole.before)):
        if reduced is None or image is None:
            continue
        if reduced.shape.handle_key != image.shape.handle_key:
            return f"handle key {_shown(image.shape.handle_key)} instead of {_shown(reduced.shape.handle_key)}"
        if reduced.key() != image.key():
            return f"another {name} handle key"
    return None


def _shown(value: Any) -> str:
    """*value* as Python writes it, of long texts and many cells the first: they may be as large as an object."""
    if isinstance(value, tuple) and len(value) > 1:
        shown = ", ".join(map(_shown, value[:_SHOWN_CELLS]))
        return f"({shown}{', …' if len(value) > _SHOWN_CELLS else ''})"
    if isinstance(value, tuple):
        return f"({_shown(value[0])},)" if value else "()"
    if isinstance(value, str | bytes) and len(value) > _SHOWN_CHARACTERS:
        return f"{value[:_SHOWN_CHARACTERS]!r}…"
    return repr(value)


def _refused(small: RowEvent, reason: str, detail: str) -> Undecodable:
    name = small.reference.object_name if small.reference else ""
    detail = f"claim-check object {name!r} of event {small.ordinal}: {detail[:_MOST_DETAIL]}"
    return Undecodable(small.ordinal, reason, detail, small.commit_ts, small.schema, small.table)
