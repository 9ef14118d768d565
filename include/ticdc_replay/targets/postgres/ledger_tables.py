"""The tables of a mirror's ledger (``mirror.ledger``) in PostgreSQL, in the schema ``_ticdc_replay`` of the target's database.

* ``tables``: per mirror table where it comes from (the upstream's name, and the pipeline that loaded it first), ``floor_ts``
  (nothing with a commitTs below it is applied), ``newest_ts`` (no applied version is newer), ``schema_ts`` (commitTs from which
  the newest schema holds that the table was brought to), the name of its tombstone table, and ``topic_id`` (Kafka's id of the
  topic, where rows are ordered by their place in it);
* ``columns``: the columns of the mirror, each as the newest definition has it that was loaded, and when (``commit_ts``) that
  definition held. In ``tables``, ``whole_ts`` is when the newest definition held that is known in full. Below ``form_floor_ts``
  no DDL changes columns, as long as ``floor_ts`` is the one that a load has set (``truncated_to``), else none below ``floor_ts``;
* ``added_columns``: each column that a DDL added, and what rows from before it show: a literal, or NULL;
* ``column_events``: each column that a DDL dropped (``new_name`` is NULL) or renamed; names are the upstream's;
* ``soft_deletes``: each mirror whose deleted rows stay, and the column that marks them;
* ``shapes``: each table that is loaded with a shape, and the pipeline that does so: no other one may load it;
* ``ledger``: one row per table, window and run that was applied, in the same transaction as its rows; the outcome in its report
  is ``stopped`` where DDL at the window's end stopped the load after them: such a window is not done;
* ``generations``: which loads have begun, so that none commits after a newer one of its window (``marks``); by the schema of the
  mirrors (``mirror_schema``, empty where each has that of the upstream's table), whatever the target is called;
* ``dropped_databases``: per load of a window that drops a database, by its name as the upstream compares names, below which
  commitTs no row was left, and the mirrors that were forgotten since (``dropped_databases``);
* ``staging``: the staging tables that exist, and the lock that their attempt holds for as long as it lives;
* ``tasks``: the result of each task of such an attempt that has staged its rows.
"""

from typing import LiteralString

from psycopg import sql

from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.postgres.tables import PgConnection

SHORT_WAIT: LiteralString = "SET LOCAL lock_timeout = '2s'"
LONG_WAIT: LiteralString = "SET LOCAL lock_timeout = '5min'"
"""For locks that somebody may hold for ever: then an error, that a retry may mend."""

CREATE_LOCK = 0x7469636463
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
CREATE TABLE IF NOT EXISTS {schema}.column_events (
    target_schema text NOT NULL, target_table text NOT NULL, commit_ts bigint NOT NULL, number integer NOT NULL,
    column_name text NOT NULL, new_name text, since bigint NOT NULL,
    PRIMARY KEY (target_schema, target_table, commit_ts, column_name));
CREATE TABLE IF NOT EXISTS {schema}.soft_deletes (
    target_schema text NOT NULL, target_table text NOT NULL, deleted_column text NOT NULL,
    PRIMARY KEY (target_schema, target_table));
CREATE TABLE IF NOT EXISTS {schema}.shapes (
    target_schema text NOT NULL, target_table text NOT NULL, pipeline text NOT NULL,
    PRIMARY KEY (target_schema, target_table));
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
CREATE TABLE IF NOT EXISTS {schema}.tasks (
    attempt_lock bigint NOT NULL, task integer NOT NULL, result text NOT NULL, PRIMARY KEY (attempt_lock, task));
"""


_ADD_FORM = """
ALTER TABLE {schema}.tables ADD COLUMN whole_ts bigint NOT NULL DEFAULT 0,
    ADD COLUMN form_floor_ts bigint NOT NULL DEFAULT 0, ADD COLUMN truncated_to bigint
"""
"""For ledgers that an older version has made; a new one gets them right after."""


_ADD_SINCE = "ALTER TABLE {schema}.columns ADD COLUMN since bigint NOT NULL DEFAULT 0"
"""As ``_ADD_FORM``."""


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


def in_ledger(text: LiteralString) -> sql.Composed:
    """The statement *text*, whose ``{schema}`` is the ledger's."""
    return sql.SQL(text).format(schema=sql.Identifier(LEDGER_SCHEMA))


def create(connection: PgConnection) -> None:
    """Make the ledger where it does not exist."""
    connection.execute(LONG_WAIT)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [CREATE_LOCK])
    create_schema(connection, LEDGER_SCHEMA)
    connection.execute(in_ledger(_TABLES))
    # Looked up first: ALTER TABLE waits for every load that commits, even where there is nothing to do.
    for table, column, addition in (
        ("tables", "whole_ts", _ADD_FORM),
        ("columns", "since", _ADD_SINCE),
        ("generations", "mirror_schema", _ADD_MIRROR_SCHEMA),
        ("dropped_databases", "mirror_schema", _ADD_DROPPING_LOADS),
    ):
        found = connection.execute(
            "SELECT FROM information_schema.columns WHERE (table_schema, table_name, column_name) = (%s, %s, %s)",
            [LEDGER_SCHEMA, table, column],
        ).fetchone()
        if found is None:
            connection.execute(in_ledger(addition))
    found = connection.execute(
        "SELECT FROM pg_catalog.pg_indexes WHERE (schemaname, indexname) = (%s, 'ledger_windows')", [LEDGER_SCHEMA]
    ).fetchone()
    if found is None:
        connection.execute(in_ledger(_ADD_WINDOWS))


def create_schema(connection: PgConnection, schema: str) -> None:
    """Make *schema* if it is missing. Looked up first: IF NOT EXISTS always needs the privilege to create."""
    found = connection.execute("SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s", [schema]).fetchone()
    if found is None:
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
