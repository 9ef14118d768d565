"""The three parts of Kafka → changelog, each run alone in two processes: consuming, decoding to Arrow, writing Parquet.

Functions of this module run in worker processes; what they need beforehand is made by ``prepare`` and kept in the process.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.cells.convert import rows_to_batch
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.read.collector import no_cycle_search
from ticdc_replay.decode.read.split import BATCH_ROWS
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.events import RowEvent
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.kafka.reader import read_range
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.resolve import ResolvedSchema, SchemaResolver

_messages: list[RawMessage] = []
_batches: list[pa.RecordBatch] = []


def consume(bootstrap: str, parts: list[OffsetRange]) -> int:
    """Read *parts* and drop what comes; the number of messages."""
    settings = KafkaSettings.from_connection(Connection("kafka", "kafka", extra={"bootstrap.servers": bootstrap}))
    return sum(len(batch) for part in parts for batch in read_range(settings, part))


def prepare(bootstrap: str, parts: list[OffsetRange], changefeed: Changefeed, history: SchemaHistory) -> int:
    """Keep the messages of *parts* and their rows as Arrow in this process; the number of rows."""
    settings = KafkaSettings.from_connection(Connection("kafka", "kafka", extra={"bootstrap.servers": bootstrap}))
    _messages[:] = [message for part in parts for batch in read_range(settings, part) for message in batch]
    _batches[:] = _decode(changefeed, history)
    return sum(batch.num_rows for batch in _batches)


def decode(changefeed: Changefeed, history: SchemaHistory) -> int:
    """Decode the kept messages to Arrow, as a split does but without identities; the number of rows."""
    with no_cycle_search():
        return sum(batch.num_rows for batch in _decode(changefeed, history))


def write(path: str) -> int:
    """Write the kept rows as one Parquet file; its size in bytes."""
    with pq.ParquetWriter(path, _batches[0].schema, compression="zstd", compression_level=1) as writer:
        for batch in _batches:
            writer.write_table(pa.Table.from_batches([batch]))
    return Path(path).stat().st_size


def _decode(changefeed: Changefeed, history: SchemaHistory) -> list[pa.RecordBatch]:
    codec = codec_for(changefeed, 1 << 28)
    resolver = SchemaResolver(history)
    batches: list[pa.RecordBatch] = []
    waiting: dict[ResolvedSchema, list[RowEvent]] = {}
    for message in _messages:
        for event in codec.decode(message):
            if isinstance(event, RowEvent):
                waiting.setdefault(resolver.resolve(event), []).append(event)
        for resolved, rows in waiting.items():
            if len(rows) >= BATCH_ROWS:
                batches.append(_batch(rows, resolved, changefeed.timezone))
                rows.clear()
    batches += [_batch(rows, resolved, changefeed.timezone) for resolved, rows in waiting.items() if rows]
    return batches


def _batch(rows: list[RowEvent], resolved: ResolvedSchema, zone: str) -> pa.RecordBatch:
    converted = rows_to_batch(rows, resolved, zone)
    return pa.RecordBatch.from_arrays(
        [converted.before, converted.after, converted.absent, converted.lossy, converted.exact],
        ["before", "after", "_absent", "_lossy", "_exact"],
    )
