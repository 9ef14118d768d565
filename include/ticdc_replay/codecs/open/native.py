"""How the native extension reads Open Protocol."""

from typing import Any

import msgspec

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.fingerprints import seed_of
from ticdc_replay.codecs.native import NOT_AS_WRITTEN, NativeReader, Wire, is_plain
from ticdc_replay.codecs.open.framing import split
from ticdc_replay.domain.column_types import BaseType
from ticdc_replay.domain.events import RowEvent, Shape
from ticdc_replay.domain.messages import RawMessage

_LONG_TEXTS = ("tinytext", "text", "mediumtext", "longtext")


class _Column(msgspec.Struct, gc=False):
    t: int
    f: int
    h: bool = False


class _Row(msgspec.Struct, gc=False):
    u: dict[str, _Column] = {}
    d: dict[str, _Column] = {}


def native_reader(decoder: Any, changefeed: Changefeed) -> NativeReader:
    """The reader of a split with *decoder*; the options of *changefeed* change nothing."""
    return NativeReader(
        decoder.read_open, decoder.read_open_object, decoder.add_open_form, _wire, _bytes_as, _text_as, is_wrapped=True
    )


def _wire(message: RawMessage, row: RowEvent, shape: Shape) -> Wire | None:
    """The table is ``"scm":…,"tbl":…`` of the key; of a column it is all before its value."""
    _, value = split(message.key, message.value)[row.ordinal]
    if not all(map(is_plain, (row.schema, row.table, *shape.names))):
        return None
    try:
        members = msgspec.json.decode(value, type=_Row)
    except NOT_AS_WRITTEN:
        return None
    found = members.u if row.after is not None else members.d
    columns = []
    for name in shape.names:
        mark = '"h":true,' if found[name].h else ""
        columns.append((f'"{name}":{{"t":{found[name].t},{mark}"f":{found[name].f},"v":'.encode(),))
    table = f'"scm":"{row.schema}","tbl":"{row.table}"'.encode()
    return Wire(table, tuple(columns), seed_of(row.schema, row.table))


def _bytes_as(wire: BaseType) -> str:
    return "quoted" if wire in ("binary", "varbinary") else "base64"


def _text_as(wire: BaseType) -> str:
    return "base64_text" if wire in _LONG_TEXTS else "text"
