"""The history in a lake: every row version once, whatever windows are loaded, in any order, and how often.

A commitTs belongs to one window of a grid, so what a window brings is a slice of a table: the rows with a commitTs in
it. Order of writes, each of which may be repeated:

1. The load's mark, with its tables: a newer run without rows of one of them empties the slice that an older run left.
2. The table's form, and in the ledger its newest commitTs: below it, a slice may have rows.
3. Reports of other runs end: a run without a report is loaded again.
4. One commit replaces the slice.
5. The report of the run.

A load that finds rows without a report, left by a kill between 4 and 5, replaces them.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter

import msgspec

from ticdc_replay.changelog.cells.written import WrittenCell
from ticdc_replay.changelog.files.index import TableVersion
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.domain.errors import (
    ConfigError,
    LeaseLostError,
    PermanentError,
    TargetMismatchError,
    TransientError,
)
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.schemas.changes import TableChanges, TableCreated
from ticdc_replay.targets.base import (
    Execute,
    FoundRow,
    Load,
    Loaded,
    RebuildableTarget,
    StoreAddress,
    TableReport,
    TargetColumn,
)
from ticdc_replay.targets.database_ddl import with_creations_of, with_ddl_of
from ticdc_replay.targets.ddl import changes_by_table
from ticdc_replay.targets.generations import Mark, refuse_superseded, wants_any
from ticdc_replay.targets.lake import scd2
from ticdc_replay.targets.lake.dialect import lake_dialect, quoted, string
from ticdc_replay.targets.lake.history_ledger import HistoryLedger, announced
from ticdc_replay.targets.lake.history_rows import OP, OWN_TYPES, Checked, CheckTask, check
from ticdc_replay.targets.lake.history_table import (
    HistoryTable,
    Part,
    ddl_rows,
    require_free_names,
    version_files,
)
from ticdc_replay.targets.lake.lease import HeldLease
from ticdc_replay.targets.lake.look_up import how_to_look
from ticdc_replay.targets.lake.mirror import format_of
from ticdc_replay.targets.lake.section import LakeSection
from ticdc_replay.targets.lake.session import LakeSession
from ticdc_replay.targets.lake.stage import StagedFiles
from ticdc_replay.targets.lake.table_format import properties_sql
from ticdc_replay.targets.lake.tables import own_properties
from ticdc_replay.targets.lake.types import is_text
from ticdc_replay.targets.mirror import dropped_databases
from ticdc_replay.targets.mirror.marks import place_of
from ticdc_replay.targets.mirror.planning.differences import refuse_others
from ticdc_replay.targets.mirror.planning.tables import Relation, TableState
from ticdc_replay.targets.sql import SqlError

log = logging.getLogger(__name__)

_DROPPED = "dropped: the table was dropped with its database"
_TRIES = 3
"""How often a slice is replaced again because the lease was lost in the commit."""

_Marks = frozenset[tuple[Mark, str | None]]


class LakeHistory(RebuildableTarget[LakeSection]):
    """Loads changelogs into histories in Iceberg or Delta tables."""

    def require_gone(self, pipeline: str, table: TableName) -> None:
        """A load refuses a table that is still there."""
        self._require_of(pipeline, self._ledger(), table)

    def forget(self, pipeline: str, table: TableName) -> str:
        ledger = self._ledger()
        target = self._require_of(pipeline, ledger, table)
        with ledger.hold(target, f"forget {table}"):
            ledger.forget(target, target)
        return str(target)

    def find_row(self, pipeline: str, table: TableName, key: Mapping[str, WrittenCell]) -> FoundRow:
        """The table takes Spark, which is not started for one row."""
        target, columns = history_of(self.config, table), [self.config.commit_ts_column, OP]
        how = how_to_look(self.config, format_of(self.config).name_of(target), columns, key)
        return FoundRow(where=str(target), keeps="all", not_looked=how)

    def _require_of(self, pipeline: str, ledger: HistoryLedger, table: TableName) -> Relation:
        """The history of *table*, which is of *pipeline*."""
        target = history_of(self.config, table)
        state = ledger.state_of(target)
        if state is not None:
            refuse_others(target, state, pipeline, self.config.same_upstream_as)
        return target

    def load(self, load: Load, execute: Execute) -> Loaded:
        self._refuse_what_cannot_be(load)
        with self._session(load) as session, session.translated("reach the catalog"):
            session.sql.set(format_of(self.config).catalog_settings(self._secrets), self._secrets)
            return _Attempt(self.config, load, session).run(execute)

    def _refuse_what_cannot_be(self, load: Load) -> None:
        if load.index.order == "place":
            raise ConfigError(
                f"target {load.target}: a history needs windows by commitTs, and rows of this one have none: its windows are by "
                "offset. Load them into a parquet target"
            )
        if self.config.mode == "scd2" and (
            getattr(self.config, "path", None) is not None or self.config.settings.get("type") == "hadoop"
        ):
            raise _no_views(self.config)

    @contextmanager
    def _session(self, load: Load) -> Iterator[LakeSession]:
        session = LakeSession(
            load.sql, format_of(self.config), self._ledger(), StagedFiles(self._address), load.attempt
        )
        try:
            yield session
        finally:
            session.close()

    def _ledger(self) -> HistoryLedger:
        return HistoryLedger(self._address.open())

    @property
    def _address(self) -> StoreAddress:
        return StoreAddress(self.config.ledger, self.connections.get(self.config.ledger_connection))

    @property
    def _secrets(self) -> Mapping[str, str]:
        return self.config.secret_settings(self.connections.get(self.config.connection))


def history_of(config: LakeSection, table: TableName) -> Relation:
    """The table that has the history of *table*."""
    dialect, suffix = lake_dialect(config.database), "_history" if config.mode == "scd2" else ""
    return Relation(dialect.fit(config.db_schema or table.schema), dialect.fit(table.table + suffix))


def _no_views(config: LakeSection) -> ConfigError:
    return ConfigError(
        f"{config.description}: mode scd2 needs a catalog that holds views, and this one can't. Choose such a catalog, or mode "
        "history and the query in docs/targets.md"
    )


def _redrives_of(run: str, held: Mapping[str, str | None]) -> list[str]:
    """Those of the runs *held* that are re-drives of the quarantine of *run*."""
    return [each for each, of in held.items() if of == run]


class _Pending(msgspec.Struct, frozen=True):
    """A table that this attempt loads."""

    table: TableName
    target: Relation
    versions: tuple[TableVersion, ...]
    changes: tuple[TableChanges, ...]

    @property
    def schemas(self) -> list[TableSchema]:
        """Those of rows, and those that DDL defines, so that columns are there before rows have them."""
        created = [
            change.schema
            for entry in self.changes
            for change in entry.changes
            if isinstance(change, TableCreated) and change.schema is not None
        ]
        return [*(version.schema for version in self.versions), *created]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row in the newest definition; none without one."""
        return max(self.schemas, key=attrgetter("valid_from")).handle_key if self.schemas else ()


