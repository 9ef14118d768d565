"""A mirror of each table in PostgreSQL: the row's last version, guarded by its commitTs or, without one, its place in Kafka.

One attempt: look at the target and refuse what can't be followed; make staging tables; workers stage; then each table is
committed in one transaction with its ledger row. Whatever an attempt that broke has left, the next one drops.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from ticdc_replay.decode.filter import TableFilter
from ticdc_replay.domain.errors import PermanentError, PolicyStopError, TargetMismatchError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import describe
from ticdc_replay.schemas.changes import TableChanges
from ticdc_replay.schemas.ddl import TableKey, key_of
from ticdc_replay.targets.base import Execute, FloorRaised, Load, Loaded, Mirror, StoppedLoad, TableReport
from ticdc_replay.targets.database_ddl import told_of, told_of_creations
from ticdc_replay.targets.ddl import changes_by_table
from ticdc_replay.targets.last_versions import FoldGroup, fold_groups, found_last_versions
from ticdc_replay.targets.layouts import layouts_of
from ticdc_replay.targets.postgres import dropped_databases, emptying, ledger, marks, mirror_table, upkeep
from ticdc_replay.targets.postgres.catalog import find_table
from ticdc_replay.targets.postgres.commit import Staged, commit_table
from ticdc_replay.targets.postgres.errors import translated
from ticdc_replay.targets.postgres.identifiers import LEDGER_SCHEMA
from ticdc_replay.targets.postgres.ledger import TableState
from ticdc_replay.targets.postgres.plan import TablePlan, plan_table, target_of
from ticdc_replay.targets.postgres.section import PostgresTarget, is_reserved_schema
from ticdc_replay.targets.postgres.settings import PostgresSettings
from ticdc_replay.targets.postgres.stage import StageResult, StageTask, stage
from ticdc_replay.targets.postgres.staged_rows import PUT, VERSION
from ticdc_replay.targets.postgres.tasks import stage_tasks
from ticdc_replay.targets.postgres.types import stage_type
from ticdc_replay.targets.postgres.window_ddl import Floor, first_floor

log = logging.getLogger(__name__)

Connection = psycopg.Connection[Any]

SMALL_ROWS = 1_500_000
"""Up to this many row versions each worker compares all keys of a table itself: measured to cost less than a round of tasks."""


class PostgresMirror(Mirror[PostgresTarget]):
    """Loads changelogs into PostgreSQL. Tables without key have no rows that could be told apart: they are left out where a
    pattern matched them, and refused where the pipeline names them."""

    def load(self, load: Load, execute: Execute) -> Loaded:
        settings = self._settings
        with _attempt(settings, load) as connection:
            with translated("look at the target", settings.conn_id):
                dropped_databases.note(connection, load, self.config)
                mirrored = _own_mirrors(connection, load, self.config)
                load = told_of_creations(told_of(load, mirrored), mirrored)
                reserved = [table for table in load.tables if is_reserved_schema(target_of(self.config, table).schema)]
                _refuse_named_reserved(load, reserved)
                changes = changes_by_table(load.index.changes)
                spellings: defaultdict[TableKey, set[TableName]] = defaultdict(set)
                for name in mirrored:
                    spellings[key_of(name)].add(name)
                plans = [
                    self._plan(
                        connection,
                        _with_changes(load, changes.get(table, ())),
                        table,
                        spellings[key_of(table)] - {table},
                    )
                    for table in load.tables
                    if table not in reserved
                ]
                keyless = [plan for plan in plans if plan.pieces and not plan.handle_key]
                _refuse_shared_tables(plans)
                _refuse_named_keyless(load, keyless)
                reports = {plan.source: _without_key(plan) for plan in keyless}
                reports |= {table: _with_reserved_name(load, table) for table in reserved}
                keyed = [plan for plan in plans if plan.source not in reports]
                done, pending = _begin(connection, load, keyed, self.config.same_upstream_as)
                reports |= done
                newer = marks.leave(connection, load, self.config, [entry.plan for entry in pending])
                groups = fold_groups(load, {entry.plan.source: entry.plan.versions for entry in pending}, SMALL_ROWS)
                tasks = self._tasks(load, [entry.plan for entry in pending], groups)
                for entry in pending:
                    _make_staging(connection, load, entry, _stages(entry.plan, tasks))
                connection.commit()
            with found_last_versions(load, groups, execute), _telling_layouts(load, pending):
                results = execute(stage, tasks, f"stage into {self.config.name}")
            for entry in pending:
                staged = _staged(load, entry.plan, tasks, results)
                reports[entry.plan.source] = commit_table(
                    connection, load, entry.plan, staged, newer, self.config, settings.conn_id
                )
            _stop_at_the_end(load, [entry.plan for entry in pending], reports)
            with translated("read the ledger", settings.conn_id):
                others = ledger.other_runs(connection, load)
        tables = tuple(reports[table] for table in load.tables)
        files = sorted({file for report in tables for file in report.quarantine_files})
        return Loaded(tables, tuple(files), others)

    def floor_of(self, table: TableName) -> int:
        return upkeep.floor_of(self._settings, self.config, table)

    def stopped_loads(self, pipeline: str, table: TableName) -> tuple[StoppedLoad, ...]:
        return upkeep.stopped_loads(self._settings, self.config, pipeline, table)

    def raise_floor(self, pipeline: str, table: TableName, floor_ts: int) -> FloorRaised:
        return upkeep.raise_floor(self._settings, self.config, pipeline, table, floor_ts)

    def require_gone(self, pipeline: str, table: TableName) -> None:
        upkeep.require_gone(self._settings, self.config, pipeline, table)

    def forget(self, pipeline: str, table: TableName) -> str:
        return upkeep.forget(self._settings, self.config, pipeline, table)

    @property
    def _settings(self) -> PostgresSettings:
        return PostgresSettings(self.connections[self.config.connection])

    def _plan(self, connection: Connection, load: Load, table: TableName, spellings: Iterable[TableName]) -> TablePlan:
        target = target_of(self.config, table)
        state = ledger.state_of(connection, target)
        floor = Floor(state.floor_ts, state.form_floor_ts) if state is not None else Floor(0, 0)
        if find_table(connection, target) is None and (state is None or state.newest_ts < max(floor.rows, 1)):
            first = first_floor(load, table)
            ended_ts = self._ended_ts(connection, load, spellings)
            floor = Floor(max(floor.rows, first.rows, ended_ts), max(floor.form, first.form, ended_ts))
        dropped_ts = dropped_databases.floor_of(connection, load, self.config, table) if state is None else 0
        floor = Floor(max(floor.rows, dropped_ts), max(floor.form, dropped_ts))
        return msgspec.structs.replace(plan_table(load, self.config, table, floor), dropped_ts=dropped_ts)

    def _ended_ts(self, connection: Connection, load: Load, spellings: Iterable[TableName]) -> int:
        """Below which commitTs (TSO) rows are of a table that is no more; 0 where nothing tells.

        That is the floor of the mirrors of *spellings*, the same name in another letter case: the upstream has one such table at
        a time.
        """
        if load.index.order == "place":
            return 0
        states = (ledger.state_of(connection, target_of(self.config, other)) for other in spellings)
        return max((state.floor_ts for state in states if state is not None), default=0)

    def _tasks(self, load: Load, plans: Sequence[TablePlan], groups: Sequence[FoldGroup]) -> list[StageTask]:
        by_table = {group.fold.table: group for group in groups}
        tables = [(plan, by_table[plan.source]) for plan in plans if plan.pieces]
        return stage_tasks(load, self.connections[self.config.connection], tables, self.config.writers)


def _with_changes(load: Load, changes: tuple[TableChanges, ...]) -> Load:
    """*load* with no other *changes*, which are those of one table, so that they need not be looked for among all."""
    return msgspec.structs.replace(load, index=msgspec.structs.replace(load.index, changes=changes))


class _Pending(msgspec.Struct, frozen=True):
    """A table that this attempt loads, and what the ledger had of it at the beginning."""

    plan: TablePlan
    state: TableState | None


@contextmanager
def _telling_layouts(load: Load, pending: Sequence[_Pending]) -> Iterator[None]:
    """Add to an error about rows that can't share a table where the rows of its layouts are."""
    try:
        yield
    except TargetMismatchError as error:
        tables = [entry.plan.source for entry in pending if any(piece.lacking for piece in entry.plan.pieces)]
        raise TargetMismatchError(f"{error}{''.join(layouts_of(load, table) for table in tables)}") from error


