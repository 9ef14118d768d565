"""Rows of a known form, read by a msgspec decoder made for that form.

A form is the columns of an image with type codes, flags and handle-key marks. Its decoder refuses whatever does not have
exactly this form, so that nothing is read wrongly after a schema change; such rows go to ``members``.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from ticdc_replay.codecs.open.values import FLAG_NULLABLE, OpenCellKind, cell_kind
from ticdc_replay.codecs.replaced_text import REPLACED, TEXTS, holds_replaced
from ticdc_replay.codecs.structs import struct
from ticdc_replay.domain.events import Shape

_ZERO_SIGN = re.compile(rb'"v"\s*:\s*-0\s*[,}]').search


class ColumnForm(NamedTuple):
    """One column of a form."""

    name: str
    code: int
    flags: int
    is_handle_key: bool


class CompiledForm(NamedTuple):
    """How rows of one form are read: ``decode`` the bytes, then pull the cells of an image out of the struct."""

    shape: Shape
    decode: Callable[[bytes], Any]
    """Reads a value into a struct with ``u``, ``p`` and ``d``, each UNSET or a struct. Raises ValueError for another form."""
    cells: Callable[[Any], tuple[Any, ...]]
    old_cells: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
    """The cells of ``p``; those that are missing are taken from the new cells, the second argument."""
    doubtful: Callable[[tuple[Any, ...], bytes], bool]
    """Whether cells may have lost something: the sign of a zero, as msgspec reads ``-0`` as 0, or bytes that U+FFFD replaced."""


def compile_form(columns: Sequence[ColumnForm], shape: Shape, only_updated_columns: bool) -> CompiledForm | None:
    """The reader of rows with *columns*; None where msgspec can't express a column's name or flags beyond 63 bits.

    With *only_updated_columns*, ``p`` may lack columns, and a NULL there that can be none is another form. Everything generated
    is made of column positions alone.
    """
    names = {f"c{at}": column.name for at, column in enumerate(columns)}
    types = [_column_struct(column.code, column.flags, column.is_handle_key) for column in columns]
    try:
        image = struct("Image", list(zip(names, types, strict=True)), rename=names, forbid_unknown_fields=True)
        old = image
        if only_updated_columns:
            changed = [
                type_ if column.flags & FLAG_NULLABLE else _column_struct(*column[1:], nullable=False)
                for type_, column in zip(types, columns, strict=True)
            ]
            optional = [(name, type_ | UnsetType, UNSET) for name, type_ in zip(names, changed, strict=True)]
            old = struct("OldImage", optional, rename=names, forbid_unknown_fields=True)
        row = struct(
            "Row", [("u", image | UnsetType, UNSET), ("p", old | UnsetType, UNSET), ("d", image | UnsetType, UNSET)]
        )
        decode = msgspec.json.Decoder(row).decode
    except (ValueError, NotImplementedError):
        return None
    width = range(len(columns))
    cells = eval(f"lambda image: ({''.join(f'image.c{at}.v,' for at in width)})")
    old_cells = eval(f"lambda image, new: ({''.join(f'image.c{at}.v,' for at in width)})")
    if only_updated_columns:
        one = "new[{0}] if image.c{0} is UNSET else image.c{0}.v,"
        old_cells = eval(f"lambda image, new: ({''.join(one.format(at) for at in width)})", {"UNSET": UNSET})
    return CompiledForm(shape, decode, cells, old_cells, _doubtful(columns))


def _doubtful(columns: Sequence[ColumnForm]) -> Callable[[tuple[Any, ...], bytes], bool]:
    kinds = [_kind(column.code, column.flags) for column in columns]
    floats = [at for at, kind in enumerate(kinds) if kind.type.base in ("float", "double")]
    texts = [at for at, kind in enumerate(kinds) if kind.type.base in TEXTS and kind.annotation is str]
    zero = " or ".join(f"cells[{at}] == 0" for at in floats) or "False"
    code = f"(({zero}) and zero_sign(value) is not None) or (({holds_replaced(texts)}) and REPLACED in value)"
    found: Callable[[tuple[Any, ...], bytes], bool] = eval(
        f"lambda cells, value: {code}", {"zero_sign": _ZERO_SIGN, "REPLACED": REPLACED}
    )
    return found


@lru_cache(maxsize=4096)
def _column_struct(code: int, flags: int, is_handle_key: bool, nullable: bool = True) -> Any:
    """A struct for one column object. ``h`` is there when true and only then; msgspec looks for the next member first."""
    mark: list[Any] = [("h", bool)] if is_handle_key else []
    annotation = _kind(code, flags).annotation
    fields = [("t", Literal[code]), *mark, ("f", Literal[flags]), ("v", annotation | None if nullable else annotation)]
    return struct("Column", fields, forbid_unknown_fields=True)


def _kind(code: int, flags: int) -> OpenCellKind:
    kind = cell_kind(code, flags)
    assert kind is not None, "a form is made of columns that were read before"
    return kind
