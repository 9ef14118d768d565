"""A changelog file with a column of every type, made by the library's own conversion, for tests of its readers."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_replay.changelog.cells.convert import rows_to_batch
from ticdc_replay.changelog.cells.types import table_arrow_schema
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.events import Image, Operation, RowEvent, Shape, WireColumn
from ticdc_replay.domain.tables import Column, TableName, TableSchema
from ticdc_replay.schemas.resolve import ResolvedSchema, version_of

CELLS: dict[str, tuple[ColumnType, Any]] = {
    "tiny": (ColumnType("tinyint"), None),
    "u tiny": (ColumnType("tinyint", unsigned=True), 255),
    "u int": (ColumnType("int", unsigned=True), (1 << 32) - 1),
    "u big": (ColumnType("bigint", unsigned=True), (1 << 64) - 1),
    "float": (ColumnType("float"), 0.1),
    "double": (ColumnType("double"), 0.1),
    "u dec": (ColumnType("decimal", length=38, scale=10), "-1234567890123456789012345678.0123456789"),
    "dec65": (ColumnType("decimal", length=65, scale=0), "9" * 65),
    "bit": (ColumnType("bit", length=64), (1 << 64) - 1),
    "year": (ColumnType("year"), 2155),
    "date": (ColumnType("date"), "0000-00-00"),
    "time": (ColumnType("time", scale=6), "-838:59:59.000001"),
    "datetime": (ColumnType("datetime", scale=6), "0001-01-01 00:00:00.000001"),
    "ts": (ColumnType("timestamp", scale=6), "2038-01-19 11:14:07.999999"),
    "text": (ColumnType("varchar", length=9), "é\0\U0001f600"),
    "blob": (ColumnType("blob"), b"\x00\xff"),
    "enum": (ColumnType("enum", elements=("a", "b")), 2),
    "raw enum": (ColumnType("enum"), 65535),
    "set": (ColumnType("set", elements=("a", "b")), 3),
    "raw set": (ColumnType("set"), (1 << 64) - 1),
    "json": (ColumnType("json"), '{"a": null}'),
}
ABSENT = "tiny"
COLUMNS = tuple(Column(name, column_type) for name, (column_type, _) in CELLS.items())
SCHEMA = TableSchema(TableName("shop", "every.type"), COLUMNS, ("u tiny",))
RESOLVED = ResolvedSchema(SCHEMA, version_of(SCHEMA), False, frozenset())


def write_one_row(folder: Path) -> Path:
    """A Parquet file with one insert: a cell of every type, the zero date in ``_exact``, one column not sent."""
    sent = {name: cell for name, cell in CELLS.items() if name != ABSENT}
    shape = Shape(tuple(WireColumn(name, column_type, False, list) for name, (column_type, _) in sent.items()))
    image = Image(shape, tuple(value for _, value in sent.values()))
    row = RowEvent(0, 7, "shop", "every.type", None, Operation.INSERT, image, None, False, None, None, (), b"")
    converted = rows_to_batch([row], RESOLVED, "Asia/Shanghai")
    assert converted.bad == {}
    schema = table_arrow_schema(SCHEMA)
    head: list[Any] = ["insert", 7, "topic", 0, 1 << 40, 0, None, b"0123456789abcdef", False, False]
    arrays = [pa.array([value], schema.field(at).type) for at, value in enumerate(head)]
    file = folder / "row.parquet"
    pq.write_table(pa.Table.from_arrays([*arrays, *converted[:5]], schema=schema), file, compression="zstd")
    return file
