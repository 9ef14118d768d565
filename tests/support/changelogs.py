"""Changelogs made by hand: what decode would have written, so that loads can be tested alone."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from tests.support.schema_histories import history_of
from ticdc_replay.changelog.cells.types import table_arrow_schema
from ticdc_replay.changelog.files.data_file import ENCODING, ROW_GROUP_ROWS
from ticdc_replay.changelog.files.index import (
    ChangelogIndex,
    DataFile,
    Ddl,
    DecodeReport,
    EventCounts,
    MessageCounts,
    TableVersion,
)
from ticdc_replay.changelog.files.layout import INDEX, changelog_root, data_folder
from ticdc_replay.changelog.files.version_order import VersionOrder
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.events import SEARCH, DdlEvent
from ticdc_replay.domain.tables import Column, TableName, TableSchema
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import LoadJob
from ticdc_replay.schemas.changes import changes_of
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.resolve import version_of
from ticdc_replay.snapshot.manifest import ManifestSource


class Row(NamedTuple):
    """One row version. ``commit_ts`` is its offset where the changelog is ordered by place."""

    op: str
    commit_ts: int
    cells: Mapping[str, Any]
    exact: Mapping[str, bytes] | None = None
    partial: bool = False
    absent: Sequence[str] | None = None
    key_hash: bytes | None = None
    partition: int = 0


def put(commit_ts: int, *, op: str = "insert", **cells: Any) -> Row:
    """A row that was inserted or updated."""
    return Row(op, commit_ts, cells)


def delete(commit_ts: int, **key: Any) -> Row:
    """A row that was deleted; only its key is known."""
    return Row("delete", commit_ts, key, partial=True)


def table(
    name: str,
    columns: Mapping[str, ColumnType],
    key: Sequence[str] = ("id",),
    *,
    valid_from: int = 0,
    unique: Sequence[Sequence[str]] = (),
    since: Mapping[str, int] = {},
) -> TableSchema:
    """A table schema; *name* is ``schema.table``, *since* has when columns got their names, if that was later than the table."""
    schema, _, table_name = name.partition(".")
    return TableSchema(
        TableName(schema, table_name),
        tuple(Column(column, type_, since=since.get(column, 0)) for column, type_ in columns.items()),
        tuple(sorted(key)),
        tuple(tuple(sorted(columns)) for columns in unique),
        valid_from,
    )


class Changelog:
    """The changelog of one window below *folder*, the pipeline's artefacts; of rows without commitTs where *order* is place."""

    def __init__(
        self,
        folder: Path,
        from_ts: int,
        to_ts: int,
        run: str = "a",
        *,
        order: VersionOrder = "commit_ts",
        topic_id: str = "topic-id",
    ) -> None:
        self.pipeline = "pipeline"
        self.order = order
        self.topic_id = topic_id
        self.folder = folder
        self.window = Window(from_ts, to_ts)
        self.input_hash = "0" * 64
        self.selection: tuple[str, ...] = ()
        self.redrives: str | None = None
        self.base = ""
        self.contents: dict[str, str] = {}
        self.derived: tuple[ManifestSource, ...] = ()
        self.run_hash = canonical.digest(f"{run} {from_ts} {to_ts}".encode())
        self.history = SchemaHistory()
        self._files: dict[str, tuple[TableSchema, list[DataFile]]] = {}
        self._ddl: list[Ddl] = []
        self.offset = 0
        """Of the row that was added last."""

    def rows(self, schema: TableSchema, rows: Iterable[Row], *, files: int = 1) -> "Changelog":
        """Add rows of *schema*, dealt out to *files* files."""
        rows = list(rows)
        if not rows:
            return self
        version = version_of(schema)
        known = self._files.setdefault(version, (schema, []))[1]
        for part in range(min(files, len(rows))):
            known.append(self._write(schema, version, rows[part::files], len(known)))
        return self

    def file(self, schema: TableSchema, rows: pa.Table) -> "Changelog":
        """Add a file of *rows*, which are as decode writes them, and in their order."""
        version = version_of(schema)
        known = self._files.setdefault(version, (schema, []))[1]
        name, path = self._place(schema, version, len(known))
        pq.write_table(rows, path, row_group_size=ROW_GROUP_ROWS, **ENCODING)
        times = pc.min_max(rows["_commit_ts"]).as_py()
        known.append(DataFile(name, rows.num_rows, path.stat().st_size, times["min"], times["max"], "topic"))
        return self

    def empty(self, schema: TableSchema) -> "Changelog":
        """Add a table without rows, as a base may have it."""
        self._files.setdefault(version_of(schema), (schema, []))
        return self

    def ddl(self, commit_ts: int, query: str, *, table: str = "shop.orders", type: int = 0) -> "Changelog":
        """Add a DDL of *table*."""
        schema, _, name = table.partition(".")
        self._ddl.append(Ddl(commit_ts, schema, name, query, type, "topic", 0, 0))
        return self

    def knows(self, *definitions: TableDefinition) -> "Changelog":
        """Tables that were known before the window."""
        self.history = history_of(definitions)
        return self

    def write(self) -> ChangelogIndex:
        """Write the index."""
        events = [DdlEvent(0, ddl.commit_ts, ddl.schema, ddl.table, ddl.query, ddl.type) for ddl in sorted(self._ddl)]
        history = self.history.with_ddls(events)
        index = ChangelogIndex(
            pipeline=self.pipeline,
            run_hash=self.run_hash,
            input_hash=self.input_hash,
            selection=self.selection,
            library_version="0",
            window=self.window,
            ranges=(),
            topic_ids={"topic": self.topic_id},
            order=self.order,
            tables=tuple(
                TableVersion(schema, version, True, tuple(files), sum(file.rows for file in files))
                for version, (schema, files) in sorted(self._files.items())
            ),
            ddl=tuple(sorted(self._ddl)),
            changes=tuple(changes_of(events, history)),
            quarantine_files=(),
            reference_files=(),
            sparse_index_files=(),
            redrives=self.redrives,
            base=self.base,
            contents=self.contents,
            derived=self.derived,
            search=SEARCH,
            report=DecodeReport(
                messages=MessageCounts(),
                events=EventCounts(),
                quarantine_reasons={},
                watermark=None,
                undeclared_tables=(),
            ),
        )
        path = self.folder / changelog_root(self.run_hash) / INDEX
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(canonical.encode(index))
        return index

    def job(self, target: dict[str, object], **changes: Any) -> LoadJob:
        """Write the index, and the job that loads it into *target*."""
        self.write()
        settings: dict[str, Any] = {
            "artifacts": self.folder.as_uri(),
            "artifacts_connection": None,
            "tables": ("*.*",),
            "target_value": "stop",
            "ddl": "apply",
            "reload": False,
            **changes,
        }
        return LoadJob(
            library_version="0",
            pipeline="pipeline",
            index=f"{changelog_root(self.run_hash)}/{INDEX}",
            run_hash=self.run_hash,
            window=self.window,
            target=target,
            **settings,
        )

    def _write(self, schema: TableSchema, version: str, rows: list[Row], number: int) -> DataFile:
        name, path = self._place(schema, version, number)
        pq.write_table(rows_of(schema, rows, self.offset + 1, self.order), path, row_group_size=4)
        self.offset += len(rows)
        times = [row.commit_ts for row in rows] if self.order == "commit_ts" else [0]
        return DataFile(name, len(rows), path.stat().st_size, min(times), max(times), "topic")

    def _place(self, schema: TableSchema, version: str, number: int) -> tuple[str, Path]:
        """The name of a file below the changelog, and where that is."""
        name = f"{data_folder(schema.name, version)}/{self.run_hash[:8]}-{number:03d}.parquet"
        path = self.folder / changelog_root(self.run_hash) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return name, path


