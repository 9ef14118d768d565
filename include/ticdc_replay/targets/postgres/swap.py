"""Lets one table of PostgreSQL take the place of another one, with what people have added to that."""

from typing import LiteralString

import psycopg
from psycopg import sql

from ticdc_replay.targets.mirror.beside import Swap
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.postgres.tables import PgConnection, rename_statements, sql_of

_OID: LiteralString = (
    "(SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE (n.nspname, c.relname) = (%(schema)s, %(table)s))"
)
_DEPENDANTS: tuple[LiteralString, ...] = (
    # A view depends on the columns of a table by its rule.
    "SELECT DISTINCT CASE v.relkind WHEN 'm' THEN 'materialized view ' ELSE 'view ' END || v.oid::regclass::text "
    "FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid "
    "JOIN pg_catalog.pg_class v ON v.oid = r.ev_class WHERE d.classid = 'pg_catalog.pg_rewrite'::regclass "
    "AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = " + _OID + " AND v.oid <> d.refobjid",
    "SELECT CASE contype WHEN 'f' THEN 'foreign key ' ELSE 'constraint ' END || quote_ident(conname) || ' of ' || "
    "conrelid::regclass::text FROM pg_catalog.pg_constraint "
    "WHERE (conrelid = " + _OID + " AND contype IN ('f', 'c', 'x')) OR (confrelid = " + _OID + " AND contype = 'f')",
    "SELECT 'trigger ' || quote_ident(tgname) FROM pg_catalog.pg_trigger WHERE NOT tgisinternal AND tgrelid = " + _OID,
    "SELECT 'policy ' || quote_ident(polname) FROM pg_catalog.pg_policy WHERE polrelid = " + _OID,
    "SELECT 'row level security' FROM pg_catalog.pg_class WHERE (relrowsecurity OR relforcerowsecurity) AND oid = "
    + _OID,
    "SELECT 'its replica identity' FROM pg_catalog.pg_class WHERE relreplident <> 'd' AND oid = " + _OID,
    "SELECT 'rule ' || quote_ident(rulename) FROM pg_catalog.pg_rewrite WHERE ev_class = " + _OID,
    "SELECT 'publication ' || quote_ident(p.pubname) FROM pg_catalog.pg_publication_rel r "
    "JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = " + _OID,
    "SELECT 'partition or child ' || inhrelid::regclass::text FROM pg_catalog.pg_inherits WHERE inhparent = " + _OID,
    "SELECT 'its parent ' || inhparent::regclass::text FROM pg_catalog.pg_inherits WHERE inhrelid = " + _OID,
    "SELECT 'partitioning of ' || oid::regclass::text FROM pg_catalog.pg_class WHERE relkind = 'p' AND oid = " + _OID,
    "SELECT 'grants on its column ' || quote_ident(attname) FROM pg_catalog.pg_attribute "
    "WHERE attacl IS NOT NULL AND attnum > 0 AND NOT attisdropped AND attrelid = " + _OID,
)
_INDEXES: LiteralString = (
    "SELECT i.indexrelid::regclass::text, c.relname, substr(pg_get_indexdef(i.indexrelid), "
    "length(format('CREATE INDEX %%I ON %%I.%%I ', c.relname, n.nspname, t.relname)) + 1) "
    "FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
    "JOIN pg_catalog.pg_class t ON t.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace "
    "WHERE NOT i.indisunique AND NOT i.indisprimary AND i.indrelid = " + _OID + " ORDER BY c.relname"
)
_TAKEN: LiteralString = (
    "SELECT c.relname, substr(md5(c.oid::text || clock_timestamp()::text), 1, 8) FROM pg_catalog.pg_index i "
    "JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_class o ON o.relname = c.relname "
    "JOIN pg_catalog.pg_namespace n ON n.oid = o.relnamespace AND n.nspname = %(to)s WHERE i.indrelid = " + _OID
)
_GRANTS: LiteralString = (
    "SELECT a.privilege_type, CASE a.grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(a.grantee) END, a.is_grantable "
    "FROM pg_catalog.pg_class c, aclexplode(c.relacl) a WHERE a.grantee <> c.relowner AND c.oid = " + _OID
)
_OWNER: LiteralString = "SELECT pg_get_userbyid(relowner) FROM pg_catalog.pg_class WHERE oid = " + _OID


