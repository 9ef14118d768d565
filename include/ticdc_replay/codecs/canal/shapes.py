"""Shapes of Canal-JSON's images: types of columns, and which of them identify a row.

The wire names the primary key, but not the unique key that is the handle key where there is none. A reduced row consists of
exactly the handle key. For a whole row without primary key the history of definitions is asked. If that does not know the
table, the row has no identity: nothing is guessed. Rows without commitTs can only be looked up by the millisecond of their
commit, which is known here and not later.
"""

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.canal.compiled import Columns, RowForm
from ticdc_replay.codecs.canal.types import are_full, cell_kind
from ticdc_replay.codecs.claim_checks import SharedImage
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.domain.events import Image, RowEvent, Shape, WireColumn
from ticdc_replay.domain.limits import refused_columns
from ticdc_replay.domain.tables import folded
from ticdc_replay.domain.tso import from_ms
from ticdc_replay.schemas.history import KnownTable, SchemaHistory
from ticdc_replay.schemas.resolve import agree

_MAX_ANSWERS = 10_000


class Shapes:
    """The one shape of rows with equal columns and equal handle key."""

    def __init__(self, changefeed: Changefeed, history: SchemaHistory) -> None:
        self._history = history
        self._full_types = changefeed.content_compatible
        self._drops_columns = bool(changefeed.dispatch.selectors)
        self._has_commit_ts = changefeed.enable_tidb_extension or not history.epochs
        self._shapes: dict[tuple[WireColumn, ...], Shape] = {}
        self._answers: dict[tuple[RowForm, int | None, bool, bool], Shape] = {}

    def are_certain(self, form: RowForm) -> bool:
        """Whether all rows of *form* have one shape. Else the history has to be asked for each."""
        return self._has_commit_ts and bool(form.pk_names) and not self._drops_columns

    def shape(self, form: RowForm, commit_ts: int | None, es: int, *, reduced: bool) -> Shape:
        """The shape of a row of *form* at *commit_ts* (TSO), or in the millisecond *es* where there is no commitTs.

        *reduced*: TiCDC left only the handle key. Raises MessageError for a type that is not known, and for columns
        that no table has.
        """
        known = None if self.are_certain(form) else self._known(form, commit_ts, es)
        # What is known lives as long as the history, so its id names it.
        question = (form, None if known is None else id(known), commit_ts is None, reduced)
        shape = self._answers.get(question)
        if shape is None:
            refusal = refused_columns(form.columns.names)
            if refusal is not None:
                raise MessageError(*refusal)
            if len(self._answers) >= _MAX_ANSWERS:
                self._answers.clear()
                self._shapes.clear()
            handle_key = self._handle_key(form, known, reduced)
            columns = self._columns(form.columns, handle_key, known if commit_ts is None else None)
            shape = self._answers[question] = self._shapes.setdefault(columns, Shape(columns))
        return shape

    def _columns(
        self, columns: Columns, handle_key: tuple[str, ...], known: KnownTable | None
    ) -> tuple[WireColumn, ...]:
        full = are_full(columns.types, self._full_types)
        declared = {} if known is None else {folded(column.name): column.type for column in known.schema.columns}
        found = []
        for name, text in zip(columns.names, columns.types, strict=True):
            kind = cell_kind(text, full)
            if kind is None:
                raise MessageError("unknown_column_type", f"column {name!r} has the mysqlType {text[:200]!r}")
            type_ = declared.get(folded(name), kind.type)
            if kind.type.declared or not agree(type_, kind.type):
                type_ = kind.type
            found.append(WireColumn(name, type_, name in handle_key, kind.neutral, kind.arrow))
        return tuple(found)

    def _handle_key(self, form: RowForm, known: KnownTable | None, reduced: bool) -> tuple[str, ...]:
        """The columns that identify a row of *form*; none if that is unknown.

        Classic TiCDC leaves columns that a selector drops out of ``pkNames`` too, and what is left of a primary key does not
        identify a row.
        """
        names = form.columns.names
        handle_key = form.pk_names
        if reduced and not handle_key:
            return names
        if known is not None and (not handle_key or self._drops_columns):
            spelled = {folded(name): name for name in names}
            handle_key = tuple(spelled.get(folded(name), "") for name in known.schema.handle_key)
        return handle_key if set(handle_key) <= set(names) else ()

    def _known(self, form: RowForm, commit_ts: int | None, es: int) -> KnownTable | None:
        """What is known of the table for a row; without its commitTs only if the same holds for all of the millisecond *es*."""
        if commit_ts is not None:
            return self._history.known_at(form.schema, form.table, commit_ts)
        first, last = from_ms(es), from_ms(es + 1) - 1
        if not self._history.is_one_span(form.schema, form.table, first, last):
            return None
        return self._history.known_at(form.schema, form.table, first)


def with_handle_key_of(small: RowEvent, whole: RowEvent) -> RowEvent:
    """*whole*, with the handle key that the reduced row *small* shows where none is known of *whole*."""
    reduced, image = small.after or small.before, whole.after or whole.before
    names = reduced.shape.handle_key if reduced is not None else ()
    if not names or image is None or image.shape.handle_key:
        return whole
    after, before = (each and _with_handle_key(each, names) for each in (whole.after, whole.before))
    return whole._replace(after=after, before=before)


def _with_handle_key(image: Image, names: tuple[str, ...]) -> Image:
    return (image if isinstance(image, SharedImage) else SharedImage(*image)).with_handle_key(names)
