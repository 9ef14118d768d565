"""What runs have set aside: reading quarantine files, and the file of messages that are to be decoded once more."""

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.changelog.files.side_files import GROUP_BYTES, read_groups
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.storage.base import ObjectStore

MESSAGES = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("ordinals", pa.list_(pa.int32())),
    ]
)
"""Each message once. ``ordinals`` are the events of it that are wanted; null stands for the whole message."""

GROUP_ROWS = 1_000
"""Messages of one row group, which one task decodes; fewer where they have ``GROUP_BYTES``."""

WHOLE_MESSAGE = -1
"""The ordinal of an entry for a message from which no event could be read."""

_COORDINATES = ["topic", "partition", "offset"]
_NARROW = [*_COORDINATES, "ordinal", "timestamp_ms", "reason", "detail", "commit_ts", "schema", "table"]
_BYTES = [*_COORDINATES, "timestamp_ms", "key", "value"]


class EntryPlace(NamedTuple):
    """What an entry is about: an event of a message, wherever it was decoded."""

    topic: TopicIdentity
    partition: int
    offset: int
    ordinal: int

    @property
    def message(self) -> "EntryPlace":
        """The whole message."""
        return self._replace(ordinal=WHOLE_MESSAGE)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the quarantine of *run_hash*, without the bytes. ``commit_ts`` is a TSO."""

    run_hash: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    ordinal: int | None
    timestamp_ms: int
    reason: str
    detail: str
    commit_ts: int | None
    schema: str | None
    table: str | None
    cluster_id: str = ""
    """Kafka's own; empty where the run does not know it."""

    @property
    def place(self) -> EntryPlace:
        """What it is about."""
        ordinal = WHOLE_MESSAGE if self.ordinal is None else self.ordinal
        topic = TopicIdentity(self.cluster_id, self.topic, self.topic_id)
        return EntryPlace(topic, self.partition, self.offset, ordinal)

    @property
    def coordinates(self) -> str:
        """``topic[partition]@offset``, with ``#ordinal`` where one event of the message is meant."""
        event = "" if self.ordinal is None else f"#{self.ordinal}"
        return f"{self.topic}[{self.partition}]@{self.offset}{event}"

    @property
    def table_name(self) -> str:
        """``schema.table``, as far as it could be read; "" where nothing could."""
        return f"{self.schema or ''}.{self.table or ''}" if self.schema or self.table else ""


def read_entries(store: ObjectStore, index: ChangelogIndex) -> list[Entry]:
    """The quarantine of the changelog of *index*, in order of place. Raises ArtifactNotFoundError where a file is gone."""
    found = [
        Entry(
            run_hash=index.run_hash,
            topic_id=index.topic_ids[row["topic"]],
            cluster_id=index.cluster_id or "",
            **row,
        )
        for batch in _batches(store, index, _NARROW)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda entry: (entry.place, entry.reason))


def pack_messages(
    store: ObjectStore, wanted: Mapping[EntryPlace, Collection[int] | None], indexes: Sequence[ChangelogIndex]
) -> tuple[bytes, int]:
    """A file of ``MESSAGES``, and how many it has: of each message in *wanted* the events named there, None for all.

    Bytes come out of the quarantine of *indexes*. Equal arguments give equal bytes. Raises ArtifactNotFoundError where a file is
    gone, or a message is in none.
    """
    missing = set(wanted)
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, MESSAGES, compression="zstd", compression_level=1) as writer:
        rows: list[dict[str, Any]] = []
        size = 0
        for index in indexes:
            topics = index.identities
            for (topic, partition, offset), read in _stored(store, index):
                place = EntryPlace(topics[topic], partition, offset, WHOLE_MESSAGE)
                if place not in missing:
                    continue
                missing.discard(place)
                ordinals, row = wanted[place], read()
                rows.append(row | {"ordinals": None if ordinals is None else sorted(ordinals)})
                size += len(row["key"] or b"") + len(row["value"] or b"")
                if len(rows) == GROUP_ROWS or size >= GROUP_BYTES:
                    writer.write_table(pa.Table.from_pylist(rows, MESSAGES))
                    rows, size = [], 0
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, MESSAGES))
    if missing:
        raise ArtifactNotFoundError(
            f"{len(missing)} messages are in no quarantine file of runs {', '.join(index.run_hash for index in indexes)}"
        )
    return buffer.getvalue(), len(wanted)


def messages_of(
    store: ObjectStore, index: ChangelogIndex, partitions: Collection[tuple[str, int]]
) -> Iterator[RawMessage]:
    """The messages of *partitions* in the quarantine of *index*, each once. Raises ArtifactNotFoundError where a file is gone."""
    found = set()
    for place, read in _stored(store, index):
        if place[:2] in partitions and place not in found:
            found.add(place)
            yield RawMessage(**read())


def message_of(store: ObjectStore, index: ChangelogIndex, entry: Entry) -> RawMessage:
    """The message of *entry*, out of the quarantine of *index*. Raises ArtifactNotFoundError where it is gone."""
    for place, read in _stored(store, index):
        if place == (entry.topic, entry.partition, entry.offset):
            return RawMessage(**read())
    raise ArtifactNotFoundError(f"{entry.coordinates} is not in the quarantine of run {index.run_hash}")


def selected_places(file: pq.ParquetFile, topics: Mapping[str, TopicIdentity]) -> set[EntryPlace]:
    """What a file of ``MESSAGES`` is about; *topics* by name."""
    return {
        EntryPlace(topics[row["topic"]], row["partition"], row["offset"], ordinal)
        for batch in file.iter_batches(columns=["topic", "partition", "offset", "ordinals"])
        for row in batch.to_pylist()
        for ordinal in ([WHOLE_MESSAGE] if row["ordinals"] is None else row["ordinals"])
    }


def read_messages(file: pq.ParquetFile, groups: Iterable[int]) -> Iterator[tuple[RawMessage, frozenset[int] | None]]:
    """The messages of row *groups* of a file of ``MESSAGES``, each with the events that are wanted; None for all."""
    for group in groups:
        for row in file.read_row_group(group).to_pylist():
            ordinals = row.pop("ordinals")
            yield RawMessage(**row), None if ordinals is None else frozenset(ordinals)


def _stored(
    store: ObjectStore, index: ChangelogIndex
) -> Iterator[tuple[tuple[str, int, int], Callable[[], dict[str, Any]]]]:
    """The place of each entry, and what reads its message: bytes are taken out of Arrow only for messages that are wanted."""
    for batch in _batches(store, index, _BYTES):
        places = zip(*(batch[name].to_pylist() for name in _COORDINATES), strict=True)
        for at, place in enumerate(places):
            yield place, partial(_row, batch, at)


def _row(batch: pa.RecordBatch, at: int) -> dict[str, Any]:
    return {name: batch[name][at].as_py() for name in _BYTES}


def _batches(store: ObjectStore, index: ChangelogIndex, columns: list[str]) -> Iterator[pa.RecordBatch]:
    filesystem, base = store.arrow_filesystem()
    for name in index.quarantine_files:
        path = f"{base}/{changelog_root(index.run_hash)}/{name}"
        try:
            with pq.ParquetFile(path, filesystem=filesystem) as file:
                yield from read_groups(file, columns)
        except FileNotFoundError:
            raise ArtifactNotFoundError(
                f"{store.uri(f'{changelog_root(index.run_hash)}/{name}')} is gone, and its messages with it; run the window "
                "again with repin while Kafka still holds it"
            ) from None
