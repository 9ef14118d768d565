"""The complete reading of a Debezium document, member by member.

It keeps what ordinary parsers lose: the digits of numbers, the sign of ``-0``, and text that is not UTF-8. It takes some 50 µs a
row, so rows whose form is known go through ``compiled`` instead; both read a row alike.
"""

import json
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ticdc_replay.codecs.debezium.cells import Cells
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.members import as_object, pairs_decoder
from ticdc_replay.domain.limits import is_unicode
from ticdc_replay.domain.tso import MAX_TSO, physical_ms

_SURROGATE = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]")
_LONGEST_NUMBER = 1_000
"""Characters of one outside of images. The longest are those of doubles; Python reads integers up to 4,300 digits."""


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class ChangeSource(msgspec.Struct, gc=False):
    """``source`` of a payload: where and when a change was. Times in ms."""

    db: str
    table: str
    commit_ts: Annotated[int, Meta(ge=1, le=MAX_TSO)]
    ts_ms: int


_SOURCE_FIELDS = frozenset(ChangeSource.__struct_fields__)


class Document:
    """A key or a value: ``payload``, and ``schema``, which is None where schemas are off.

    Raises MessageError for what is no such document. A repeated member counts as it stands last: so classic TiCDC writes the
    default of a binary column.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self.raw = not _is_utf8(data)
        """Whether there are bytes that are not UTF-8. They become lone surrogates, which are looked for where text is used."""
        if self.raw and _SURROGATE.search(data):
            raise MessageError("bad_json", f"{what}: escaped surrogates beside bytes that are not UTF-8")
        try:
            members = _DECODER.decode(data.decode(errors="surrogateescape"))
        except ValueError as error:
            raise MessageError("bad_json", f"{what}: {error}") from None
        except RecursionError:
            raise MessageError("bad_json", f"{what}: nested too deeply") from None
        found = dict(members) if isinstance(members, tuple) else {}
        self.payload = dict(as_object(found.get("payload"), f"{what}: payload"))
        self.schema = plain(found["schema"]) if "schema" in found else None


def plain(value: Any) -> Any:
    """*value* as other JSON parsers give it. Raises MessageError for a number that none of them reads."""
    if isinstance(value, tuple):
        return {name: plain(member) for name, member in value}
    if isinstance(value, list):
        return [plain(member) for member in value]
    if isinstance(value, Number):
        if len(value) > _LONGEST_NUMBER:
            raise MessageError("bad_value", f"a number of {len(value)} characters, where none has as many")
        return json.loads(value)
    return value


def read_source(payload: dict[str, Any]) -> ChangeSource:
    """The source in *payload*. Raises MessageError, also where its time is not that of the commitTs."""
    members = plain(tuple(each for each in as_object(payload.get("source"), "source") if each[0] in _SOURCE_FIELDS))
    try:
        source = msgspec.convert(members, ChangeSource)
    except (ValueError, OverflowError) as error:
        raise MessageError("bad_value", f"source: {error}") from None
    if not is_unicode(source.db) or not is_unicode(source.table):
        raise MessageError("bad_value", "source: names that are not UTF-8")
    if physical_ms(source.commit_ts) != source.ts_ms:
        raise MessageError("bad_value", f"source: commit_ts {source.commit_ts} is not of the time {source.ts_ms} ms")
    return source


def read_image(value: Any, where: str) -> dict[str, Any]:
    """The columns of an image, as they are written. Raises MessageError."""
    image = dict(as_object(value, where))
    for name in image:
        if not is_unicode(name):
            raise MessageError("bad_value", f"{where}: the column name {name!r:.80} is not UTF-8")
    return image


def wire_value(value: Any, cells: Cells, raw: bool, where: str) -> Any:
    """What the compiled reader would give for a cell, or bytes for text that is not UTF-8. Raises MessageError.

    *raw* is whether the document has such text; where it has not, a lone surrogate is one that was written as such.
    """
    if value is None:
        return None
    if isinstance(value, tuple | list):
        raise MessageError("bad_cell", f"{where} is neither text nor number")
    try:
        if isinstance(value, str) and not raw and not is_unicode(value):
            raise ValueError("a lone surrogate")
        if cells.annotation is None:
            return as_text(value)
        if isinstance(value, Number):
            number = msgspec.json.decode(value.encode(), type=cells.annotation)
            return -0.0 if number == 0.0 and value.startswith("-") and isinstance(number, float) else number
        if isinstance(value, str) and not is_unicode(value):
            if not cells.text:
                raise ValueError("bytes that are not UTF-8")
            return value.encode(errors="surrogateescape")
        return msgspec.convert(value, cells.annotation)
    except (ValueError, OverflowError) as error:
        raise MessageError("bad_cell", f"{where}: {error} for {cells.type}") from None


def as_text(value: Any) -> str | bytes:
    """A cell of a column of unknown type as text: as it is on the wire, 1 and 0 for true and false."""
    if isinstance(value, bool):
        return "1" if value else "0"
    text = str(value)
    return text if is_unicode(text) else text.encode(errors="surrogateescape")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_DECODER = pairs_decoder(parse_int=Number, parse_float=Number)
