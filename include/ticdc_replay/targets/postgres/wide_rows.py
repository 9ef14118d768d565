"""Staged rows without room on a page of the mirror, whose columns may be more, or wider, than those of staging. Only
PostgreSQL knows, so it is asked for ever smaller parts of what is staged."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psycopg
import pyarrow.parquet as pq
from psycopg import sql

from ticdc_replay.changelog.copies.fold import is_put, key_cells, narrow, narrow_columns
from ticdc_replay.changelog.files.parts import batch_rows
from ticdc_replay.domain.errors import UnrepresentableValueError
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.files import file_errors
from ticdc_replay.targets.mirror.planning.section import LEDGER_SCHEMA
from ticdc_replay.targets.mirror.planning.staged_rows import PUT, VERSION
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.stager import way_on
from ticdc_replay.targets.postgres.stage import TOO_WIDE
from ticdc_replay.targets.postgres.tables import PgConnection
from ticdc_replay.targets.postgres.types import staged_cells
from ticdc_replay.targets.refused_rows import Refused, ValueQuarantine, describe

Insert = Callable[[str, sql.Composable], object]
"""Inserts the rows of a staging table that meet a condition. Raises ProgramLimitExceeded where one has no room."""

_BLOCKS = "SELECT pg_catalog.pg_relation_size({}::regclass) / current_setting('block_size')::bigint"


class WideRow(NamedTuple):
    """A staged row: its table, its place there, whether it is a put, and its identity (version and key, in the types of
    staging)."""

    stage: str
    place: str
    put: bool
    identity: tuple[Any, ...]


def wide_rows(connection: PgConnection, plan: TablePlan, stages: tuple[str, ...], insert: Insert) -> list[WideRow]:
    """The rows of *stages* without room for *insert*. The caller undoes what it inserts."""
    columns = [PUT, VERSION, *(column.staged for column in plan.key)]
    found = []
    for stage in stages:
        table = sql.Identifier(LEDGER_SCHEMA, stage)
        row = connection.execute(sql.SQL(_BLOCKS).format(sql.Literal(table.as_string(connection)))).fetchone()
        assert row is not None
        for place in _places(connection, stage, insert, 0, row[0]):
            query = sql.SQL("SELECT {} FROM {} WHERE ctid = {}").format(
                sql.SQL(", ").join(map(sql.Identifier, columns)), table, sql.Literal(place)
            )
            found += [WideRow(stage, place, put, tuple(identity)) for put, *identity in connection.execute(query)]
    return found


def _places(connection: PgConnection, stage: str, insert: Insert, low: int, high: int) -> Iterator[str]:
    """Where rows without room stand in the blocks from *low* to *high* (exclusive) of *stage*."""
    within = sql.SQL("ctid >= {}::tid AND ctid < {}::tid").format(sql.Literal(f"({low},0)"), sql.Literal(f"({high},0)"))
    if low >= high or _fits(connection, stage, insert, within):
        return
    if high - low > 1:
        middle = (low + high) // 2
        yield from _places(connection, stage, insert, low, middle)
        yield from _places(connection, stage, insert, middle, high)
        return
    query = sql.SQL("SELECT ctid::text FROM {} WHERE {} ORDER BY ctid").format(
        sql.Identifier(LEDGER_SCHEMA, stage), within
    )
    for (place,) in connection.execute(query).fetchall():
        alone = sql.SQL("ctid = {}::tid").format(sql.Literal(place))
        if not _fits(connection, stage, insert, alone):
            yield place


def _fits(connection: PgConnection, stage: str, insert: Insert, condition: sql.Composable) -> bool:
    try:
        with connection.transaction():
            insert(stage, condition)
    except psycopg.errors.ProgramLimitExceeded as error:
        if error.diag.constraint_name is not None:
            raise
        return False
    return True


def set_aside(connection: PgConnection, load: Load, plan: TablePlan, rows: list[WideRow]) -> str:
    """Move *rows* from staging to a file of the quarantine; its name. Raises UnrepresentableValueError if policy stops."""
    filesystem, root = load.artifacts.open().arrow_filesystem()
    name = f"{load.folder}/quarantine/wide_{load.tables.index(plan.source):05d}.parquet"
    quarantine = ValueQuarantine(filesystem, root, name)
    sought = {(row.put, row.identity) for row in rows}
    for piece in plan.pieces:
        types = {column.source: column.type for column in piece.columns}
        key = [column.source for column in plan.key]
        for file in piece.version.files:
            path = load.file_name(file, table=plan.source)
            with file_errors(f"read {path}"), pq.ParquetFile(f"{root}/{path}", filesystem=filesystem) as opened:
                for batch in opened.iter_batches(batch_rows(opened.metadata), columns=narrow_columns(plan.handle_key)):
                    put = is_put(batch)
                    keys = narrow(batch, plan.handle_key, put, plan.order)
                    cells = [staged_cells(key_cells(keys, each), types[each]).to_pylist() for each in key]
                    identities = zip(keys["version"].to_pylist(), *cells, strict=True)
                    refused = [
                        Refused(at, "", TOO_WIDE)
                        for at, (identity, stays) in enumerate(zip(identities, put.to_pylist(), strict=True))
                        if (stays, identity) in sought
                    ]
                    if refused and not load.quarantine_values:
                        raise UnrepresentableValueError(
                            f"{describe(plan.source, plan.handle_key, batch, refused)}\n{way_on(plan.dialect)}"
                        )
                    quarantine.add(plan.source, plan.handle_key, path, batch, refused)
    for row in rows:
        statement = sql.SQL("DELETE FROM {} WHERE ctid = {}::tid")
        connection.execute(statement.format(sql.Identifier(LEDGER_SCHEMA, row.stage), sql.Literal(row.place)))
    listed = quarantine.close()
    if listed is None or not load.quarantine_values:
        raise UnrepresentableValueError(
            f"{plan.source}, version and key {rows[0].identity}: {TOO_WIDE}\n{way_on(plan.dialect)}"
        )
    return listed
