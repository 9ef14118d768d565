"""Reading many ranges with few requests, and estimating how large their messages are."""

import uuid
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.support import canal_json
from tests.support.waiting import PATIENCE_S
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.sampling import PLACES, objects_of, sized
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ExpiredRangeError, TopicChangedError
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka import reader
from ticdc_replay.kafka.reader import read_ranges
from ticdc_replay.kafka.settings import KafkaSettings

pytestmark = pytest.mark.integration

MakeTopic = Callable[..., str]
KEPT = {"retention.ms": "-1"}


@pytest.fixture
def settings(kafka: Kafka) -> KafkaSettings:
    connection = Connection(conn_id="kafka_test", conn_type="kafka", extra={"bootstrap.servers": kafka.bootstrap})
    return KafkaSettings.from_connection(connection)


def produce(settings: KafkaSettings, topic: str, sizes: dict[int, list[int]]) -> None:
    """Messages of *sizes* (bytes), by partition."""
    produce_values(settings, topic, {partition: list(map(bytes, lengths)) for partition, lengths in sizes.items()})


def produce_values(settings: KafkaSettings, topic: str, values: dict[int, list[bytes]]) -> None:
    """Messages with *values*, by partition."""
    producer = Producer(
        {"bootstrap.servers": settings.options["bootstrap.servers"], "linger.ms": 20, "enable.idempotence": True}
    )
    for partition, those in values.items():
        for value in those:
            producer.produce(topic, value, partition=partition)
        producer.flush(PATIENCE_S)


def delete_before(kafka: Kafka, place: TopicPartition) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_records([place])[place].result(PATIENCE_S)


def places(batches: Iterator[list[RawMessage]]) -> list[tuple[str, int, int]]:
    """What was read, in order; each batch must be of one partition."""
    found = []
    for batch in batches:
        assert len({(message.topic, message.partition) for message in batch}) == 1
        found += [(message.topic, message.partition, message.offset) for message in batch]
    return found


def places_in(ranges: list[OffsetRange]) -> list[tuple[str, int, int]]:
    return [(part.topic, part.partition, offset) for part in ranges for offset in range(part.start, part.end)]


def test_ranges_come_out_one_after_the_other_however_they_are_fetched(
    settings: KafkaSettings, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(40, KEPT)
    produce(settings, topic, {partition: [100] * 50 for partition in range(39)} | {39: [1_000] * 3_000})
    # Ends of logs, middles, an empty range, a long one, and two of one partition.
    wanted = [OffsetRange(topic, partition, partition % 7, 50 - partition % 3) for partition in range(39)]
    wanted += [OffsetRange(topic, 39, 10, 10), OffsetRange(topic, 39, 20, 40), OffsetRange(topic, 39, 50, 2_999)]
    expected = places_in(wanted)
    assert places(read_ranges(settings, wanted)) == expected
    monkeypatch.setattr(reader, "_TOGETHER_RANGES", 7)
    assert places(read_ranges(settings, wanted)) == expected
    monkeypatch.setattr(reader, "_TOGETHER_MESSAGES", 1)
    assert places(read_ranges(settings, wanted[:5])) == places_in(wanted[:5])


def test_one_range_of_many_that_is_gone_or_was_never_there_stops_the_reading(
    settings: KafkaSettings, kafka: Kafka, make_topic: MakeTopic
) -> None:
    topic = make_topic(3, KEPT)
    produce(settings, topic, {partition: [100] * 20 for partition in range(3)})
    delete_before(kafka, TopicPartition(topic, 1, 5))
    whole = [OffsetRange(topic, partition, 0, 20) for partition in range(3)]
    with pytest.raises(ExpiredRangeError, match=rf"{topic}\[1\] offsets 0 to 4"):
        list(read_ranges(settings, whole))
    late = [OffsetRange(topic, 0, 0, 20), OffsetRange(topic, 2, 0, 30)]
    with pytest.raises(TopicChangedError, match="ends at offset 20, before the end 30"):
        list(read_ranges(settings, late, idle_timeout_s=1))


def test_ranges_that_end_in_aborted_transactions_end(settings: KafkaSettings, make_topic: MakeTopic) -> None:
    topic = make_topic(2, KEPT)
    producer = Producer(
        {"bootstrap.servers": settings.options["bootstrap.servers"], "transactional.id": uuid.uuid4().hex}
    )
    producer.init_transactions(PATIENCE_S)
    for commit in (True, False):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, b"v", partition=partition)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    found = places(read_ranges(settings, [OffsetRange(topic, partition, 0, 4) for partition in range(2)]))
    assert found == [(topic, 0, 0), (topic, 1, 0)]


