"""Decodes messages out of quarantine once more: the same decoder, which gets them from a file instead of Kafka."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow.parquet as pq

from ticdc_replay.changelog.files.set_aside import read_messages
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import FoundSchemas, schemas_in
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitResult
from ticdc_replay.decode.read.collector import no_cycle_search
from ticdc_replay.decode.read.split import SplitDecoder
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.events import Event
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.registry import UsedSchemas, open_registry
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.storage import open_store


class RedriveSplit(msgspec.Struct, frozen=True):
    """A part of the messages. *file* is a path in the artefacts' filesystem, *groups* are row groups of it."""

    number: int
    file: str
    groups: tuple[int, ...]


def plan_redrive(file: str, groups: int, least: int) -> list[RedriveSplit]:
    """Splits of the *groups* row groups of *file*, about *least* of them where there are as many groups."""
    size = max(1, -(-groups // max(1, least)))
    starts = range(0, groups, size)
    return [
        RedriveSplit(number, file, tuple(range(start, min(groups, start + size))))
        for number, start in enumerate(starts)
    ]


def find_schemas_again(split: RedriveSplit, job: DecodeJob, connections: Connections) -> FoundSchemas:
    """What the messages of *split* say of tables, now that more of them may be understood."""
    lookup = SchemaLookup(writer_schemas=UsedSchemas(open_registry(connections.get(job.schema_registry_connection))))
    codec = codec_for(job.changefeed, job.limits.decompressed_max_bytes, lookup)
    with _opened(split, job, connections) as file:
        return schemas_in(([message] for message, _ in read_messages(file, split.groups)), codec)


def redrive_split(
    split: RedriveSplit,
    attempt: Attempt,
    job: DecodeJob,
    window: Window | None,
    history: SchemaHistory,
    connections: Connections,
) -> SplitResult:
    """Decode the messages of *split* and write the files of a changelog; arguments and errors as ``decode_split`` has them."""
    decoder = RedriveDecoder(Split(split.number, ()), attempt, job, window, history, connections)
    with _opened(split, job, connections) as file, no_cycle_search():
        for message, ordinals in read_messages(file, split.groups):
            decoder.add_part(message, ordinals)
        return decoder.finish()


class RedriveDecoder(SplitDecoder):
    """Decodes parts of messages, in whatever order."""

    def __init__(
        self,
        split: Split,
        attempt: Attempt,
        job: DecodeJob,
        window: Window | None,
        history: SchemaHistory,
        connections: Connections,
    ) -> None:
        # The extension reads messages as a whole.
        super().__init__(split, attempt, job, window, history, connections, natively=False)
        self._wanted: frozenset[int] | None = None
        self._decode_all = self._decode
        self._decode = self._decode_wanted

    def add_part(self, message: RawMessage, ordinals: frozenset[int] | None) -> None:
        """Decode those events of *message* that *ordinals* names, all where it is None."""
        self._wanted = ordinals
        self.add([message])

    def finish(self) -> SplitResult:
        # A sparse index tells of all events of a stretch of offsets; of these messages only parts were looked at.
        return msgspec.structs.replace(super().finish(), sparse_index_file=None)

    def _decode_wanted(self, message: RawMessage) -> Sequence[Event]:
        events = self._decode_all(message)
        if self._wanted is None:
            return events
        return [event for event in events if event.ordinal is None or event.ordinal in self._wanted]


def _opened(split: RedriveSplit, job: DecodeJob, connections: Connections) -> Any:
    filesystem, _ = open_store(job.artifacts, connections.get(job.artifacts_connection)).arrow_filesystem()
    return pq.ParquetFile(split.file, filesystem=filesystem)
