"""What runs of one input read from the source: kept beside the changelogs, so that a replay gives the same rows.

A snapshot of the source is gone after a while; the record stays. It is create-once: each part is named by its content.
"""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.files.layout import source_rows_folder
from ticdc_replay.domain import canonical
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.large_messages.source import RowUnreadable
from ticdc_replay.large_messages.source_images import SourceRow
from ticdc_replay.storage.base import ObjectStore

_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int32(), nullable=False),
        pa.field("side", pa.string(), nullable=False),
        pa.field("snapshot", pa.int64(), nullable=False),
        pa.field("definition", pa.string()),
        pa.field("cells", pa.list_(pa.large_binary())),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
    ]
)
_PART_BYTES = 32 * 1024 * 1024
_ROW_GROUP = 64


class ReadPlace(NamedTuple):
    """Whose image a row of the source is: ``side`` (before, after) of an event of a message."""

    topic: str
    partition: int
    offset: int
    ordinal: int
    side: str


class SourceRecord:
    """The record of one input: *known* are the files of earlier runs (paths in the store's filesystem).

    What is added is written in parts of about 32 MiB, so memory stays below two of these.
    """

    def __init__(self, store: ObjectStore, input_hash: str, known: Sequence[str]) -> None:
        self._store = store
        self._folder = source_rows_folder(input_hash)
        self._known: Any = None
        if known:
            import pyarrow.dataset as ds  # loads pandas where that is installed, which takes a second

            filesystem, _ = store.arrow_filesystem()
            self._known = ds.dataset(list(known), schema=_SCHEMA, format="parquet", filesystem=filesystem)
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0
        self._encoded: tuple[TableDefinition | None, str] = (None, "")

    def among(self, places: Sequence[ReadPlace]) -> dict[ReadPlace, SourceRow | RowUnreadable]:
        """What earlier runs learnt of *places*; those that none asked for are missing."""
        if self._known is None or not places:
            return {}
        offsets = [place.offset for place in places]
        condition = (
            (pc.field("offset") >= min(offsets))
            & (pc.field("offset") <= max(offsets))
            & pc.field("topic").isin(sorted({place.topic for place in places}))
            & pc.field("partition").isin(sorted({place.partition for place in places}))
        )
        wanted = set(places)
        found: dict[ReadPlace, SourceRow | RowUnreadable] = {}
        for batch in self._known.to_batches(filter=condition, batch_size=_ROW_GROUP):
            for row in batch.to_pylist():
                place = ReadPlace(row["topic"], row["partition"], row["offset"], row["ordinal"], row["side"])
                if place not in wanted:
                    continue
                if row["definition"] is None:
                    found.setdefault(place, RowUnreadable(row["reason"], row["detail"]))
                else:  # a row that any run could read counts
                    definition = msgspec.json.decode(row["definition"], type=TableDefinition)
                    found[place] = SourceRow(definition, tuple(row["cells"]))
        return found

    def add(self, place: ReadPlace, snapshot: int, answer: SourceRow | RowUnreadable) -> None:
        """Keep *answer*, which the source gave for its state at *snapshot* (TSO)."""
        if isinstance(answer, RowUnreadable):
            self._rows.append((*place, snapshot, None, None, answer.reason, answer.detail))
        else:
            known, definition = self._encoded
            if known is not answer.definition:  # rows of one table follow each other
                definition = canonical.encode(answer.definition).decode()
                self._encoded = (answer.definition, definition)
            self._rows.append((*place, snapshot, definition, list(answer.values), None, None))
            self._bytes += len(definition) + sum(len(value) for value in answer.values if value is not None)
        if self._bytes >= _PART_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was added: to be called before the rows count."""
        if not self._rows:
            return
        self._rows.sort(key=lambda row: row[:5])
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        buffer = io.BytesIO()
        table = pa.Table.from_arrays(arrays, schema=_SCHEMA)
        pq.write_table(table, buffer, row_group_size=_ROW_GROUP, compression="zstd")
        content = buffer.getvalue()
        self._store.put_once(f"{self._folder}/{canonical.digest(content)}.parquet", content)
        self._rows, self._bytes = [], 0
