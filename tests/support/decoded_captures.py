"""Changelogs of captures, decoded in this process: what a decode on Spark writes, without Kafka and Spark."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.duplicates import drop_duplicates
from ticdc_replay.captures import Capture
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.complete.assembly import assemble
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitContext
from ticdc_replay.decode.read.split import SplitDecoder
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob, Limits, LoadJob
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.storage import open_store

LIMITS = Limits(
    split_bytes=1 << 30,
    claim_check_max_bytes=1 << 26,
    claim_check_in_flight_bytes=1 << 26,
    claim_check_connections=4,
    decompressed_max_bytes=1 << 26,
    file_rows=1_000_000,
)


class DecodedCapture:
    """Decodes the capture in *folder* below *artifacts*, one window at a time, each in *splits* splits."""

    def __init__(self, folder: Path, artifacts: Path, splits: int = 3) -> None:
        capture = Capture(folder)
        self._changefeed = capture.changefeed()
        self._artifacts = artifacts
        self._messages = list(capture.messages())
        self._splits = splits
        codec = codec_for(self._changefeed, LIMITS.decompressed_max_bytes)
        events = [event for message in self._messages for event in codec.decode(message)]
        self.history = SchemaHistory().with_ddls(event for event in events if isinstance(event, DdlEvent))

    def decode(self, window: Window) -> ChangelogIndex:
        """Write the changelog of *window*."""
        job = DecodeJob(
            library_version="0",
            pipeline="pipeline",
            artifacts=self._artifacts.as_uri(),
            artifacts_connection=None,
            kafka_connection="kafka",
            claim_check_connection=None,
            manifest="",
            input_hash=canonical.digest(str(window).encode()),
            changefeed=self._changefeed,
            tables=("*.*",),
            limits=LIMITS,
        )
        manifest = Manifest(
            pipeline=job.pipeline, changefeed_hash="", window=window, grade="proven", topics=(), pinned_at_ms=0
        )
        results = []
        for number in range(self._splits):
            split = Split(number, (OffsetRange("topic", 0, 0, 1),))
            decoder = SplitDecoder(split, SplitContext(Attempt("attempt"), job, window, self.history, Connections()))
            decoder.add(self._part(number))
            results.append(decoder.finish())
        store = open_store(job.artifacts)
        filesystem, base = store.arrow_filesystem()
        root = f"{base}/{job.changelog_root}"
        rewritten = drop_duplicates(filesystem, root, Attempt("attempt"), results)
        index = assemble(job, manifest, self.history, results, rewritten)
        store.put_once(f"{job.changelog_root}/{INDEX}", canonical.encode(index))
        return index

    def load_job(self, index: ChangelogIndex, target: dict[str, object], tables: Sequence[str] = ("*.*",)) -> LoadJob:
        """The job that loads *index* into *target*; values that the target can't hold are set aside."""
        return LoadJob(
            library_version="0",
            pipeline="pipeline",
            artifacts=self._artifacts.as_uri(),
            artifacts_connection=None,
            index=f"runs/{index.run_hash}/{INDEX}",
            run_hash=index.run_hash,
            window=index.window,
            target=target,
            tables=tuple(tables),
            target_value="quarantine",
            ddl="apply",
        )

    def _part(self, number: int) -> list[RawMessage]:
        return self._messages[number :: self._splits]
