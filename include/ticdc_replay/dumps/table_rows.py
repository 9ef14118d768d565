"""The rows of one file of a dump as data files of a changelog: each an upsert at the dump's TSO.

A row has no place in Kafka. ``_topic`` is the name of the dump's file instead, ``_offset`` the row's number in it, from 0, and
``_partition`` and ``_index`` are 0.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa

from ticdc_replay.changelog.cells.columnar import HASH, ColumnarRows
from ticdc_replay.changelog.cells.judging import Converted
from ticdc_replay.changelog.cells.types import EXACT_TYPE
from ticdc_replay.changelog.files.data_file import DataFileWriter
from ticdc_replay.changelog.files.identity import key_hashes
from ticdc_replay.changelog.files.keys import Keys
from ticdc_replay.changelog.files.layout import data_folder
from ticdc_replay.changelog.files.spill import Spill
from ticdc_replay.changelog.files.version_files import VersionFile
from ticdc_replay.changelog.files.writer import data_schema
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import ConfigError, ObjectAlteredError
from ticdc_replay.domain.events import Operation
from ticdc_replay.domain.progress import report_done
from ticdc_replay.domain.withheld import withheld
from ticdc_replay.dumps import cells
from ticdc_replay.dumps.csv_rows import csv_rows
from ticdc_replay.dumps.dialect import Dialect
from ticdc_replay.dumps.names import Format
from ticdc_replay.dumps.parquet_rows import parquet_rows
from ticdc_replay.dumps.records import Rows, WrongRowError
from ticdc_replay.dumps.sql_rows import sql_rows
from ticdc_replay.dumps.streams import blocks
from ticdc_replay.dumps.survey import DumpedTable, DumpFile
from ticdc_replay.dumps.tables import require_columns
from ticdc_replay.schemas.resolve import ResolvedSchema
from ticdc_replay.storage import ObjectStore

BATCH_ROWS = 20_000
"""Rows that are typed at a time."""

_BINARY = {"raw": cells.raw, "hex": cells.from_hex, "base64": cells.from_base64}


class FileTask(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a dump to read. ``number`` counts over the whole dump."""

    units: ClassVar[str] = "bytes"

    number: int
    table: DumpedTable
    """Without its files."""
    format: Format
    file: DumpFile
    resolved: ResolvedSchema
    columns: tuple[str, ...]
    """The columns of a file that does not name them, in order: without generated ones."""
    with_stored: tuple[str, ...]
    """The same with stored generated columns, which Dumpling writes if it is told to."""

    @property
    def size(self) -> int:
        """Bytes of the file, as it is stored."""
        return self.file.size


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What all files of a dump are read with."""

    snapshot_ts: int
    """The dump's TSO: the commitTs of all rows."""
    dialect: Dialect
    zone: str
    """Of texts of TIMESTAMP."""
    stem: str
    """Begins the names of the files that are written."""
    file_rows: int


def read_file(
    task: FileTask, reading: Reading, dump: ObjectStore, filesystem: Any, root: str
) -> tuple[VersionFile, ...]:
    """Write the rows of *task*'s file, which lies in *dump*, to data files below *root* of *filesystem*; these files.

    Memory is bounded by a block of the file and a row group. Raises WrongRowError for a row that can't be read or typed, with
    file and line; ObjectAlteredError if the file is not the pinned one.
    """
    _require_unaltered(task.file, dump)
    out = _Output(task, reading, filesystem, root)
    uri = dump.uri(task.file.name)
    found, binary = _rows_of(task, reading, dump, uri)
    for rows in found:
        named = _by_name(rows, task, uri)
        if task.format == "parquet":
            _refuse_lost_dates(task, named, rows, uri)
        for start in range(0, rows.size, BATCH_ROWS):
            part = {name: column.slice(start, BATCH_ROWS) for name, column in named.items()}
            out.write(_batch(task, reading, part, rows.first + start, binary, _line_of(rows, start, uri)))
    return out.close()


def _rows_of(task: FileTask, reading: Reading, dump: ObjectStore, uri: str) -> tuple[Iterator[Rows], cells.Bytes]:
    """The rows of the file, and how the bytes of its binary columns are written."""
    if task.format == "parquet":
        filesystem, root = dump.arrow_filesystem()
        types = {column.name: column.type for column in task.resolved.schema.columns}
        return parquet_rows(filesystem, f"{root}/{task.file.name}", uri, types, reading.zone), cells.raw
    parts, dialect = _counted(blocks(dump, task.file.name, task.file.compression)), reading.dialect
    if task.format == "csv":
        return csv_rows(parts, uri, dialect), _BINARY[dialect.binary]
    return sql_rows(parts, uri, escape_backslash=dialect.escape_backslash), cells.from_literal


