"""Forms of Simple's rows: one table version, with the columns that are sent, made ready for reading."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ticdc_replay.codecs.checksum import RowChecksum
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.local_times import zone_info
from ticdc_replay.codecs.neutral import Neutral
from ticdc_replay.codecs.simple.messages import Checksum, RowMessage
from ticdc_replay.codecs.simple.values import SimpleCellKind, cell_kind
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.events import Image, Operation, Shape, WireColumn
from ticdc_replay.domain.limits import refused_columns
from ticdc_replay.domain.tables import TableName

_MAX_FORMS = 10_000
_IMAGES = {Operation.INSERT: (True, False), Operation.UPDATE: (True, True), Operation.DELETE: (False, True)}
"""Which images a whole row has: a new one, an old one."""


class RowForm(NamedTuple):
    """How rows of one table version are read whose images have the same columns.

    ``kinds`` are in the order of the shape's columns: that of the definition. ``required`` are the positions of NOT NULL columns.
    ``locations`` are those that timestamps of the form may have.
    """

    shape: Shape
    kinds: tuple[SimpleCellKind, ...]
    required: frozenset[int]
    locations: tuple[str, ...]
    checksum: RowChecksum

    def damage(
        self, sums: Checksum | None, after: tuple[Any, ...] | None, before: tuple[Any, ...] | None, whole: bool
    ) -> str:
        """Why a row with the cells *after* and *before* can't be what the upstream has; "" if it can.

        Only *whole* images, whose cells are exact, can be compared with their sums.
        """
        for side, cells in (("after", after), ("before", before)):
            null = [at for at in self.required if cells is not None and cells[at] is None]
            if null:
                return f"{side}: NULL in {', '.join(self.shape.names[at] for at in sorted(null))}, which is NOT NULL"
        if sums is None:
            return ""
        if sums.corrupted:
            return "TiCDC itself found that the row disagrees with the upstream's checksum (corrupted)"
        if not whole:
            return ""
        return self._wrong_sum("after", after, sums.current) or self._wrong_sum("before", before, sums.previous)

    def _wrong_sum(self, side: str, cells: tuple[Any, ...] | None, sent: int) -> str:
        if cells is None or sent == 0:
            return ""
        damage = self.checksum.damage(Image(self.shape, cells), sent)
        return damage and f"{side}: {damage}"


class Forms:
    """The forms of a changefeed's rows, made when first met. *neutral_of* is the conversion of the encoding.

    *drops_columns*: a column selector may drop some, also of a primary key. Then rows have no identity.
    """

    def __init__(self, zone: str, neutral_of: Callable[[SimpleCellKind], Neutral], *, drops_columns: bool) -> None:
        self._zone = zone
        self._drops_columns = drops_columns
        self._neutral_of = neutral_of
        self._forms: dict[tuple[TableName, int, frozenset[str], bool, str | None], RowForm] = {}

    def form(self, definition: TableDefinition, names: frozenset[str], reduced: bool, location: str | None) -> RowForm:
        """The form of rows with the columns *names* and timestamps of *location*; *reduced* rows have the handle key alone.

        Columns of the definition that are not sent are virtual, or a column selector drops them. Raises MessageError:
        ``schema_mismatch``, or what says that no table has these columns.
        """
        foreign = None if location in (None, "Local", self._zone) else location
        key = (definition.name, definition.valid_from, names, reduced, foreign)
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            form = self._forms[key] = self._make(definition, names, reduced, foreign)
        return form

    def _make(self, definition: TableDefinition, names: frozenset[str], reduced: bool, foreign: str | None) -> RowForm:
        refusal = refused_columns(names)
        if refusal is not None:
            raise MessageError(*refusal)
        if foreign is not None:
            try:
                zone_info(foreign)
            except ValueError as error:
                raise MessageError("schema_mismatch", f"location of the timestamps: {error}") from None
        columns = [column for column in definition.columns if column.name in names]
        if len(columns) < len(names):
            unknown = ", ".join(sorted(names - {column.name for column in columns}))
            raise MessageError(
                "schema_mismatch",
                f"cells of columns that the schema of version {definition.valid_from} lacks: {unknown}",
            )
        handle_key = frozenset(names if reduced else _handle_key(definition, names, self._drops_columns))
        kinds = tuple(cell_kind(column.type, foreign) for column in columns)
        shape = Shape(
            tuple(
                WireColumn(column.name, column.type, column.name in handle_key, self._neutral_of(kind), kind.arrow)
                for column, kind in zip(columns, kinds, strict=True)
            ),
            definition,
        )
        return RowForm(
            shape,
            kinds,
            frozenset(at for at, column in enumerate(columns) if not column.nullable),
            (foreign,) if foreign is not None else (self._zone, "Local"),
            RowChecksum([column.type for column in columns], foreign or self._zone),
        )


def images_of(row: RowMessage, reduced: bool) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The new and the old image. A reduced row of a table without handle key has none in the message: they are empty then.

    Raises MessageError where the operation has other images.
    """
    has_new, has_old = _IMAGES[row.operation]
    data, old = row.data, row.old
    if reduced:
        data = {} if data is None and has_new else data
        old = {} if old is None and has_old else old
    if (data is not None, old is not None) != (has_new, has_old):
        sent = (
            " and ".join(name for name, image in (("data", data), ("old", old)) if image is not None)
            or "neither data nor old"
        )
        raise MessageError("bad_message", f"an {row.operation} with {sent}")
    return data, old


def image_names(images: Sequence[Mapping[str, Any] | None]) -> frozenset[str]:
    """The columns of *images*. Raises MessageError where they have not the same."""
    names = {frozenset(image) for image in images if image is not None}
    if len(names) > 1:
        raise MessageError("schema_mismatch", "the new and the old image have not the same columns")
    return next(iter(names), frozenset())


def _handle_key(definition: TableDefinition, sent: frozenset[str], drops_columns: bool) -> tuple[str, ...]:
    """The columns that TiCDC identifies rows by. A column that is not sent is virtual, no key for TiCDC, or dropped."""
    columns = tuple(
        column if column.name in sent else msgspec.structs.replace(column, generated="virtual")
        for column in definition.columns
    )
    key = msgspec.structs.replace(definition, columns=columns).handle_key()
    missing = sorted(set(key) - sent)
    if missing and drops_columns:
        return ()
    if missing:
        raise MessageError("schema_mismatch", f"no cells of {', '.join(missing)}, which the primary key has")
    return key