def dependants(connection: PgConnection, target: Relation) -> list[str]:
    """Views, keys, triggers and other things of *target* that no other table would have in its place."""
    return sorted({line for query in _DEPENDANTS for (line,) in connection.execute(query, _named(target))})


def copy_indexes(connection: PgConnection, old: Relation, new: Relation) -> list[str]:
    """Give *new* the indexes of *old* that are not unique; those that it can't have, because it lacks their columns or a row
    does not fit."""
    known = {definition for _, _, definition in connection.execute(_INDEXES, _named(new)).fetchall()}
    lost = []
    for index, name, definition in connection.execute(_INDEXES, _named(old)).fetchall():
        if definition in known:
            continue
        create = sql.SQL("CREATE INDEX {} ON {} ").format(sql.Identifier(name), sql_of(new))
        try:
            with connection.transaction():
                connection.execute(create + sql.SQL(definition))
        except (psycopg.errors.UndefinedColumn, psycopg.errors.ProgramLimitExceeded) as error:
            lost.append(f"{index} {definition}: {str(error).splitlines()[0]}")
        except psycopg.errors.DuplicateTable:  # the mirror's own index has this name there
            with connection.transaction():
                connection.execute(sql.SQL("CREATE INDEX ON {} ").format(sql_of(new)) + sql.SQL(definition))
    return lost


def free_names(connection: PgConnection, table: Relation, schema: str) -> None:
    """Give those indexes of *table* other names that something in *schema* has, where the table is about to go."""
    for index, wanted in connection.execute(_TAKEN, {**_named(table), "to": schema}).fetchall():
        connection.execute(
            sql.SQL("ALTER INDEX {} RENAME TO {}").format(
                sql.Identifier(table.schema, index), sql.Identifier(f"index_{wanted}")
            )
        )


def swap_tables(connection: PgConnection, swap: Swap) -> None:
    """Drop the old table and its tombstones, and give the new ones their names; owner and grants stay, and no others
    come."""
    take_place(connection, swap.old, swap.new)
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql_of(swap.old_tombstones)))
    connection.execute(
        sql.SQL("ALTER TABLE IF EXISTS {} RENAME TO {}").format(
            sql_of(swap.new_tombstones), sql.Identifier(swap.old_tombstones.table)
        )
    )


def take_place(connection: PgConnection, replaced: Relation, table: Relation) -> None:
    """Drop *replaced*, if it exists, and give *table* its name; owner and grants stay, and no others come."""
    grants = connection.execute(_GRANTS, _named(replaced)).fetchall()
    owner = connection.execute(_OWNER, _named(replaced)).fetchone()
    old = sql_of(replaced)
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(old))
    free_names(connection, table, replaced.schema)
    for statement in rename_statements({table: replaced}):
        connection.execute(statement)
    if owner is not None and owner != connection.execute(_OWNER, _named(replaced)).fetchone():
        connection.execute(sql.SQL("ALTER TABLE {} OWNER TO {}").format(old, sql.Identifier(owner[0])))
    by_default = connection.execute(_GRANTS, _named(replaced)).fetchall()
    for grantee in dict.fromkeys(grantee for _, grantee, _ in by_default) if owner is not None else ():
        role = sql.SQL("PUBLIC") if grantee is None else sql.Identifier(grantee)
        connection.execute(sql.SQL("REVOKE ALL ON {} FROM {}").format(old, role))
    for privilege, grantee, grantable in grants:
        connection.execute(
            sql.SQL("GRANT {} ON {} TO {}{}").format(
                sql.SQL(privilege),
                old,
                sql.SQL("PUBLIC") if grantee is None else sql.Identifier(grantee),
                sql.SQL(" WITH GRANT OPTION" if grantable else ""),
            )
        )


def _named(relation: Relation) -> dict[str, str]:
    return {"schema": relation.schema, "table": relation.table}
