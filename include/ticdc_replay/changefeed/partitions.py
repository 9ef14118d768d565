"""The partition of a row, as TiCDC computes it.

CRC-32 of schema and table, XOR for each dispatch column the CRC-32 of its name and the text of its value, modulo the
number of partitions. The two architectures differ in details, and nothing on the wire shows which wrote a message. So
what is computed is a set of partitions, and only a row outside it is in a wrong one.
"""

import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple
from zlib import crc32
from zoneinfo import ZoneInfo

from ticdc_replay.changefeed.rules import Dispatch
from ticdc_replay.domain.events import Image, RowEvent, WireColumn
from ticdc_replay.domain.tables import TableSchema

_NULL = "null"


class _Texts(NamedTuple):
    """The text of one cell to either architecture. All cells of a row were written by the same one."""

    classic: bytes
    new: bytes


def table_hash(schema: str, table: str) -> int:
    """What the names of a table give, an unsigned 32-bit number."""
    return crc32(table.encode("utf-8", "surrogateescape"), crc32(schema.encode("utf-8", "surrogateescape")))


def cell_hash(column: str, value: bytes) -> int:
    """What a dispatch column adds (XOR)."""
    return crc32(value, crc32(column.encode("utf-8", "surrogateescape")))


def partitions_of(
    row: RowEvent, dispatch: Dispatch, count: int, timezone: str, schema: TableSchema | None = None
) -> frozenset[int] | None:
    """The partitions, of *count*, that *row* may have been sent to; None if that is unknown.

    *timezone* is the changefeed's. *schema* is the table's, if its definition is known: it has the order of columns.

    The partitions are unknown for rules that name an index, for tables with a column selector, and for routed tables with an
    unknown upstream name. They are also unknown if TiCDC hashes a cell in another form than the protocol writes (names of enums),
    and for names and values that no table has (text that is not Unicode, a time on February 31).
    """
    try:
        return _partitions_of(row, dispatch, count, timezone, schema)
    except (ValueError, OverflowError):
        return None


def _partitions_of(
    row: RowEvent, dispatch: Dispatch, count: int, timezone: str, schema: TableSchema | None
) -> frozenset[int] | None:
    """As ``partitions_of``. Raises ValueError or OverflowError for a name or value that no table has."""
    source = dispatch.source_of(row.schema, row.table)
    image = row.after or row.before
    if source is None or image is None:
        return None
    rule = dispatch.rule_of(source)
    if rule.partition == "ts":
        return None if row.commit_ts is None else frozenset((row.commit_ts % count,))
    of_table = table_hash(*source)
    if rule.partition == "table":
        return frozenset((of_table % count,))
    if dispatch.selector_of(source) is not None:
        return None
    if rule.partition == "columns":
        hashes = _hashes_of_columns(image, rule.columns, of_table, timezone, schema)
    elif rule.index:
        return None
    else:
        hashes = _hashes_of_key(image, of_table, timezone)
    return None if hashes is None else frozenset(each % count for each in hashes)


def _hashes_of_key(image: Image, of_table: int, timezone: str) -> set[int] | None:
    classic = new = of_table
    for at in image.shape.handle_key_positions:
        column = image.shape.columns[at]
        texts = _texts(column, image.values[at], timezone)
        if texts is None:
            return None
        classic ^= cell_hash(column.name, texts.classic)
        new ^= cell_hash(column.name, texts.new)
    return {classic, new}


def _hashes_of_columns(
    image: Image, names: Sequence[str], of_table: int, timezone: str, schema: TableSchema | None
) -> set[int] | None:
    """With a column's own name and NULL as text (classic), or its name in lower case and NULL left out (new).

    The new architecture takes the cells from the first columns of the table, whichever are named: where these are not the named
    ones, what it computes is unknown.
    """
    first = [column.name.lower() for column in schema.columns[: len(names)]] if schema is not None else []
    if first != [name.lower() for name in names]:
        return None
    classic = new = of_table
    by_name = {column.name.lower(): at for at, column in enumerate(image.shape.columns)}
    for name in names:
        at = by_name.get(name.lower())
        if at is None:
            return None
        column, value = image.shape.columns[at], image.values[at]
        texts = _texts(column, value, timezone)
        if texts is None:
            return None
        classic ^= cell_hash(column.name, texts.classic)
        if value is not None:
            new ^= cell_hash(name.lower(), texts.new)
    return {classic, new}


def _texts(column: WireColumn, wire: object, timezone: str) -> _Texts | None:
    """What TiCDC hashes for a cell; None if the wire does not show it. Raises as ``_partitions_of``."""
    value = column.neutral((wire,))[0]
    kind = column.type.base
    if value is None:
        return _both(_NULL)
    if isinstance(value, bytes):
        return _Texts(value, value)
    if kind in ("enum", "set", "bit") and not isinstance(value, int):
        return None
    if isinstance(value, float):
        return _both(_go_float(value, single=kind == "float"))
    text = str(value)
    if kind == "timestamp" and text.endswith("Z"):
        text = _local(text, timezone)
    if kind == "time":
        return _Texts(text.encode(), text.partition(".")[0].encode())  # new drops the fraction
    return _both(text)


def _both(text: str) -> _Texts:
    encoded = text.encode("utf-8", "surrogateescape")
    return _Texts(encoded, encoded)


def _go_float(value: float, *, single: bool) -> str:
    """The shortest decimal that stands for *value*, without exponent."""
    text = repr(value)
    if single:
        # Between two floats nine digits may be nearer to the other one. Raises OverflowError beyond them, as "f" alone does not.
        (value,) = struct.unpack("<f", struct.pack("<f", value))
        packed = struct.pack("f", value)
        text = next(
            short for digits in range(1, 10) if struct.pack("f", float(short := f"{value:.{digits}g}")) == packed
        )
    plain = f"{Decimal(text):f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _local(text: str, timezone: str) -> str:
    """A timestamp in UTC as TiCDC's text in its own zone, with the fraction digits it has."""
    whole, dot, fraction = text.removesuffix("Z").partition(".")
    moment = datetime.fromisoformat(whole).replace(tzinfo=UTC).astimezone(ZoneInfo(timezone))
    return f"{moment:%Y-%m-%d %H:%M:%S}{dot}{fraction}"
