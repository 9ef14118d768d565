"""Rows of a known form in Avro, read by a function made for that form.

The entries of a map come in any order, so each is looked up by its first bytes: length, name and branch. Whatever is not exactly
as the form has it, and whatever is rare (names or numbers of unusual length), is left to ``simple_avro``, which reads every
message; both read a row alike.
"""

from collections.abc import Callable
from typing import Any

from ticdc_replay.codecs.avro_reader import AvroError, varint
from ticdc_replay.codecs.simple_forms import RowForm
from ticdc_replay.codecs.simple_messages import Checksum, ReadRow, Row, SeenRow
from ticdc_replay.codecs.simple_values import DOUBLE, FLOAT, LONG, NULL, TIMESTAMP, UNSIGNED

_HEAD = b"\x16\x06\x06\x02"
"""Message, type DML, payload DML, version 1 (protocols: simple, section 5)."""
_ABSENT, _PRESENT = 0, 2
"""Branches of a union with null, as they stand in a message."""

_LENGTH = tuple(byte >> 1 if byte < 128 and not byte & 1 else -1 for byte in range(256))
"""By the first byte of a length: the length, -1 where it is negative or has more bytes."""
_HEADS = tuple(2 + (byte >> 1) for byte in range(256))
"""By the first byte of a name: how many bytes it, the name and a branch are."""
_TIMES = 24
_TIMES_MASK = int.from_bytes(b"\x80" * _TIMES, "little")
_TIMES_FORM = int.from_bytes((b"\x80" * 8 + b"\0") + (b"\x80" * 5 + b"\0") + (b"\x80" * 8 + b"\0"), "little")
"""commitTs, buildTs and schemaVersion as varints of 9, 6 and 9 bytes, as long as they have been: which bytes go on."""
_MISSING = b"this cell is not in the map"
_MAX_MOMENTS = 10_000
_MAX_SUM = (1 << 32) - 1

_Cells = Callable[[bytes, int], tuple[tuple[Any, ...], int]]
"""Reads the map at a position: its cells in the order of the form, and the position after it."""


def route_of(data: bytes) -> bytes | None:
    """What a row begins with, up to its type: the names and the physical id of its table. None for another message."""
    if data[:4] != _HEAD:
        return None
    try:
        at = 5 + (data[4] >> 1)
        at += 1 + (data[at] >> 1)
        while data[at] > 127:
            at += 1
    except IndexError:
        return None
    return data[: at + 1]


def compile_rows(row: Row, form: RowForm) -> ReadRow | None:
    """A reader of rows like *row*, which has *form*; None where names are so long that ``route_of`` does not see them."""
    route = b"".join(
        (
            _HEAD, _string(row.schema), _string(row.table), _varint(row.table_id)
        )
    )  # fmt: skip
    names = [_string(name) for name in form.shape.names]
    if route_of(route + bytes(8)) != route or any(name[0] > 127 for name in names):
        return None
    return _reader(len(route) + 1, row, _compile_cells(names, form))


def _reader(start: int, row: Row, cells_of: _Cells) -> ReadRow:
    version = _varint(row.version)
    has_new, has_old = row.data is not None, row.old is not None
    table_id = row.table_id
    end = start + _TIMES
    moments: dict[bytes, int] = {}  # rows of one transaction are mostly written in the same millisecond

    def read(data: bytes) -> SeenRow | None:
        times = data[start:end]
        commit_ts = moments.get(times)
        sums = after = before = None
        try:
            if commit_ts is None:
                if int.from_bytes(times, "little") & _TIMES_MASK != _TIMES_FORM or times[15:] != version:
                    return None
                if len(moments) >= _MAX_MOMENTS:
                    moments.clear()
                commit_ts = moments[times] = varint(times, 0)[0]
            if data[end] or data[end + 1]:  # claim check, handle key only
                return None
            at = end + 3
            if data[end + 2]:
                sums, at = _checksum(data, end + 2)
            if has_new:
                if data[at] != _PRESENT:
                    return None
                after, at = cells_of(data, at + 1)
            elif data[at] != _ABSENT:
                return None
            else:
                at += 1
            if has_old:
                if data[at] != _PRESENT:
                    return None
                before, at = cells_of(data, at + 1)
            elif data[at] != _ABSENT:
                return None
            else:
                at += 1
        except (KeyError, IndexError, AvroError):
            return None
        if at != len(data) or commit_ts < 0:
            return None
        return commit_ts, table_id, sums, after, before

    return read


