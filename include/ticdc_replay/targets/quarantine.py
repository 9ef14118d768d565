"""Row versions that a target can't hold: named for people when they stop a load, or listed in a file when they are set aside."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_replay.changelog.fold import place_of
from ticdc_replay.changelog.side_files import SideFile
from ticdc_replay.domain.tables import TableName
from ticdc_replay.storage.base import ObjectStore

VALUE_QUARANTINE = pa.schema(
    [
        pa.field("schema", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("operation", pa.string(), nullable=False),
        pa.field("commit_ts", pa.int64()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int32(), nullable=False),
        pa.field("column", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
    ]
)
"""One row per cell that the target can't hold. ``key`` is the row key as JSON, ``file`` the changelog's file that has the
whole row; all columns but these name where TiCDC sent it."""

_SHOWN = 10
_PLACE = ("topic", "partition", "offset", "ordinal")


class Refused(NamedTuple):
    """A cell that the target can't hold: the position of its row in the batch, the column, and why."""

    position: int
    column: str
    reason: str


class ValueQuarantine:
    """The file of one task's refused cells. *name* is relative to *root*."""

    def __init__(self, filesystem: Any, root: str, name: str) -> None:
        self._file = SideFile(filesystem, root, name, VALUE_QUARANTINE)

    def add(
        self, table: TableName, handle_key: Sequence[str], file: str, batch: pa.RecordBatch, refused: Sequence[Refused]
    ) -> None:
        """List *refused*, cells of *batch*, which was read from the changelog's *file*."""
        for entry in refused:
            row = batch.slice(entry.position, 1).to_pylist()[0]
            self._file.add(
                (
                    *(table.schema, table.table, key_text(row, handle_key), row["_op"], row["_commit_ts"]),
                    *(row["_topic"], row["_partition"], row["_offset"], row["_index"]),
                    *(entry.column, entry.reason, file),
                )
            )

    def close(self) -> str | None:
        """Finish the file; its name, or None where nothing was refused."""
        return self._file.close()


def read_refused(store: ObjectStore, names: Iterable[str], table: TableName) -> list[int | None]:
    """The commitTs (TSO; None without one) of each row of *table* in the files *names*; those that are gone are left out."""
    filesystem, base = store.arrow_filesystem()
    rows: dict[tuple[Any, ...], int | None] = {}
    for name in names:
        try:
            found = pq.read_table(f"{base}/{name}", filesystem=filesystem, partitioning=None)
        except FileNotFoundError:
            continue
        for cell in found.select(["schema", "table", *_PLACE, "commit_ts"]).to_pylist():
            if TableName(cell["schema"], cell["table"]) == table:
                rows[tuple(cell[name] for name in _PLACE)] = cell["commit_ts"]
    return list(rows.values())


def describe(table: TableName, handle_key: Sequence[str], batch: pa.RecordBatch, refused: Sequence[Refused]) -> str:
    """The first of *refused*, cells of *batch*, one per line: table, key, column, coordinates, reason."""
    lines = []
    for entry in refused[:_SHOWN]:
        row = batch.slice(entry.position, 1).to_pylist()[0]
        place = place_of(batch, entry.position)
        lines.append(f"{table} {key_text(row, handle_key)}, column {entry.column} ({place}): {entry.reason}")
    if len(refused) > _SHOWN:
        lines.append(f"… and {len(refused) - _SHOWN} more in the same batch")
    return "\n".join(lines)


def key_text(row: dict[str, Any], handle_key: Sequence[str]) -> str:
    """The row key of a changelog *row* as JSON; cells that the typed column can't hold as their exact text."""
    side = "before" if row["_op"] == "delete" else "after"
    exact = dict(row["_exact"] or ())
    key = {}
    for name in handle_key:
        text = exact.get(f"{side}.{name}")
        key[name] = row[side][name] if text is None else text.decode(errors="backslashreplace")
    return json.dumps(key, ensure_ascii=False, default=str)
