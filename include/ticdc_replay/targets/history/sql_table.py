"""One table of a history in a database, in SQL: rows come out of staging tables, in the transaction that ends with the ledger."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar

import msgspec

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.domain.tso import LOGICAL_BITS
from ticdc_replay.targets.base import Load, TableReport
from ticdc_replay.targets.history import staging
from ticdc_replay.targets.history.columns import needed, no_view, require_history, steps_to
from ticdc_replay.targets.history.rows import ABSENT, COMMIT_TIME, DDL, OP, OWN, PLACE
from ticdc_replay.targets.history.scd2 import OWN as OWN_OF_VIEW
from ticdc_replay.targets.history.scd2 import columns_of
from ticdc_replay.targets.history.section import HistorySection
from ticdc_replay.targets.history.staging import StagedColumn
from ticdc_replay.targets.history.table import DdlRow, HistoryTable
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.staged_rows import VERSION
from ticdc_replay.targets.mirror.planning.tables import (
    ColumnDefinition,
    FoundTable,
    KnownColumn,
    MirrorStep,
    Relation,
)
from ticdc_replay.targets.mirror.session import Session

_PLACE_STAGED = (staging.TOPIC, staging.PARTITION, staging.OFFSET, staging.INDEX)


class StagedVersions(msgspec.Struct, frozen=True):
    """The rows of one changelog for one table, in staging."""

    stages: tuple[str, ...]
    rows: int
    columns: tuple[StagedColumn, ...]
    key: tuple[StagedColumn, ...]
    """As ``staging.VersionSet.key``."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What a table of a history is, and the load that holds it; None for a look."""

    config: HistorySection
    dialect: Dialect
    load: Load | None
    target: Relation
    source: TableName
    redriven: Mapping[str, StagedVersions]
    """By run, what re-drives of the slice have added, as it was when the load staged its rows."""


