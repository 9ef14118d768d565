"""What is known beside objects and references, while Kafka, decodes and the store's file go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.support import open_protocol
from tests.support.reconciliation_rules import Protection
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.config.load_store import load_store
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError, PermanentError
from ticdc_replay.domain.events import SEARCH
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.reconcile.judge.rules import Evidence
from ticdc_replay.reconcile.look.owners import put_owner, read_owners
from ticdc_replay.reconcile.look.survey import Survey, read_survey
from ticdc_replay.stages.leases import replaying
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.state.references import ScannedRange
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.evidence import gather
from ticdc_replay.store_stages.reconcile import record_scan, survey

if TYPE_CHECKING:
    from demo.embedded_stack.kafka import Kafka
    from tests.conftest import MakeTopic

pytestmark = pytest.mark.integration

NOW = time.time_ns() // 1_000_000
MESSAGES = 10


class Setting:
    """A store in a folder, and the topics of its changefeeds."""

    def __init__(self, folder: Path, kafka: Kafka) -> None:
        self._folder, self._kafka = folder, kafka
        (folder / "claims").mkdir()
        (folder / "pipelines").mkdir()
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        self._opened: list[StoreContext] = []

    def feed(self, name: str, topic: str, retired: dict[str, int] | None = None) -> None:
        document: dict[str, Any] = {
            "name": name,
            "changefeed": {
                "sink_uri": f"kafka://broker:9092/{topic}?protocol=open-protocol&partition-num=1",
                "timezone": "UTC",
                "config": "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'\n"
                f"claim-check-storage-uri = '{self._claims}'\n",
                "retired_topics": retired or {},
            },
            "connections": {"kafka": "kafka"},
            "artifacts": (self._folder / "artifacts").as_uri(),
            "tables": ["s.*"],
            "schedule": {"start": "2025-01-01T00:00:00Z"},
            "window": {"list_claim_check_store": False, "pre_roll_seconds": 0, "clock_skew_seconds": 0},
            "policies": {"unproven": "allow"},
            "targets": [{"name": "lake", "type": "parquet", "uri": (self._folder / "lake").as_uri()}],
        }
        (self._folder / f"pipelines/{name}.yaml").write_text(yaml.safe_dump(document))

    def send(self, topic: str, partition: int = 0, count: int = MESSAGES) -> None:
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap})
        for number in range(count):
            event = open_protocol.row(tso.from_ms(NOW + number), new=open_protocol.columns(number, "v"))
            raw = open_protocol.message([event], 0)
            producer.produce(topic, raw.value, raw.key, partition=partition, timestamp=NOW)
        event = open_protocol.resolved(tso.from_ms(NOW + 60_000))
        raw = open_protocol.message([event], 0)
        producer.produce(topic, raw.value, raw.key, partition=partition, timestamp=NOW + 60_000)
        assert producer.flush(PATIENCE_S) == 0

    def begin_transaction(self, topic: str) -> Producer:
        """A message of a transaction that is not ended."""
        name = f"hanging-{topic}"
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap, "transactional.id": name})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, b"not known yet", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        return producer

    def expire_before(self, topic: str, offset: int) -> None:
        place = TopicPartition(topic, 0, offset)
        self.admin.delete_records([place])[place].result(PATIENCE_S)

    def remove(self, name: str) -> None:
        (self._folder / f"pipelines/{name}.yaml").unlink()

    def open(self, *pipelines: str, **more: Any) -> StoreContext:
        document = {
            "name": "claims",
            "uri": self._claims,
            "pipelines": list(pipelines),
            "owners_complete": True,
            "artifacts": (self._folder / "artifacts").as_uri(),
            "schedule": {"start": "2025-01-01T00:00:00Z"},
            **more,
        }
        (self._folder / "claims.yaml").write_text(yaml.safe_dump(document))
        broker = Connection("kafka", "kafka", extra={"bootstrap.servers": self._kafka.bootstrap})
        loaded = load_store(self._folder / "claims.yaml", self._folder / "pipelines")
        self._opened.append(StoreContext(loaded, Connections({"kafka": broker})))
        return self._opened[-1]

    def close(self) -> None:
        for context in self._opened:
            context.__exit__()

    @property
    def _claims(self) -> str:
        return (self._folder / "claims").as_uri()


@pytest.fixture
def setting(tmp_path: Path, kafka: Kafka) -> Iterator[Setting]:
    made = Setting(tmp_path, kafka)
    yield made
    made.close()


@pytest.fixture
def topic(make_topic: MakeTopic, setting: Setting) -> str:
    name = make_topic(1, {"retention.ms": "-1"})
    setting.send(name)
    setting.feed("shop", name)
    return name


def surveyed(context: StoreContext) -> Survey:
    return read_survey(context.artifacts, survey(context).name)


def known(context: StoreContext, of: Survey, clock_ahead_ms: int = 0) -> Evidence:
    return gather(context, of, of.bounds_ms, clock_ahead_ms).evidence


def scan(context: StoreContext, of: Survey) -> None:
    """Note everything that was unsearched as scanned, and that nothing was found."""
    for feed in of.feeds:
        ids = {each.topic: each.topic_id for each in feed.partitions}
        context.state.references.record_scans(
            ScannedRange(
                pipeline=feed.pipeline,
                topic=part.topic,
                topic_id=ids[part.topic],
                cluster_id=feed.cluster_id,
                partition=part.partition,
                start=part.start,
                end=part.end,
                file=None,
                search=SEARCH,
            )
            for part in feed.unsearched
        )


def test_only_what_can_still_be_read_and_was_not_searched_is_unread(setting: Setting, topic: str) -> None:
    context = setting.open("shop")
    of = surveyed(context)
    assert known(context, of).unread_offsets == MESSAGES + 1
    setting.expire_before(topic, 4)
    setting.send(topic)  # later than the survey: their objects are too young to be judged
    evidence = known(context, of)
    assert evidence.unread_offsets == MESSAGES + 1 - 4
    assert [(part.start, part.end) for part in evidence.unread] == [(4, MESSAGES + 1)]
    assert not evidence.complete
    scan(context, of)
    assert known(context, of).complete
    again = survey(context)
    assert again.scan_job is not None, "what came since"


def test_a_message_that_cannot_be_searched_stays_unread_until_kafka_expires_it(setting: Setting, topic: str) -> None:
    context = setting.open("shop")
    of = surveyed(context)
    scan(context, msgspec.structs.replace(of, feeds=(_without_offset(of, 5),)))
    assert [(part.start, part.end) for part in known(context, of).unread] == [(5, 6)]
    setting.expire_before(topic, 6)
    assert known(context, of).complete


def test_what_an_open_transaction_holds_back_is_unread_until_it_ends(setting: Setting, topic: str) -> None:
    context = setting.open("shop")
    scan(context, surveyed(context))
    transaction = setting.begin_transaction(topic)
    setting.send(topic)  # these TiCDC's own consumer reads at once
    end = 2 * (MESSAGES + 1) + 1
    made = survey(context)
    of = read_survey(context.artifacts, made.name)
    assert made.scan_job is None, "nothing of it can be read"
    assert [(part.start, part.end) for part in of.feeds[0].unsearched] == [(MESSAGES + 1, end)]
    assert [(part.start, part.end) for part in known(context, of).unread] == [(MESSAGES + 1, end)]
    transaction.abort_transaction(30)
    wait_for("a survey that needs a scan", lambda: survey(context).scan_job is not None)
    of = surveyed(context)
    scan(context, of)
    assert known(context, of).complete


def test_offsets_that_kafka_gives_a_second_time_must_be_searched_again(setting: Setting, topic: str) -> None:
    context = setting.open("shop")
    of = surveyed(context)
    scan(context, of)
    # What an unclean election leaves: more was searched than the partition has now.
    (feed,) = of.feeds
    more = OffsetRange(topic, 0, MESSAGES + 1, MESSAGES + 5)
    scan(context, msgspec.structs.replace(of, feeds=(msgspec.structs.replace(feed, unsearched=(more,)),)))
    assert known(context, surveyed(context)).complete
    setting.send(topic)
    of = surveyed(context)
    scan(context, of)
    evidence = known(context, of)
    assert [(part.start, part.end) for part in evidence.unread] == [(MESSAGES + 1, MESSAGES + 5)]
    setting.expire_before(topic, MESSAGES + 5)
    assert known(context, of).complete


def test_what_a_running_decode_has_read_before_kafka_expired_it_must_be_searched(setting: Setting, topic: str) -> None:
    context = setting.open("shop")
    (pipeline,) = context.pipelines
    window = Window(tso.from_ms(NOW), tso.from_ms(NOW + 1_000))
    pinned = pin(pipeline, window)
    with replaying(pipeline, pinned.name, "run"):
        setting.expire_before(topic, 4)
        of = surveyed(context)
        scan(context, of)
        evidence = known(context, of)
        (topic_id,) = {part.topic_id for part in evidence.partitions}
        assert [(part.start, part.end) for part in evidence.unread] == [(0, 4)]
        assert Protection(evidence).protects(topic, topic_id, 0, 2)
    evidence = known(context, of)
    assert evidence.complete
    assert not Protection(evidence).protects(topic, topic_id, 0, 2)


def test_two_pipelines_on_one_topic_are_one_changefeed(setting: Setting, topic: str) -> None:
    setting.feed("copy", topic)
    context = setting.open("shop", "copy")
    of = surveyed(context)
    scan(context, of)
    evidence = known(context, of)
    assert [(part.topic, part.partition) for part in evidence.partitions] == [(topic, 0)]
    assert evidence.complete


def test_a_partition_that_was_added_since_is_not_known_and_so_protects(setting: Setting, topic: str) -> None:
    context = setting.open("shop")
    of = surveyed(context)
    setting.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(PATIENCE_S)
    wait_for("the broker to report the new partition", lambda: len(surveyed(context).feeds[0].partitions) == 2)
    setting.send(topic, partition=1)
    scan(context, of)
    evidence = known(context, of)
    assert evidence.complete
    assert Protection(evidence).protects(topic, evidence.partitions[0].topic_id, 1, 0)
    assert [part.partition for part in surveyed(context).feeds[0].unsearched] == [1]


def test_a_topic_that_is_gone_is_what_kafka_says_is_gone(
    setting: Setting, topic: str, make_topic: Callable[..., str]
) -> None:
    before = make_topic(1, {"retention.ms": "-1"})
    setting.send(before)
    setting.feed("shop", topic, {before: tso.from_ms(NOW)})
    context = setting.open("shop")
    of = surveyed(context)
    assert of.feeds[0].gone_topics == ()
    setting.admin.delete_topics([before])[before].result(PATIENCE_S)
    wait_for("the broker to report the topic as gone", lambda: surveyed(context).feeds[0].gone_topics == (before,))
    scan(context, _of_topic(of, topic))
    evidence = known(context, of)
    assert {part.topic for part in evidence.unread} == {before}, "until the next survey nothing shows that it is gone"
    lost_id = next(part.topic_id for part in evidence.partitions if part.topic == before)
    assert Protection(evidence).protects(before, lost_id, 0, 0)
    evidence = known(context, surveyed(context))
    assert evidence.complete, "what was in it can't be read any more"
    assert evidence.gone_topics == (before,)
    assert not Protection(evidence).protects(before, lost_id, 0, 0)


def test_a_pipeline_that_was_listed_since_stops_the_reconciliation(
    setting: Setting, topic: str, make_topic: MakeTopic
) -> None:
    of = surveyed(setting.open("shop"))
    other = make_topic(1)
    setting.feed("other", other)
    with pytest.raises(ConfigError, match="is not listed"):
        setting.open("shop")
    with pytest.raises(PermanentError, match="Survey again"):
        known(setting.open("shop", "other"), of)


def test_a_clock_that_differs_from_the_readers_lets_nothing_be_deleted(setting: Setting, topic: str) -> None:
    context = setting.open("shop")
    of = surveyed(context)
    scan(context, of)
    skew_ms = context.store.rules.clock_skew_seconds * 1000
    for ahead_ms in (skew_ms, -skew_ms):
        assert known(context, of, ahead_ms).obstacles() == ()
    for ahead_ms, said in ((skew_ms + 2_000, "302 s ahead of"), (-skew_ms - 2_000, "302 s behind")):
        evidence = known(context, of, ahead_ms)
        assert not evidence.complete
        (obstacle,) = evidence.obstacles()
        assert said in obstacle


def test_a_scan_that_did_not_come_to_its_end_is_not_recorded(setting: Setting, topic: str) -> None:
    context = setting.open("shop")
    scan_job = survey(context).scan_job
    assert scan_job is not None
    with pytest.raises(PermanentError, match="does not exist"):
        record_scan(context, scan_job.uri)


def test_a_pipeline_that_wrote_to_the_store_stays_an_owner_until_somebody_says_otherwise(
    setting: Setting, topic: str
) -> None:
    setting.feed("other", topic)
    surveyed(setting.open("shop", "other"))
    setting.remove("other")
    context = setting.open("shop")
    of = surveyed(context)
    scan(context, of)
    (obstacle,) = known(context, of).obstacles()
    assert "the pipeline other wrote to the store and is no longer listed" in obstacle
    assert known(setting.open("shop", former_pipelines=["other"]), of).complete


def test_another_cluster_behind_the_connection_lets_nothing_be_deleted(setting: Setting, topic: str) -> None:
    context = setting.open("shop")
    of = surveyed(context)
    scan(context, of)
    assert known(context, of).complete
    (here,) = {owner.cluster_id for owner in read_owners(context.artifacts, context.store.uri)}
    (owner,) = read_owners(context.artifacts, context.store.uri)
    before = msgspec.structs.replace(owner, cluster_id="other", topic_ids={topic: "id there"})
    put_owner(context.artifacts, before)
    (obstacle,) = known(context, of).obstacles()
    assert f"reads the Kafka cluster {here}, and earlier surveys read other" in obstacle
    assert known(setting.open("shop", former_clusters=["other"]), of).complete
    assert not known(setting.open("shop", former_clusters=[here]), of).complete, "one may fail back"


def test_a_survey_of_another_cluster_than_the_connection_leads_to_is_of_no_use(setting: Setting, topic: str) -> None:
    context = setting.open("shop")
    of = surveyed(context)
    feeds = tuple(msgspec.structs.replace(feed, cluster_id="other") for feed in of.feeds)
    with pytest.raises(PermanentError, match="the survey read cluster other"):
        known(context, msgspec.structs.replace(of, feeds=feeds))


def test_references_of_a_topic_that_no_survey_saw_let_nothing_be_deleted(setting: Setting, topic: str) -> None:
    context = setting.open("shop")
    of = surveyed(context)
    scan(context, of)
    there = ScannedRange(pipeline="shop", topic=topic, topic_id="elsewhere", partition=0, start=0, end=9, file=None)
    context.state.references.record_scans([there])
    (obstacle,) = known(context, of).obstacles()
    assert f"topic {topic} with the id elsewhere" in obstacle
    assert known(setting.open("shop", former_topics=["elsewhere"]), of).complete


def test_a_replay_of_a_pipeline_that_is_not_listed_is_an_owners(setting: Setting, topic: str) -> None:
    context = setting.open("shop", former_pipelines=["other"])
    of = surveyed(context)
    scan(context, of)
    uri = context.store.uri
    lasting = context.state.leases.acquire(uri, "h", "replay", "other/manifests/a.json@run", 60_000)
    (obstacle,) = known(context, of).obstacles()
    assert "a replay of the pipeline other, which is not listed" in obstacle
    context.state.leases.release(lasting)
    assert known(context, of).complete
    context.state.leases.acquire(uri, "h", "replay", "renamed/manifests/a.json@run", -25 * 3_600_000)
    (obstacle,) = known(context, of).obstacles()
    assert "pipeline renamed" in obstacle, "nobody knows what it set aside"
    assert known(setting.open("shop", former_pipelines=["renamed"]), of).complete


def _without_offset(of: Survey, offset: int) -> Any:
    (feed,) = of.feeds
    (whole,) = feed.unsearched
    parts = (msgspec.structs.replace(whole, end=offset), msgspec.structs.replace(whole, start=offset + 1))
    return msgspec.structs.replace(feed, unsearched=parts)


def _of_topic(of: Survey, topic: str) -> Survey:
    (feed,) = of.feeds
    only = tuple(part for part in feed.unsearched if part.topic == topic)
    return msgspec.structs.replace(of, feeds=(msgspec.structs.replace(feed, unsearched=only),))
