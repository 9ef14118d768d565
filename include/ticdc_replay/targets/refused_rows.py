"""Row versions that a target can't hold: named in the error of a load that stops, or listed in a file if set aside."""

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.copies.fold import place_of
from ticdc_replay.changelog.files.side_files import SideFile, read_groups
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.messages import EventPlace
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
"""One row per cell that the target can't hold; ``column`` is empty for the whole row. ``key`` is the row key as JSON,
at most ``KEY_CHARACTERS`` and an ellipsis; ``file`` is the changelog's file with the row; the others locate it."""

KEY_CHARACTERS = 2_000
"""Length of a listed row key: each entry of a row repeats it, and coordinates and file locate the row."""
_SHOWN = 10
_KEY_SHOWN = 200
_PLACE = ("topic", "partition", "offset", "ordinal")


class Refused(NamedTuple):
    """A cell that the target can't hold: the position of its row in the batch, the column, "" for the row as a whole, and why."""

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
        """List *refused*, cells of *batch*, which was read from the changelog's *file*: by row, each read once."""
        named = batch.select(["_op", "_commit_ts", "_topic", "_partition", "_offset", "_index"])
        for position, entries in groupby(sorted(refused, key=attrgetter("position")), attrgetter("position")):
            operation, commit_ts, *place = (column[position].as_py() for column in named.columns)
            key = _key_text(batch, position, handle_key, KEY_CHARACTERS)
            for entry in entries:
                self._file.add(
                    (table.schema, table.table, key, operation, commit_ts, *place, entry.column, entry.reason, file)
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
            file = pq.ParquetFile(f"{base}/{name}", filesystem=filesystem)
        except FileNotFoundError:
            continue
        with file:
            for batch in read_groups(file, ["schema", "table", *_PLACE, "commit_ts"]):
                of_table = pc.and_(pc.equal(batch["schema"], table.schema), pc.equal(batch["table"], table.table))
                cells = batch.filter(of_table).select([*_PLACE, "commit_ts"])
                rows.update(
                    (tuple(place), ts)
                    for *place, ts in zip(*(column.to_pylist() for column in cells.columns), strict=True)
                )
    return list(rows.values())


def read_reasons(store: ObjectStore, names: Iterable[str], table: TableName) -> dict[EventPlace, list[str]]:
    """Why the rows of *table* in the files *names* were set aside, by place: column and reason of each cell. Raises
    ArtifactNotFoundError if a file is gone."""
    filesystem, base = store.arrow_filesystem()
    found: dict[EventPlace, list[str]] = {}
    for name in names:
        try:
            with pq.ParquetFile(f"{base}/{name}", filesystem=filesystem) as file:
                for batch in read_groups(file, ["schema", "table", *_PLACE, "column", "reason"]):
                    of_table = pc.and_(pc.equal(batch["schema"], table.schema), pc.equal(batch["table"], table.table))
                    cells = batch.filter(of_table).select([*_PLACE, "column", "reason"])
                    for *place, column, reason in zip(*(each.to_pylist() for each in cells.columns), strict=True):
                        text = f"column {column}: {reason}" if column else reason
                        found.setdefault(EventPlace(*place), []).append(text)
        except FileNotFoundError:
            raise ArtifactNotFoundError(
                f"{store.uri(name)}, rows that a load set aside, is gone: reload the window"
            ) from None
    return found


def describe(table: TableName, handle_key: Sequence[str], batch: pa.RecordBatch, refused: Sequence[Refused]) -> str:
    """The first of *refused*, cells of *batch*, one per line: table, key, column, coordinates, reason."""
    keys: dict[int, str] = {}
    lines = []
    for position, column, reason in refused[:_SHOWN]:
        if position not in keys:
            keys[position] = _key_text(batch, position, handle_key, _KEY_SHOWN)
        where = f", column {column}" if column else ""
        lines.append(f"{table} {keys[position]}{where} ({place_of(batch, position)}): {reason}")
    if len(refused) > _SHOWN:
        lines.append(f"… and {len(refused) - _SHOWN} more in the same batch")
    return "\n".join(lines)


def _key_text(batch: pa.RecordBatch, position: int, handle_key: Sequence[str], most: int) -> str:
    """The row key at *position* as JSON, its first *most* characters; the exact text of cells without a typed value."""
    side = "before" if batch["_op"][position].as_py() == "delete" else "after"
    image, exact = batch[side][position], dict(batch["_exact"][position].as_py() or ())
    key = {}
    for name in handle_key:
        text = exact.get(f"{side}.{name}")
        cell = image[name].as_py() if text is None else text[: 4 * most + 4].decode(errors="backslashreplace")
        # cut before it is written: what is written of it is no shorter
        key[name] = cell[: most + 1] if isinstance(cell, str | bytes) else cell
    written = json.dumps(key, ensure_ascii=False, default=str)
    return written if len(written) <= most else f"{written[:most]}…"