def _refuse_lost_dates(task: FileTask, columns: dict[str, pa.Array], rows: Rows, uri: str) -> None:
    """Dumpling writes a DATETIME or TIMESTAMP that no calendar has as NULL (pkg/dumpformat/parquetfile): that can be seen where
    the column takes none."""
    for column in task.resolved.schema.columns:
        if column.nullable or column.type.base not in ("datetime", "timestamp") or not columns[column.name].null_count:
            continue
        at = columns[column.name].is_null().to_pylist().index(True)
        raise WrongRowError(
            f"{uri}, row {rows.first + at + 1}: {column.name} is NULL, and NOT NULL in {task.table.name}: Dumpling writes a date "
            "that no calendar has, such as 0000-00-00, as NULL into Parquet. Dump as CSV or SQL"
        )


def _require_unaltered(file: DumpFile, dump: ObjectStore) -> None:
    info = dump.info(file.name)
    if info is None or (info.size, info.etag) != (file.size, file.etag):
        raise ObjectAlteredError(
            f"{dump.uri(file.name)} is not the file that the seed began with (it had {file.size} bytes and ETag {file.etag}): "
            "dump into an empty folder, and seed from that"
        )


def _counted(parts: Iterator[bytes]) -> Iterator[bytes]:
    """*parts*, reported as done when the next one is requested. Of a compressed file more than its size."""
    done = 0
    for part in parts:
        yield part
        done += len(part)
        report_done(done)


def _by_name(rows: Rows, task: FileTask, uri: str) -> dict[str, pa.Array]:
    """The columns of *rows* that events have, by name."""
    names = rows.names
    if names is None:
        names = task.with_stored if len(rows.columns) == len(task.with_stored) else task.columns
    if len(names) != len(rows.columns):
        raise WrongRowError(
            f"{uri}, line {rows.line}: {len(rows.columns)} values, and {task.table.name} has the columns {', '.join(names)}. "
            "Was the dump taken with other --csv-… options?"
        )
    known = {*task.columns, *(column.name for column in task.resolved.schema.columns)}
    unknown = [at for at, name in enumerate(names) if name not in known and name not in task.resolved.virtual]
    if unknown:
        raise _unknown_names(names, unknown, task, uri)
    require_columns(task.table, task.resolved, frozenset(names), uri)
    if rows.names is None and rows.first == 0 and _is_header(rows, names):
        raise WrongRowError(
            f"{uri}: the first row has the names of the columns: the dump was taken without --no-header"
        )
    return dict(zip(names, rows.columns, strict=True))


def _unknown_names(names: Sequence[str], unknown: Sequence[int], task: FileTask, uri: str) -> WrongRowError:
    """The error for a file whose *names* at the places *unknown* are no columns of its table."""
    if task.format == "csv":  # without a header, the first line is a row
        first = unknown[0]
        return WrongRowError(
            f"{uri}, line 1: {len(unknown)} of {len(names)} values are no column of {task.table.name}: value {first + 1} is "
            f"{withheld(names[first])}. The first line may be a row: if the dump was taken with --no-header, seed with "
            "--no-header, too. Or was it taken with other --csv-… options?"
        )
    named = ", ".join(names[at] for at in unknown)
    return WrongRowError(
        f"{uri}: the file names columns that {task.table.name} does not have: {named!r:.200}. Does the folder hold more than one "
        "dump?"
    )


def _is_header(rows: Rows, names: Sequence[str]) -> bool:
    return [column[0].as_py() for column in rows.columns] == [name.encode() for name in names]


def _line_of(rows: Rows, start: int, uri: str) -> str:
    return f"{uri}, row {rows.first + start + 1}"


