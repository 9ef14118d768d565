"""What a mirror remembers beside its tables, in the schema ``_ticdc_replay`` of the target's database.

* ``tables``: per mirror table where it comes from (the upstream's name, and the pipeline that loaded it first), ``floor_ts``
  (nothing with a commitTs below it is applied), ``newest_ts`` (no applied version is newer), ``schema_ts`` (commitTs from which
  the newest schema holds that the table was brought to), the name of its tombstone table, and ``topic_id`` (Kafka's id of the
  topic, where rows are ordered by their place in it);
* ``columns``: the columns of the mirror, each as the newest definition has it that was loaded, and when (``commit_ts``) that
  definition held. In ``tables``, ``whole_ts`` is when the newest definition held that is known in full. Below ``form_floor_ts``
  no DDL changes columns, as long as ``floor_ts`` is the one that a load has set (``truncated_to``), else none below ``floor_ts``;
* ``added_columns``: each column that a DDL added, and what rows from before it show: a literal, or NULL;
* ``ledger``: one row per table, window and run that was applied, in the same transaction as its rows; the outcome in its report
  is ``stopped`` where DDL at the window's end stopped the load after them: such a window is not done;
* ``generations``: which loads have begun, so that none commits after a newer one of its window (``marks``); by the schema of the
  mirrors (``mirror_schema``, empty where each has that of the upstream's table), whatever the target is called;
* ``dropped_databases``: per load of a window that drops a database, by its name as the upstream compares names, below which
  commitTs no row was left, and the mirrors that were forgotten since (``dropped_databases``);
* ``staging``: the staging tables that exist, and the lock that their attempt holds for as long as it lives.
"""

import logging
from typing import Any, LiteralString

import msgspec
import psycopg
from psycopg import sql

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import HeldTable, Load, StoppedLoad, TableReport
from ticdc_replay.targets.postgres.identifiers import LEDGER_SCHEMA, Relation

log = logging.getLogger(__name__)

Connection = psycopg.Connection[Any]

_SHORT_WAIT = "SET LOCAL lock_timeout = '2s'"
_LONG_WAIT = "SET LOCAL lock_timeout = '5min'"
"""For locks that somebody may hold for ever: then an error, that a retry may mend."""

_CREATE_LOCK = 0x7469636463
"""Advisory lock held while the ledger is made or staging is cleared."""

_TABLES = """
CREATE TABLE IF NOT EXISTS {schema}.tables (
    target_schema text NOT NULL, target_table text NOT NULL,
    source_schema text NOT NULL, source_table text NOT NULL, pipeline text NOT NULL,
    floor_ts bigint NOT NULL DEFAULT 0, newest_ts bigint NOT NULL, schema_ts bigint NOT NULL DEFAULT 0,
    tombstones text NOT NULL, topic_id text,
    PRIMARY KEY (target_schema, target_table));
CREATE TABLE IF NOT EXISTS {schema}.columns (
    target_schema text NOT NULL, target_table text NOT NULL, column_name text NOT NULL, type text NOT NULL,
    commit_ts bigint NOT NULL, in_rows boolean NOT NULL, in_key boolean NOT NULL,
    PRIMARY KEY (target_schema, target_table, column_name));
CREATE TABLE IF NOT EXISTS {schema}.added_columns (
    target_schema text NOT NULL, target_table text NOT NULL, column_name text NOT NULL, commit_ts bigint NOT NULL,
    fill text,
    PRIMARY KEY (target_schema, target_table, column_name));
CREATE TABLE IF NOT EXISTS {schema}.ledger (
    target_schema text NOT NULL, target_table text NOT NULL, from_ts bigint NOT NULL, to_ts bigint NOT NULL,
    run_hash text NOT NULL, pipeline text NOT NULL, attempt text NOT NULL, report json NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (target_schema, target_table, from_ts, to_ts, run_hash));
CREATE TABLE IF NOT EXISTS {schema}.generations (
    pipeline text NOT NULL, target text NOT NULL, from_ts bigint NOT NULL, to_ts bigint NOT NULL,
    selection_hash text NOT NULL, selection text[] NOT NULL,
    generation bigint NOT NULL, run_hash text NOT NULL, began_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS {schema}.dropped_databases (
    pipeline text NOT NULL, schema_name text NOT NULL, floor_ts bigint NOT NULL,
    PRIMARY KEY (pipeline, schema_name));
CREATE TABLE IF NOT EXISTS {schema}.staging (
    name text PRIMARY KEY, attempt_lock bigint NOT NULL, target_schema text NOT NULL, target_table text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now());
"""


