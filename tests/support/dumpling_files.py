"""Files in Dumpling's format, of tables in a MySQL-compatible server or of rows in a test.

Written from its source, of which docs/seed.md names the places; Dumpling itself is a Go program that no package index has.
"""

import base64
import gzip
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
from pymysql.converters import encoders

from ticdc_replay.domain.connections import Connection
from ticdc_replay.dumps.dialect import Dialect

Kind = Literal["number", "bytes", "string"]
Row = Sequence[bytes | None]

_NUMBERS = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "decimal", "integer", "numeric", "real"}
)
_BYTES = frozenset({"blob", "tinyblob", "mediumblob", "longblob", "binary", "varbinary", "bit"})
_CRC_OF_NOTHING = b"\0\0\0\0"


class Variant(NamedTuple):
    """How a dump is written."""

    format: Literal["csv", "sql", "parquet"] = "csv"
    dialect: Dialect = Dialect()
    compression: Literal["", "gzip", "zstd", "snappy"] = ""
    file_rows: int = 0
    """Rows of a chunk (``-r``); 0 for one file."""
    file_size_too: bool = False
    """Whether chunks are also bounded in size (``-F``), which makes another number of their names."""
    complete_insert: bool = False
    statement_rows: int = 3
    zone: str = "+00:00"


PLAIN = Variant()
"""As Dumpling writes CSV without further options."""


class Table(NamedTuple):
    """A table with its rows, in the texts of the text protocol."""

    database: str
    name: str
    create: str
    columns: Sequence[str]
    kinds: Sequence[Kind]
    rows: Sequence[Row]
    types: Sequence[str] = ()
    """As ``COLUMN_TYPE`` of information_schema has them; only Parquet needs them."""


