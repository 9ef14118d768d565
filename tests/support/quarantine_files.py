"""Quarantine files of runs, for tests that need no decode."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.topics import identity
from ticdc_replay.changelog.files.index import ChangelogIndex, DecodeReport, EventCounts, MessageCounts
from ticdc_replay.changelog.files.side_files import QUARANTINE
from ticdc_replay.domain.window import Window
from ticdc_replay.storage import ObjectStore

TOPIC = identity()


def quarantine(offset: int, ordinal: int | None, reason: str) -> dict[str, Any]:
    """A row of a quarantine file."""
    return {
        "topic": "topic",
        "partition": 0,
        "offset": offset,
        "ordinal": ordinal,
        "timestamp_ms": 5,
        "key": b"key",
        "value": b"value %d" % offset,
        "reason": reason,
        "detail": "byte 3",
        "commit_ts": None,
        "schema": None if ordinal is None else "s",
        "table": None if ordinal is None else "t",
    }


def index_with(store: ObjectStore | None, run: str, *rows: dict[str, Any]) -> ChangelogIndex:
    """The index of a run that set *rows* aside, and their file."""
    if store is not None:
        filesystem, base = store.arrow_filesystem()
        filesystem.create_dir(f"{base}/runs/{run}/quarantine", recursive=True)
        path = f"{base}/runs/{run}/quarantine/a.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), QUARANTINE), path, filesystem=filesystem)
    report = DecodeReport(
        messages=MessageCounts(), events=EventCounts(), quarantine_reasons={}, watermark=None, undeclared_tables=()
    )
    return ChangelogIndex(
        pipeline="p",
        run_hash=run,
        input_hash="i",
        library_version="1",
        window=Window(1, 2),
        ranges=(),
        topic_ids={"topic": TOPIC.topic_id},
        cluster_id=TOPIC.cluster_id,
        tables=(),
        ddl=(),
        changes=(),
        quarantine_files=("quarantine/a.parquet",),
        reference_files=(),
        sparse_index_files=(),
        report=report,
    )