@contextmanager
def _attempt(settings: PostgresSettings, load: Load) -> Iterator[Connection]:
    """The connection of one attempt. It holds the attempt's lock, so it stays open while workers stage."""
    with translated("connect", settings.conn_id):
        connection = settings.connect()
    try:
        with translated("prepare the ledger", settings.conn_id):
            _require_utf8(connection)
            ledger.create(connection)
            ledger.lock_attempt(connection, _lock_of(load))
            ledger.drop_dead_staging(connection)
            connection.commit()
        yield connection
    except BaseException:
        _drop_own_staging(connection, load)
        raise
    finally:
        connection.close()


def _drop_own_staging(connection: Connection, load: Load) -> None:
    """Leave nothing behind where the connection still allows it; else the next attempt drops it."""
    try:
        connection.rollback()
        ledger.drop_staging_of(connection, _lock_of(load))
        connection.commit()
    except psycopg.Error as error:
        log.warning("staging of attempt %s is left for the next load to drop: %s", load.attempt, error)


def _lock_of(load: Load) -> int:
    """The advisory lock of the attempt: a signed 64-bit number out of its random name."""
    return int.from_bytes(bytes.fromhex(load.attempt)[:8], signed=True)


def _require_utf8(connection: Connection) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise TargetMismatchError(
            f"database {connection.info.dbname!r} has the encoding {encoding}; a mirror needs UTF8 to hold every text unaltered"
        )


