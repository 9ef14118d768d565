"""The row checksum that TiCDC sends with ``integrity-check-level = "correctness"`` (docs/protocols.md, Row checksums).

A CRC-32 over the cells of one image, column by column in the order of the columns' ids; NULL takes no part.
"""

import math
import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice, product
from typing import Any
from zlib import crc32

from ticdc_replay.codecs.local_times import in_utc
from ticdc_replay.domain.column_types import INTEGER_TYPES, ColumnType
from ticdc_replay.domain.events import Image
from ticdc_replay.domain.withheld import withheld

_MOST_READINGS = 64
"""Ways to read the ambiguous local times of one row that are tried; more than six such times are not doubted."""

_ENUM_OR_SET = frozenset({"enum", "set"})
_uint32 = struct.Struct("<I").pack
_double = struct.Struct("<d").pack
_single = struct.Struct("<f")

_Parts = tuple[bytes, ...]
_CellBytes = Callable[[Any], _Parts]


class RowChecksum:
    """Checks images of one shape. *types* are those of its columns, in the order of their ids; *zone* is TiCDC's (IANA)."""

    def __init__(self, types: Sequence[ColumnType], zone: str) -> None:
        self._cells = tuple(_cell_bytes(type_, zone) for type_ in types)

    def parts(self, values: Sequence[Any]) -> list[_Parts]:
        """What each of *values* adds to the checksum, in the order of the types; several where a local time has two meanings.

        *values* are in their neutral form (``domain.events.WireColumn``). Raises ValueError for one that is not of its type.
        """
        return [(b"",) if value is None else cell(value) for cell, value in zip(self._cells, values, strict=True)]

    def agrees(self, values: Sequence[Any], expected: int) -> bool:
        """Whether *expected* is the checksum of *values*, see ``parts``. A local time that clocks showed twice may be either."""
        return agrees(self.parts(values), expected)

    def damage(self, image: Image, sent: int) -> str:
        """Why *image* can't be the one that has the checksum *sent*; "" if it can."""
        try:
            values = [
                column.neutral((cell,))[0] for column, cell in zip(image.shape.columns, image.values, strict=True)
            ]
            is_right = self.agrees(values, sent)
        except ValueError as error:
            return f"row checksum {sent} can't be checked: {error}"
        return "" if is_right else f"row checksum {sent} is not that of the cells"


def agrees(parts: Sequence[_Parts], expected: int) -> bool:
    """Whether *expected* is the checksum of cells that add *parts*, in this order."""
    readings = list(islice(product(*(part for part in parts if len(part) > 1)), _MOST_READINGS + 1))
    if len(readings) > _MOST_READINGS:
        return True
    for reading in readings:
        chosen = iter(reading)
        if crc32(b"".join(part[0] if len(part) == 1 else next(chosen) for part in parts)) == expected:
            return True
    return False


def _cell_bytes(type_: ColumnType, zone: str) -> _CellBytes:
    base = type_.base
    if base in INTEGER_TYPES or base in ("year", "bit"):
        return _number
    if base == "float":
        return _float
    if base == "double":
        return _real
    if base in _ENUM_OR_SET:
        return partial(_numbered, type_)
    if base == "timestamp":
        return partial(_timestamp, zone)
    if base == "vector":
        return _vector
    return _text


def _number(value: int) -> _Parts:
    return ((value & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little"),)


def _real(value: float) -> _Parts:
    return (_double(value if math.isfinite(value) else 0.0),)


def _float(value: float) -> _Parts:
    """A FLOAT counts as the double of its 32-bit number."""
    try:
        return _real(_single.unpack(_single.pack(value))[0])
    except OverflowError:
        raise ValueError(f"{withheld(value)} is not a 32-bit number") from None


def _numbered(type_: ColumnType, value: int | str | bytes) -> _Parts:
    """An enum or set counts by its number; protocols that carry names have the list of names too. Bytes are no names."""
    if isinstance(value, int):
        return _number(value)
    elements = type_.elements or ()
    try:
        if isinstance(value, bytes):
            raise ValueError("not UTF-8")
        if type_.base == "enum":
            return _number(elements.index(value) + 1 if value else 0)
        return _number(sum(1 << elements.index(name) for name in value.split(",") if name))
    except ValueError:
        raise ValueError(f"{withheld(value)} is not of {type_}") from None


def _text(value: str | bytes) -> _Parts:
    content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return (_uint32(len(content)) + content,)


def _vector(value: str) -> _Parts:
    numbers = [float(number) for number in value[1:-1].split(",")] if value != "[]" else []
    try:
        return (struct.pack(f"<I{len(numbers)}f", len(numbers), *numbers),)
    except OverflowError:
        raise ValueError(f"{withheld(value)} has more than 32-bit numbers") from None


def _timestamp(zone: str, value: str) -> _Parts:
    """A TIMESTAMP counts as its text in UTC. Zero and partial dates are not converted."""
    if value.endswith("Z"):
        return _text(value[:-1])
    return tuple(_text(text)[0] for text in in_utc(value, zone))
