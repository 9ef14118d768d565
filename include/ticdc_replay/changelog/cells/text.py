"""Cells of text and bytes, and of enum and set where their names are known."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ticdc_replay.changelog.cells.judging import REFUSED, Converted, DoesNotFit, array_of, judged, refuse_other_kinds
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.withheld import withheld


class _Names(dict[Any, str | None]):
    """Wire value of an enum or set → its text; combinations of a set's names are made when first met.

    No two numbers have one text. Where the empty text is an element it is the text of an enum's element, not of 0, which stands
    for a value that was none; and of a set without members, not of one that has just this element.
    """

    def __init__(self, column_type: ColumnType) -> None:
        elements = column_type.elements or ()
        super().__init__({None: None, "": ""})
        self._set = elements if column_type.base == "set" else None
        if self._set is not None or "" not in elements:
            self[0] = ""
        if self._set is None:
            self.update(enumerate(elements, 1))
            self.update(zip(elements, elements, strict=True))

    def __missing__(self, key: Any) -> str:
        if self._set is None or not isinstance(key, (int, str)):
            raise KeyError(key)
        if isinstance(key, int):
            if not 0 < key < 1 << len(self._set):
                raise KeyError(key)
            text = ",".join(name for bit, name in enumerate(self._set) if key >> bit & 1)
            if not text:
                raise KeyError(key)
        else:
            if not all(name in self._set for name in key.split(",")):
                raise KeyError(key)
            text = key
        self[key] = text
        return text


def name_cells(values: Sequence[Any], column_type: ColumnType) -> Converted:
    """ENUM and SET whose names are known; the wire has the number or the name."""
    names = _Names(column_type)

    def build(fitting: Sequence[Any]) -> pa.Array:
        return pa.array(list(map(names.__getitem__, fitting)), pa.string())

    try:
        refuse_other_kinds(values, {int, str, type(None)})
        return Converted(build(values), {}, {})
    except REFUSED:
        pass

    def judge(value: Any) -> Any:
        if type(value) not in (int, str):
            raise ValueError(f"{withheld(value)} is neither a number nor a name of the {column_type.base}")
        try:
            return names[value]
        except KeyError:
            raise DoesNotFit(str(value).encode("utf-8", "surrogatepass")) from None

    return judged(values, judge, lambda fitting: pa.array(fitting, pa.string()))


def text_cells(values: Sequence[Any]) -> Converted:
    """Text. What is not UTF-8 does not fit."""
    try:
        return Converted(array_of(values, pa.string()), {}, {})
    except REFUSED:
        pass

    def judge(value: Any) -> str:
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise DoesNotFit(value.encode("utf-8", "surrogatepass")) from None
            return value
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise DoesNotFit(value) from None
        raise ValueError(f"{withheld(value)} is not text")

    return judged(values, judge, lambda fitting: pa.array(fitting, pa.string()))


def byte_cells(values: Sequence[Any]) -> Converted:
    """Bytes."""
    try:
        return Converted(array_of(values, pa.binary()), {}, {})
    except REFUSED:
        pass

    def judge(value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes):
            return value
        raise ValueError(f"{withheld(value)} is not a byte string")

    return judged(values, judge, lambda fitting: pa.array(fitting, pa.binary()))