_ADD_FORM = """
ALTER TABLE {schema}.tables ADD COLUMN whole_ts bigint NOT NULL DEFAULT 0,
    ADD COLUMN form_floor_ts bigint NOT NULL DEFAULT 0, ADD COLUMN truncated_to bigint
"""
"""For ledgers that an older version has made; a new one gets them right after."""


_ADD_MIRROR_SCHEMA = """
ALTER TABLE {schema}.generations ADD COLUMN mirror_schema text, DROP CONSTRAINT IF EXISTS generations_pkey;
DROP INDEX IF EXISTS {schema}.generations_newer;
CREATE UNIQUE INDEX ON {schema}.generations (pipeline, mirror_schema, from_ts, to_ts, selection_hash);
CREATE INDEX ON {schema}.generations (pipeline, generation);
"""
"""As ``_ADD_FORM``. What an older version has left there is known by the target's name alone."""


_ADD_DROPPING_LOADS = """
ALTER TABLE {schema}.dropped_databases DROP CONSTRAINT IF EXISTS dropped_databases_pkey,
    ADD COLUMN mirror_schema text, ADD COLUMN from_ts bigint, ADD COLUMN to_ts bigint, ADD COLUMN selection text[],
    ADD COLUMN generation bigint, ADD COLUMN run_hash text, ADD COLUMN window_run text,
    ADD COLUMN forgotten text[] NOT NULL DEFAULT '{{}}';
CREATE INDEX ON {schema}.dropped_databases (pipeline, schema_name);
CREATE INDEX ON {schema}.dropped_databases (pipeline, from_ts, to_ts)
"""
"""As ``_ADD_FORM``. What an older version has left there is of no known window, and counts for every mirror."""


_ADD_WINDOWS = "CREATE INDEX ledger_windows ON {schema}.ledger (from_ts, to_ts)"
"""For ``other_runs``. As ``_ADD_FORM``."""


class RecordedColumn(msgspec.Struct, frozen=True):
    """An ADD COLUMN that was followed: its commitTs (TSO), and what older rows show as an SQL literal, None for NULL."""

    commit_ts: int
    fill: str | None


class KnownColumn(msgspec.Struct, frozen=True):
    """A column of the form that the mirror stands for; ``window_ddl.FormColumn`` has the same of a window."""

    type: str
    commit_ts: int
    in_rows: bool
    in_key: bool


class TableState(msgspec.Struct, frozen=True):
    """What the ledger knows of one mirror table. Timestamps are TSO."""

    source: TableName
    pipeline: str
    floor_ts: int
    newest_ts: int
    schema_ts: int
    tombstones: Relation
    topic_id: str | None
    added_columns: dict[str, RecordedColumn]
    columns: dict[str, KnownColumn]
    whole_ts: int
    form_floor_ts: int


def _sql(text: LiteralString) -> sql.Composed:
    return sql.SQL(text).format(schema=sql.Identifier(LEDGER_SCHEMA))


def create(connection: Connection) -> None:
    """Make the ledger where it does not exist."""
    connection.execute(_LONG_WAIT)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATE_LOCK])
    create_schema(connection, LEDGER_SCHEMA)
    connection.execute(_sql(_TABLES))
    # Looked up first: ALTER TABLE waits for every load that commits, even where there is nothing to do.
    for table, column, addition in (
        ("tables", "whole_ts", _ADD_FORM),
        ("generations", "mirror_schema", _ADD_MIRROR_SCHEMA),
        ("dropped_databases", "mirror_schema", _ADD_DROPPING_LOADS),
    ):
        found = connection.execute(
            "SELECT FROM information_schema.columns WHERE (table_schema, table_name, column_name) = (%s, %s, %s)",
            [LEDGER_SCHEMA, table, column],
        ).fetchone()
        if found is None:
            connection.execute(_sql(addition))
    found = connection.execute(
        "SELECT FROM pg_catalog.pg_indexes WHERE (schemaname, indexname) = (%s, 'ledger_windows')", [LEDGER_SCHEMA]
    ).fetchone()
    if found is None:
        connection.execute(_sql(_ADD_WINDOWS))


def create_schema(connection: Connection, schema: str) -> None:
    """Make *schema* where it does not exist.

    Looked up first: IF NOT EXISTS asks for the privilege to create even where there is nothing to do.
    """
    found = connection.execute("SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s", [schema]).fetchone()
    if found is None:
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))


