"""The complete reading of a row's JSON, member by member.

It keeps what ordinary parsers lose: repeated members, the sign of ``-0``, integers of any size, and text that is not UTF-8. It
takes some 30 µs a row, so rows whose form is known go through ``compiled`` instead; both read a row alike.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.members import Object, as_object, pairs_decoder
from ticdc_replay.codecs.open.values import OpenCellKind, cell_kind, flags_of
from ticdc_replay.domain.limits import is_unicode
from ticdc_replay.domain.tables import Column, folded
from ticdc_replay.domain.withheld import withheld

_LONE_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]")
_NEGATIVE_ZERO = object()
"""``-0``: an integer for JSON, a float with a sign for the column."""


Declared = Mapping[str, Column]
"""The columns that a table's definition has, by their folded names."""


class Cell(NamedTuple):
    """One column object of a row: its type code, flags, whether ``h`` marks it, and its wire value."""

    code: int
    flags: int
    meant: int
    """The flags that count: those that the definition gives where there are none. New TiCDC keeps the flags of a table while
    its DDL passes by another node, or names the table and not its partitions: a column that it added or renamed has 0 then."""
    is_handle_key: bool
    kind: OpenCellKind
    value: Any


class Members(NamedTuple):
    """The images of a row as they are on the wire. None where the member is absent or, for u and d, empty."""

    u: dict[str, Cell] | None
    p: dict[str, Cell] | None
    d: dict[str, Cell] | None
    loose: tuple[tuple[int, int], ...]
    """Type code and flags of columns whose members stand in ``p`` without their names: a bug of new TiCDC."""


def read(value: bytes, declared: Declared) -> Members:
    """The images of the row in *value*, with the columns *declared* as far as they are known. Raises MessageError."""
    members = dict(as_object(_parse(value), "the value"))
    u = _image(members["u"], "u", declared) if "u" in members else None
    d = _image(members["d"], "d", declared) if "d" in members else None
    p: dict[str, Cell] | None = None
    loose: tuple[tuple[int, int], ...] = ()
    if "p" in members:
        columns = as_object(members["p"], "p")
        p = _image(tuple(pair for pair in columns if isinstance(pair[1], tuple)), "p", declared)
        loose = _loose(tuple(pair for pair in columns if not isinstance(pair[1], tuple)))
    return Members(u or None, p, d or None, loose)


def _parse(value: bytes) -> Any:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        if _LONE_ESCAPE.search(value):
            raise MessageError("bad_value", "escaped surrogates beside bytes that are not UTF-8") from None
        text = value.decode(errors="surrogateescape")
    try:
        return _DECODER.decode(text)
    except ValueError as error:
        raise MessageError("bad_value", f"not JSON: {error}") from None
    except RecursionError:
        raise MessageError("bad_value", "not JSON of a row: nested too deeply") from None


def _integer(text: str) -> Any:
    return _NEGATIVE_ZERO if text == "-0" else int(text)


def _real(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{withheld(text)} is out of the range of a double")
    return number


_DECODER = pairs_decoder(parse_int=_integer, parse_float=_real)


def _image(value: Any, member: str, declared: Declared) -> dict[str, Cell]:
    return {name: _cell(name, column, member, declared) for name, column in dict(as_object(value, member)).items()}


def _cell(name: str, value: Any, member: str, declared: Declared) -> Cell:
    where = f"column {name!r} of {member}"
    if not is_unicode(name):
        raise MessageError("bad_value", f"{where}: the name is not UTF-8")
    column = dict(as_object(value, where))
    code, flags, handle = column.get("t"), column.get("f"), column.get("h", False)
    if type(code) is not int or type(flags) is not int:
        raise MessageError("bad_value", f"{where}: t and f must be integers")
    if type(handle) is not bool:
        raise MessageError("bad_value", f"{where}: h must be true")
    if "v" not in column:
        raise MessageError("bad_value", f"{where} has no v")
    defined = declared.get(folded(name)) if flags == 0 else None
    meant = flags if defined is None else flags_of(code, defined)
    kind = cell_kind(code, meant)
    if kind is None:
        raise MessageError("unknown_column_type", f"{where} has the type code {code}, flags {flags}")
    return Cell(code, flags, meant, handle, kind, _wire_value(column["v"], kind, where))


def _wire_value(value: Any, kind: OpenCellKind, where: str) -> Any:
    """What msgspec would read for the cell, or bytes for text that is not UTF-8."""
    if value is _NEGATIVE_ZERO:
        value = -0.0 if kind.type.base in ("float", "double") else 0
    if isinstance(value, str) and not is_unicode(value):
        if not kind.text:
            raise MessageError("bad_cell", f"{where}: {kind.type} can't hold bytes that are not UTF-8")
        try:
            return value.encode(errors="surrogateescape")
        except UnicodeEncodeError:
            raise MessageError("bad_cell", f"{where}: lone surrogate") from None
    if isinstance(value, tuple):
        raise MessageError("bad_cell", f"{where}: an object instead of {kind.type}")
    try:
        return None if value is None else msgspec.convert(value, kind.annotation)
    except (ValueError, OverflowError) as error:
        raise MessageError("bad_cell", f"{where}: {error} for {kind.type}") from None


def _loose(members: Object) -> tuple[tuple[int, int], ...]:
    """The type codes and flags of column objects whose members were written straight into ``p``."""
    for name, value in members:
        if name not in ("t", "h", "f", "v"):
            raise MessageError("bad_value", f"column {name!r} of p is not an object")
        if name in ("t", "f") and type(value) is not int:
            raise MessageError("bad_value", f"{name} in p must be an integer")
    codes = [value for name, value in members if name == "t"]
    flags = [value for name, value in members if name == "f"]
    values = sum(name == "v" for name, _ in members)
    if not len(codes) == len(flags) == values:
        raise MessageError("bad_value", "members in p that make up no columns")
    return tuple(zip(codes, flags, strict=True))