class _Attempt:
    """One attempt to load one window."""

    def __init__(self, config: LakeSection, load: Load, session: LakeSession) -> None:
        self._config = config
        self._load = load
        self._session = session
        self._format = format_of(config)
        assert isinstance(session.ledger, HistoryLedger), "the ledger of a history"
        self._ledger = session.ledger
        self._dialect = lake_dialect(config.database)

    def run(self, execute: Execute) -> Loaded:
        load = self._load
        dropped_databases.note(self._session, load, self._config, self._dialect)
        wanted = TablePatterns(load.selection)
        known = [
            table
            for table, target, pipeline in self._ledger.mirrors()
            if target == self._target(table)
            and pipeline in (load.index.pipeline, *self._config.same_upstream_as)
            and wanted.wants(table.schema, table.table)
        ]
        if load.index.ddl and load.index.redrives is None:
            load = with_creations_of(with_ddl_of(load, known), known)
        self._load = load
        reports, pending = self._begin()
        newer = self._leave_mark([each.table for each in pending], known)
        parts, checked = self._check(pending, execute)
        for each in pending:
            reports[each.table] = self._commit(each, parts[each.table], checked[each.table], newer)
        for table in self._left_by_others(known, reports):
            self._empty(table, newer)
        with self._session.translated("read the ledger"):
            others = self._ledger.other_runs(load)
        tables = tuple(reports[table] for table in load.tables if table in reports)
        return Loaded(tables, tuple(sorted({file for each in tables for file in each.quarantine_files})), others)

    def _target(self, table: TableName) -> Relation:
        return history_of(self._config, table)

    def _view(self, table: TableName) -> Relation:
        return Relation(self._dialect.fit(self._config.db_schema or table.schema), self._dialect.fit(table.table))

    def _begin(self) -> tuple[dict[TableName, TableReport], list[_Pending]]:
        """What the ledger has already or is left out, and what is to be loaded."""
        load = self._load
        changes = changes_by_table(load.index.changes)
        reports: dict[TableName, TableReport] = {}
        pending: list[_Pending] = []
        for table in load.tables:
            target = self._target(table)
            state = self._ledger.state_of(target)
            if state is not None:
                self._refuse_others(table, target, state)
            each = _Pending(table, target, tuple(load.index.versions_of(table)), changes.get(table, ()))
            done = None if load.reload else self._ledger.find_done(target, load.index.window, load.index.run_hash)
            if done is not None:
                reports[table] = done
            elif self._config.mode == "scd2" and any(not schema.handle_key for schema in each.schemas):
                reports[table] = self._without_key(each)
            elif each.versions or each.changes:
                if self._config.mode == "scd2":
                    self._refuse_text_keys(each)
                require_free_names(table, each.schemas, self._config)
                pending.append(each)
        return reports, pending

    def _refuse_others(self, table: TableName, target: Relation, state: TableState) -> None:
        refuse_others(target, state, self._load.index.pipeline, self._config.same_upstream_as)
        if state.source != table:
            raise TargetMismatchError(
                f"{target} is the history of {state.source}, and {table} would have the same name in the lake: leave one of them "
                "out, or give it a target with another `schema`"
            )

    def _without_key(self, each: _Pending) -> TableReport:
        if each.table in self._load.named:
            raise PermanentError(
                f"{each.table}: without primary key or NOT NULL unique key rows have no identity, so no version has an end; take "
                "it out of `tables`, or load it in mode history"
            )
        log.warning("%s has no key: mode scd2 leaves it out, mode history can hold it", each.table)
        rows = sum(version.rows for version in each.versions)
        return TableReport(table=each.table, outcome="without_key", destination="", events=rows)

    def _refuse_text_keys(self, each: _Pending) -> None:
        for schema in each.schemas:
            for column in schema.columns:
                if column.name in schema.handle_key and is_text(column.type):
                    raise TargetMismatchError(
                        f"{each.table}: the decimal {column.name} of its key is text in {self._config.database}, and one number "
                        "may have several texts: give its digits in the table's definition (definitions) where it has up to 38, "
                        "or load it in mode history"
                    )

    def _leave_mark(self, pending: Sequence[TableName], known: Sequence[TableName]) -> _Marks:
        """Leave the load's mark; newer ones of overlapping windows. Raises SupersededError for a newer run of this one."""
        newer = self._newer()
        refuse_superseded(self._load, [mark for mark, _ in newer], [*pending, *known])
        mark = msgspec.structs.replace(Mark.of(self._load), tables=self._load.tables)
        self._ledger.put_mark(self._load, place_of(self._config, self._dialect), mark)
        return newer

    def _newer(self) -> _Marks:
        least = min([self._load.generation, *(source.generation for source in self._load.sources)])
        return frozenset(self._ledger.newer_marks(self._load, least))

    def _look_again(self, table: TableName, seen: _Marks) -> None:
        """Raise SupersededError if a newer run of the window has begun, TransientError for one of an overlapping window."""
        newer = self._newer()
        refuse_superseded(self._load, [mark for mark, _ in newer], [table])
        for mark, _ in newer - seen:
            if mark.generation > self._load.generation and wants_any(mark, [table]):
                raise TransientError(
                    f"target {self._load.target}: a newer run, {mark.run_hash} of the overlapping window {mark.window}, has "
                    f"begun to load {table} meanwhile; try again"
                )

    def _check(
        self, pending: Sequence[_Pending], execute: Execute
    ) -> tuple[dict[TableName, Part], dict[TableName, tuple[int, tuple[str, ...]]]]:
        """The rows of each table, and how many are left out for their values, with the files that list them."""
        load = self._load
        files = [file for each in pending for file in version_files(load, load.index, each.versions)]
        count = max(1, min(load.parallelism, len(files)))
        shares = [tuple(islice(files, number, None, count)) for number in range(count)]
        tasks = [
            CheckTask(share, f"{load.folder}/quarantine/{number:03d}.parquet" if load.quarantine_values else None)
            for number, share in enumerate(shares)
            if share
        ]
        results: list[Checked] = execute(check, tasks, f"check rows for {self._config.name}") if tasks else []
        left_out = {}
        listed: dict[TableName, set[str]] = {each.table: set() for each in pending}
        for task, result in zip(tasks, results, strict=True):
            for file, positions in zip(task.files, result.left_out, strict=True):
                left_out[file.name, file.only] = positions
                if positions and result.quarantine is not None:
                    listed[file.table].add(result.quarantine)
        parts, aside = {}, {}
        for each in pending:
            of_table = tuple(file for file in files if file.table == each.table)
            gone = tuple(left_out[file.name, file.only] for file in of_table)
            parts[each.table] = Part(of_table, gone)
            aside[each.table] = (sum(len(one) // 8 for one in gone), tuple(sorted(listed[each.table])))
        return parts, aside

    def _commit(self, each: _Pending, part: Part, aside: tuple[int, tuple[str, ...]], newer: _Marks) -> TableReport:
        for left in reversed(range(_TRIES)):
            try:
                with self._ledger.hold(each.target, self._load.attempt) as lease:
                    return self._apply(each, part, aside, newer, lease)
            except LeaseLostError:
                self._ledger.discard()
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _apply(
        self,
        each: _Pending,
        part: Part,
        aside: tuple[int, tuple[str, ...]],
        newer: _Marks,
        lease: HeldLease,
    ) -> TableReport:
        load, ledger, target = self._load, self._ledger, each.target
        self._look_again(each.table, newer)
        done = None if load.reload else ledger.find_done(target, load.index.window, load.index.run_hash)
        if done is not None:  # another attempt has loaded it meanwhile
            return done
        table = HistoryTable(self._session.sql, self._format, target, each.table)
        with self._session.translated(f"prepare {target}"):
            ddl, newest_ts, told = self._prepare(each, table)
        empty = not newest_ts or newest_ts < load.index.window.from_ts
        inside = [entry for entry in ddl if load.index.window.from_ts <= entry[1] < load.index.window.to_ts]
        incarnation = ledger.incarnation_of(target) or ""
        held = {run: of for run, of in ledger.runs_of(target, load.index.window).items() if run != load.index.run_hash}
        redrives = _redrives_of(load.index.redrives or load.index.run_hash, held)
        table.note_emptied(load, incarnation, lease, [entry for entry in ddl if entry not in inside])
        if load.index.redrives is not None:
            others = set(held) - set(redrives) - {load.index.redrives}
            if others:
                raise PermanentError(
                    f"target {load.target} has run {min(others)} of window {load.index.window} for {each.table}, and this is a "
                    f"re-drive of the quarantine of run {load.index.redrives}: re-drive that of run {min(others)}"
                )
            commit = table.add(load, incarnation, lease, part, inside)
        else:
            added = [self._part_of(run, each.table) for run in redrives]  # first, as a changelog may be gone
            ledger.end_runs(load, target, [run for run in (*held, load.index.run_hash) if run not in redrives])
            commit = table.replace(load, incarnation, lease, [part, *added], inside, empty=empty)
        if self._config.mode == "scd2":
            self._make_view(each, table)
        quarantined, files = aside
        events = sum(version.rows for version in each.versions)
        report = TableReport(
            table=each.table,
            outcome="loaded",
            destination=str(target),
            fields=tuple(TargetColumn(name, type_name) for name, type_name in table.types.items()),
            events=events,
            keys=events - quarantined,
            upserted=events - quarantined,
            quarantined=quarantined,
            quarantine_files=files,
            ddl=told,
            commit=commit,
        )
        ledger.note_done(load, target, report)
        ledger.flush()
        self._verify(each, lease)
        return report

    def _verify(self, each: _Pending, lease: HeldLease) -> None:
        """End the report that was written, and raise LeaseLostError, if another run may have loaded the slice before it was."""
        try:
            lease.verify()
        except LeaseLostError:
            self._ledger.end_runs(self._load, each.target, [self._load.index.run_hash])
            raise

    def _prepare(self, each: _Pending, table: HistoryTable) -> tuple[list[tuple[str, int, str]], int, tuple[str, ...]]:
        """Make the table, or change it, so that it can take the rows; its DDL as rows, the newest commitTs (TSO) that it
        may have had before, and what was done."""
        load, ledger, target = self._load, self._ledger, each.target
        state, found = ledger.state_of(target), self._session.find_table(target)
        if state is not None:
            self._refuse_others(each.table, target, state)
        ddl = ddl_rows(each.changes)
        told: list[str] = []
        if state is not None and state.newest_ts and found is None:
            raise TargetMismatchError(
                f"{target} was dropped by hand, and its ledger has windows of it. Make it again from a copy; or run "
                f"`ticdc-replay mirror forget <pipeline> {each.table} --target {load.target}` and load its windows again"
            )
        floors = [] if state is None else self._floors(each.table)
        if state is None:
            ledger.share_drops()  # so that a drop which is noted from now on makes the load start again
            if found is not None:
                raise TargetMismatchError(
                    f"{target} is there already, and is no history of {each.table}: drop it, or give this target another `schema`"
                )
            ledger.add_table(
                target,
                source=each.table,
                pipeline=load.index.pipeline,
                tombstones=target,
                newest_ts=0,
                floor_ts=0,
                form_floor_ts=0,
            )
            floors = self._floors(each.table)
            ledger.flush()
        if found is None:
            self._make(each)
            told.append(f"create table {target}")
        elif self._config.mode == "scd2":
            self._require_key(each, found.primary_key, ledger.incarnation_of(target) or "")
        told += table.fit(each.schemas)
        # Of windows that were loaded before there was a table to note it in.
        noted = {commit_ts for op, commit_ts, _ in ddl if op == "empty"}
        missing = sorted({floor_ts - 1 for floor_ts in floors} - noted)
        ddl += [("empty", commit_ts, _DROPPED) for commit_ts in missing]
        times = [file.max_commit_ts for version in each.versions for file in version.files]
        last_ts = max([*times, *(commit_ts for _, commit_ts, _ in ddl)], default=0)
        ledger.raise_marks(target, schema_ts=0, whole_ts=0, newest_ts=last_ts)
        ledger.flush()
        return ddl, state.newest_ts if state is not None else 0, tuple(told)

    def _floors(self, table: TableName) -> list[int]:
        return dropped_databases.floors_of(self._session, self._load, self._config, self._dialect, table)

    def _make(self, each: _Pending) -> None:
        config, target = self._config, each.target
        commit_ts = config.commit_ts_column
        table = HistoryTable(self._session.sql, self._format, target, each.table)
        needed = table.definitions(each.schemas).values()
        # First, because Delta has statistics, which find a slice, of the first columns alone.
        columns = [f"{quoted(commit_ts)} bigint NOT NULL"]
        columns += [
            f"{quoted(name)} {type_name}{' NOT NULL' if name == OP else ''}" for name, type_name in OWN_TYPES.items()
        ]
        columns += [f"{quoted(column.name)} {column.type}" for column in needed]
        incarnation = self._ledger.incarnation_of(target)
        assert incarnation is not None, "the ledger knows a table before it is made"
        properties = own_properties(incarnation, config.ledger, each.key)
        self._session.create_schema(target.schema)
        layout = config.layout_of(each.table)
        for statement in self._format.create_table(target, ", ".join(columns), layout, properties, replaces=False):
            self._session.sql.run(statement)

    def _require_key(self, each: _Pending, key: Sequence[str], incarnation: str) -> None:
        """Note the key of the table's rows. Raises TargetMismatchError if rows of another *key* are there."""
        if each.key and key and set(each.key) != set(key):
            raise TargetMismatchError(
                f"{each.target}: its rows are identified by {', '.join(key)}, and those of this window by {', '.join(each.key)}: "
                "no interval goes over such a change. Load windows from the change on into a target with another `schema`, or "
                "all of them in mode history"
            )
        if each.key and not key:  # the first windows had rows or DDL of no known definition
            noted = properties_sql(own_properties(incarnation, self._config.ledger, each.key), string)
            self._session.sql.run(f"ALTER TABLE {self._format.name_of(each.target)} SET TBLPROPERTIES ({noted})")

    def _make_view(self, each: _Pending, table: HistoryTable) -> None:
        """Make the view, where it is not there or lacks a column."""
        sql, types, commit_ts = self._session.sql, table.types, self._config.commit_ts_column
        taken = sorted({name for name in types if name.lower() in scd2.OWN})
        if taken:
            raise TargetMismatchError(
                f"{each.table}: mode scd2 needs the names of its columns {', '.join(taken)}; load it in mode history"
            )
        view = self._format.name_of(self._view(each.table))
        found = self._session.find_table(each.target)
        key = each.key or (found.primary_key if found is not None else ())
        try:
            there = {name: type_name for name, type_name, _ in sql.columns(view)}
        except SqlError:
            there = {}
        names = scd2.columns_of(types, commit_ts)
        kept = [types[name] for name in names if name not in scd2.OWN]
        # A view keeps the types that its table had when it was made.
        if not key or (list(there), [there.get(name) for name in names if name not in scd2.OWN]) == (names, kept):
            return
        try:
            sql.run(f"CREATE OR REPLACE VIEW {view} AS {scd2.query(table.name, types, commit_ts, key)}")
        except SqlError as error:
            if "MISSING_CATALOG_ABILITY" in error.condition or "not supported by catalog" in str(error):
                raise _no_views(self._config) from error
            raise

    def _part_of(self, run: str, table: TableName) -> Part:
        """The rows of a re-drive that the slice has."""
        index = read_index(self._load.artifacts.open(), run)
        files = version_files(self._load, index, index.versions_of(table))
        task = CheckTask(
            files, f"{self._load.folder}/quarantine/{run}.parquet" if self._load.quarantine_values else None
        )
        return Part(files, check(task).left_out if files else ())

    def _left_by_others(self, known: Sequence[TableName], loaded: Collection[TableName]) -> list[TableName]:
        """Tables, of those not *loaded*, of which other runs of the window may have left rows."""
        if self._load.index.redrives is not None:
            return []
        return sorted(announced(self._ledger.marks_of(self._load)).intersection(known).difference(loaded))

    def _empty(self, table: TableName, newer: _Marks) -> None:
        """Empty the slice that older runs of the window have left of *table*, and end their reports."""
        load, target = self._load, self._target(table)
        history = HistoryTable(self._session.sql, self._format, target, table)
        for left in reversed(range(_TRIES)):
            try:
                with self._ledger.hold(target, load.attempt) as lease:
                    self._look_again(table, newer)
                    held = self._ledger.runs_of(target, load.index.window)
                    redrives = _redrives_of(load.index.run_hash, held)
                    others = [run for run in held if run not in redrives]
                    if redrives and not others:
                        return  # the slice has what re-drives of this run have added, and nothing else
                    found = self._session.find_table(target)
                    if found is not None:  # also if the slice is empty: no commit of an older load comes after this one
                        incarnation = self._ledger.incarnation_of(target) or ""
                        added = [self._part_of(run, table) for run in redrives]
                        history.replace(load, incarnation, lease, added, [], empty=False)
                    self._ledger.end_runs(load, target, others)
                return
            except LeaseLostError:
                self._ledger.discard()
                if not left:
                    raise