def lock_attempt(connection: Connection, lock: int) -> None:
    """Hold *lock* until *connection* ends: the sign for other attempts that this one lives."""
    connection.execute("SELECT pg_advisory_lock(%s)", [lock])


def lock_table(connection: Connection, target: Relation) -> None:
    """Wait until no other transaction commits to *target*, and keep others out until this one ends."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"ticdc-replay {target}"])


def drop_dead_staging(connection: Connection) -> None:
    """Drop the staging tables of attempts that have ended without doing it themselves.

    One that a worker of a dead attempt still holds is left for a later load.
    """
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_CREATE_LOCK])
    dead = connection.execute(
        _sql("SELECT name FROM {schema}.staging WHERE pg_try_advisory_xact_lock(attempt_lock)")
    ).fetchall()
    connection.execute(_SHORT_WAIT)
    for (name,) in dead:
        try:
            with connection.transaction():
                drop_staging(connection, [name])
        except psycopg.errors.LockNotAvailable:
            log.warning("staging table %s of an attempt that ended is still in use; a later load drops it", name)
    connection.execute(_LONG_WAIT)


def drop_staging_of(connection: Connection, lock: int) -> None:
    """Drop the staging tables of the attempt that holds *lock*."""
    own = connection.execute(_sql("SELECT name FROM {schema}.staging WHERE attempt_lock = %s"), [lock]).fetchall()
    drop_staging(connection, [name for (name,) in own])


def note_staging(connection: Connection, name: str, lock: int, target: Relation) -> None:
    """Write down a staging table before it is made."""
    connection.execute(
        _sql("INSERT INTO {schema}.staging (name, attempt_lock, target_schema, target_table) VALUES (%s, %s, %s, %s)"),
        [name, lock, target.schema, target.table],
    )


def drop_staging(connection: Connection, names: list[str]) -> None:
    """Drop the staging tables *names* and forget them."""
    for name in names:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(LEDGER_SCHEMA, name)))
    connection.execute(_sql("DELETE FROM {schema}.staging WHERE name = ANY(%s)"), [names])


def state_of(connection: Connection, target: Relation) -> TableState | None:
    """What the ledger knows of *target*; None for a table that no load has touched."""
    place = [target.schema, target.table]
    row = connection.execute(
        _sql(
            "SELECT source_schema, source_table, pipeline, floor_ts, newest_ts, schema_ts, tombstones, topic_id, "
            "whole_ts, CASE WHEN floor_ts = truncated_to THEN form_floor_ts ELSE floor_ts END FROM {schema}.tables "
            "WHERE (target_schema, target_table) = (%s, %s)"
        ),
        place,
    ).fetchone()
    if row is None:
        return None
    added = connection.execute(
        _sql(
            "SELECT column_name, commit_ts, fill FROM {schema}.added_columns "
            "WHERE (target_schema, target_table) = (%s, %s)"
        ),
        place,
    ).fetchall()
    columns = {name: RecordedColumn(commit_ts, fill) for name, commit_ts, fill in added}
    known = connection.execute(
        _sql(
            "SELECT column_name, type, commit_ts, in_rows, in_key FROM {schema}.columns "
            "WHERE (target_schema, target_table) = (%s, %s) ORDER BY commit_ts, column_name"
        ),
        place,
    ).fetchall()
    source, tombstones = TableName(row[0], row[1]), Relation(LEDGER_SCHEMA, row[6])
    form = {name: KnownColumn(*column) for name, *column in known}
    return TableState(source, row[2], row[3], row[4], row[5], tombstones, row[7], columns, form, row[8], row[9])


def mirrors(connection: Connection) -> list[tuple[TableName, Relation, str]]:
    """All mirrors: the upstream's table, the mirror, and the pipeline that loaded it first."""
    found = connection.execute(
        _sql(
            "SELECT source_schema, source_table, target_schema, target_table, pipeline FROM {schema}.tables "
            "ORDER BY source_schema, source_table"
        )
    )
    return [(TableName(*row[:2]), Relation(*row[2:4]), row[4]) for row in found]