def base(folder: Path, snapshot_ts: int, run: str = "base") -> Changelog:
    """The changelog of a dump that was taken at *snapshot_ts* (TSO)."""
    made = Changelog(folder, snapshot_ts, snapshot_ts + 1, run)
    made.base = "file:///dump"
    return made


def rows_of(
    schema: TableSchema, rows: Iterable[Row], first_offset: int = 1, order: VersionOrder = "commit_ts"
) -> pa.Table:
    """*rows* as decode writes them."""
    records = []
    for offset, row in enumerate(rows, first_offset):
        side = "before" if row.op == "delete" else "after"
        image = {column.name: row.cells.get(column.name) for column in schema.columns}
        exact = {f"{side}.{name}": text for name, text in (row.exact or {}).items()}
        key = [row.cells.get(name, (row.exact or {}).get(name)) for name in schema.handle_key]
        records.append(
            {
                "_op": row.op,
                "_commit_ts": row.commit_ts if order == "commit_ts" else None,
                "_topic": "topic",
                "_partition": row.partition,
                "_offset": offset if order == "commit_ts" else row.commit_ts,
                "_index": 0,
                "_physical_table_id": None,
                "_key": (row.key_hash or xxhash.xxh3_128_digest(repr(key).encode())) if schema.handle_key else None,
                "_partial": row.partial,
                "_split": False,
                "before": image if side == "before" else None,
                "after": image if side == "after" else None,
                "_absent": row.absent,
                "_lossy": None,
                "_exact": list(exact.items()) or None,
            }
        )
    return pa.Table.from_pylist(records, table_arrow_schema(schema))
