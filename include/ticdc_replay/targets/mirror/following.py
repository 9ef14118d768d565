"""What a mirror does to follow a DDL that stopped a load, once all rows from before it are loaded.

The mirror then has exactly the rows that the upstream had. So the same change of it, and a floor just above the DDL, leave
it as if it had been filled at that moment. Where the database has DDL in transactions, all of it is one. Elsewhere each step
can be repeated, since the catalogue shows whether it was done: of columns by their names, so a statement that changes one twice
is refused; of tables by what a session brings (``FollowingSession.rename_tables``).
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pyarrow as pa

from ticdc_replay.config.target_rules import REBUILD
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import Column, TableName, folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.schemas.changes import (
    BreakingChange,
    Change,
    ColumnAdded,
    ColumnDropped,
    ColumnRenamed,
    ColumnWidened,
    NoRowChange,
    TableChanges,
    TableCreated,
    net_renames,
)
from ticdc_replay.targets.base import StoppingDdl
from ticdc_replay.targets.ddl import words_of
from ticdc_replay.targets.mirror.planning import differences
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.fills import fill_of
from ticdc_replay.targets.mirror.planning.narrowing import unfit
from ticdc_replay.targets.mirror.planning.section import MirrorSection
from ticdc_replay.targets.mirror.planning.table_plan import deleted_column_of, target_of, tombstones_of
from ticdc_replay.targets.mirror.planning.tables import (
    ChangeType,
    ColumnDefinition,
    ColumnEvent,
    ColumnMove,
    FoundColumn,
    FoundTable,
    MakeColumn,
    MirrorStep,
    Relation,
    RemoveColumn,
    TableState,
)
from ticdc_replay.targets.mirror.planning.tables import RenameColumn as RenameMirrorColumn
from ticdc_replay.targets.mirror.session import Session


class FollowingSession(Session):
    """A session that can change keys and names of tables."""

    in_one_transaction: ClassVar[bool]
    """Whether DDL is part of the open transaction."""
    most_digits: ClassVar[int | None] = None
    """How many digits a decimal, or a literal of one, has at most, if upstreams have larger ones."""

    @property
    def marker(self) -> str | None:
        """The column that marks deleted rows, where the session alone knows it. Here: the section does."""
        return None

    @property
    @abstractmethod
    def changes_keys(self) -> bool:
        """Whether a table can get another primary key."""

    @abstractmethod
    def quoted(self, name: str) -> str:
        """*name* as statements have it."""

    def name_of(self, target: Relation) -> str:
        """The SQL name of *target*."""
        return f"{self.quoted(target.schema)}.{self.quoted(target.table)}"

    def why_type_stays(self, before: str, after: str) -> str | None:
        """Why a column can't get the type *after* in place of *before*; None if it can."""
        return None

    def why_unfit_unknown(self, column_type: ColumnType, found: str) -> str | None:
        """Why rows can't be looked for that do not fit *column_type*, in a column of the type *found*; None if they can."""
        return None

    def micros_of(self, column: str, column_type: ColumnType) -> str:
        """An expression whose last six digits are the microseconds of *column* (quoted), which mirrors *column_type*, a time."""
        return f"extract(microsecond FROM {column})"  # of PostgreSQL with the seconds of the minute

    def why_name_stays(self, old: Relation, new: Relation) -> str | None:
        """Why the table *old* can't get the name *new*; None if it can."""
        return None

    @abstractmethod
    def number(self, query: str) -> int:
        """The one number that *query* gives."""

    @abstractmethod
    def run(self, statement: str) -> object:
        """Run *statement*, which changes rows."""

    @abstractmethod
    def set_key(self, target: Relation, key: Sequence[str]) -> None:
        """Make *key* the primary key of *target*; other columns may be NULL then. Its values are unique, and not NULL."""

    @abstractmethod
    def rename_tables(self, names: Mapping[Relation, Relation], floor_ts: int) -> None:
        """Give each table of *names* its new name, also if an attempt has begun to; tables may swap theirs. Nothing is loaded
        into them until their floors are *floor_ts* (TSO) and ``end_renames`` was called, or they have their old names again."""

    def end_renames(self, names: Mapping[Relation, Relation], floor_ts: int) -> None:
        """Let the renames *names* count in the commit of the floors, which are *floor_ts* (TSO). Here: they are part of its
        transaction."""
        return

    def find_renamed(self, names: Mapping[Relation, Relation | None], floor_ts: int) -> dict[Relation, Relation]:
        """The tables of *names* that are there, and the name that each has now: an attempt to follow the DDL of *floor_ts* (TSO)
        may have given some their new names, None for no name here. Here: then they have their old names again."""
        return {old: old for old in names if self.find_table(old) is not None}

    def note_column(self, target: Relation, move: ColumnMove) -> None:
        """Note *move*, which changes no table, in the commit of the floors."""
        self.ledger.note_column_event(target, move)

    def require_locks(self) -> None:
        """Raise TransientError if a lock of the session was lost. Here: transactions lose none."""

    def drop_followed(self, target: Relation, floor_ts: int) -> None:
        """Drop the table, whose floor is about to become *floor_ts* (TSO)."""
        self.drop_table(target)