def add_table(
    connection: Connection,
    target: Relation,
    *,
    source: TableName,
    pipeline: str,
    tombstones: Relation,
    newest_ts: int,
    floor_ts: int,
    form_floor_ts: int,
) -> None:
    """Write down *target* as *pipeline*'s mirror of *source*.

    *newest_ts* is the newest commitTs (TSO) in it; below *floor_ts* (TSO) nothing is applied, below *form_floor_ts* no DDL is.
    """
    connection.execute(
        _sql(
            "INSERT INTO {schema}.tables "
            "(target_schema, target_table, source_schema, source_table, pipeline, tombstones, newest_ts, floor_ts, "
            "form_floor_ts, truncated_to) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        ),
        [
            *(target.schema, target.table, source.schema, source.table),
            *(pipeline, tombstones.table, newest_ts, floor_ts, form_floor_ts, floor_ts),
        ],
    )


def raise_floor(connection: Connection, target: Relation, floor_ts: int, form_floor_ts: int) -> list[str]:
    """Apply no row below *floor_ts* (TSO) to *target* any more, which must be written down, and no DDL below *form_floor_ts*.

    Higher floors stay. Forgets what columns show that were added below the floor, and returns their names: no row that lacks them
    comes any more, and a column of that name may be dropped and added again. Not where rows have places: those of older rows may
    come after the DDL's commitTs. Columns that were last seen below *form_floor_ts* are forgotten, too.
    """
    place = [target.schema, target.table]
    connection.execute(
        _sql(
            "UPDATE {schema}.tables SET floor_ts = greatest(floor_ts, %s), truncated_to = greatest(floor_ts, %s), "
            "form_floor_ts = greatest(CASE WHEN floor_ts = truncated_to THEN form_floor_ts ELSE floor_ts END, %s), "
            "whole_ts = CASE WHEN whole_ts < %s THEN 0 ELSE whole_ts END "
            "WHERE (target_schema, target_table) = (%s, %s)"
        ),
        [floor_ts, floor_ts, form_floor_ts, form_floor_ts, *place],
    )
    connection.execute(
        _sql("DELETE FROM {schema}.columns WHERE (target_schema, target_table) = (%s, %s) AND commit_ts < %s"),
        [*place, form_floor_ts],
    )
    forgotten = connection.execute(
        _sql(
            "DELETE FROM {schema}.added_columns a USING {schema}.tables t "
            "WHERE (t.target_schema, t.target_table) = (%s, %s) AND t.topic_id IS NULL AND a.commit_ts < t.floor_ts "
            "AND (a.target_schema, a.target_table) = (t.target_schema, t.target_table) RETURNING a.column_name"
        ),
        place,
    ).fetchall()
    return [name for (name,) in forgotten]


def forget(connection: Connection, target: Relation, tombstones: Relation) -> None:
    """Delete all that is written down of *target*, and its tombstones."""
    for table in ("tables", "columns", "added_columns", "ledger"):
        statement = "DELETE FROM {schema}.{table} WHERE (target_schema, target_table) = (%s, %s)"
        connection.execute(
            sql.SQL(statement).format(schema=sql.Identifier(LEDGER_SCHEMA), table=sql.Identifier(table)),
            [target.schema, target.table],
        )
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(tombstones.sql))


def raise_marks(connection: Connection, target: Relation, *, schema_ts: int, whole_ts: int, newest_ts: int) -> None:
    """Note that *target* was brought to the schema that holds from *schema_ts* on, and to versions up to *newest_ts* (TSO).

    At *whole_ts* (TSO) a definition held that is known in full.
    """
    connection.execute(
        _sql(
            "UPDATE {schema}.tables SET schema_ts = greatest(schema_ts, %s), whole_ts = greatest(whole_ts, %s), "
            "newest_ts = greatest(newest_ts, %s) WHERE (target_schema, target_table) = (%s, %s)"
        ),
        [schema_ts, whole_ts, newest_ts, target.schema, target.table],
    )


def note_form(connection: Connection, target: Relation, columns: dict[str, KnownColumn]) -> None:
    """Note the *columns* of a definition of *target*, by name; of each the newest definition stays."""
    with connection.cursor() as cursor:
        cursor.executemany(
            _sql(
                "INSERT INTO {schema}.columns AS known "
                "(target_schema, target_table, column_name, type, commit_ts, in_rows, in_key) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (target_schema, target_table, column_name) DO UPDATE SET "
                "type = CASE WHEN excluded.commit_ts >= known.commit_ts THEN excluded.type ELSE known.type END, "
                "in_key = CASE WHEN excluded.commit_ts >= known.commit_ts THEN excluded.in_key ELSE known.in_key END, "
                "commit_ts = greatest(excluded.commit_ts, known.commit_ts), in_rows = known.in_rows OR excluded.in_rows"
            ),
            [
                (target.schema, target.table, name, column.type, column.commit_ts, column.in_rows, column.in_key)
                for name, column in columns.items()
            ],
        )


