"""Rows that are known to be damaged go by the policy of the pipeline."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.support.decoded_captures import LIMITS
from tests.support.open_protocol import columns, message, row
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.codecs.open.codec import OpenCodec
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitContext, SplitResult
from ticdc_replay.decode.read.split import SplitDecoder
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.events import Event, RowEvent
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.history import SchemaHistory

WINDOW = Window(100, 200)


class DamagingCodec(OpenCodec):
    """Open has no checksum: here the row with the key 1 has one that does not agree."""

    def decode(self, message: RawMessage) -> list[Event]:
        events = super().decode(message)
        return [
            event._replace(damage="the sum is wrong")
            if isinstance(event, RowEvent) and event.after is not None and event.after.key() == (1,)
            else event
            for event in events
        ]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DecodeJob:
    monkeypatch.setattr("ticdc_replay.codecs.open.codec.OpenCodec", DamagingCodec)
    return DecodeJob(
        library_version="1",
        pipeline="p",
        artifacts=tmp_path.as_uri(),
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        manifest="manifests/m.json",
        input_hash="i" * 64,
        changefeed=Changefeed(protocol="open-protocol", topic="topic", timezone="UTC"),
        tables=("s.*",),
        limits=LIMITS,
    )


def decode(job: DecodeJob) -> SplitResult:
    split = Split(0, (OffsetRange("topic", 0, 0, 1),))
    decoder = SplitDecoder(split, SplitContext(Attempt("attempt"), job, WINDOW, SchemaHistory(), Connections()))
    decoder.add([message([row(150, new=columns(key)) for key in range(3)], 0)])
    return decoder.finish()


def read(job: DecodeJob, name: str | None) -> list[dict[str, Any]]:
    assert name is not None
    path = Path(job.artifacts.removeprefix("file://")) / changelog_root(job.run_hash) / name
    rows: list[dict[str, Any]] = pq.read_table(path, partitioning=None).to_pylist()
    return rows


def test_a_damaged_row_is_set_aside_with_its_reason_and_the_others_are_written(job: DecodeJob) -> None:
    result = decode(job)
    assert (result.events.rows, result.events.quarantined, result.events.written) == (3, 1, 2)
    (entry,) = read(job, result.quarantine_file)
    assert (entry["reason"], entry["detail"], entry["ordinal"]) == ("row_damaged", "the sum is wrong", 1)
    assert [line["after"]["id"] for file in result.files for line in read(job, file.file.name)] == [0, 2]


def test_an_accepted_damaged_row_is_written_in_another_changelog(job: DecodeJob) -> None:
    accepting = msgspec.structs.replace(job, accept_damaged=True)
    result = decode(accepting)
    assert (result.events.quarantined, result.quarantine_file) == (0, None)
    assert [line["after"]["id"] for file in result.files for line in read(accepting, file.file.name)] == [0, 1, 2]
    assert accepting.run_hash != job.run_hash