class SqlHistoryTable(HistoryTable[StagedVersions]):
    """One table. A subclass runs statements, and gives the words in which databases differ.

    Statements are text without parameters: names and texts in them are quoted.
    """

    own_types: ClassVar[Mapping[str, str]]
    """The types of ``rows.OWN``."""

    def __init__(self, session: Session, place: Place) -> None:
        self._session = session
        self._place = place
        self._target = place.target
        self._commit_ts = place.dialect.fit_column(place.config.commit_ts_column)
        self._ts = self._quoted(self._commit_ts)
        self._name = self._table(place.target)

    @property
    def _load(self) -> Load:
        assert self._place.load is not None, "a look writes nothing"
        return self._place.load

    # Words

    @abstractmethod
    def _quoted(self, name: str) -> str:
        """The name of a column."""

    @abstractmethod
    def _table(self, relation: Relation) -> str:
        """The name of a table."""

    @abstractmethod
    def _stage(self, name: str) -> str:
        """The name of the staging table *name*."""

    @abstractmethod
    def _text(self, text: str) -> str:
        """The literal of *text*."""

    @abstractmethod
    def _time_of(self, tso: str) -> str:
        """The time in *tso*, an expression, with the type of ``_commit_time``."""

    @abstractmethod
    def _absent_of(self, staged: str) -> str:
        """``_absent`` of *staged*, an expression with a list as JSON, or NULL."""

    @abstractmethod
    def _cast(self, cell: str, staged: str, wanted: str) -> str:
        """*cell*, an expression of the *staged* type, in the type *wanted*, that of the column."""

    @abstractmethod
    def _same(self, one: str, other: str) -> str:
        """Whether two expressions are equal, or both NULL."""

    def _partition_by(self, name: str) -> Sequence[str]:
        """Expressions by which the view tells apart rows with different values of the key column *name*."""
        return [self._quoted(name)]

    # Statements

    @abstractmethod
    def _run(self, statement: str) -> None:
        """Run *statement*."""

    @abstractmethod
    def _query(self, statement: str) -> list[Any]:
        """The rows of *statement*."""

    @abstractmethod
    def _insert(self, statement: str) -> None:
        """Run *statement*, which inserts rows."""

    @abstractmethod
    def _make_table(self, columns: Sequence[ColumnDefinition]) -> None:
        """Make the table, without key, with *columns*; the commitTs first, it and ``_op`` NOT NULL."""

    @abstractmethod
    def _make_index(self, name: str, columns: Sequence[str]) -> None:
        """Make the index of *columns*, called *name* where names are of one table, if it is not there."""

    @abstractmethod
    def _make_emptied_index(self) -> None:
        """Make what finds the few rows with the ``_op`` ``empty``, by commitTs."""

    @abstractmethod
    def _delete_slice(self, condition: str) -> None:
        """Delete the rows that meet *condition*."""

    @abstractmethod
    def _delete_same(self, stage: str, same: str) -> None:
        """Delete the rows ``t`` for which one ``f`` of *stage* has *same*."""

    @abstractmethod
    def _parts(self, stage: str) -> Iterator[str]:
        """Conditions that select the rows ``f`` of *stage* part by part; each may be committed before the next one."""

    @abstractmethod
    def _drop_view(self, view: Relation) -> None:
        """Drop *view*, which is there."""

    @abstractmethod
    def _make_view(self, view: Relation, query: str) -> None:
        """Make *view*, in place of one that is there."""

    def _begin_writing(self, rows: int) -> None:
        """Called before *rows* rows are written. Here nothing: they count with the report."""

    # Contract

    def is_there(self) -> bool:
        found = self._session.find_table(self._target)
        if found is None:
            return False
        require_history(self._target, found, self._commit_ts)
        return True

    @cached_property
    def types(self) -> Mapping[str, str]:
        return {column.name: column.type for column in self._found.columns}

    @property
    def _found(self) -> FoundTable:
        found = self._session.find_table(self._target)
        assert found is not None, "a table is made before it is written"
        return found

    def make(self, schemas: Sequence[TableSchema], key: Sequence[str]) -> None:
        columns = [ColumnDefinition(self._commit_ts, "bigint")]
        columns += [ColumnDefinition(name, self.own_types[name]) for name in OWN]
        columns += needed(self._place.dialect, self._target, schemas).values()
        self._session.create_schema(self._target.schema)
        self._make_table(columns)

    def fit(self, schemas: Sequence[TableSchema]) -> list[str]:
        """Also makes the indexes that are not there."""
        steps = steps_to(self._place.dialect, self._target, self.types, schemas)
        for step in steps:
            self._change(step)
        if steps:
            del self.types
        self._make_index("history_commit_ts", [self._commit_ts])
        if self._place.config.mode == "scd2":
            self._make_emptied_index()
        key = max(schemas, key=attrgetter("valid_from")).handle_key if schemas else ()
        if key and not self.key():
            own = {name.lower(): name for name in self.types}
            names = {name: own[self._place.dialect.fit_column(name).lower()] for name in key}
            self._make_index("history_key", [*names.values(), self._commit_ts])
            known = {name: KnownColumn(self.types[own], 0, True, True, 0) for name, own in names.items()}
            self._session.ledger.note_form(self._target, known)
        return [step.text for step in steps]

    def _change(self, step: MirrorStep) -> None:
        self._session.change(self._target, step)

    def key(self) -> tuple[str, ...]:
        state = self._session.ledger.state_of(self._target)
        return (
            tuple(sorted(name for name, column in state.columns.items() if column.in_key)) if state is not None else ()
        )

    def note_key(self, key: Sequence[str]) -> None:
        """``fit`` does it, once the columns are there."""

    def note_emptied(self, ddl: Sequence[DdlRow]) -> None:
        if not ddl:
            return
        times = ", ".join(str(entry.commit_ts) for entry in ddl)
        op = self._quoted(OP)
        rows = self._query(f"SELECT {self._ts} FROM {self._name} WHERE {op} = 'empty' AND {self._ts} IN ({times})")
        there = {commit_ts for (commit_ts,) in rows}
        self._insert_ddl([entry for entry in ddl if entry.commit_ts not in there])

    def rows_of(self, run: str) -> StagedVersions:
        found = self._place.redriven.get(run)
        if found is None:
            raise TransientError(
                f"run {run}, a re-drive of the window's quarantine, was loaded into {self._target} while this load staged its "
                "rows; try again"
            )
        return found

    def replace(self, parts: Sequence[StagedVersions], ddl: Sequence[DdlRow], *, empty: bool) -> str:
        self._begin_writing(sum(part.rows for part in parts))
        if not empty:
            self._delete_slice(self._in_slice(self._ts))
        for number, part in enumerate(parts):
            self._put(part, [*parts[:number], part] if number else [])
        self._insert_ddl(ddl)
        return ""

    def add(self, rows: StagedVersions, ddl: Sequence[DdlRow]) -> str:
        self._begin_writing(rows.rows)
        self._put(rows, [rows])
        for op, commit_ts, text in ddl:
            same = f"{self._quoted(OP)} = {self._text(op)} AND {self._quoted(DDL)} = {self._text(text)}"
            self._delete_slice(f"{self._ts} = {commit_ts} AND {same}")
        self._insert_ddl(ddl)
        return ""

    def drop_view(self, view: Relation) -> None:
        if self._find_view(view) is not None:
            self._drop_view(view)

    def fit_view(self, view: Relation, key: Sequence[str]) -> None:
        types = self.types
        names = columns_of(types, self._commit_ts)
        found = self._find_view(view)
        there = {column.name: column.type for column in found.columns} if found is not None else {}
        kept = {name: types[name] for name in names if name not in OWN_OF_VIEW}
        if list(there) == names and {name: there[name] for name in kept} == kept:
            return
        own = {name.lower(): name for name in types}
        columns = [own[self._place.dialect.fit_column(name).lower()] for name in key]
        self._make_view(view, self._intervals(list(kept), columns))

    def _find_view(self, view: Relation) -> FoundTable | None:
        found = self._session.find_table(view)
        if found is not None and found.is_table:
            raise no_view(view)
        return found

    def end(self, report: TableReport) -> None:
        self._session.ledger.note_done(self._load, self._target, report)

    def find_newest(self, key: Mapping[str, str]) -> tuple[int, bool] | None:
        """The commitTs (TSO) of the newest version of the row with *key*, literals by column, and whether it is a delete; None
        if there is none."""
        same = " AND ".join(f"{self._quoted(name)} = {literal}" for name, literal in key.items())
        rows = self._query(
            f"SELECT {self._ts}, {self._quoted(OP)} FROM {self._name} WHERE {same} AND {self._quoted(DDL)} IS NULL "
            f"ORDER BY {self._ts} DESC, CASE WHEN {self._quoted(OP)} = 'delete' THEN 1 ELSE 0 END LIMIT 1"
        )
        return (rows[0][0], rows[0][1] == "delete") if rows else None

    def _in_slice(self, column: str) -> str:
        window = self._load.index.window
        return f"{column} >= {window.from_ts} AND {column} < {window.to_ts}"

    def _put(self, part: StagedVersions, like: Iterable[StagedVersions]) -> None:
        """Insert the rows of *part*; those that are there already, as versions are told apart in *like*, go first."""
        self._require_staged(part)
        types, own = self.types, {name.lower(): name for name in self.types}
        cells = {
            self._commit_ts: f"f.{VERSION}",
            OP: f"f.{staging.OP}",
            COMMIT_TIME: self._time_of(f"f.{VERSION}"),
            **{name: f"f.{staged}" for name, staged in zip(PLACE, _PLACE_STAGED, strict=True)},
            ABSENT: self._absent_of(f"f.{staging.ABSENT}"),
        }
        for column in part.columns:
            name = own[column.name.lower()]
            cells[name] = self._cast(f"f.{column.staged}", column.type, types[name])
        names = ", ".join(map(self._quoted, cells))
        same = self._identity(part, like, cells)
        for stage in part.stages:
            for condition in self._parts(stage):
                if same:
                    self._delete_same(self._stage(stage), f"{condition} AND {same}")
                self._insert(
                    f"INSERT INTO {self._name} ({names}) SELECT {', '.join(cells.values())} FROM {self._stage(stage)} AS f "
                    f"WHERE {condition}"
                )

    def _require_staged(self, part: StagedVersions) -> None:
        """Raise TransientError if *part* has not the rows that workers reported, as behind a proxy that sends them elsewhere."""

    def _identity(self, part: StagedVersions, like: Iterable[StagedVersions], cells: Mapping[str, str]) -> str:
        """What a row ``t`` shares with an equal version ``f`` of *part*: the row, its commitTs, and whether it is put or deleted.

        Rows with one commitTs are of one definition. Those of definitions with another key have NULL, or a value that all copies
        of a version share, in the columns that other definitions need.
        """
        like = [each for each in like if each.stages]
        if not like:
            return ""
        own = {name.lower(): name for name in self.types}
        names = dict.fromkeys(own[column.name.lower()] for each in like for column in each.key)
        places = () if all(each.key for each in like) else PLACE
        op = f"t.{self._quoted(OP)}"
        parts = [
            self._in_slice(f"t.{self._ts}"),
            f"t.{self._ts} = f.{VERSION}",
            f"t.{self._quoted(DDL)} IS NULL",
            f"({op} = 'delete') = (f.{staging.OP} = 'delete')",
        ]
        parts += [self._same(f"t.{self._quoted(name)}", cells.get(name, "NULL")) for name in (*names, *places)]
        return " AND ".join(parts)

    def _insert_ddl(self, ddl: Sequence[DdlRow]) -> None:
        if not ddl:
            return
        names = ", ".join(map(self._quoted, (self._commit_ts, OP, COMMIT_TIME, DDL)))
        rows = ", ".join(
            f"({commit_ts}, {self._text(op)}, {self._time_of(str(commit_ts))}, {self._text(text)})"
            for op, commit_ts, text in ddl
        )
        self._insert(f"INSERT INTO {self._name} ({names}) VALUES {rows}")

    def _intervals(self, columns: Sequence[str], key: Sequence[str]) -> str:
        """The query of the view: *columns* of the upstream, and ``scd2.OWN``.

        A version ends with the next one of its *key*, or with the next DDL that empties the table. It is right for whatever
        windows are loaded, in any order: nothing is kept beside the history.
        """
        ts, op, ddl = self._ts, self._quoted(OP), self._quoted(DDL)
        listed = ", ".join(map(self._quoted, columns))
        of_key = ", ".join(part for name in key for part in self._partition_by(name))
        following = "_ticdc_replay_next"
        emptied = "_ticdc_replay_emptied"
        return (
            f"SELECT {listed}, valid_from, valid_to, {self._time_of('valid_from')} AS valid_from_time, "
            f"{self._time_of('valid_to')} AS valid_to_time, valid_to IS NULL AS is_current "
            f"FROM (SELECT {listed}, {op}, {ts} AS valid_from, "
            f"coalesce(least({following}, {emptied}), {following}, {emptied}) AS valid_to "
            f"FROM (SELECT {listed}, {op}, {ts}, lead({ts}) OVER (PARTITION BY {of_key} "
            f"ORDER BY {ts}, CASE WHEN {op} = 'delete' THEN 0 ELSE 1 END) AS {following}, "
            f"(SELECT min(e.{ts}) FROM {self._name} e WHERE e.{op} = 'empty' AND e.{ts} >= h.{ts}) AS {emptied} "
            f"FROM {self._name} h WHERE {ddl} IS NULL) v) i "
            f"WHERE {op} <> 'delete' AND (valid_to IS NULL OR valid_from < valid_to)"
        )


MILLISECONDS = f">> {LOGICAL_BITS}"
"""After a TSO: the milliseconds since 1970 in it."""
