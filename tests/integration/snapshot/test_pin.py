"""Pinning a window of a changefeed in a real topic."""

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.integration.snapshot.feed import LAG_MS, START_MS, Feed, at
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ExpiredRangeError,
    TopicChangedError,
    UnprovenWindowError,
    WatermarkNotReachedError,
)
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.schemas.epochs import Epoch
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.pin import PinnedManifest, pin_window
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.topics import verify_topics
from ticdc_replay.state import StateStore, open_state
from ticdc_replay.state.sparse_index import Stretch
from ticdc_replay.storage import ObjectStore, open_store

pytestmark = pytest.mark.integration

RequestFor = Callable[..., PinRequest]
MakeFeed = Callable[..., Feed]
Pin = Callable[..., PinnedManifest]


@pytest.fixture
def pin(settings: KafkaSettings, artifacts: ObjectStore, state: StateStore) -> Pin:
    def pin(request: PinRequest, *, claim_check: ObjectStore | None = None, repin: bool = False) -> PinnedManifest:
        return pin_window(request, settings, artifacts, claim_check, state, repin=repin)

    return pin


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    partition = TopicPartition(topic, 0, offset)
    admin.delete_records([partition])[partition].result(PATIENCE_S)


def recreate(admin: AdminClient, settings: KafkaSettings, make_feed: MakeFeed, topic: str, partitions: int) -> Feed:
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    with Offsets(settings) as offsets:
        wait_for(f"topic {topic} to go", lambda: not offsets.topics([topic]))
    return make_feed(partitions, name=topic)


