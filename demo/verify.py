"""Compares the tables in PostgreSQL with the rows that are right, cell by cell.

Cells are compared as text: PostgreSQL prints each by the type the mirror has, the sample says what it must read.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from demo.sample import contents
from demo.sample.contents import SampleRow


class TableCheck(NamedTuple):
    """What comparing one table gave. ``differences`` are for people, at most ``SHOWN`` of them."""

    table: str
    rows: int
    equal: bool
    differences: tuple[str, ...]


SHOWN = 5


def verify(dsn: str) -> list[TableCheck]:
    """Compare every table of the sample with its mirror in the database *dsn*."""
    by_table: dict[tuple[str, str], list[SampleRow]] = {}
    for row in contents.rows():
        by_table.setdefault((row.schema, row.table), []).append(row)
    with psycopg.connect(dsn) as connection:
        return [_verify_table(connection, schema, table, rows) for (schema, table), rows in sorted(by_table.items())]


def _verify_table(connection: psycopg.Connection, schema: str, table: str, rows: list[SampleRow]) -> TableCheck:
    kinds = {name: cell["mysql_type"] for name, cell in rows[0].columns.items()}
    names = list(kinds)
    fields = [_as_text(name, kinds[name]) for name in names]
    query = sql.SQL("SELECT {}, _commit_ts FROM {}").format(sql.SQL(", ").join(fields), sql.Identifier(schema, table))
    keys = sorted(rows[0].key)
    found = {}
    for line in connection.execute(query).fetchall():
        cells = dict(zip(names, line, strict=False))
        found[tuple(cells[name] for name in keys)] = (cells, line[-1])
    differences = list(_differences(rows, keys, found))
    return TableCheck(f"{schema}.{table}", len(found), not differences, tuple(differences[:SHOWN]))


def _differences(rows: list[SampleRow], keys: list[str], found: dict[tuple[Any, ...], Any]) -> Iterator[str]:
    left = dict(found)
    for row in rows:
        expected = {name: _expected(cell) for name, cell in row.columns.items()}
        key = tuple(expected[name] for name in keys)
        cells, commit_ts = left.pop(key, (None, None))
        if cells is None:
            yield f"{row.key}: missing"
            continue
        if commit_ts != row.commit_ts:
            yield f"{row.key}: _commit_ts is {commit_ts}, {row.commit_ts} expected"
        for name, cell in expected.items():
            actual = cells[name]
            if row.columns[name]["mysql_type"] == "json" and cell is not None and actual is not None:
                cell, actual = json.loads(cell), json.loads(actual)
            if actual != cell:
                yield f"{row.key}: {name} is {actual!r:.80}, {cell!r:.80} expected"
    for key in left:
        yield f"{dict(zip(keys, key, strict=True))}: should not be there"


def _as_text(name: str, mysql_type: str) -> sql.Composable:
    """The SQL that prints the column as the sample does."""
    column = sql.Identifier(name)
    base = mysql_type.split("(")[0].split(" ")[0]
    digits = mysql_type.partition("(")[2].partition(")")[0]
    if base in ("varbinary", "binary", "blob", "longblob", "mediumblob", "tinyblob"):
        # encode() breaks lines after 76 characters.
        return sql.SQL("replace(encode({}, 'base64'), E'\\n', '')").format(column)
    if base in ("datetime", "timestamp"):
        fraction = f".FF{digits}" if digits else ""
        moment = sql.SQL("{} AT TIME ZONE 'UTC'").format(column) if base == "timestamp" else column
        return sql.SQL("to_char({}, {})").format(moment, sql.Literal(f"YYYY-MM-DD HH24:MI:SS{fraction}"))
    return sql.SQL("{}::text").format(column)


def _expected(cell: dict[str, Any]) -> str | None:
    if cell["value"] is None:
        return None
    text: str = cell["value_utc" if cell["mysql_type"].startswith("timestamp") else "value"]
    return text
