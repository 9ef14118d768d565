"""A mirror of each table in PostgreSQL: the row's last version, guarded by its commitTs.

One attempt: look at the target and refuse what can't be followed; make staging tables; workers stage; then each table is
committed in one transaction with its ledger row. Whatever an attempt that broke has left, the next one drops.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import msgspec
import psycopg
from psycopg import sql

from ticdc_replay.domain.errors import PermanentError, PolicyStopError, TargetMismatchError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import Execute, Load, Loaded, TableReport, Target
from ticdc_replay.targets.config import PostgresTarget
from ticdc_replay.targets.postgres import ledger, mirror_table
from ticdc_replay.targets.postgres.commit import Staged, commit_table
from ticdc_replay.targets.postgres.errors import translated
from ticdc_replay.targets.postgres.identifiers import LEDGER_SCHEMA
from ticdc_replay.targets.postgres.ledger import TableState
from ticdc_replay.targets.postgres.plan import TablePlan, plan_table
from ticdc_replay.targets.postgres.settings import PostgresSettings
from ticdc_replay.targets.postgres.stage import StageResult, stage
from ticdc_replay.targets.postgres.staged_rows import COMMIT_TS, PUT
from ticdc_replay.targets.postgres.tasks import stage_tasks
from ticdc_replay.targets.postgres.types import stage_type

log = logging.getLogger(__name__)

Connection = psycopg.Connection[Any]


class StagedTable(msgspec.Struct, frozen=True):
    """A table that this attempt loads; ``stage`` is None where the window has no rows of it, only DDL."""

    plan: TablePlan
    stage: str | None


class PostgresMirror(Target[PostgresTarget]):
    """Loads changelogs into PostgreSQL. Tables without key have no rows that could be told apart: they are left out where a
    pattern matched them, and refused where the pipeline names them."""

    type: ClassVar[str] = "postgres"

    def load(self, load: Load, execute: Execute) -> Loaded:
        settings = PostgresSettings(self.connections[self.config.connection])
        plans = [plan_table(load, self.config, table) for table in load.tables]
        _refuse_shared_tables(plans)
        keyless = [plan for plan in plans if plan.pieces and not plan.handle_key]
        _refuse_named_keyless(load, keyless)
        reports = {plan.source: _without_key(plan) for plan in keyless}
        with _attempt(settings, load) as connection:
            with translated("begin the load", settings.conn_id):
                done, tables = _begin(connection, load, [plan for plan in plans if plan.source not in reports])
                connection.commit()
            reports |= done
            results = self._stage(load, tables, execute)
            for table in tables:
                staged = _staged(table, results)
                reports[table.plan.source] = commit_table(connection, load, table.plan, staged, settings.conn_id)
        files = tuple(result.quarantine for result in results if result.quarantine is not None)
        return Loaded(tuple(reports[table] for table in load.tables), files)

    def _stage(self, load: Load, tables: Sequence[StagedTable], execute: Execute) -> list[StageResult]:
        connection = self.connections[self.config.connection]
        tasks = stage_tasks(
            load,
            connection,
            [(table.plan, table.stage) for table in tables if table.stage is not None],
            self.config.writers,
        )
        return execute(stage, tasks, f"stage into {self.config.name}")


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
    connection: Connection, load: Load, plans: Sequence[TablePlan]
) -> tuple[dict[TableName, TableReport], list[StagedTable]]:
    """Refuse what can't be loaded before a row is read, and make staging for the rest."""
    done: dict[TableName, TableReport] = {}
    pending: list[tuple[TablePlan, TableState | None]] = []
    stops: list[str] = []
    mismatches: list[str] = []
    for plan in plans:
        report = None
        if not load.reload:
            report = ledger.find_done(connection, plan.target, load.index.window, load.index.run_hash)
        if report is not None:
            done[plan.source] = report
            continue
        observed = mirror_table.observe(connection, plan.target)
        stops += mirror_table.unfollowed_changes(plan, observed.state)
        try:
            steps = mirror_table.steps_to(plan, observed)
        except TargetMismatchError as error:
            mismatches.append(str(error))
            continue
        if not load.apply_ddl and observed.found is not None:
            stops += [f"{plan.source} needs {step.text}, and policies.ddl is stop" for step in steps if step.text]
        pending.append((plan, observed.state))
    if stops:
        raise PolicyStopError(
            "schema changes that a mirror does not follow by itself:\n- "
            + "\n- ".join(stops)
            + "\nBring the mirror table up to date by hand, then raise its floor_ts in _ticdc_replay.tables above the commitTs "
            "named here: nothing from before it will be applied again"
        )
    if mismatches:
        raise TargetMismatchError("\n".join(mismatches))
    return done, [_make_staging(connection, load, number, *entry) for number, entry in enumerate(pending)]


def _make_staging(
    connection: Connection, load: Load, number: int, plan: TablePlan, state: TableState | None
) -> StagedTable:
    if not plan.pieces:
        return StagedTable(plan, None)
    name = f"stage_{load.attempt}_{number}"
    ledger.note_staging(connection, name, _lock_of(load), plan.target)
    columns = []
    for column in plan.columns:
        default = mirror_table.default_of(plan, state, column.target)
        parts = [sql.Identifier(column.staged), mirror_table.type_sql(stage_type(column.type))]
        if default is not None:
            parts += [sql.SQL("DEFAULT"), mirror_table.trusted(default)]
        columns.append(sql.SQL(" ").join(parts))
    columns.append(sql.SQL("{} bigint, {} boolean").format(sql.Identifier(COMMIT_TS), sql.Identifier(PUT)))
    connection.execute(
        sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(
            sql.Identifier(LEDGER_SCHEMA, name), sql.SQL(", ").join(columns)
        )
    )
    return StagedTable(plan, name)


def _staged(table: StagedTable, results: Sequence[StageResult]) -> Staged:
    pieces = [piece for result in results for piece in result.pieces if piece.table == table.plan.source]
    return Staged(table.stage, sum(piece.events for piece in pieces), sum(piece.quarantined for piece in pieces))


def _refuse_shared_tables(plans: Sequence[TablePlan]) -> None:
    sources: dict[str, TableName] = {}
    for plan in plans:
        other = sources.setdefault(str(plan.target), plan.source)
        if other != plan.source:
            raise TargetMismatchError(
                f"{other} and {plan.source} would both be mirrored in {plan.target}: leave `schema` of the target out, "
                "or load them with two targets"
            )


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