@dataclass(frozen=True)
class Step:
    """One thing to do. ``text`` says it to people."""

    text: str
    do: Callable[[], object]


@dataclass(frozen=True)
class Following:
    """How the mirrors of ``tables`` follow a DDL: all of its ``steps``, then their floors."""

    tables: tuple[TableName, ...]
    steps: tuple[Step, ...]
    names: Mapping[Relation, Relation]
    """The mirrors that get other names, and those."""


def plan(
    session: FollowingSession, config: MirrorSection, dialect: Dialect, pipeline: str, ddl: StoppingDdl
) -> Following:
    """How the mirrors follow *ddl*; nothing is changed. The locks of the mirrors are held.

    Raises PolicyStopError if only the upstream has what is needed, if rows do not fit, or if the mirror has rows from after the
    DDL; TargetMismatchError for a mirror of another pipeline.
    """
    return _Planner(session, config, dialect, pipeline, ddl).plan()


def carry_out(
    session: FollowingSession, config: MirrorSection, dialect: Dialect, pipeline: str, ddl: StoppingDdl, how: Following
) -> None:
    """Do what ``plan`` says, and raise the floors."""
    kept = _kept_events(session, config, dialect, how.tables)
    shaped = {new: _shaped_by(session, target_of(config, dialect, old)) for old, new in _renames(ddl).items()}
    for step in how.steps:
        session.require_locks()
        step.do()
    session.require_locks()
    floor_ts, ledger = ddl.commit_ts + 1, session.ledger
    for table in sorted(how.tables, key=lambda each: each == ddl.table):  # last that by which a repeat finds the DDL
        target = target_of(config, dialect, table)
        # So that a mirror that is lost later is noticed.
        newest_ts = floor_ts if _has_table(session, how, target) else 0
        if ledger.state_of(target) is None:
            ledger.add_table(
                target,
                source=table,
                pipeline=pipeline,
                tombstones=tombstones_of(target, dialect),
                newest_ts=newest_ts,
                floor_ts=floor_ts,
                form_floor_ts=floor_ts,
            )
            deleted_column = deleted_column_of(config, dialect)
            if deleted_column is not None:
                ledger.note_deleted_column(target, deleted_column)
        else:
            # Also ends what was begun to be added.
            ledger.raise_marks(target, schema_ts=0, whole_ts=0, newest_ts=newest_ts)
            ledger.raise_floor(target, floor_ts, floor_ts)
        if (shaped_by := shaped.get(table)) is not None:
            ledger.note_shape(target, shaped_by)
    _bring_kept(session, config, dialect, kept, _renames(ddl))
    session.end_renames(how.names, floor_ts)
    clear_tombstones(session, config, dialect, how.tables)


def _shaped_by(session: FollowingSession, target: Relation) -> str | None:
    state = session.ledger.state_of(target)
    return None if state is None else state.shaped_by


def _has_table(session: FollowingSession, how: Following, target: Relation) -> bool:
    """Whether *target* has a table once the steps of *how* are done."""
    renamed = how.names.values()
    return target in renamed or (target not in how.names and session.find_table(target) is not None)