def _batch(
    task: FileTask, reading: Reading, texts: dict[str, pa.Array], first: int, binary: cells.Bytes, where: str
) -> ColumnarRows:
    """Rows with *texts*, the first of which has the number *first* in its file."""
    schema = task.resolved.schema
    arrow = data_schema(task.resolved)
    count = len(next(iter(texts.values())))
    arrays: list[pa.Array] = []
    exact: dict[int, list[tuple[str, bytes]]] = {}
    for column in schema.columns:
        found = cells.cells(texts[column.name], column.type, reading.zone, binary)
        _refuse_bad(found, task, column.name, column.type, first, where)
        arrays.append(found.array)
        for at, text in found.exact.items():
            exact.setdefault(at, []).append((f"after.{column.name}", text))
    keys = _keys(task, texts, first, binary, where)
    same = np.zeros(count, np.int32)
    nothing = pa.nulls(count)
    columns = {
        "_op": _same(Operation.UPSERT, count, pa.string()),
        "_commit_ts": _same(reading.snapshot_ts, count, pa.int64()),
        "_topic": _same(task.file.name, count, pa.string()),
        "_partition": pa.array(same),
        "_offset": pa.array(np.arange(first, first + count)),
        "_index": pa.array(same),
        "_physical_table_id": nothing.cast(pa.int64()),
        "_key": nothing.cast(pa.binary(16)) if keys is None else pa.array(keys, pa.binary(16)),
        "_partial": pa.array(np.zeros(count, np.bool_)),
        "_split": pa.array(np.zeros(count, np.bool_)),
        "before": pa.nulls(count, arrow.field("before").type),
        "after": pa.StructArray.from_arrays(arrays, fields=list(arrow.field("after").type)),
        "_exact": pa.array([exact.get(at) for at in range(count)], EXACT_TYPE)
        if exact
        else pa.nulls(count, EXACT_TYPE),
    }
    batch = pa.RecordBatch.from_arrays(
        [columns[name] if name in columns else pa.nulls(count, arrow.field(name).type) for name in arrow.names],
        schema=arrow,
    )
    # Each row of a dump is there once, so there are no copies to tell apart.
    return ColumnarRows(batch, None, np.zeros(count, HASH), np.zeros(count, np.int8))


def _refuse_bad(found: Converted, task: FileTask, column: str, column_type: ColumnType, first: int, where: str) -> None:
    if found.bad:
        at, why = min(found.bad.items())
        uri, _, _ = where.rpartition(", row ")
        raise WrongRowError(
            f"{uri}, row {first + at + 1}: {column} is {column_type} in {task.table.name}: {why}. Was the dump taken with other "
            "--csv-… options, or is the file of another dump?"
        )


def _keys(
    task: FileTask, texts: dict[str, pa.Array], first: int, binary: cells.Bytes, where: str
) -> list[bytes] | None:
    """The identities of rows; None without handle key."""
    schema = task.resolved.schema
    if not schema.handle_key:
        return None
    columns = []
    for name in schema.handle_key:
        column = schema.column(name)
        if column is None:
            raise ConfigError(
                f"{task.table.name}: the column {name} of its key is left out by a column selector of the changefeed"
            )
        if texts[name].null_count:
            at = texts[name].is_null().to_pylist().index(True)
            uri, _, _ = where.rpartition(", row ")
            raise WrongRowError(
                f"{uri}, row {first + at + 1}: {name} is NULL, and rows of {task.table.name} are identified by it"
            )
        columns.append(cells.key_values(texts[name], column.type, binary))
    return key_hashes(list(zip(*columns, strict=True)), schema.handle_key)


def _same(value: Any, count: int, arrow: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, arrow), count)


class _Output:
    """The data files of one file of a dump, one open at a time."""

    def __init__(self, task: FileTask, reading: Reading, filesystem: Any, root: str) -> None:
        self._task = task
        self._reading = reading
        self._filesystem = filesystem
        self._root = root
        # A task may run twice at a time.
        self._stem = f"{reading.stem}-{task.number:05d}-{uuid4().hex[:6]}"
        self._spill = Spill()
        self._file: DataFileWriter | None = None
        self._files: list[VersionFile] = []

    def write(self, rows: ColumnarRows) -> None:
        """Append *rows*."""
        if self._file is None:
            resolved = self._task.resolved
            folder = data_folder(resolved.schema.name, resolved.version)
            name = f"{folder}/{self._stem}-{len(self._files):03d}.parquet"
            schema = partial(data_schema, resolved)
            self._file = DataFileWriter(self._filesystem, self._root, name, schema, Keys(), self._spill)
        self._file.write([rows])
        if self._file.rows >= self._reading.file_rows:
            self._end()

    def close(self) -> tuple[VersionFile, ...]:
        """Finish the files; all of them."""
        self._end()
        self._spill.close()
        return tuple(self._files)

    def _end(self) -> None:
        if self._file is not None:
            resolved = self._task.resolved
            self._files.append(VersionFile(resolved.schema, resolved.version, resolved.declared, self._file.close()))
            self._file = None
