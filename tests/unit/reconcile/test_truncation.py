"""Offsets that Kafka gave to two messages are not searched, whatever was read there before."""

from pathlib import Path

from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.reconcile.coverage import Searched, unsearched
from ticdc_replay.reconcile.rules import PartitionBounds
from ticdc_replay.reconcile.truncation import Truncated, put_truncated, read_truncated, searched_once, truncated
from ticdc_replay.storage.file import FileStore

SEARCHED = [Searched("id", OffsetRange("t", 0, 0, 60)), Searched("id", OffsetRange("t", 0, 60, 100))]


def held(high: int, topic_id: str = "id", partition: int = 0) -> list[PartitionBounds]:
    return [PartitionBounds("t", topic_id, partition, 0, high)]


def test_an_end_below_what_was_searched_tells_of_lost_messages() -> None:
    assert truncated(held(90), SEARCHED) == [Truncated("t", "id", 0, 90, 100)]
    assert truncated(held(100), SEARCHED) == []
    assert truncated(held(9, topic_id="a topic made anew"), SEARCHED) == []
    assert truncated(held(9, partition=1), SEARCHED) == []


def test_offsets_that_were_lost_are_unsearched_when_kafka_has_gone_beyond_them(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    put_truncated(store, truncated(held(50), SEARCHED))
    put_truncated(store, truncated(held(50), SEARCHED))
    known = searched_once(SEARCHED, read_truncated(store))
    assert unsearched(held(50), known) == []
    assert unsearched(held(120), known) == [OffsetRange("t", 0, 50, 120)]
    other = [Searched("other", OffsetRange("t", 0, 0, 100))]
    assert searched_once(other, read_truncated(store)) == tuple(other)
