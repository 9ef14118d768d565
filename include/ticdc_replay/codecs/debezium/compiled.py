"""Rows of a known form, read by a msgspec decoder made for that form.

A form is a table's columns, how their cells are read, and the handle key. Its decoder refuses whatever does not have exactly this
form, so that nothing is read wrongly after a schema change; such rows go to ``json``.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from ticdc_replay.codecs.debezium.cells import Cells
from ticdc_replay.codecs.debezium.json import ChangeSource, as_text
from ticdc_replay.codecs.structs import struct

Doubtful = Callable[[tuple[Any, ...]], tuple[str, ...]]
"""The names of an image's cells that may be others than they seem, as ``before.x`` or ``after.x``."""

_NEGATIVE_ZERO = re.compile(rb":\s*-0\s*[,}]")


class CompiledForm(NamedTuple):
    """How rows of one form are read: ``decode`` the payload, then pull the cells of an image out of the struct."""

    decode: Callable[[bytes], Any]
    """Reads a payload into a struct with ``source``, ``op``, ``before`` and ``after``. Raises ValueError for another form."""
    cells: Callable[[Any], tuple[Any, ...]]
    decode_key: Callable[[bytes], tuple[Any, ...]]
    """The cells of a key's payload. Raises ValueError for another form."""
    key_cells: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    """Those of a row's cells that its key repeats."""
    may_have_lost_sign: Callable[[tuple[Any, ...], bytes], bool] | None
    """Whether a float among the cells is zero, and a ``-0`` in the payload: msgspec reads it as 0. None without floats."""


def compile_form(names: Sequence[str], cells: Sequence[Cells], key: Sequence[int]) -> CompiledForm | None:
    """The reader of rows with the columns *names*; None where msgspec can't express a column's name.

    *key* are the positions of the handle key's columns. Everything generated is made of column positions alone.
    """
    width = range(len(names))
    try:
        image = _image("Image", names, cells, width)
        key_image = _image("Key", names, cells, key)
    except ValueError:
        return None
    payload = struct(
        "Payload",
        [
            ("source", ChangeSource),
            ("op", Literal["c", "u", "d"]),
            ("before", image | UnsetType | None, UNSET),
            ("after", image | UnsetType | None, UNSET),
        ],
    )
    pull = eval(f"lambda image: ({_pulled(cells, width)})", {"text_of": _text_of})
    pull_key = eval(f"lambda image: ({_pulled(cells, key)})", {"text_of": _text_of})
    decode_key = msgspec.json.Decoder(key_image).decode
    floats = [at for at in width if cells[at].type.base in ("float", "double")]
    zero = " or ".join(f"cells[{at}] == 0" for at in floats)
    return CompiledForm(
        msgspec.json.Decoder(payload).decode,
        pull,
        lambda data: pull_key(decode_key(data)),
        eval(f"lambda cells: ({''.join(f'cells[{at}],' for at in key)})"),
        eval(f"lambda cells, data: ({zero}) and search(data) is not None", {"search": _NEGATIVE_ZERO.search})
        if floats
        else None,
    )


def compile_doubts(names: Sequence[str], cells: Sequence[Cells], side: Literal["before", "after"]) -> Doubtful:
    """Tells which cells of an image are doubtful. Hot: about 0.1 µs a column that may be. Equal answers are one object."""
    operands: dict[str, Any] = {"answers": _Answers([f"{side}.{name}" for name in names])}
    lines = []
    for at, column in enumerate(cells):
        tests = []
        for number, doubt in enumerate(column.doubts):
            operand = f"o{at}_{number}"
            operands[operand] = doubt.operand
            tests.append(f"({doubt.test.format(v=f'v{at}', o=operand)})")
        if tests:
            lines.append(f"    v{at} = cells[{at}]\n    if {' or '.join(tests)}: found |= {1 << at}\n")
    if not lines:
        return lambda cells: ()
    exec(f"def doubtful(cells):\n    found = 0\n{''.join(lines)}    return answers[found]\n", operands)
    doubtful: Doubtful = operands["doubtful"]
    return doubtful


class _Answers(dict[int, tuple[str, ...]]):
    """Names by the bits of their positions."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, found: int) -> tuple[str, ...]:
        answer = self[found] = tuple(name for at, name in enumerate(self._names) if found >> at & 1)
        return answer


def _image(name: str, names: Sequence[str], cells: Sequence[Cells], places: Sequence[int]) -> Any:
    fields = []
    for at in places:
        annotation = cells[at].annotation
        fields.append((f"c{at}", msgspec.Raw if annotation is None else annotation | None))
    return struct(name, fields, rename={f"c{at}": names[at] for at in places}, forbid_unknown_fields=True)


def _pulled(cells: Sequence[Cells], places: Sequence[int]) -> str:
    return "".join(f"text_of(image.c{at})," if cells[at].annotation is None else f"image.c{at}," for at in places)


def _text_of(raw: msgspec.Raw) -> str | bytes | None:
    text = bytes(raw)
    if text[:1] not in b'"tfn':
        if text[:1] in b"{[":
            raise ValueError("a cell that is neither text nor number")
        return text.decode("ascii")
    value = msgspec.json.decode(text)
    return None if value is None else as_text(value)