def _kept_events(
    session: FollowingSession, config: MirrorSection, dialect: Dialect, tables: Iterable[TableName]
) -> dict[TableName, list[ColumnEvent]]:
    """The events of the columns that the mirrors of *tables* keep."""
    states = {table: session.ledger.state_of(target_of(config, dialect, table)) for table in tables}
    return {
        table: [event for event in state.events if event.keeps] for table, state in states.items() if state is not None
    }


def _bring_kept(
    session: FollowingSession,
    config: MirrorSection,
    dialect: Dialect,
    kept: Mapping[TableName, Sequence[ColumnEvent]],
    renames: Mapping[TableName, TableName],
) -> None:
    """Note the *kept* columns of tables that were renamed under their new names alone, also if an attempt has begun to."""
    arriving = {new: kept.get(old, ()) for old, new in renames.items()}
    for table in kept.keys() & {*renames, *renames.values()}:  # also of tables that had the new names before
        for event in kept[table]:
            if event not in arriving.get(table, ()):
                session.note_column(target_of(config, dialect, table), ColumnMove(event.dropped, None, None))
    for old in kept.keys() & renames.keys():
        target = target_of(config, dialect, renames[old])
        for event in kept[old] if session.ledger.state_of(target) is not None else ():
            name = dialect.fit_column(event.name)
            session.note_column(target, ColumnMove(event, name, name))


def clear_tombstones(
    session: FollowingSession, config: MirrorSection, dialect: Dialect, tables: Iterable[TableName]
) -> None:
    """Drop the tombstones of *tables* below their floors: they have the keys of before."""
    for table in tables:
        target = target_of(config, dialect, table)
        state = session.ledger.state_of(target)
        if state is not None:
            session.clear_tombstones(target, state.tombstones, dialect.fit(config.commit_ts_column), state.floor_ts)


