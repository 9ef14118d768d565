"""Offsets that Kafka gave to two messages are not searched, whatever was read there before."""

from pathlib import Path

from tests.support.topics import identity
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.reconcile.judge.rules import PartitionBounds
from ticdc_replay.reconcile.look.coverage import Searched, unsearched
from ticdc_replay.reconcile.look.truncation import Truncated, put_truncated, read_truncated, searched_once, truncated
from ticdc_replay.storage.file import FileStore

TOPIC = identity("t")
SEARCHED = [Searched(TOPIC, OffsetRange("t", 0, 0, 60)), Searched(TOPIC, OffsetRange("t", 0, 60, 100))]


def held(high: int, topic: TopicIdentity = TOPIC, partition: int = 0) -> list[PartitionBounds]:
    return [PartitionBounds(topic.name, topic.topic_id, partition, 0, high, cluster_id=topic.cluster_id)]


def test_an_end_below_what_was_searched_tells_of_lost_messages() -> None:
    assert truncated(held(90), SEARCHED) == [Truncated("t", TOPIC.topic_id, 0, 90, 100, "cluster")]
    assert truncated(held(100), SEARCHED) == []
    assert truncated(held(9, identity("t", made="again")), SEARCHED) == []
    assert truncated(held(9, partition=1), SEARCHED) == []


def test_offsets_that_were_lost_are_unsearched_when_kafka_has_gone_beyond_them(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    put_truncated(store, truncated(held(50), SEARCHED))
    put_truncated(store, truncated(held(50), SEARCHED))
    known = searched_once(SEARCHED, read_truncated(store))
    assert unsearched(held(50), known) == []
    assert unsearched(held(120), known) == [OffsetRange("t", 0, 50, 120)]
    other = [Searched(identity("u"), OffsetRange("u", 0, 0, 100))]
    assert searched_once(other, read_truncated(store)) == tuple(other)


def test_what_an_earlier_version_noted_as_lost_is_of_every_cluster() -> None:
    noted = Truncated("t", TOPIC.topic_id, 0, 50, 100)
    assert unsearched(held(120), searched_once(SEARCHED, [noted])) == [OffsetRange("t", 0, 50, 120)]
