"""How the native extension reads Canal-JSON."""

from typing import Any

import msgspec

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.fingerprints import seed_of
from ticdc_replay.codecs.native import NOT_AS_WRITTEN, NativeReader, Wire, is_plain
from ticdc_replay.domain.events import RowEvent, Shape
from ticdc_replay.domain.messages import RawMessage


class _Members(msgspec.Struct, gc=False):
    keys: list[str] | None = msgspec.field(name="pkNames")
    types: dict[str, str] = msgspec.field(name="mysqlType")


def native_reader(decoder: Any, changefeed: Changefeed) -> NativeReader:
    """The reader of a split of *changefeed*, with *decoder*."""
    wrapped = not changefeed.claim_check_raw_value

    def read_object(content: bytes, *event: Any) -> tuple[bool, bool]:
        taken, panicked = decoder.read_canal_object(content, wrapped, *event)
        return taken, panicked

    return NativeReader(
        read=decoder.read_canal,
        read_object=read_object,
        add_form=decoder.add_canal_form,
        wire=_wire,
        bytes_as=lambda base: "latin1",
        text_as=lambda base: "text",
        is_wrapped=wrapped,
    )


def _wire(message: RawMessage, row: RowEvent, shape: Shape) -> Wire | None:
    """The table is all before ``es``; of a column it is the name and ``mysqlType``."""
    value = message.value or b""
    try:
        found = msgspec.json.decode(value, type=_Members)
    except NOT_AS_WRITTEN:
        return None
    keys, types = found.keys, found.types
    names = (row.schema, row.table, *(keys or ()), *shape.names, *(types[name] for name in shape.names))
    if not all(map(is_plain, names)):
        return None
    type_ = row.operation.value.upper()
    listed = "null" if keys is None else "[" + ",".join(f'"{name}"' for name in keys) + "]"
    start = (
        f'{{"id":0,"database":"{row.schema}","table":"{row.table}","pkNames":{listed},"isDdl":false,"type":"{type_}"'
    ).encode()
    # Where a member comes twice, the last one counts, and what is written first says nothing of the row.
    if not value.startswith(start + b',"es":'):
        return None
    columns = tuple((name.encode(), types[name].encode()) for name in shape.names)
    return Wire(start, columns, seed_of(row.schema, row.table, type_))