def _compile_cells(names: list[bytes], form: RowForm) -> _Cells:
    """The reader of maps of *form*, whose columns have *names* as they stand in a message. Hot: 0.35 µs an entry."""
    width = len(names)
    count = _varint(width)
    first = len(count)
    blank = [_MISSING] * width
    numbers, timestamps, reals, nulls = width, 2 * width, 3 * width, 4 * width
    entries: dict[bytes, int] = {}
    offsets = {LONG: numbers, UNSIGNED: numbers, TIMESTAMP: timestamps, FLOAT: reals, DOUBLE: reals}
    sizes = [8 if kind.branches == (DOUBLE,) else 4 for kind in form.kinds]
    for slot, (name, kind) in enumerate(zip(names, form.kinds, strict=True)):
        if slot not in form.required:
            entries[name + _varint(NULL)] = nulls + slot
        for branch in kind.branches:
            entries[name + _varint(branch)] = slot + offsets.get(branch, 0)
    locations = frozenset(map(_string, form.locations))
    lengths, heads = _LENGTH, _HEADS

    def cells_of(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        if data[at : at + first] != count:
            raise KeyError
        at += first
        cells: list[Any] = blank[:]
        for _ in blank:
            start = at + heads[data[at]]
            slot = entries[data[at:start]]
            if slot < numbers:
                length = data[start]
                start += 1
                if length > 127:
                    high = data[start]
                    if high > 127:  # of three bytes
                        raise KeyError
                    start += 1
                    length += (high - 1) << 7
                if length & 1:  # negative
                    raise KeyError
                at = start + (length >> 1)
                cells[slot] = data[start:at]
            elif slot < timestamps:
                value = data[start]
                at = start + 1
                if value > 127:  # what is taken off are the bits by which bytes go on
                    second = data[at]
                    at += 1
                    if second < 128:
                        value += (second << 7) - 0x80
                    else:
                        third = data[at]
                        at += 1
                        if third < 128:
                            value += (second << 7) + (third << 14) - 0x4080
                        else:
                            fourth = data[at]
                            fifth = data[at + 1]  # there is one: an entry is never the end of a message
                            if fourth < 128:
                                value += (second << 7) + (third << 14) + (fourth << 21) - 0x204080
                                at += 1
                            elif fifth < 128:
                                value += (second << 7) + (third << 14) + (fourth << 21) + (fifth << 28) - 0x10204080
                                at += 2
                            else:
                                cells[slot - numbers], at = varint(data, start)
                                continue
                cells[slot - numbers] = (value >> 1) ^ -(value & 1)
            elif slot < reals:
                at = start + 1 + lengths[data[start]]
                if data[start:at] not in locations:
                    raise KeyError
                start = at + 1
                at = start + lengths[data[at]]
                if at < start:
                    raise KeyError
                cells[slot - timestamps] = data[start:at]
            elif slot >= nulls:
                at = start
                cells[slot - nulls] = None
            else:
                at = start + sizes[slot - reals]
                cells[slot - reals] = data[start:at]
        if data[at] or at >= len(data) or _MISSING in cells:
            raise KeyError
        return tuple(cells), at + 1

    return cells_of


def _checksum(data: bytes, at: int) -> tuple[Checksum, int]:
    """The union with a checksum that starts at *at*."""
    if data[at] != _PRESENT:
        raise KeyError
    _, at = varint(data, at + 1)
    corrupted = data[at]
    current, at = varint(data, at + 1)
    previous, at = varint(data, at)
    if corrupted > 1 or not (0 <= current <= _MAX_SUM and 0 <= previous <= _MAX_SUM):
        raise KeyError
    return Checksum(current, previous, corrupted == 1), at


def _varint(number: int) -> bytes:
    """*number* as it stands in a message."""
    bits = (number << 1) ^ (number >> 63)
    content = bytearray()
    while bits > 127:
        content.append(bits & 0x7F | 0x80)
        bits >>= 7
    content.append(bits)
    return bytes(content)


def _string(text: str) -> bytes:
    content = text.encode()
    return _varint(len(content)) + content