def test_the_range_starts_before_the_window_by_skew_and_pre_roll_and_ends_at_its_resolved_ts(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed(2)
    feed.seconds(0, 130)
    manifest = pin(request_for(feed.topic)).manifest
    # Two messages a second; those of second 45 are recorded at 45.3, 15 s and less before the window.
    # The first resolved-ts at or after 120 is that of 120 itself, message 241.
    assert manifest.ranges() == [OffsetRange(feed.topic, partition, 90, 242) for partition in (0, 1)]
    for part in manifest.topics[0].partitions:
        assert part.live
        assert part.resolved_ts == at(120)
        assert part.start_margin_ms == LAG_MS
    assert manifest.grade == "proven"
    assert manifest.reasons == ()


def test_a_window_with_the_changefeed_s_target_ts_holds_a_ddl_behind_the_last_resolved_ts(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed()
    feed.seconds(0, 121)
    feed.ddl(120, "ALTER TABLE `shop`.`orders` ADD COLUMN `v` INT")
    feed.flush()
    (part,) = pin(request_for(feed.topic, Window(at(60), at(120) + 1), target_ts=at(120))).manifest.topics[0].partitions
    assert (part.range.end, part.resolved_ts) == (243, at(120))
    (before,) = pin(request_for(feed.topic, target_ts=at(120))).manifest.ranges()
    assert before.end == 242, "the DDL is not of a window that ends at its commitTs"


def test_rows_that_were_recorded_before_they_committed_are_in_the_range(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed()
    feed.seconds(0, 57)
    feed.row(0, 60, recorded=57)
    feed.resolved(120)
    feed.flush()
    manifest = pin(request_for(feed.topic, unproven="allow")).manifest
    (pinned,) = manifest.ranges()
    assert pinned.start <= 57 * 2 < pinned.end
    assert manifest.topics[0].partitions[0].start_margin_ms == -3_000


def test_the_manifest_is_kept_under_its_hash_and_found_by_its_window(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, artifacts: ObjectStore, state: StateStore
) -> None:
    feed = make_feed()
    feed.seconds(0, 121)
    request = request_for(feed.topic)
    pinned = pin(request)
    assert not pinned.reused
    assert pinned.name == f"manifests/{pinned.manifest.input_hash}.json"
    assert artifacts.info(pinned.name) is not None
    known = state.manifests.of_window("shop", request.window)
    assert known is not None
    assert known.input_hash == pinned.manifest.input_hash


def test_a_rerun_takes_the_manifest_it_has_and_asks_no_broker(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, artifacts: ObjectStore, state: StateStore
) -> None:
    feed = make_feed()
    feed.seconds(0, 121)
    request = request_for(feed.topic)
    first = pin(request)
    feed.seconds(121, 125)
    away = KafkaSettings.from_connection(Connection(conn_id="away", conn_type="kafka", host="127.0.0.1", port=9))
    again = pin_window(request, away, artifacts, None, state)
    assert again.manifest == first.manifest
    assert again.reused


def test_repin_takes_what_is_there_now(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, state: StateStore, tmp_path: Path
) -> None:
    feed = make_feed()
    feed.seconds(0, 121)
    request = request_for(feed.topic)
    claim_check = open_store((tmp_path / "claims").as_uri())
    first = pin(request, claim_check=claim_check)
    claim_check.put("0f0e.json", b"{}")
    second = pin(request, claim_check=claim_check, repin=True)
    assert second.name != first.name
    assert not second.reused
    known = state.manifests.of_window("shop", request.window)
    assert known is not None
    assert known.name == second.name
    assert pin(request, claim_check=claim_check).name == second.name


def test_a_window_that_is_pinned_anew_is_another_input_although_nothing_of_it_changed(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    # So it is decoded anew: an object that is not pinned, as where listing is off, may have been restored.
    feed = make_feed()
    feed.seconds(0, 121)
    request = request_for(feed.topic, list_store=False)
    first = pin(request).manifest
    second = pin(request, repin=True).manifest
    assert second.ranges() == first.ranges()
    assert second.replaces == first.input_hash != second.input_hash
    third = pin(request, repin=True).manifest
    assert third.input_hash not in {first.input_hash, second.input_hash}


def test_a_partition_that_is_behind_is_named(make_feed: MakeFeed, request_for: RequestFor, pin: Pin) -> None:
    feed = make_feed(2)
    feed.seconds(0, 121, 0)
    feed.seconds(0, 100, 1)
    with pytest.raises(WatermarkNotReachedError, match=re.escape(f"{feed.topic}[1] at {at(99)}")):
        pin(request_for(feed.topic))


def test_partitions_that_ticdc_never_writes_to_are_pinned_empty(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed(3, writes_to=1)
    feed.seconds(0, 121)
    manifest = pin(request_for(feed.topic)).manifest
    assert [part.live for part in manifest.topics[0].partitions] == [True, False, False]
    assert [part.partition for part in manifest.ranges()] == [0]
    assert manifest.grade == "proven"


def test_a_partition_with_rows_but_no_resolved_ts_stops_or_is_read_unproven(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed(2)
    feed.seconds(0, 121, 0)
    feed.row(1, 70)
    feed.flush()
    with pytest.raises(UnprovenWindowError, match=re.escape(f"{feed.topic}[1]: holds messages")):
        pin(request_for(feed.topic))
    # Also where partition-num says that nothing is there: messages are evidence, a number in a URI is not.
    manifest = pin(request_for(feed.topic, unproven="allow", partition_num=1)).manifest
    assert manifest.grade == "unproven"
    assert OffsetRange(feed.topic, 1, 0, 1) in manifest.ranges()


def test_required_acks_other_than_all_are_unproven(make_feed: MakeFeed, request_for: RequestFor, pin: Pin) -> None:
    feed = make_feed()
    feed.seconds(0, 121)
    with pytest.raises(UnprovenWindowError, match="required-acks is 1"):
        pin(request_for(feed.topic, required_acks=1))


def test_a_margin_near_the_allowed_skew_is_unproven(make_feed: MakeFeed, request_for: RequestFor, pin: Pin) -> None:
    feed = make_feed()
    feed.seconds(0, 58)
    feed.row(0, 60, recorded=57)
    feed.seconds(60, 121)
    with pytest.raises(UnprovenWindowError, match=r"3000 ms later than the time of its record.*5000 ms"):
        pin(request_for(feed.topic))


def test_a_record_hours_before_its_commit_is_named_and_the_skew_that_is_named_proves_the_window(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed(2)
    feed.seconds(0, 58)
    feed.row(1, 58 + 7200, recorded=58)
    feed.seconds(58, 121)
    with pytest.raises(UnprovenWindowError) as caught:
        pin(request_for(feed.topic))
    reasons = str(caught.value).splitlines()[1:-1]
    assert len(reasons) == 1, "partition 0 is not in doubt"
    assert f"{feed.topic}[1]@116: commitTs {tso.describe(at(58 + 7200))} is 7200000 ms later" in reasons[0]
    assert "window.clock_skew_seconds to 14400 or more" in reasons[0]
    assert pin(request_for(feed.topic, clock_skew_ms=14_400_000)).manifest.grade == "proven"


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_resolved_ts_later_than_its_record_does_not_end_a_window_before_its_rows(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, partitions: int
) -> None:
    feed = make_feed(partitions)
    rows = 25
    for second in range(
        130
    ):  # The changefeed lags by 25 s. At the window's end it has sent what committed up to second 95.
        if second == 95:
            feed.resolved(120 + 7200, 0, recorded=120)
        for partition in range(partitions):
            feed.resolved(second, partition, recorded=second + 25)
            for number in range(1, rows + 1):
                feed.row(partition, second + number / 100, recorded=second + 25)
    feed.flush()
    manifest = pin(request_for(feed.topic)).manifest
    part = manifest.topics[0].partitions[0]
    assert part.range.start <= 60 * (rows + 1), "all rows from second 60 on"
    assert (part.evidence, part.resolved_ts) == (120 * (rows + 1) + 1, at(120)), "and all that came before TiCDC's own"
    assert (manifest.grade, manifest.reasons) == ("proven", ())


def test_a_resolved_ts_later_than_its_record_in_the_head_of_a_window_is_named(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed()
    feed.seconds(0, 60)
    feed.resolved(7260, recorded=60)
    feed.seconds(60, 121)
    with pytest.raises(UnprovenWindowError) as caught:
        pin(request_for(feed.topic))
    (reason,) = str(caught.value).splitlines()[1:-1]
    assert f"{feed.topic}[0]@120: resolved-ts {tso.describe(at(7260))} is 7200000 ms later than the time of" in reason
    assert "window.clock_skew_seconds to 14400 or more" in reason
    (part,) = pin(request_for(feed.topic, unproven="allow")).manifest.topics[0].partitions
    assert (part.range.end, part.resolved_ts) == (243, at(120)), "the window ends at TiCDC's own all the same"


def test_a_resolved_ts_without_a_record_time_counts_as_before(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed()
    feed.seconds(0, 120)
    feed.resolved(120, recorded=-START_MS / 1000)
    feed.flush()
    manifest = pin(request_for(feed.topic)).manifest
    (part,) = manifest.topics[0].partitions
    assert (manifest.grade, part.range.end, part.resolved_ts) == ("proven", 241, at(120))


def test_a_window_from_before_the_first_sign_of_the_changefeed_is_unproven(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed(2)
    feed.seconds(70, 121)  # nothing tells this from a changefeed that was created in second 70
    with pytest.raises(UnprovenWindowError) as caught:
        pin(request_for(feed.topic))
    assert f"{feed.topic}[0]: the changefeed's first sign in Kafka is of {at(70)} (" in str(caught.value)
    assert "changefeed.start_ts" in str(caught.value)
    manifest = pin(request_for(feed.topic, unproven="allow")).manifest
    assert manifest.grade == "unproven"
    assert [reason.split(":")[0] for reason in manifest.reasons] == [f"{feed.topic}[0]"]
    later = pin(request_for(feed.topic, Window(at(70) + 1, at(120)))).manifest
    assert later.grade == "proven"
    assert later.reasons == ()


def test_a_resolved_ts_at_the_windows_start_may_be_the_changefeeds_own_start(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed()
    feed.resolved(60)
    feed.seconds(61, 121)
    with pytest.raises(UnprovenWindowError, match=f"first sign in Kafka is of {at(60)} "):
        pin(request_for(feed.topic))
    assert pin(request_for(feed.topic, Window(at(60) + 1, at(120)))).manifest.grade == "proven"


@pytest.mark.parametrize("recorded", [58.3, 200], ids=["sent at once", "sent late"])
def test_one_sign_from_before_the_window_counts_for_all_partitions(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, recorded: float
) -> None:
    feed = make_feed(2)
    feed.resolved(58, 1, recorded=recorded)  # too young a record to show it by its time
    for second in range(62, 121):
        feed.row(0, second, recorded=recorded + second - 58)
        feed.resolved(second, recorded=recorded + second - 58)
    feed.flush()
    assert pin(request_for(feed.topic)).manifest.grade == "proven"


def test_a_declared_start_proves_windows_after_it(make_feed: MakeFeed, request_for: RequestFor, pin: Pin) -> None:
    feed = make_feed()
    feed.seconds(70, 121)
    unproven = pin(request_for(feed.topic, unproven="allow"))
    assert unproven.manifest.grade == "unproven"
    # The remedy of a window that was pinned without it: to declare the start, and to pin anew.
    pinned = pin(request_for(feed.topic, start_ts=at(60) - 1), repin=True)
    assert pinned.manifest.grade == "proven"
    assert not pinned.reused


def test_a_declared_start_makes_windows_before_it_unproven_whatever_the_topic_holds(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin
) -> None:
    feed = make_feed()
    feed.seconds(0, 121)  # of another changefeed, up to the declared start
    with pytest.raises(UnprovenWindowError, match=rf"changefeed\.start_ts says .* started at {at(60)} "):
        pin(request_for(feed.topic, start_ts=at(60)))


@pytest.mark.parametrize("cleanup", ["compact", "compact,delete"])
def test_a_topic_that_kafka_compacts_proves_nothing(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, cleanup: str
) -> None:
    feed = make_feed(cleanup=cleanup)
    feed.seconds(
        0, 121
    )  # all that one table commits at one TSO has one key, of which compaction keeps the last message
    with pytest.raises(
        UnprovenWindowError, match=rf"{feed.topic} has cleanup.policy={cleanup}: .* cleanup.policy=delete"
    ):
        pin(request_for(feed.topic))
    manifest = pin(request_for(feed.topic, unproven="allow")).manifest
    assert (manifest.grade, len(manifest.reasons)) == ("unproven", 1)


def test_an_expired_start_names_the_oldest_time_that_can_be_replayed(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, admin: AdminClient
) -> None:
    feed = make_feed()
    feed.seconds(0, 121)
    delete_before(admin, feed.topic, 130)  # the oldest record left is that of second 65, at 65.3
    with pytest.raises(
        ExpiredRangeError, match=r"oldest time that can be replayed is \d+ \(2025-10-09T\S+Z\)"
    ) as caught:
        pin(request_for(feed.topic))
    oldest = int(re.search(r"replayed is (\d+)", str(caught.value))[1])  # type: ignore[index]
    assert oldest == at(65 + LAG_MS / 1000 + 5 + 0.001)
    assert pin(request_for(feed.topic, Window(oldest, at(120)))).manifest.ranges()[0].start == 130
    with pytest.raises(ExpiredRangeError):
        pin(request_for(feed.topic, Window(oldest - (1 << 18), at(120))))


def test_records_that_are_gone_but_too_old_to_matter_do_not_expire_a_window(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, admin: AdminClient
) -> None:
    feed = make_feed()
    feed.seconds(0, 121)
    delete_before(admin, feed.topic, 100)  # second 50: within the pre-roll
    assert pin(request_for(feed.topic)).manifest.ranges() == [OffsetRange(feed.topic, 0, 100, 242)]


def test_a_topic_that_is_gone_is_said(make_feed: MakeFeed, request_for: RequestFor, pin: Pin) -> None:
    with pytest.raises(TopicChangedError, match="no-such-topic does not exist"):
        pin(request_for("no-such-topic"))


def test_a_recreated_topic_is_refused_until_repin(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, admin: AdminClient, settings: KafkaSettings
) -> None:
    feed = make_feed()
    feed.seconds(0, 181)
    first = pin(request_for(feed.topic)).manifest
    verify_topics(first, settings)
    recreate(admin, settings, make_feed, feed.topic, 1).seconds(0, 181)
    with pytest.raises(TopicChangedError, match="recreated"):
        verify_topics(first, settings)
    later = request_for(feed.topic, Window(at(120), at(180)))
    with pytest.raises(TopicChangedError, match=r"recreated.*repin"):
        pin(later)
    assert pin(later, repin=True).manifest.topics[0].topic_id != first.topics[0].topic_id
    assert not pin(request_for(feed.topic, Window(at(60), at(180)))).reused


def test_of_runs_that_pin_one_window_at_once_all_get_one_manifest(
    make_feed: MakeFeed, request_for: RequestFor, settings: KafkaSettings, artifacts: ObjectStore, tmp_path: Path
) -> None:
    feed = make_feed()
    feed.seconds(0, 121)
    request = request_for(feed.topic)
    together = Barrier(4, timeout=PATIENCE_S)

    def run(number: int) -> PinnedManifest:
        claim_check = open_store((tmp_path / f"claims{number}").as_uri())
        claim_check.put(f"{number:08x}.json", b"{}")  # each run sees another inventory, and makes another manifest
        state = open_state(f"sqlite:///{tmp_path}/shared.db")
        try:
            together.wait()
            return pin_window(request, settings, artifacts, claim_check, state)
        finally:
            state.close()

    with ThreadPoolExecutor(4) as pool:
        pinned = list(pool.map(run, range(4)))
    assert len({each.manifest.input_hash for each in pinned}) == 1
    assert sum(not each.reused for each in pinned) == 1
    assert len(list(artifacts.list("manifests/"))) > 1, "the runs did not overlap, so nothing was decided between them"


def test_the_start_moves_over_offsets_that_earlier_windows_showed_to_be_older(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, state: StateStore, settings: KafkaSettings
) -> None:
    feed = make_feed()
    for second in range(50, 121):  # the feed lags: all is recorded after the window's end
        feed.row(0, second, recorded=200 + second)
        feed.resolved(second, recorded=200 + second)
    feed.flush()
    with Offsets(settings) as offsets:
        topic = offsets.topics([feed.topic])[feed.topic].identity
    state.sparse_index.record(
        "shop", [Stretch(topic, 0, 0, 10, at(50), at(54)), Stretch(topic, 0, 10, 22, at(55), at(60))]
    )
    assert pin(request_for(feed.topic)).manifest.ranges() == [OffsetRange(feed.topic, 0, 10, 142)]


def test_the_inventory_holds_objects_young_enough_to_be_referred_to(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, artifacts: ObjectStore, tmp_path: Path
) -> None:
    feed = make_feed()
    feed.seconds(0, 121)
    claim_check = open_store((tmp_path / "claims").as_uri())
    window_start_s = START_MS / 1000 + 60
    for name, age_s in (("old.json", 3_601), ("young.json", 3_599), ("later.json", -500)):
        claim_check.put(name, b"12345")
        os.utime(tmp_path / "claims" / name, (window_start_s - age_s,) * 2)
    inventory = pin(request_for(feed.topic), claim_check=claim_check).manifest.inventory
    assert inventory is not None
    filesystem, root = artifacts.arrow_filesystem()
    table = pq.read_table(f"{root}/inventories/{inventory.sha256}.parquet", filesystem=filesystem)
    assert table["name"].to_pylist() == ["later.json", "young.json"]
    assert table["size"].to_pylist() == [5, 5]
    assert inventory.count == 2
    assert (
        pin(
            request_for(feed.topic, Window(at(70), at(120)), list_store=False), claim_check=claim_check
        ).manifest.inventory
        is None
    )


def test_the_schemas_known_before_the_window_are_pinned_with_it(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, artifacts: ObjectStore
) -> None:
    feed = make_feed()
    feed.seconds(0, 121)
    name = TableName("shop", "orders")
    history = SchemaHistory([Epoch(name, at(5), unparsed="ALTER TABLE …"), Epoch(name, at(1))])
    pinned = pin(request_for(feed.topic, schemas=history)).manifest.schemas
    assert pinned is not None
    assert pinned.count == 1
    assert SchemaHistory.decode(artifacts.get(f"schemas/{pinned.sha256}.json")).epochs == history.since(at(60)).epochs


def test_a_manifest_that_was_changed_or_deleted_is_not_used(
    make_feed: MakeFeed, request_for: RequestFor, pin: Pin, artifacts: ObjectStore
) -> None:
    feed = make_feed()
    feed.seconds(0, 121)
    request = request_for(feed.topic)
    pinned = pin(request)
    content = artifacts.get(pinned.name)
    artifacts.put(pinned.name, content.replace(b'"end":242', b'"end":241'))
    with pytest.raises(ArtifactCorruptError, match="changed after pinning"):
        pin(request)
    artifacts.put(pinned.name, content[:50])
    with pytest.raises(ArtifactCorruptError, match="not a manifest"):
        pin(request)
    artifacts.delete(pinned.name)
    with pytest.raises(ArtifactNotFoundError, match="repin"):
        pin(request)
    assert pin(request, repin=True).manifest.replaces == pinned.manifest.input_hash
