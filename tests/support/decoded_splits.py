"""Decodes messages as splits of a run, without Kafka and Spark, and puts the changelog together as a driver does."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.support.duplicates import drop_duplicates
from tests.support.open_protocol import columns, row
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.decode.complete.assembly import assemble
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitContext
from ticdc_replay.decode.read.split import SplitDecoder
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob, Limits
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.storage import open_store

WINDOW = Window(100, 200)
LIMITS = Limits(
    split_bytes=1 << 20,
    claim_check_max_bytes=1 << 20,
    claim_check_in_flight_bytes=1 << 20,
    claim_check_connections=2,
    decompressed_max_bytes=1 << 20,
    file_rows=1000,
)


def decode(
    folder: Path,
    splits: Sequence[Sequence[RawMessage]],
    bucket_rows: int = 1_000,
    window: Window = WINDOW,
    history: SchemaHistory | None = None,
    options: Mapping[str, Any] | None = None,
    **changefeed: Any,
) -> tuple[ChangelogIndex, list[dict[str, Any]]]:
    """The index and the rows that come out when *splits* are decoded apart and then deduplicated. *folder* keeps them.

    *options* are those of the job.
    """
    history = history or SchemaHistory()
    job = DecodeJob(
        library_version="test",
        pipeline="p",
        artifacts=f"file://{folder}",
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        manifest="manifests/m.json",
        input_hash=canonical.digest(str(window).encode()),
        changefeed=Changefeed(**{"protocol": "open-protocol", "topic": "topic", "timezone": "UTC", **changefeed}),
        limits=LIMITS,
        **{"tables": ("s.*",), **(options or {})},
    )
    results = []
    for number, messages in enumerate(splits):
        split = Split(number, (OffsetRange("topic", 0, 0, 1),))
        decoder = SplitDecoder(split, SplitContext(Attempt("attempt"), job, window, history, Connections()))
        for _, part in groupby(messages, key=lambda message: message[:2]):
            decoder.add(list(part))
        results.append(decoder.finish())
    filesystem, base = open_store(job.artifacts).arrow_filesystem()
    root = f"{base}/{job.changelog_root}"
    rewritten = drop_duplicates(filesystem, root, Attempt("attempt"), results, bucket_rows)
    manifest = Manifest(pipeline="p", changefeed_hash="", window=window, grade="proven", topics=(), pinned_at_ms=0)
    index = assemble(job, manifest, history, results, rewritten)
    open_store(job.artifacts).put_once(f"{job.changelog_root}/{INDEX}", canonical.encode(index))
    rows = []
    for table in index.tables:
        for file in table.files:
            rows += pq.read_table(f"{root}/{file.name}", filesystem=filesystem, partitioning=None).to_pylist()
    assert_accounts_add_up(index, rows)
    return index, rows


def assert_accounts_add_up(index: ChangelogIndex, rows: list[dict[str, Any]]) -> None:
    events, messages = index.report.events, index.report.messages
    assert events.rows + events.split_updates == (
        events.outside_window + events.filtered + events.quarantined + events.duplicates + events.written
    )
    assert messages.consumed == messages.decoded + messages.quarantined
    assert events.written == len(rows) == sum(table.rows for table in index.tables)


def quarantine(folder: Path, index: ChangelogIndex) -> list[dict[str, Any]]:
    root = folder / changelog_root(index.run_hash)
    parts = [pq.read_table(root / name, partitioning=None).to_pylist() for name in index.quarantine_files]
    return [entry for part in parts for entry in part]


def versions(rows: list[dict[str, Any]]) -> list[tuple[int, int, str | None]]:
    """(commitTs, id, value or None for a delete) of each row, sorted as text."""
    found = [
        (line["_commit_ts"], (line["after"] or line["before"])["id"], line["after"] and line["after"]["v"])
        for line in rows
    ]
    return sorted(found, key=str)


def insert(ts: int, key: int, value: str = "a") -> tuple[bytes, bytes]:
    return row(ts, new=columns(key, value))


def delete(ts: int, key: int, value: str = "a") -> tuple[bytes, bytes]:
    return row(ts, old=columns(key, value))
