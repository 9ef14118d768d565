"""Rows of a known form, read by a msgspec decoder made for that form.

A form is a table, its columns with their ``mysqlType`` texts, the primary key's names and the type of change. Its decoder refuses
whatever does not have exactly this form, so that nothing is read wrongly after a schema change; such rows go to
``members``. The order of members does not matter, which for ``mysqlType`` is random.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ticdc_replay.codecs.replaced_text import TEXTS, holds_replaced
from ticdc_replay.codecs.structs import struct
from ticdc_replay.domain.tso import MAX_MS, MAX_TSO


class Columns(NamedTuple):
    """The columns of a form: names and ``mysqlType`` texts, in the order of ``data``."""

    names: tuple[str, ...]
    types: tuple[str, ...]


class RowForm(NamedTuple):
    """All that rows of one form have in common."""

    schema: str
    table: str
    pk_names: tuple[str, ...]
    type: str
    """INSERT, UPDATE or DELETE."""
    columns: Columns


class Extension(msgspec.Struct, gc=False):
    """``_tidb`` of a row."""

    commit_ts: Annotated[int, Meta(ge=0, le=MAX_TSO)] = msgspec.field(name="commitTs")
    only_handle_key: bool = msgspec.field(name="onlyHandleKey", default=False)
    claim_check: str | UnsetType = msgspec.field(name="claimCheckLocation", default=UNSET)


class CompiledForm(NamedTuple):
    """How rows of one form are read: ``decode`` the bytes, then pull the cells out of the struct."""

    decode: Callable[[bytes], Any]
    """Reads a document into a struct with ``es`` and ``tidb`` (Extension or UNSET). Raises ValueError for another form.

    The structs in ``data`` and ``old`` have the cells of the images, UNSET for those that ``old`` lacks.
    """
    filled: Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
    """Old cells, those that are UNSET taken from the new ones, the second argument."""
    holds_replaced: Callable[[tuple[Any, ...]], bool]
    """Whether text among the cells of a whole image has U+FFFD."""


def compile_form(form: RowForm, only_updated_columns: bool) -> CompiledForm | None:
    """The reader of rows of *form*; None where msgspec can't express a name.

    With *only_updated_columns*, ``old`` may lack columns. Everything generated is made of column positions alone.
    """
    images = _images(form.columns, only_updated_columns)
    if images is None:
        return None
    data, old, types = images
    pk_names = tuple(Literal[name] for name in form.pk_names)
    try:
        row = struct(
            "Row",
            [
                ("database", Literal[form.schema]),
                ("table", Literal[form.table]),
                ("pkNames", tuple[pk_names] if pk_names else tuple[()]),  # type: ignore[valid-type]
                ("isDdl", bool),
                ("type", Literal[form.type]),
                ("es", Annotated[int, Meta(ge=0, le=MAX_MS)]),
                ("mysqlType", types),
                ("data", tuple[data]),  # type: ignore[valid-type]
                ("old", tuple[old] if form.type == "UPDATE" else None),  # type: ignore[valid-type]
                ("tidb", Extension | UnsetType, UNSET),
            ],
            rename={"tidb": "_tidb"},
        )
        decode = msgspec.json.Decoder(row).decode
    except (ValueError, NotImplementedError):
        return None
    width = range(len(form.columns.names))
    filled = eval(
        f"lambda old, new: ({''.join(f'new[{at}] if old[{at}] is UNSET else old[{at}],' for at in width)})",
        {"UNSET": UNSET},
    )
    texts = [at for at, text in enumerate(form.columns.types) if text.partition("(")[0] in TEXTS]
    holds = eval(f"lambda cells: {holds_replaced(texts)}")
    return CompiledForm(decode, filled, holds)


@lru_cache(maxsize=4096)
def _images(columns: Columns, only_updated_columns: bool) -> tuple[Any, Any, Any] | None:
    """Structs for ``data``, ``old`` and ``mysqlType``."""
    names = {f"c{at}": name for at, name in enumerate(columns.names)}
    options: dict[str, Any] = {"rename": names, "forbid_unknown_fields": True}
    try:
        data = old = struct("Image", [(name, str | None) for name in names], **options)
        if only_updated_columns:
            old = struct("OldImage", [(name, str | UnsetType | None, UNSET) for name in names], **options)
        types = struct(
            "Types", [(name, Literal[text]) for name, text in zip(names, columns.types, strict=True)], **options
        )
    except ValueError:
        return None
    return data, old, types
