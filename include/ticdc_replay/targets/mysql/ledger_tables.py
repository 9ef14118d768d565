"""The tables of a mirror's ledger in MySQL, TiDB and MariaDB, in the database ``_ticdc_replay`` of the target's server.

They are those of PostgreSQL (``targets.postgres.ledger_tables``), lists as JSON, and beside them

* ``begun_changes``: each change of a column that may be done or not: a DROP or RENAME that the ledger knows, or an ADD that it
  does not know yet;
* ``base`` in ``tables``: the run of the base whose load has begun, as its rows come in a later commit than the floor;
* ``dropping``: each mirror that is about to be dropped, and the floor that it has afterwards;
* ``swaps``: each mirror whose place a rebuilt one is about to take (``beside.Swap``);
* ``renames``: each old and each new name of mirrors that get new names (``renames.Renaming``);
* ``locks``: the row that a load locks which makes a mirror, or notes dropped databases.
"""

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mysql.locks import locked
from ticdc_replay.targets.mysql.server import MysqlConnection, Server

_TARGET = "target_schema varchar(64) NOT NULL, target_table varchar(64) NOT NULL, "
_NAME = "varchar(64) NOT NULL"
_TABLES = {
    "tables": f"""{_TARGET} source_schema varchar(255) NOT NULL, source_table varchar(255) NOT NULL,
        pipeline varchar(191) NOT NULL, floor_ts bigint NOT NULL DEFAULT 0, newest_ts bigint NOT NULL,
        schema_ts bigint NOT NULL DEFAULT 0, tombstones {_NAME}, topic_id varchar(191), whole_ts bigint NOT NULL DEFAULT 0,
        form_floor_ts bigint NOT NULL DEFAULT 0, truncated_to bigint, base varchar(64) NOT NULL DEFAULT '',
        PRIMARY KEY (target_schema, target_table)""",
    "columns": f"""{_TARGET} column_name {_NAME}, type varchar(191) NOT NULL, commit_ts bigint NOT NULL,
        in_rows boolean NOT NULL, in_key boolean NOT NULL, since bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (target_schema, target_table, column_name)""",
    "added_columns": f"""{_TARGET} column_name {_NAME}, commit_ts bigint NOT NULL, fill longtext,
        PRIMARY KEY (target_schema, target_table, column_name)""",
    "column_events": f"""{_TARGET} commit_ts bigint NOT NULL, number int NOT NULL, column_name varchar(255) NOT NULL,
        new_name varchar(255), since bigint NOT NULL, PRIMARY KEY (target_schema, target_table, commit_ts, column_name)""",
    "begun_changes": f"""id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, {_TARGET} column_name {_NAME}, new_name {_NAME},
        adds boolean NOT NULL, commit_ts bigint NOT NULL, INDEX (target_schema, target_table)""",
    "soft_deletes": f"{_TARGET} deleted_column {_NAME}, PRIMARY KEY (target_schema, target_table)",
    "shapes": f"{_TARGET} pipeline varchar(191) NOT NULL, PRIMARY KEY (target_schema, target_table)",
    "dropping": f"{_TARGET} floor_ts bigint NOT NULL, PRIMARY KEY (target_schema, target_table)",
    "swaps": f"{_TARGET} content longtext NOT NULL, PRIMARY KEY (target_schema, target_table)",
    "renames": f"{_TARGET} content longtext NOT NULL, PRIMARY KEY (target_schema, target_table)",
    "ledger": f"""{_TARGET} from_ts bigint NOT NULL, to_ts bigint NOT NULL, run_hash varchar(64) NOT NULL,
        pipeline varchar(191) NOT NULL, attempt varchar(64) NOT NULL, report longtext NOT NULL,
        applied_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
        PRIMARY KEY (target_schema, target_table, from_ts, to_ts, run_hash), INDEX ledger_windows (from_ts, to_ts)""",
    "generations": f"""pipeline varchar(191) NOT NULL, target varchar(191) NOT NULL, mirror_schema {_NAME},
        from_ts bigint NOT NULL, to_ts bigint NOT NULL, selection_hash varchar(64) NOT NULL, selection longtext NOT NULL,
        generation bigint NOT NULL, run_hash varchar(64) NOT NULL,
        began_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
        PRIMARY KEY (pipeline, mirror_schema, from_ts, to_ts, selection_hash), INDEX (pipeline, generation)""",
    "dropped_databases": """id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, pipeline varchar(191) NOT NULL,
        mirror_schema varchar(64) NOT NULL, from_ts bigint NOT NULL, to_ts bigint NOT NULL, selection longtext NOT NULL,
        generation bigint NOT NULL, run_hash varchar(64) NOT NULL, window_run varchar(64) NOT NULL,
        schema_name varchar(255) NOT NULL, floor_ts bigint NOT NULL, forgotten longtext NOT NULL,
        INDEX (pipeline, from_ts, to_ts)""",
    "staging": f"""name varchar(64) NOT NULL PRIMARY KEY, attempt varchar(64) NOT NULL, {_TARGET}
        created_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)""",
    "tasks": f"attempt {_NAME}, task int NOT NULL, result longtext NOT NULL, PRIMARY KEY (attempt, task)",
    "locks": "name varchar(64) NOT NULL PRIMARY KEY",
}
_FOUND = "SELECT count(*) FROM information_schema.tables WHERE table_schema = %s AND table_name IN %s"


def create(connection: MysqlConnection, server: Server) -> None:
    """Make the ledger where it does not exist, and its database the session's. Raises TransientError if somebody else is long
    at it."""
    if not _is_there(connection):
        _make(connection, server)
    connection.select_db(LEDGER_SCHEMA)  # a DELETE from a joined table needs one, whatever it is


def _make(connection: MysqlConnection, server: Server) -> None:
    with locked(connection, "ledger") as held:
        if not held:
            raise TransientError("the ledger is being made by another load, for minutes; try again")
        create_schema(connection, server, LEDGER_SCHEMA)
        with connection.cursor() as cursor:
            for name, columns in _TABLES.items():
                cursor.execute(
                    f"CREATE TABLE IF NOT EXISTS {LEDGER_SCHEMA}.{name} ({columns}) ENGINE = InnoDB {of_texts(server)}"
                )
            cursor.execute(f"INSERT IGNORE INTO {LEDGER_SCHEMA}.locks VALUES ('drops')")
        connection.commit()


def create_schema(connection: MysqlConnection, server: Server, schema: str) -> None:
    """Make the database *schema* if it is missing. Looked up first: IF NOT EXISTS always needs the privilege to create."""
    with connection.cursor() as cursor:
        if not cursor.execute("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", (schema,)):
            name = "`" + schema.replace("`", "``") + "`"
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {name} {of_texts(server)}")


def of_texts(server: Server) -> str:
    """How texts are kept and compared, in a definition."""
    return f"CHARACTER SET utf8mb4 COLLATE {server.exact[0]}"


def _is_there(connection: MysqlConnection) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_FOUND, (LEDGER_SCHEMA, tuple(_TABLES)))  # one that an older version has made lacks some
        row = cursor.fetchone()
        if row is None or row[0] < len(_TABLES):
            return False
        return bool(cursor.execute(f"SELECT 1 FROM {LEDGER_SCHEMA}.locks"))