def test_sizes_are_estimated_along_partitions_and_for_all_of_them(
    settings: KafkaSettings, kafka: Kafka, make_topic: MakeTopic
) -> None:
    topic, other = make_topic(2, KEPT), make_topic(1, KEPT)
    produce(settings, topic, {0: [100] * 600 + [9_000] * 300, 1: [500] * 5})
    produce(settings, other, {0: [50] * 40})
    delete_before(kafka, TopicPartition(other, 0, 30))
    ranges = [OffsetRange(topic, 0, 0, 900), OffsetRange(topic, 1, 0, 5), OffsetRange(other, 0, 0, 40)]
    first, second, third = sized(ranges, settings)
    assert [stretch.end for stretch in first.stretches] == [150 * (at + 1) for at in range(PLACES)]
    assert [stretch.bytes_per_offset for stretch in first.stretches] == [100] * 4 + [9_000] * 2
    assert [stretch.bytes_per_offset for stretch in second.stretches] == [500]
    assert {stretch.bytes_per_offset for stretch in third.stretches} <= {0, 50}
    assert [each.range for each in (first, second, third)] == ranges


def test_what_is_not_looked_at_counts_as_the_mean_of_its_topic(
    settings: KafkaSettings, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticdc_replay.decode.plan.sampling.MAX_PLACES", 3)
    topic, other = make_topic(4, KEPT), make_topic(1, KEPT)
    produce(settings, topic, {partition: [200 + 100 * partition] * (9 - partition) for partition in range(4)})
    produce(settings, other, {0: [1_000]})
    ranges = [OffsetRange(topic, partition, 0, 9 - partition) for partition in range(4)]
    found = sized([*ranges, OffsetRange(other, 0, 0, 1)], settings)
    assert [each.stretches[0].bytes_per_offset for each in found] == [200, 300, 250, 250, 1_000]


@pytest.mark.parametrize(
    ("window", "tables", "expected"),
    [
        (None, "s.t", [1, 1, 0, 0, 0]),
        (Window(1, canal_json.TS + 1), "s.*", [1, 1, 0, 0, 0]),
        (Window(1, canal_json.TS), "s.t", [0] * 5),
        (None, "s.u", [0] * 5),
    ],
)
def test_objects_that_rows_need_count_as_well(
    settings: KafkaSettings, make_topic: MakeTopic, window: Window | None, tables: str, expected: list[float]
) -> None:
    topic = make_topic(1, KEPT)
    small = canal_json.row(claimCheckLocation=canal_json.LOCATION)
    produce_values(settings, topic, {0: [small] * 40 + [canal_json.row()] * 40})
    changefeed = Changefeed(protocol="canal-json", topic=topic, timezone="UTC", enable_tidb_extension=True)
    objects = partial(objects_of, codec=codec_for(changefeed, 1 << 20), window=window, tables=TablePatterns([tables]))
    (found,) = sized([OffsetRange(topic, 0, 0, 80)], settings, objects, 5e5)
    assert [stretch.object_bytes_per_offset for stretch in found.stretches] == [5e5 * each for each in expected]
    assert {stretch.bytes_per_offset for stretch in found.stretches} <= {len(small), len(canal_json.row())}
    assert {stretch.object_bytes_per_offset for stretch in found.without_objects().stretches} == {0}