def write_dump(folder: Path, tables: Iterable[Table], snapshot_ts: int, variant: Variant = PLAIN) -> Path:
    """Write a dump of *tables* at *snapshot_ts* (TSO) into *folder*, with what a dump has beside tables."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = list(tables)
    for database in {table.database for table in tables}:
        _put(folder, f"{_escaped(database)}-schema-create.sql", _commented(f"CREATE DATABASE `{database}`"), variant)
    for table in tables:
        stem = f"{_escaped(table.database)}.{_escaped(table.name)}"
        _put(folder, f"{stem}-schema.sql", _commented(table.create), variant)
        size = variant.file_rows or max(1, len(table.rows))
        for number, start in enumerate(range(0, len(table.rows), size)):
            rows = table.rows[start : start + size]
            chunk = f"{number:09d}0000" if variant.file_size_too else f"{number:09d}"
            if variant.format == "parquet":
                pq.write_table(parquet_table(table, rows), folder / f"{stem}.{chunk}.parquet", compression="zstd")
                continue
            content = csv_file(table, rows, variant) if variant.format == "csv" else sql_file(table, rows, variant)
            _put(folder, f"{stem}.{chunk}.{variant.format}", content, variant)
    (folder / "metadata").write_text(metadata(snapshot_ts))
    return folder


def metadata(snapshot_ts: int | str, log: str = "tidb-binlog", *, finished: bool = True) -> str:
    """The content of the file ``metadata``."""
    end = "Finished dump at: 2026-03-01 12:05:00\n" if finished else ""
    return f"Started dump at: 2026-03-01 12:00:00\nSHOW MASTER STATUS:\n\tLog: {log}\n\tPos: {snapshot_ts}\n\tGTID:\n\n{end}"


def add_view(folder: Path, database: str, name: str) -> None:
    """Add a view: a table's definition of its columns, and the view's own."""
    stem = f"{_escaped(database)}.{_escaped(name)}"
    (folder / f"{stem}-schema.sql").write_bytes(_commented(f"CREATE TABLE `{name}`(\n`id` int\n)"))
    (folder / f"{stem}-schema-view.sql").write_bytes(
        _commented(f"DROP TABLE IF EXISTS `{name}`;\nCREATE VIEW `{name}` AS SELECT 1")
    )


def csv_file(table: Table, rows: Sequence[Row], variant: Variant) -> bytes:
    """A CSV file with *rows*."""
    dialect = variant.dialect
    separator, end = dialect.separator.encode(), dialect.line_terminator.encode()
    lines = []
    if dialect.header:
        lines.append(separator.join(_enclosed(name.encode(), dialect) for name in table.columns))
    for row in rows:
        lines.append(separator.join(map(_csv_value, row, table.kinds, [dialect] * len(row))))
    return b"".join(line + end for line in lines)


def sql_file(table: Table, rows: Sequence[Row], variant: Variant) -> bytes:
    """An SQL file with *rows*."""
    columns = ",".join("`" + name.replace("`", "``") + "`" for name in table.columns)
    named = f" ({columns})" if variant.complete_insert else ""
    name = table.name.replace("`", "``")
    parts = [b"/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"]
    for start in range(0, len(rows), variant.statement_rows):
        tuples = [
            b"(" + b",".join(map(_sql_value, row, table.kinds, [variant.dialect.escape_backslash] * len(row))) + b")"
            for row in rows[start : start + variant.statement_rows]
        ]
        parts.append(f"INSERT INTO `{name}`{named} VALUES\n".encode() + b",\n".join(tuples) + b";\n")
    return b"".join(parts)


def parquet_table(table: Table, rows: Sequence[Row]) -> pa.Table:
    """*rows* as Parquet has them (pkg/dumpformat/parquetfile): by the name of the type that the driver reports."""
    arrays = [_parquet_column([row[at] for row in rows], kind) for at, kind in enumerate(table.types)]
    return pa.Table.from_arrays(arrays, names=list(table.columns))


def _parquet_column(texts: Sequence[bytes | None], column_type: str) -> pa.Array:
    base, _, rest = column_type.partition("(")
    base, _, sign = base.partition(" ")
    unsigned = "unsigned" in sign + rest
    if base in ("tinyint", "smallint", "mediumint", "year") or (base == "int" and not unsigned):
        return pa.array([None if text is None else int(text) for text in texts], pa.int32())
    if (base == "bigint" and not unsigned) or base == "int":
        return pa.array([None if text is None else int(text) for text in texts], pa.int64())
    if base in ("bigint", "decimal"):
        digits, scale = (20, 0) if base == "bigint" else map(int, rest.partition(")")[0].split(","))
        if digits > 38:
            return pa.array(texts, pa.binary()).cast(pa.string())
        numbers = [None if text is None else Decimal(text.decode()) for text in texts]
        return pa.array(numbers, pa.decimal128(digits, scale))
    if base in ("float", "double"):
        return pa.array([None if text is None else float(text) for text in texts], pa.float64())
    if base in ("datetime", "timestamp"):
        return pa.array([_wall_clock(text) for text in texts], pa.timestamp("us"))
    if base in _BYTES:
        return pa.array(texts, pa.binary())
    return pa.array(texts, pa.binary()).cast(pa.string())


def _wall_clock(text: bytes | None) -> datetime | None:
    """NULL for what Go's time.Parse refuses, such as a zero date."""
    try:
        return None if text is None else datetime.fromisoformat(text.decode())
    except ValueError:
        return None


def read_table(server: Connection, database: str, name: str, zone: str = "+00:00") -> Table:
    """The table *name* as Dumpling reads it: without generated columns, and texts as the server sends them."""
    with _session(server, zone) as session, session.cursor() as cursor:
        create = _one(cursor, f"SHOW CREATE TABLE `{database}`.`{name}`")[1].decode()
        cursor.execute(
            "SELECT column_name, data_type, column_type, is_generated FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (database, name),
        )
        found = [tuple((cell or b"").decode() for cell in row) for row in cursor.fetchall()]
        plain = [(column, kind, whole) for column, kind, whole, generated in found if generated != "ALWAYS"]
        columns = [column for column, _, _ in plain]
        cursor.execute(f"SELECT {','.join(f'`{column}`' for column in columns)} FROM `{database}`.`{name}`")
        rows = cursor.fetchall()
        kinds: list[Kind] = [_kind(kind) for _, kind, _ in plain]
    return Table(database, name, create, columns, kinds, rows, [whole for _, _, whole in plain])