def _begin(
    connection: Connection, load: Load, plans: Sequence[TablePlan], same_upstream: Sequence[str]
) -> tuple[dict[TableName, TableReport], list[_Pending]]:
    """What the ledger has already, and what is to be loaded. Refuses what can't be loaded before a row is read."""
    done: dict[TableName, TableReport] = {}
    pending: list[_Pending] = []
    stops: list[str] = []
    earlier: list[str] = []
    apart: list[str] = []
    mismatches: list[str] = []
    for plan in plans:
        observed = mirror_table.observe(connection, plan.target)
        if observed.state is not None:
            mirror_table.refuse_others(plan.target, observed.state, load.index.pipeline, same_upstream)
        mirror_table.refuse_lost(plan, observed)
        report = None
        if not load.reload:
            report = ledger.find_done(connection, plan.target, load.index.window, load.index.run_hash)
        if report is not None:
            done[plan.source] = report
            continue
        observed = emptying.after_emptying(connection, plan, observed)
        unfollowed = mirror_table.unfollowed_changes(plan, observed)
        stops += unfollowed
        if unfollowed and observed.state is not None and observed.state.newest_ts >= load.index.window.to_ts:
            stops.append(
                f"{plan.source}: its mirror has rows from after this window, which a change by hand would meet, too: fill it "
                f"anew from a dump of the upstream at or after {describe(observed.state.newest_ts)}, up to which windows count "
                "as loaded; or from one at or after this commitTs, and then reload the windows after the dump"
            )
        stops += mirror_table.rows_before_creation(connection, plan, observed)
        try:
            steps = mirror_table.steps_to(plan, observed)
        except TargetMismatchError as error:
            mismatches.append(f"{error}{layouts_of(load, plan.source)}")
            continue
        except PolicyStopError as error:
            apart.append(str(error))
            continue
        if "ddl" in load.stopping and observed.found is not None and not unfollowed:
            earlier += [
                f"{plan.source}: DDL of an earlier window was not followed, and policies.ddl is stop: load that window first. "
                f"The rows need {step.text}"
                for step in steps
                if step.text
            ]
        pending.append(_Pending(plan, observed.state))
    if stops or earlier:
        stops += [line for plan in plans for line in plan.last_stops]
        raise PolicyStopError(
            "schema changes that a mirror does not follow by itself; nothing was loaded:\n- "
            + "\n- ".join([*stops, *earlier])
            + (_what_to_do(load) if stops else "")
        )
    if mismatches:
        raise TargetMismatchError("\n".join(mismatches))
    if apart:
        raise PolicyStopError("\n".join(apart))
    return done, pending


def _what_to_do(load: Load) -> str:
    window = load.index.window
    return (
        "\nLoad a window that ends at the first commitTs named here, all that is not loaded before it, and what is in "
        "quarantine: no row from before that commitTs comes later. Load one from there that ends just above it, which brings "
        "rows of that very commitTs. Then do to each mirror table what its line says, raise its floor just above that commitTs "
        f"({_RAISE_FLOOR})"
        if load.index.order == "commit_ts"
        else "\nDo to each mirror table what its line says, bring it to the upstream's state at or after the window, raise "
        f"its floor to {window.to_ts}, the window's end ({_RAISE_FLOOR} --holds-all-rows)"
    ) + ", and run this load again"


_RAISE_FLOOR = "ticdc-replay mirror floor <pipeline> <table> --at <TSO>"


def _stop_at_the_end(load: Load, plans: Sequence[TablePlan], reports: Mapping[TableName, TableReport]) -> None:
    """Raise PolicyStopError where the window ends with DDL that a mirror does not follow; its rows are all older, and loaded."""
    stops = [line for plan in plans for line in plan.last_stops]
    if stops:
        stopped = [reports[plan.source] for plan in plans if plan.last_stops]
        aside = [
            f"\n{report.quarantined} {'row' if report.quarantined == 1 else 'rows'} of {report.table} set aside "
            f"({', '.join(report.quarantine_files)}): no load applies them once the floor is there"
            for report in stopped
            if report.quarantined
        ]
        raise PolicyStopError(
            "schema changes that a mirror does not follow by itself end the window; all rows before them are loaded:\n- "
            + "\n- ".join(stops)
            + "".join(aside)
            + "\nLoad all that is not loaded before the window, and what is in quarantine. "
            f"Then do to each mirror table what its line says, raise its floor to {load.index.window.to_ts}, the window's end "
            f"({_RAISE_FLOOR}), and run this load again"
        )


