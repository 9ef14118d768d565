"""Lets one table of MySQL take the place of another one: by one RENAME TABLE, and what has to be done before and after it."""

from ticdc_replay.mysql_protocol import identifier
from ticdc_replay.targets.mirror.beside import Swap
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.mysql.errors import Errors, is_missing
from ticdc_replay.targets.mysql.server import MysqlConnection
from ticdc_replay.targets.mysql.tables import sql_of

_DEPENDANTS = (
    "SELECT DISTINCT CONCAT('foreign key ', constraint_name, ' of ', table_schema, '.', table_name) "
    "FROM information_schema.key_column_usage WHERE (referenced_table_schema, referenced_table_name) = (%s, %s)",
    "SELECT CONCAT(LOWER(constraint_type), ' ', constraint_name) FROM information_schema.table_constraints "
    "WHERE (table_schema, table_name) = (%s, %s) AND constraint_type IN ('FOREIGN KEY', 'CHECK')",
    "SELECT CONCAT('trigger ', trigger_name) FROM information_schema.triggers "
    "WHERE (event_object_schema, event_object_table) = (%s, %s)",
    "SELECT DISTINCT 'its partitioning' FROM information_schema.partitions "
    "WHERE (table_schema, table_name) = (%s, %s) AND partition_name IS NOT NULL",
)
_INDEXES = (
    "SELECT index_name, column_name, sub_part, index_type FROM information_schema.statistics "
    "WHERE (table_schema, table_name) = (%s, %s) AND non_unique = 1 ORDER BY index_name, seq_in_index"
)

_Parts = tuple[tuple[str | None, int | None, str], ...]


def dependants(connection: MysqlConnection, target: Relation) -> list[str]:
    """Keys, triggers and other things of *target* that no other table would have in its place. Views and grants name tables."""
    with connection.cursor() as cursor:
        found: set[str] = set()
        for query in _DEPENDANTS:
            cursor.execute(query, (target.schema, target.table))
            found |= {line for (line,) in cursor.fetchall()}
    return sorted(found)


def copy_indexes(connection: MysqlConnection, old: Relation, new: Relation) -> list[str]:
    """Give *new* the indexes of *old* that are not unique; those that it can't have."""
    known, columns = set(_indexes(connection, new).values()), _columns(connection, new)
    lost = []
    for name, parts in _indexes(connection, old).items():
        if parts in known:
            continue
        if any(column not in columns or kind != "BTREE" for column, _, kind in parts):
            lost.append(f"{name} on {', '.join(column or 'an expression' for column, _, _ in parts)}")
            continue
        listed = ", ".join(
            identifier(column or "") + (f"({length})" if length is not None else "") for column, length, _ in parts
        )
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {sql_of(new)} ADD INDEX ({listed})")
    return lost


def rename(connection: MysqlConnection, swap: Swap) -> None:
    """Give the new table and its tombstones the names of the old ones, and drop the old ones; what of it is done already is
    left. The RENAME TABLE is atomic: the new table exists under its own name until it is done, and then no more."""
    aside = {old: Relation(swap.new.schema, f"replaced_{at}") for at, old in enumerate((swap.old, swap.old_tombstones))}
    with connection.cursor() as cursor:
        if _exists(connection, swap.new):
            moves = [(old, gone) for old, gone in aside.items() if _exists(connection, old)]
            pairs = (swap.new, swap.old), (swap.new_tombstones, swap.old_tombstones)
            moves += [(new, old) for new, old in pairs if _exists(connection, new)]
            cursor.execute(f"RENAME TABLE {', '.join(f'{sql_of(each)} TO {sql_of(to)}' for each, to in moves)}")
        for gone in aside.values():
            if _exists(connection, gone):
                cursor.execute(f"DROP TABLE {sql_of(gone)}")


def drop_database(connection: MysqlConnection, schema: str) -> None:
    """Drop the database *schema* if it exists."""
    with connection.cursor() as cursor:
        if cursor.execute("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", (schema,)):
            cursor.execute(f"DROP DATABASE {identifier(schema)}")


def _exists(connection: MysqlConnection, table: Relation) -> bool:
    """Whether there is the table *table*. The catalogue hides tables from logins without a right on them; this fails then."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {sql_of(table)} LIMIT 0")
    except Errors as error:
        if is_missing(error):
            return False
        raise
    return True


def _columns(connection: MysqlConnection, relation: Relation) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE (table_schema, table_name) = (%s, %s)",
            (relation.schema, relation.table),
        )
        return {name for (name,) in cursor.fetchall()}


def _indexes(connection: MysqlConnection, relation: Relation) -> dict[str, _Parts]:
    found: dict[str, _Parts] = {}
    with connection.cursor() as cursor:
        cursor.execute(_INDEXES, (relation.schema, relation.table))
        for name, column, length, kind in cursor.fetchall():
            found[name] = (*found.get(name, ()), (column, length, kind))
    return found
