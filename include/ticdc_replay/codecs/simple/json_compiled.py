"""Rows of a known form in JSON, read by a msgspec decoder made for that form.

It takes exactly what the form has: table, version, type and columns, NOT NULL, the location of timestamps. Whatever differs is
left to ``json``, which reads every message; both read a row alike.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ticdc_replay.codecs.replaced_text import TEXTS, holds_replaced
from ticdc_replay.codecs.simple.forms import RowForm
from ticdc_replay.codecs.simple.messages import Checksum, ReadRow, RowMessage, SeenRow
from ticdc_replay.codecs.structs import struct
from ticdc_replay.domain.column_types import BINARY_TYPES
from ticdc_replay.domain.tso import MAX_TSO

_HEAD: list[Any] = [
    ("commitTs", Annotated[int, Meta(ge=0, le=MAX_TSO)]),
    ("buildTs", int),
    ("tableID", Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]),
]


def compile_rows(row: RowMessage, form: RowForm) -> ReadRow | None:
    """A reader of rows like *row*, which has *form*; None where msgspec can't express a column's name.

    What is generated is made of column positions alone.
    """
    columns = form.shape.columns
    timestamp = struct("Timestamp", [("location", Literal[form.locations]), ("value", str)], forbid_unknown_fields=True)
    fields = []
    for at, column in enumerate(columns):
        base = column.type.base
        kind = timestamp if base == "timestamp" else bytes if base in BINARY_TYPES else str
        fields.append((column.name, f"c{at}", kind if at in form.required else kind | None))
    fields.sort()  # msgspec looks for the next member first, and TiCDC sorts them
    names = {attribute: name for name, attribute, _ in fields}
    try:
        image = struct("Image", [field[1:] for field in fields], rename=names, forbid_unknown_fields=True)
    except ValueError:
        return None
    has_new, has_old = row.data is not None, row.old is not None
    images = [("data", image)] * has_new + [("old", image)] * has_old
    head = [
        ("version", Literal[1]),
        ("database", Literal[row.schema]),
        ("table", Literal[row.table]),
        ("type", Literal[row.operation.value.upper()]),
        ("schemaVersion", Literal[row.version]),
    ]
    message = struct(
        "Row",
        [*head, *_HEAD, *images, ("checksum", Checksum | UnsetType, UNSET), ("startTs", int | UnsetType, UNSET)],
        forbid_unknown_fields=True,
    )
    cells = eval(f"lambda image: ({''.join(map(_cell, range(len(columns)), columns))})")
    texts = [at for at, column in enumerate(columns) if column.type.base in TEXTS]
    doubtful = eval(f"lambda cells: {holds_replaced(texts)}")
    return _reader(msgspec.json.Decoder(message).decode, cells, doubtful, has_new, has_old)


def _cell(at: int, column: Any) -> str:
    if column.type.base == "timestamp":
        return f"None if image.c{at} is None else image.c{at}.value,"
    return f"image.c{at},"


def _reader(decode: Any, cells_of: Any, doubtful: Any, has_new: bool, has_old: bool) -> ReadRow:
    """*doubtful* cells have U+FFFD, which may stand for bytes that were lost: ``json`` finds out."""

    def read(content: bytes) -> SeenRow | None:
        try:
            row = decode(content)
        except (ValueError, RecursionError, NotImplementedError):  # the last: a version beyond 64 bits
            return None
        after = before = None
        if has_new:
            after = cells_of(row.data)
            if doubtful(after):
                return None
        if has_old:
            before = cells_of(row.old)
            if doubtful(before):
                return None
        sums = row.checksum
        return row.commitTs, row.tableID, None if sums is UNSET else sums, after, before

    return read