def _own_mirrors(connection: Connection, load: Load, config: PostgresTarget) -> list[TableName]:
    """The upstream's tables that this target has mirrors of, of those that are wanted."""
    wanted = TableFilter(load.selection)
    return [
        table
        for table, target, pipeline in ledger.mirrors(connection)
        if str(target) == str(target_of(config, table))
        and pipeline in (load.index.pipeline, *config.same_upstream_as)
        and wanted.wants(table.schema, table.table)
    ]


def _stages(plan: TablePlan, tasks: Sequence[StageTask]) -> list[str]:
    """The staging tables of one table: one for each task that has rows of it."""
    return sorted({piece.stage for task in tasks for piece in task.pieces if piece.fold.table == plan.source})


def _make_staging(connection: Connection, load: Load, entry: _Pending, stages: Sequence[str]) -> None:
    columns = []
    for column in entry.plan.columns:
        default = mirror_table.default_of(entry.plan, entry.state, column.target)
        parts = [sql.Identifier(column.staged), mirror_table.type_sql(stage_type(column.type))]
        if default is not None:
            parts += [sql.SQL("DEFAULT"), mirror_table.trusted(default)]
        columns.append(sql.SQL(" ").join(parts))
    columns.append(sql.SQL("{} bigint, {} boolean").format(sql.Identifier(VERSION), sql.Identifier(PUT)))
    for name in stages:
        ledger.note_staging(connection, name, _lock_of(load), entry.plan.target)
        connection.execute(
            sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(
                sql.Identifier(LEDGER_SCHEMA, name), sql.SQL(", ").join(columns)
            )
        )


def _staged(load: Load, plan: TablePlan, tasks: Sequence[StageTask], results: Sequence[StageResult]) -> Staged:
    pieces = [piece for result in results for piece in result.pieces if piece.table == plan.source]
    aside = [result for result in results if any(p.quarantined for p in result.pieces if p.table == plan.source)]
    files = [file for version in plan.versions for file in version.files]
    extents = [load.index.extent_of(version) for version in plan.versions]
    return Staged(
        stages=tuple(_stages(plan, tasks)),
        events=sum(file.rows for file in files) + plan.below_floor,
        keys=sum(piece.staged for piece in pieces),
        quarantined=sum(piece.quarantined for piece in pieces),
        quarantine_files=tuple(result.quarantine for result in aside if result.quarantine is not None),
        first_ts=min((first for first, _ in extents), default=0),
        last_ts=max((last for _, last in extents), default=0),
    )


def _refuse_shared_tables(plans: Sequence[TablePlan]) -> None:
    sources: dict[str, TableName] = {}
    for plan in plans:
        other = sources.setdefault(str(plan.target), plan.source)
        if other != plan.source:
            raise TargetMismatchError(
                f"{other} and {plan.source} would both be mirrored in {plan.target}: leave `schema` of the target out, "
                "or load them with two targets"
            )


def _refuse_named_reserved(load: Load, reserved: Sequence[TableName]) -> None:
    named = [str(table) for table in reserved if table in load.named]
    if named:
        raise PermanentError(
            f"{', '.join(named)}: {LEDGER_SCHEMA}, information_schema and pg_* are reserved in PostgreSQL; name another `schema` "
            "in the target, or take these tables out of `tables`"
        )


def _with_reserved_name(load: Load, table: TableName) -> TableReport:
    log.warning("%s: its schema's name is reserved in PostgreSQL, so it has no mirror; name another `schema`", table)
    rows = sum(version.rows for version in load.versions(table))
    return TableReport(table=table, outcome="reserved_name", destination="", events=rows)


def _refuse_named_keyless(load: Load, keyless: Sequence[TablePlan]) -> None:
    named = [str(plan.source) for plan in keyless if plan.source in load.named]
    if named:
        raise PermanentError(
            f"{', '.join(named)}: without primary key or NOT NULL unique key rows have no identity, so a mirror can't hold them; "
            "take them out of `tables`, or load their history into a parquet target"
        )


def _without_key(plan: TablePlan) -> TableReport:
    log.warning("%s has no key: its history stays in the changelog, a mirror can't hold it", plan.source)
    rows = sum(piece.version.rows for piece in plan.pieces)
    return TableReport(table=plan.source, outcome="without_key", destination="", events=rows)
