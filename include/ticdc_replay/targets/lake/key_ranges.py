"""Where the keys of staged rows lie, as conditions by which an engine leaves out files and rows of a table.

One range for all keys leaves out little: most windows change rows from anywhere and add new ones at one end, or at many
ends, where TiDB makes the keys (AUTO_RANDOM).
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.targets.lake.dialect import string

Range = tuple[Any, Any]
"""The smallest and the largest value of some keys: whole numbers, days or µs since 1970, or texts."""

RANGES = b"ticdc-replay.ranges"
"""Key of a Parquet file's metadata: the ranges of each key column, as JSON."""

_MOST = 32
"""Ranges of a column: a row of the table is compared with each of them."""
_GAP = 200
"""A gap between keys counts if it is at least this part of all that they span."""
_WHOLE_NUMBER = re.compile(r"int|bigint|decimal\(\d+,0\)")
_SUFFIXES = {"int": "", "big": "L", "dec": "BD"}
_EPOCH = datetime(1970, 1, 1)


class KeyRanges:
    """The ranges of the key columns of one file, from its batches."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, list[Range]]] = {}

    def add(self, column: str, type_name: str, cells: pa.Array) -> None:
        """Take in *cells* of *column*, staged for the type *type_name* of the table; none is null."""
        if len(cells) and (found := _ranges_of(cells)):
            _, before = self._found.get(column, ("", []))
            self._found[column] = type_name, joined([*before, *found])

    def metadata(self) -> dict[str, str]:
        """What the metadata of the file says of them."""
        return {RANGES.decode(): json.dumps(self._found)}


def common_ranges(files: Sequence[Mapping[bytes, bytes]], column: str, type_name: str) -> list[Range]:
    """The ranges of *column* in all of the files with these metadata. None where one of them has it in another type than
    *type_name*, or in one without an order by which engines skip files."""
    found = [json.loads(metadata[RANGES]).get(column) for metadata in files]
    if not found or any(each is None or each[0] != type_name for each in found):
        return []
    return joined([(low, high) for _, ranges in found for low, high in ranges])


def joined(ranges: Sequence[Range]) -> list[Range]:
    """Ascending ranges that hold all of *ranges*, with the widest gaps between them."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    if isinstance(merged[0][0], str):
        return [(merged[0][0], merged[-1][1])]
    lows, highs = ([each[end] for each in merged] for end in (0, 1))
    gaps = np.array([low - high for low, high in zip(lows[1:], highs[:-1], strict=True)], dtype=object)
    return _split(lows, highs, gaps)


def in_ranges(name: str, type_name: str, ranges: Sequence[Range]) -> str:
    """That the column with the SQL *name* and the type *type_name* lies in one of *ranges*."""
    found = []
    for low, high in ranges:
        first, last = _literal(type_name, low), _literal(type_name, high)
        found.append(f"{name} = {first}" if low == high else f"{name} >= {first} AND {name} <= {last}")
    return f"({' OR '.join(found)})"


def in_list(name: str, type_name: str, cells: pa.Array) -> str:
    """That the column has one of *cells*, which are of a type that has ranges."""
    unique = pc.unique(cells)
    numbers = _numbers(unique)
    values = unique if numbers is None else numbers
    return f"{name} IN ({', '.join(_literal(type_name, value) for value in values.to_pylist())})"


def _ranges_of(cells: pa.Array) -> list[Range]:
    if pa.types.is_string(cells.type):
        least, most = (end.as_py() for end in pc.min_max(cells).values())
        return [(least, most)]
    numbers = _numbers(cells)
    if numbers is None:
        return []
    if not pa.types.is_int64(numbers.type):  # of more than 64 bits
        least, most = (int(end.as_py()) for end in pc.min_max(numbers).values())
        return [(least, most)]
    values = np.unique(numbers.to_numpy())
    # Without sign: the widest gap does not fit a signed number.
    return _split(values, values, np.diff(values.view(np.uint64)))


def _numbers(cells: pa.Array) -> pa.Array | None:
    """*cells* as whole numbers, None where their type has no such."""
    if pa.types.is_date(cells.type):
        cells = cells.cast(pa.int32())
    if pa.types.is_integer(cells.type) or pa.types.is_timestamp(cells.type):
        return cells.cast(pa.int64())
    if not pa.types.is_decimal(cells.type) or cells.type.scale:
        return None
    try:
        return cells.cast(pa.int64())
    except pa.ArrowInvalid:
        return cells


def _split(lows: Any, highs: Any, gaps: Any) -> list[Range]:
    """Ranges from the ascending *lows* to *highs*, parted where *gaps*, which lie between them, are widest."""
    first, last = int(lows[0]), int(highs[-1])
    wide = np.flatnonzero(gaps >= max(2, (last - first) // _GAP))
    widest = np.sort(wide[np.argsort(gaps[wide])[1 - _MOST :]]).tolist()
    begins = [first, *(int(lows[at + 1]) for at in widest)]
    ends = [*(int(highs[at]) for at in widest), last]
    return list(zip(begins, ends, strict=True))


def _literal(type_name: str, value: Any) -> str:
    if _WHOLE_NUMBER.fullmatch(type_name):
        return f"{value}{_SUFFIXES[type_name[:3]]}"
    if type_name == "date":
        return f"DATE '{date(1970, 1, 1) + timedelta(days=value)}'"
    if type_name in ("timestamp", "timestamp_ntz"):
        moment = (_EPOCH + timedelta(microseconds=value)).isoformat(" ", "microseconds")
        return f"TIMESTAMP_NTZ '{moment}'" if type_name == "timestamp_ntz" else f"TIMESTAMP '{moment}Z'"
    return string(value)