def note_topic(connection: Connection, target: Relation, topic_id: str) -> None:
    """Note that the rows of *target* are ordered by their place in the topic with *topic_id*."""
    connection.execute(
        _sql("UPDATE {schema}.tables SET topic_id = %s WHERE (target_schema, target_table) = (%s, %s)"),
        [topic_id, target.schema, target.table],
    )


def note_added_column(connection: Connection, target: Relation, column: str, commit_ts: int, fill: str | None) -> None:
    """Note what rows of *target* from before the ADD COLUMN at *commit_ts* (TSO) show in *column*."""
    connection.execute(
        _sql(
            "INSERT INTO {schema}.added_columns (target_schema, target_table, column_name, commit_ts, fill) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (target_schema, target_table, column_name) "
            "DO UPDATE SET commit_ts = excluded.commit_ts, fill = excluded.fill"
        ),
        [target.schema, target.table, column, commit_ts, fill],
    )


def find_done(connection: Connection, target: Relation, window: Window, run_hash: str) -> TableReport | None:
    """The report of the load that applied this run and window to *target*; None where none did, or not to its end."""
    report = _find(connection, target, window, run_hash)
    if report is None or report.outcome == "stopped":
        return None
    return msgspec.structs.replace(report, outcome="done_before")


def find_stopped(connection: Connection, target: Relation, window: Window, run_hash: str) -> TableReport | None:
    """The report of the load of this run and window that DDL at the window's end stopped; None where there is none, or where
    one has ended since."""
    report = _find(connection, target, window, run_hash)
    return report if report is not None and report.outcome == "stopped" else None


def stopped_loads(connection: Connection, target: Relation, pipeline: str) -> tuple[StoppedLoad, ...]:
    """The loads of *pipeline* into *target* that ``find_stopped`` tells of, oldest first."""
    rows = connection.execute(
        _sql(
            "SELECT run_hash, from_ts, to_ts, report::text FROM {schema}.ledger "
            "WHERE (target_schema, target_table, pipeline) = (%s, %s, %s) AND report->>'outcome' = 'stopped' "
            "ORDER BY applied_at, run_hash"
        ),
        [target.schema, target.table, pipeline],
    ).fetchall()
    return tuple(
        StoppedLoad(run, Window(from_ts, to_ts), msgspec.json.decode(report, type=TableReport))
        for run, from_ts, to_ts, report in rows
    )


def _find(connection: Connection, target: Relation, window: Window, run_hash: str) -> TableReport | None:
    row = connection.execute(
        _sql(
            "SELECT report::text FROM {schema}.ledger "
            "WHERE (target_schema, target_table, from_ts, to_ts, run_hash) = (%s, %s, %s, %s, %s)"
        ),
        [target.schema, target.table, window.from_ts, window.to_ts, run_hash],
    ).fetchone()
    return msgspec.json.decode(row[0], type=TableReport) if row is not None else None


def other_runs(connection: Connection, load: Load) -> tuple[HeldTable, ...]:
    """What other runs of the window of *load* have applied to the pipeline's mirrors; sorted."""
    index = load.index
    rows = connection.execute(
        _sql(
            "SELECT run_hash, report::text FROM {schema}.ledger "
            "WHERE (from_ts, to_ts, pipeline) = (%s, %s, %s) AND run_hash <> %s AND report->>'outcome' <> 'stopped'"
        ),
        [index.window.from_ts, index.window.to_ts, index.pipeline, index.run_hash],
    ).fetchall()
    return tuple(sorted(HeldTable(run, msgspec.json.decode(report, type=TableReport).table) for run, report in rows))


def note_done(connection: Connection, load: Load, target: Relation, report: TableReport) -> None:
    """Write the ledger's row, in the transaction that applies the rows. One of a load that was ``stopped`` replaces no other."""
    index = load.index
    connection.execute(
        _sql(
            "INSERT INTO {schema}.ledger (target_schema, target_table, from_ts, to_ts, run_hash, pipeline, attempt, report) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) "
            "ON CONFLICT (target_schema, target_table, from_ts, to_ts, run_hash) DO UPDATE SET "
            "pipeline = excluded.pipeline, attempt = excluded.attempt, report = excluded.report, applied_at = now() "
            "WHERE excluded.report->>'outcome' <> 'stopped' OR ledger.report->>'outcome' = 'stopped'"
        ),
        [
            *(target.schema, target.table, index.window.from_ts, index.window.to_ts, index.run_hash, index.pipeline),
            *(load.attempt, msgspec.json.encode(report).decode()),
        ],
    )
