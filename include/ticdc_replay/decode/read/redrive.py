"""Decodes messages out of quarantine once more: the same decoder, which gets them from a file instead of Kafka."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow.parquet as pq

from ticdc_replay.changelog.files.set_aside import read_messages
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import FoundSchemas, schemas_in
from ticdc_replay.decode.plan.tasks import Split, SplitContext, SplitResult
from ticdc_replay.decode.read.collector import no_cycle_search
from ticdc_replay.decode.read.split import SplitDecoder
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.events import Event
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.registry import UsedSchemas, open_registry
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


def redrive_split(split: RedriveSplit, context: SplitContext) -> SplitResult:
    """Decode the messages of *split* and write the files of a changelog. Raises what ``decode_split`` raises."""
    decoder = RedriveDecoder(Split(split.number, ()), context)
    with _opened(split, context.job, context.connections) as file, no_cycle_search():
        for message, ordinals in read_messages(file, split.groups):
            decoder.add_part(message, ordinals)
        return decoder.finish()


class RedriveDecoder(SplitDecoder):
    """Decodes parts of messages, in whatever order."""

    def __init__(self, split: Split, context: SplitContext) -> None:
        super().__init__(split, context, natively=False)  # the extension reads messages as a whole
        self._wanted: frozenset[int] | None = None
        self._decode_all = self._decode
        self._decode = self._decode_wanted

    def add_part(self, message: RawMessage, ordinals: frozenset[int] | None) -> None:
        """Decode those events of *message* that *ordinals* names, all where it is None."""
        self._wanted = ordinals
        self.add([message])

    def finish(self) -> SplitResult:
        # A sparse index covers all events of a stretch of offsets; here only parts of messages were decoded.
        return msgspec.structs.replace(super().finish(), sparse_index_file=None)

    def _decode_wanted(self, message: RawMessage) -> Sequence[Event]:
        events = self._decode_all(message)
        if self._wanted is None:
            return events
        return [event for event in events if event.ordinal is None or event.ordinal in self._wanted]


def _opened(split: RedriveSplit, job: DecodeJob, connections: Connections) -> Any:
    filesystem, _ = open_store(job.artifacts, connections.get(job.artifacts_connection)).arrow_filesystem()
    return pq.ParquetFile(split.file, filesystem=filesystem)