def _kind(data_type: str) -> Kind:
    if data_type in _NUMBERS:
        return "number"
    return "bytes" if data_type in _BYTES else "string"


def _session(server: Connection, zone: str) -> Any:
    assert server.host is not None
    assert server.port is not None
    return pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.login,
        password=server.password or "",
        charset="utf8mb4",
        use_unicode=False,
        conv=dict(encoders),  # and no decoders
        init_command=f"SET time_zone = '{zone}'",
    )


def _one(cursor: Any, query: str) -> Any:
    cursor.execute(query)
    return cursor.fetchone()


def _csv_value(value: bytes | None, kind: Kind, dialect: Dialect) -> bytes:
    if value is None:
        return dialect.null_value.encode()
    if kind == "number":
        return value
    if kind == "bytes" and dialect.binary != "raw":
        text = value.hex().encode() if dialect.binary == "hex" else base64.b64encode(value)
        return dialect.delimiter.encode() + text + dialect.delimiter.encode()
    return _enclosed(value, dialect)


def _enclosed(value: bytes, dialect: Dialect) -> bytes:
    delimiter = dialect.delimiter.encode()
    if dialect.escape_backslash:
        special = (delimiter or dialect.separator.encode())[:1]
        escapes = {b"\0": b"\\0", b"\r": b"\\r", b"\n": b"\\n", b"\\": b"\\\\", special: b"\\" + special}
        value = b"".join(escapes.get(bytes([byte]), bytes([byte])) for byte in value)
    else:
        value = value.replace(delimiter, delimiter * 2)
    return delimiter + value + delimiter


def _sql_value(value: bytes | None, kind: Kind, escape_backslash: bool) -> bytes:
    if value is None:
        return b"NULL"
    if kind == "number":
        return value
    if kind == "bytes":
        return b"x'" + value.hex().encode() + b"'"
    if not escape_backslash:
        return b"'" + value.replace(b"'", b"''") + b"'"
    escapes = {0: b"\\0", 10: b"\\n", 13: b"\\r", 92: b"\\\\", 39: b"\\'", 34: b'\\"', 26: b"\\Z"}
    return b"'" + b"".join(escapes.get(byte, bytes([byte])) for byte in value) + b"'"


def _commented(statement: str) -> bytes:
    return f"/*!40101 SET NAMES binary*/;\n{statement};\n".encode()


def _escaped(name: str) -> str:
    plain = "".join(f"%{ord(char):02X}" if char in '%"*./:<>?\\|' or char < " " else char for char in name)
    at = plain.lower().find("-schema")
    return plain if at < 0 else f"{plain[:at]}%2D{plain[at + 1 :]}"


def _put(folder: Path, name: str, content: bytes, variant: Variant) -> None:
    suffix = {"": "", "gzip": ".gz", "zstd": ".zst", "snappy": ".snappy"}[variant.compression]
    (folder / f"{name}{suffix}").write_bytes(compressed(content, variant.compression))


def compressed(content: bytes, compression: str) -> bytes:
    """*content* as Dumpling compresses it."""
    if compression == "gzip":
        return gzip.compress(content)
    if compression == "zstd":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(content)
        return bytes(sink.getvalue())
    if compression == "snappy":
        chunks = [b"\xff\x06\x00\x00sNaPpY"]
        for start in range(0, len(content), 65_536):
            plain = content[start : start + 65_536]
            packed = bytes(pa.Codec("snappy").compress(plain))
            kind, body = (0, packed) if len(packed) < len(plain) else (1, plain)
            body = _CRC_OF_NOTHING + body
            chunks.append(bytes([kind]) + len(body).to_bytes(3, "little") + body)
        return b"".join(chunks)
    return content
