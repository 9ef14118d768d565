"""Row events of Open Protocol: from the JSON of a value to operation and images."""

from typing import NamedTuple

from msgspec import UNSET

from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.open.compiled import ColumnForm, CompiledForm, compile_form
from ticdc_replay.codecs.open.members import Cell, Declared, Members, read
from ticdc_replay.codecs.open.values import FLAG_NULLABLE, FLAGS_OF_KIND, flags_of
from ticdc_replay.codecs.replaced_text import REPLACED, lossy_cells
from ticdc_replay.domain.events import Image, Operation, Shape, WireColumn
from ticdc_replay.domain.limits import refused_columns
from ticdc_replay.domain.tables import folded
from ticdc_replay.schemas.history import KnownTable, SchemaHistory

_MAX_FORMS = 10_000
# Hot: members of an enum are looked up through a descriptor, and a NamedTuple's constructor takes twice the time.
_UPDATE, _DELETE = Operation.UPDATE, Operation.DELETE
_new = tuple.__new__


class OpenRow(NamedTuple):
    """What a value says of a row."""

    operation: Operation
    after: Image | None
    before: Image | None
    before_unknown: tuple[str, ...]
    lossy: tuple[str, ...]


class RowReader:
    """Reads the values of row events and remembers their forms.

    What it remembers makes it faster, never different: a value gives the same row whatever was read before.
    """

    def __init__(self, history: SchemaHistory, *, output_old_value: bool, only_output_updated_columns: bool) -> None:
        """*history* is asked of columns whose flags TiCDC lost."""
        # Without old values, or where an update that changed nothing loses its `p`, only `u` may be an update.
        certain = output_old_value and not only_output_updated_columns
        self._only_new = Operation.INSERT if certain else Operation.UPSERT
        self._only_updated_columns = only_output_updated_columns
        self._routes: dict[tuple[str, str, bool, bytes], CompiledForm] = {}
        self._forms: dict[tuple[ColumnForm, ...], CompiledForm | None] = {}
        self._met: set[tuple[ColumnForm, ...]] = set()
        self._shapes: dict[tuple[ColumnForm, ...], Shape] = {}
        self._history = history
        self._declared: dict[int, tuple[KnownTable, Declared]] = {}
        self._unsure: dict[tuple[str, str, tuple[ColumnForm, ...]], bool] = {}

    def read(self, schema: str, table: str, commit_ts: int, reduced: bool, value: bytes) -> OpenRow:
        """The row of *commit_ts* in *value* of *schema*.*table*; *reduced* is whether TiCDC sent handle keys only.

        Raises MessageError. Hot: 3.7 µs for 770 bytes with 10 columns and 1.3 images.
        """
        route = (schema, table, reduced, value[:3])
        form = self._routes.get(route)
        if form is not None:
            shape, decode, cells_of, old_cells_of, doubtful = form
            try:
                row = decode(value)
            except (ValueError, RecursionError, NotImplementedError):  # the last: a flag beyond 64 bits
                return self._read_any(route, value, commit_ts)  # another form, or bad: this finds out which
            u, p, d = row.u, row.p, row.d
            if d is UNSET and u is not UNSET:
                cells = cells_of(u)
                if p is UNSET:
                    if not doubtful(cells, value):
                        return _new(OpenRow, (self._only_new, _new(Image, (shape, cells)), None, (), ()))
                else:
                    old = old_cells_of(p, cells)
                    if not (doubtful(cells, value) or doubtful(old, value)):
                        return _new(OpenRow, (_UPDATE, _new(Image, (shape, cells)), _new(Image, (shape, old)), (), ()))
            elif d is not UNSET and u is UNSET and p is UNSET:
                cells = cells_of(d)
                if not doubtful(cells, value):
                    return _new(OpenRow, (_DELETE, None, _new(Image, (shape, cells)), (), ()))
        return self._read_any(route, value, commit_ts)

    def _read_any(self, route: tuple[str, str, bool, bytes], value: bytes, commit_ts: int) -> OpenRow:
        row = self._read_members(route, value, commit_ts)
        if REPLACED not in value:
            return row
        return row._replace(lossy=lossy_cells(value, row.after, row.before))

    def _read_members(self, route: tuple[str, str, bool, bytes], value: bytes, commit_ts: int) -> OpenRow:
        members = read(value, self._declared_at(*route[:2], commit_ts))
        if members.d is not None:
            if members.u is not None or members.p is not None:
                raise MessageError("bad_value", "d beside u or p")
            self._learn(route, members.d)
            return OpenRow(Operation.DELETE, None, self._image(members.d), (), ())
        if members.u is None:
            raise MessageError("bad_value", "neither u nor d holds a column")
        self._learn(route, members.u)
        after = self._image(members.u)
        if members.p is None:
            return OpenRow(self._only_new, after, None, (), ())
        before, unknown = self._old_image(members, members.u, members.p)
        return OpenRow(Operation.UPDATE, after, before, unknown, ())

    def _old_image(self, members: Members, new: dict[str, Cell], old: dict[str, Cell]) -> tuple[Image, tuple[str, ...]]:
        """The complete old image, without those columns whose old value is unknown.

        Of a column that turned from a value to NULL, new TiCDC writes the members straight into ``p``. Which column they
        belong to can only be narrowed down to those that are NULL now, not in ``p``, and of the same type and flags. New TiCDC
        8.5.4 and 8.5.5 write NULL into ``p`` for an old value that is empty, zero or without members (pingcap/ticdc#3973): in a
        column that can't be NULL that is seen. A row whose old key is lost so has none.
        """
        added = old.keys() - new.keys()
        if added:
            raise MessageError("bad_value", f"p has columns that u lacks: {', '.join(sorted(added))}")
        missing = [name for name in new if name not in old]
        if (missing or members.loose) and not self._only_updated_columns:
            names = ", ".join(missing) or "names of columns"
            raise MessageError(
                "incomplete_old_image",
                f"p lacks {names}; if the changefeed had only-output-updated-columns=true then, say so in its configuration",
            )
        loose = set(members.loose)
        unknown = tuple(
            name for name in missing if new[name].value is None and (new[name].code, new[name].flags) in loose
        )
        if members.loose and not unknown:
            raise MessageError("bad_value", "members in p that can be of no column")
        if self._only_updated_columns:
            unknown += tuple(
                name
                for name, cell in old.items()
                if cell.value is None and not cell.meant & FLAG_NULLABLE and not cell.is_handle_key
            )
        left_out = set(unknown)
        whole = {name: old.get(name, cell) for name, cell in new.items() if name not in left_out}
        return self._image(whole), unknown

    def _image(self, cells: dict[str, Cell]) -> Image:
        return Image(self._shape(cells), tuple(cell.value for cell in cells.values()))

    def _shape(self, cells: dict[str, Cell]) -> Shape:
        """The one Shape of columns that are equal but for flags that mean nothing for reading them."""
        key = tuple(
            ColumnForm(name, cell.code, cell.meant & FLAGS_OF_KIND, cell.is_handle_key) for name, cell in cells.items()
        )
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _MAX_FORMS:
                self._shapes.clear()
            columns = (
                WireColumn(name, cell.kind.type, cell.is_handle_key, cell.kind.neutral, cell.kind.arrow)
                for name, cell in cells.items()
            )
            shape = self._shapes[key] = Shape(tuple(columns))
        return shape

    def _learn(self, route: tuple[str, str, bool, bytes], cells: dict[str, Cell]) -> None:
        """Compile a form when it is met for the second time, and read the next value of *route* with it.

        Raises MessageError for columns that no table has.
        """
        key = tuple(ColumnForm(name, cell.code, cell.flags, cell.is_handle_key) for name, cell in cells.items())
        if self._is_unsure(*route[:2], key):
            return
        if key in self._forms:
            form = self._forms[key]
        elif key in self._met:
            form = self._forms[key] = compile_form(key, self._shape(cells), self._only_updated_columns)
        else:
            refusal = refused_columns(cells)
            if refusal is not None:
                raise MessageError(*refusal)
            if len(self._met) >= _MAX_FORMS:
                for remembered in (self._met, self._forms, self._routes):
                    remembered.clear()
            self._met.add(key)
            return
        if form is not None:
            self._routes[route] = form

    def _declared_at(self, schema: str, table: str, commit_ts: int) -> Declared:
        """The columns of a table for a row of *commit_ts* (TSO); none where it is not known."""
        known = self._history.known_at(schema, table, commit_ts)
        if known is None:
            return {}
        found = self._declared.get(id(known))
        if found is None:
            if len(self._declared) >= _MAX_FORMS:
                self._declared.clear()
            columns = {folded(column.name): column for column in known.schema.columns}
            found = self._declared[id(known)] = (known, columns)
        return found[1]

    def _is_unsure(self, schema: str, table: str, form: tuple[ColumnForm, ...]) -> bool:
        """Whether a column of *form* has no flags, and the table ever had such a column with flags: then its definition at the
        time of a row says how it is read. Raises MessageError for columns that no table has."""
        lost = {folded(column.name): column.code for column in form if column.flags == 0}
        if not lost:
            return False
        answer = self._unsure.get((schema, table, form))
        if answer is None:
            if len(self._unsure) >= _MAX_FORMS:
                self._unsure.clear()
            answer = self._unsure[schema, table, form] = any(
                flags_of(lost[folded(column.name)], column) & FLAGS_OF_KIND
                for known in self._history.all_known(schema, table)
                for column in known.schema.columns
                if folded(column.name) in lost
            )
        if answer:
            refusal = refused_columns([column.name for column in form])
            if refusal is not None:
                raise MessageError(*refusal)
        return answer