class _Planner:
    def __init__(
        self, session: FollowingSession, config: MirrorSection, dialect: Dialect, pipeline: str, ddl: StoppingDdl
    ) -> None:
        self._session, self._config, self._dialect, self._pipeline = session, config, dialect, pipeline
        self._ddl = ddl
        self._floor_ts = ddl.commit_ts + 1
        self._deleted_column = deleted_column_of(config, dialect)
        self._marker = self._deleted_column or session.marker
        self._tables = ddl.tables
        self._renames = _renames(ddl)
        self._wanted = TablePatterns(ddl.selection)
        self._moves = {self._target(old): self._new_mirror(new) for old, new in self._renames.items()}
        """The mirrors of tables that get other names, and those; None for a table that has no mirror under its new name."""

    def plan(self) -> Following:
        if not any(entry.table == self._ddl.table for entry in self._ddl.changes):
            others = ", ".join(sorted({str(entry.table) for entry in self._ddl.changes})) or "no table"
            raise self._refused(self._ddl.table, f"it changes {others}, and not this table")
        steps: list[Step] = []
        for entry in self._ddl.changes:
            if entry.table in self._tables:
                steps += self._steps(entry)
        places = self._session.find_renamed(self._moves, self._floor_ts) if self._moves else {}
        names = {old: new for old, new in self._moves.items() if new not in (None, old) and old in places}
        steps += self._rename_steps(places, names)
        return Following(tuple(self._tables), tuple(steps), names)

    def _steps(self, entry: TableChanges) -> Iterator[Step]:
        """All that *entry* does to its mirror, but for names of tables."""
        target = self._target(entry.table)
        state = self._session.ledger.state_of(target)
        if state is not None:
            differences.refuse_others(target, state, self._pipeline, self._config.same_upstream_as)
            differences.refuse_shaped(target, state, self._pipeline)
            differences.refuse_other_deletes(target, entry.table, state, self._deleted_column)
            if state.topic_id is not None:
                raise self._refused(entry.table, f"its rows are ordered by their place in Kafka: {REBUILD}")
            if self._has_newer_rows(state):
                rows = f"its mirror has rows from after the DDL, up to {describe(state.newest_ts)}"
                if self._renames:
                    states = filter(None, map(self._state_of, self._tables))
                    newest_ts = max(each.newest_ts for each in states)
                    raise self._refused(entry.table, f"{rows}. {self._instead_of_renames(self._moves, newest_ts)}")
                raise self._refused(
                    entry.table, f"{rows}, which a change would also change: {REBUILD}, and not before these rows"
                )
        if any(_is_nameless(change) for change in entry.changes):
            raise self._refused(
                entry.table,
                "its changelog, of an earlier version, lacks the other name of the RENAME. Decode the window again (reprocess), "
                "or do it by hand",
            )
        changes = [change for change in entry.changes if not _is_rename(change)]
        for change in changes:
            if isinstance(change, TableCreated) or (
                isinstance(change, BreakingChange) and change.kind not in _FOLLOWED
            ):
                why = "only the upstream has its rows"
                if isinstance(change, BreakingChange) and change.kind == "not_understood":
                    why = (
                        "only the upstream shows what it did to the table. If nothing, raise the floor: `ticdc-replay mirror "
                        f"floor <pipeline> {entry.table} --at {self._floor_ts}`. Else do the same to its mirror before that, or"
                    )
                raise self._refused(entry.table, f"{words_of(change)}: {why}: {REBUILD}")
        found = self._session.find_table(target) if changes else None
        if found is None:
            return
        if not self._session.in_one_transaction:
            self._refuse_unrepeatable(entry.table, changes)
            changes.sort(key=lambda change: isinstance(change, ColumnDropped))  # the key first, which may need them
        elif any(isinstance(change, BreakingChange) and change.kind == "key_changed" for change in changes):
            # A column takes the key that it is part of along.
            own = [folded(name) for name in found.primary_key]
            changes.sort(key=lambda change: isinstance(change, ColumnDropped) and folded(change.name) in own)
        was = {column.name: column.name for column in found.columns}
        names, key = [column.name for column in found.columns], list(found.primary_key)
        for change in changes:
            match change:
                case ColumnAdded():
                    yield from self._added(entry.table, target, change, names)
                case ColumnWidened(after=column):
                    yield from self._typed(entry.table, target, column, found, names, was)
                case ColumnDropped(name=name):
                    yield from self._dropped(target, name, names, key)
                case ColumnRenamed(name=name, to=to):
                    yield from self._renamed(entry.table, target, (name, to), names, key, was)
                case BreakingChange(kind="column_narrowed", column=column) if column is not None:
                    yield from self._narrowed(entry.table, target, column, found, names, was)
                case BreakingChange(kind="key_changed", key=wanted):
                    yield from self._keyed(entry.table, target, wanted, names, key, found)
                case BreakingChange(kind="truncated"):
                    yield self._emptying(target)
                case BreakingChange(kind="dropped"):
                    yield self._dropping(target)
                case BreakingChange():
                    raise self._refused(
                        entry.table,
                        f"{change.what}: its changelog, of an earlier version, lacks the details. Decode the window again "
                        "(reprocess), or do it by hand",
                    )

    def _added(self, table: TableName, target: Relation, change: ColumnAdded, names: list[str]) -> Iterator[Step]:
        type_name = self._dialect.type_of(change.column.type)
        fill, unknown = fill_of(change, type_name, self._dialect)
        if unknown is not None:
            raise self._refused(table, f"{unknown}: only the upstream has its values: {REBUILD}")
        name = self._dialect.fit_column(change.column.name)
        if self._marker is not None and folded(name) == folded(self._marker):
            raise self._refused(
                table,
                f"its mirror marks deleted rows in the column {self._marker}: set another `deleted_column`, and run "
                f"`ticdc-replay mirror rebuild <pipeline> {table}`",
            )
        yield from self._make_way(target, name, names)
        if name in names:  # by an attempt that broke, or by hand
            return
        names.append(name)
        default = f" DEFAULT {fill}" if fill is not None else ""
        step = MirrorStep(
            MakeColumn(ColumnDefinition(name, type_name, fill)), f"ADD COLUMN {name} {type_name}{default}"
        )
        yield self._change(target, step)

    def _typed(
        self,
        table: TableName,
        target: Relation,
        column: Column,
        found: FoundTable,
        names: list[str],
        was: Mapping[str, str],
    ) -> Iterator[Step]:
        """Give *column*, by the name it has now, a type that holds what is to come; *was* has names by those of now. Numbers
        of an ENUM or SET stay: names that are appended leave those of the others."""
        name = self._in_mirror(column.name, names)
        is_key = was.get(name) in found.primary_key
        type_name = self._dialect.type_of(column.type, in_key=is_key)
        known = found.column(was.get(name, name))
        if known is None or self._is_by_number(column, known):
            return
        if not self._dialect.holds(known.type, type_name):
            reason = self._session.why_type_stays(known.type, type_name)
            if reason is not None:
                raise self._refused(table, f"the column {name}: {reason}: {REBUILD}")
            step = MirrorStep(ChangeType(name, type_name), f"ALTER COLUMN {name} TYPE {type_name}")
            yield self._change(target, step)

    def _narrowed(
        self,
        table: TableName,
        target: Relation,
        column: Column,
        found: FoundTable,
        names: list[str],
        was: Mapping[str, str],
    ) -> Iterator[Step]:
        name = self._in_mirror(column.name, names)
        known = found.column(was.get(name, name))
        if known is None:
            raise self._refused(table, f"its mirror lacks the column {name}: {REBUILD}")
        if self._is_by_number(column, known):
            raise self._refused(
                table,
                f"the column {name} is mirrored by number, and the DDL gave its elements other numbers: {REBUILD}",
            )
        unknown = self._session.why_unfit_unknown(column.type, known.type)
        if unknown is not None:
            raise self._refused(table, f"the column {name}: {unknown}: {REBUILD}")
        quoted = self._session.quoted(known.name)
        micros, most_digits = self._session.micros_of(quoted, column.type), self._session.most_digits
        condition = unfit(quoted, column.type, self._text, micros, most_digits=most_digits)
        alters = not self._dialect.holds(known.type, self._dialect.type_of(column.type))
        if self._marker is not None and not alters:  # the upstream has deleted these rows before
            condition = f"({condition}) AND NOT {self._session.quoted(self._marker)}"
        rows = self._session.number(f"SELECT count(*) FROM {self._session.name_of(target)} WHERE {condition}")
        if rows:
            raise self._refused(
                table,
                f"{rows} {'row does' if rows == 1 else 'rows do'} not fit the new type of the column {column.name}, "
                f"so the upstream has altered {'it' if rows == 1 else 'them'}: {REBUILD}",
            )
        yield from self._typed(table, target, column, found, names, was)

    def _is_by_number(self, column: Column, known: FoundColumn) -> bool:
        """Whether the mirror has numbers of an ENUM or SET, as *known* shows, since its first rows came without the names."""
        by_number = self._dialect.type_of(ColumnType(column.type.base))
        return column.type.elements is not None and self._dialect.holds(known.type, by_number)

    def _text(self, text: str) -> str:
        """*text* as an SQL literal."""
        column_type = ColumnType("varchar", length=len(text), declared=True)
        return self._dialect.literal(text, column_type, pa.array([text]), self._dialect.type_of(column_type))

    def _dropped(self, target: Relation, name: str, names: list[str], key: list[str]) -> Iterator[Step]:
        column = self._in_mirror(name, names)
        if column not in names:
            return
        names.remove(column)
        if column in key:
            key.remove(column)
        yield self._change(target, MirrorStep(RemoveColumn(column), f"DROP COLUMN {column}"))

    def _make_way(self, target: Relation, name: str, names: list[str]) -> Iterator[Step]:
        """Drop a column called *name* that the mirror keeps, as another one takes its name."""
        state = self._session.ledger.state_of(target)
        for event in state.events if state is not None else ():
            if event.keeps and self._dialect.fit_column(event.name) == name and name in names:
                names.remove(name)
                step = MirrorStep(RemoveColumn(name), f"DROP COLUMN {name}, which was kept")
                move = ColumnMove(event.dropped, name, None, step)
                yield Step(f"{target}: {step.text}", partial(self._session.follow, target, move))

    def _renamed(
        self,
        table: TableName,
        target: Relation,
        renamed: tuple[str, str],
        names: list[str],
        key: list[str],
        was: dict[str, str],
    ) -> Iterator[Step]:
        column, to = self._in_mirror(renamed[0], names), self._dialect.fit_column(renamed[1])
        yield from self._make_way(target, to, names)
        if column not in names and to in names:  # by an attempt that broke, or by hand
            return
        if column not in names or (to in names and to != column):
            raise self._refused(table, f"its mirror lacks the column {column}, or has a column {to} already: {REBUILD}")
        names[names.index(column)] = to
        was[to] = was.pop(column, column)
        if column in key:
            key[key.index(column)] = to
        if to != column:
            yield self._change(target, MirrorStep(RenameMirrorColumn(column, to), f"RENAME COLUMN {column} TO {to}"))

    def _keyed(
        self,
        table: TableName,
        target: Relation,
        wanted: Sequence[str],
        names: list[str],
        key: list[str],
        found: FoundTable,
    ) -> Iterator[Step]:
        columns = [self._in_mirror(name, names) for name in wanted]
        if not columns:
            raise self._refused(
                table, "it has no key that is known now, so a mirror can't hold it: take it out of `tables`"
            )
        if sorted(columns) == sorted(key):
            return
        if not self._session.changes_keys:
            raise self._refused(table, f"the server can't give a table another primary key: {REBUILD}")
        if not all(found.column(name) for name in columns):
            raise self._refused(table, f"a column of the new key comes with the same statement: {REBUILD}")
        listed, nulls = self._listed(columns), self._nulls(columns)
        deleted = self._session.quoted(self._deleted_column) if self._deleted_column is not None else "1 = 0"
        without = self._session.number(
            f"SELECT count(*) FROM {self._session.name_of(target)} WHERE ({nulls}) AND NOT ({deleted})"
        )
        repeated = self._session.number(
            f"SELECT coalesce(sum(n), 0) FROM (SELECT count(*) AS n FROM {self._session.name_of(target)} WHERE NOT ({deleted}) "
            f"GROUP BY {listed} HAVING count(*) > 1) AS repeated"
        )
        if without or repeated:
            also = " (rows that are marked as deleted count, too)" if self._marker != self._deleted_column else ""
            raise self._refused(
                table,
                f"its rows can't have the key ({', '.join(columns)}): {without} have NULL in it, {repeated} have that of another "
                f"row{also}: {REBUILD}",
            )
        if self._deleted_column is not None:
            yield from self._outdated(target, columns, tuple(key), found.primary_key)
        key[:] = columns

        def set_key() -> None:
            self._session.set_key(target, columns)

        yield Step(f"{target}: PRIMARY KEY ({', '.join(columns)})", set_key)

    def _outdated(
        self, target: Relation, columns: Sequence[str], key: Sequence[str], key_before: Sequence[str]
    ) -> Iterator[Step]:
        """Remove deleted rows that can't stay under the key *columns*: they lack a value for it, or another row has theirs, one
        that is there or was deleted later. Until then *key* identifies rows, by the names before the statement *key_before*."""
        deleted = self._session.quoted(self._deleted_column or "")
        version = self._session.quoted(self._dialect.fit(self._config.commit_ts_column))

        def outdated(own: Sequence[str]) -> str:
            rank = f"PARTITION BY {self._listed(columns)} ORDER BY {deleted}, {version} DESC, {self._listed(own)}"
            table = self._session.name_of(target)
            ranked = f"SELECT {self._listed(own)}, row_number() OVER ({rank}) AS _rank_of_row FROM {table}"
            return (
                f"{deleted} AND ({self._nulls(columns)} OR ({self._listed(own)}) IN "
                f"(SELECT {self._listed(own)} FROM ({ranked}) AS ranked WHERE _rank_of_row > 1))"
            )

        rows = self._session.number(
            f"SELECT count(*) FROM {self._session.name_of(target)} WHERE {outdated(key_before)}"
        )
        if rows:
            statement = f"DELETE FROM {self._session.name_of(target)} WHERE {outdated(key)}"
            text = f"{target}: DELETE of {rows} deleted rows without a value of their own for ({', '.join(columns)})"
            yield Step(text, lambda: self._session.run(statement))

    def _listed(self, columns: Sequence[str]) -> str:
        return ", ".join(map(self._session.quoted, columns))

    def _nulls(self, columns: Sequence[str]) -> str:
        """A condition for rows with NULL in one of *columns*."""
        return " OR ".join(f"{self._session.quoted(name)} IS NULL" for name in columns)

    def _emptying(self, target: Relation) -> Step:
        column = self._dialect.fit(self._config.commit_ts_column)
        return Step(f"{target}: DELETE of all rows", lambda: self._session.truncate(target, column, self._floor_ts))

    def _dropping(self, target: Relation) -> Step:
        return Step(f"DROP TABLE {target}", lambda: self._session.drop_followed(target, self._floor_ts))

    def _rename_steps(self, places: Mapping[Relation, Relation], names: Mapping[Relation, Relation]) -> Iterator[Step]:
        """Give the mirrors of *names*, which are where *places* says, their new names; drop those that get none."""
        going = [old for old, new in self._moves.items() if new is None and places.get(old) == old]
        for old, new in self._renames.items():
            mirror = self._target(old)
            reason = self._session.why_name_stays(mirror, names[mirror]) if mirror in names else None
            if reason is not None:
                raise self._refused(old, f"{reason}. {self._instead_of_renames(names, self._ddl.commit_ts)}")
            if new in self._tables:
                self._require_old_mirror(new, old, places)
        given = set(self._renames.values())
        for entry in self._ddl.changes:
            kinds = _rename_kinds(entry) if entry.table in self._tables else ()
            if kinds[-1:] == ("renamed_here",) and entry.table not in given:
                self._require_old_mirror(entry.table, None, places)
        for mirror, to in names.items():
            is_free = to in {*names, *going, places[mirror]} or self._session.find_table(to) is None
            if not is_free:
                raise self._refused(
                    self._ddl.table,
                    f"{to} is there already, beside {mirror}: drop the one that is not wanted, or load the window of its DROP "
                    "first",
                )
        yield from map(self._dropping, going)
        if any(places[mirror] != to for mirror, to in names.items()):
            text = ", ".join(f"{mirror} TO {to}" for mirror, to in names.items())

            def rename() -> None:
                for to in names.values():
                    self._session.create_schema(to.schema)
                self._session.rename_tables(names, self._floor_ts)

            yield Step(f"RENAME TABLE {text}", rename)

    def _instead_of_renames(self, mirrors: Collection[Relation], dump_ts: int) -> str:
        """What a person does where *mirrors* can't get their new names, with a dump at or after *dump_ts* (TSO)."""
        given = {self._target(new) for new in self._renames.values()}
        renamed = {old: new for old, new in self._renames.items() if self._target(old) in mirrors}
        rebuilt = [new for new in renamed.values() if self._new_mirror(new) is not None]
        left = [old for old in renamed if old in self._tables and self._target(old) not in given]
        again = [old for old in left if self._has_newer_rows(self._state_of(old))]  # another table has the name since
        steps = [
            f"Dump the upstream at or after {describe(dump_ts)}",
            "ticdc-replay mirror seed <pipeline> --dump <folder> --consistency snapshot --only-base",
            f"ticdc-replay mirror rebuild <pipeline> {' '.join(map(str, [*rebuilt, *again]))} --dump-base <run that the last "
            "command prints>",
        ]
        for old in left:
            if old not in again:
                steps.append(f"Drop the table {self._target(old)}")
                steps.append(f"ticdc-replay mirror floor <pipeline> {old} --at {self._floor_ts}")
        steps.append("Run the stopped load again")
        return "Build the mirrors again from a dump, under their new names:" + "".join(
            f"\n{number}. {step}" for number, step in enumerate(steps, 1)
        )

    def _has_newer_rows(self, state: TableState | None) -> bool:
        """Whether the mirror of *state* has rows from after the DDL."""
        if state is None:
            return False
        is_followed = state.floor_ts >= self._floor_ts  # by an attempt that broke before it had written all floors
        return state.newest_ts > (self._floor_ts if is_followed else self._ddl.commit_ts)

    def _state_of(self, table: TableName) -> TableState | None:
        return self._session.ledger.state_of(self._target(table))

    def _new_mirror(self, new: TableName) -> Relation | None:
        """The mirror of the table *new*, or None if it has none."""
        mirror = self._target(new)
        is_mirrored = self._wanted.wants(new.schema, new.table) and not self._config.is_reserved_schema(mirror.schema)
        return mirror if is_mirrored else None

    def _require_old_mirror(self, table: TableName, old: TableName | None, places: Mapping[Relation, Relation]) -> None:
        """Refuse to give *table* the rows of *old* if no mirror has them; those of *places* are there."""
        if old is None or not self._wanted.wants(old.schema, old.table):
            raise self._refused(
                table, f"the table that has its name now is not mirrored here under its old name: {REBUILD}"
            )
        if self._target(old) in places:
            return
        for name in (old, table):
            state = self._session.ledger.state_of(self._target(name))
            if state is not None and state.needs_table and (name == old) == (not self._is_there(table)):
                raise self._refused(table, f"the mirror of its old name, {old}, is lost: {REBUILD}")

    def _is_there(self, table: TableName) -> bool:
        return self._session.find_table(self._target(table)) is not None

    def _refuse_unrepeatable(self, table: TableName, changes: Sequence[Change]) -> None:
        """Refuse a statement after part of which the catalogue does not show which part was done."""
        used = Counter(name for change in changes for name in _names(change))
        twice = [name for name, count in used.items() if count > 1]
        if twice:
            raise self._refused(
                table,
                f"the statement changes the column {twice[0]} more than once. Each DDL of this server counts at once, so "
                "an attempt that breaks could not be repeated: do it to the mirror by hand, and raise its floor",
            )

    def _change(self, target: Relation, step: MirrorStep) -> Step:
        return Step(f"{target}: {step.text}", lambda: self._session.change(target, step))

    def _in_mirror(self, name: str, names: Sequence[str]) -> str:
        """*name* as the mirror spells it: DDL may do so in another letter case."""
        fitted = self._dialect.fit_column(name)
        return next((each for each in names if folded(each) == folded(fitted)), fitted)

    def _target(self, table: TableName) -> Relation:
        return target_of(self._config, self._dialect, table)

    def _refused(self, table: TableName, why: str) -> PolicyStopError:
        return PolicyStopError(
            f"{table} at {describe(self._ddl.commit_ts)}: `mirror follow` can't follow this DDL, and nothing was changed: {why}"
        )


