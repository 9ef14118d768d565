"""Compares the tables of the targets with the rows that are right, cell by cell.

Cells are compared as text: each reader prints what its system holds, the sample says what it must read.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from demo.sample import contents
from demo.sample.contents import SampleRow
from demo.tables import IcebergTables, PostgresTables, Row, Tables


class TableCheck(NamedTuple):
    """What comparing one table gave. ``differences`` are for people, at most ``SHOWN`` of them."""

    system: str
    table: str
    rows: int
    equal: bool
    differences: tuple[str, ...]


SHOWN = 5


def verify(dsn: str, lakehouse: Path | None = None) -> list[TableCheck]:
    """Compare every table of the sample with its mirror in the database *dsn*, and with that in the folder *lakehouse*, if there
    is one."""
    by_table: dict[tuple[str, str], list[SampleRow]] = {}
    for row in contents.rows():
        by_table.setdefault((row.schema, row.table), []).append(row)
    with ExitStack() as stack:
        systems: list[Tables] = [stack.enter_context(closing(PostgresTables(dsn)))]
        if lakehouse is not None:
            systems.append(stack.enter_context(closing(IcebergTables(lakehouse))))
        return [
            _verify_table(tables, schema, table, rows)
            for tables in systems
            for (schema, table), rows in sorted(by_table.items())
        ]


def _verify_table(tables: Tables, schema: str, table: str, rows: list[SampleRow]) -> TableCheck:
    kinds = {name: cell["mysql_type"] for name, cell in rows[0].columns.items()}
    keys = sorted(rows[0].key)
    found = {tuple(row.cells[name] for name in keys): row for row in tables.rows(schema, table, kinds)}
    differences = list(_differences(rows, keys, found))
    return TableCheck(tables.system, f"{schema}.{table}", len(found), not differences, tuple(differences[:SHOWN]))


def _differences(rows: list[SampleRow], keys: list[str], found: dict[tuple[str | None, ...], Row]) -> Iterator[str]:
    left = dict(found)
    for row in rows:
        expected = {name: _expected(cell) for name, cell in row.columns.items()}
        there = left.pop(tuple(expected[name] for name in keys), None)
        if there is None:
            yield f"{row.key}: missing"
            continue
        if there.commit_ts != row.commit_ts:
            yield f"{row.key}: _commit_ts is {there.commit_ts}, {row.commit_ts} expected"
        for name, cell in expected.items():
            actual = there.cells[name]
            if row.columns[name]["mysql_type"] == "json" and cell is not None and actual is not None:
                cell, actual = json.loads(cell), json.loads(actual)
            if actual != cell:
                yield f"{row.key}: {name} is {actual!r:.80}, {cell!r:.80} expected"
    for key in left:
        yield f"{dict(zip(keys, key, strict=True))}: should not be there"


def _expected(cell: dict[str, str | None]) -> str | None:
    if cell["value"] is None:
        return None
    return cell["value_utc" if str(cell["mysql_type"]).startswith("timestamp") else "value"]