_FOLLOWED = frozenset(("column_narrowed", "key_changed", "truncated", "dropped"))
"""The kinds of ``BreakingChange`` that need nothing from the upstream, beside RENAME TABLE."""


def _renames(ddl: StoppingDdl) -> dict[TableName, TableName]:
    """The names that tables of *ddl* had before it, and what they are called after it."""
    return net_renames(entry for entry in ddl.changes if entry.table in ddl.tables)


def _rename_kinds(entry: TableChanges) -> tuple[str, ...]:
    """The kinds of the renames of *entry*, in their order."""
    return tuple(
        change.kind
        for change in entry.changes
        if isinstance(change, BreakingChange) and change.kind in ("renamed_away", "renamed_here")
    )


def _is_rename(change: Change) -> bool:
    """Whether *change* changes no row of a table, but perhaps its name."""
    return isinstance(change, NoRowChange) or (
        isinstance(change, BreakingChange) and change.kind in ("renamed_away", "renamed_here")
    )


def _is_nameless(change: Change) -> bool:
    """Whether *change* is a RENAME TABLE whose other name is unknown."""
    return (
        isinstance(change, BreakingChange) and change.kind in ("renamed_away", "renamed_here") and change.other is None
    )


def _names(change: Change) -> Iterator[str]:
    """The columns whose names *change* gives or takes."""
    match change:
        case ColumnAdded(column=column):
            yield folded(column.name)
        case ColumnDropped(name=name):
            yield folded(name)
        case ColumnRenamed(name=name, to=to):
            yield from {folded(name), folded(to)}
