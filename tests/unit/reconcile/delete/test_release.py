"""Who may read messages that Kafka has expired, and whether a recheck knew of them."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.reconciliation_rules import Protection
from ticdc_replay.reconcile.delete.release import unforeseen
from ticdc_replay.reconcile.judge.rules import Evidence, PartitionBounds, ReplayableRange

LOW, HIGH = 10, 20


def evidence(*replayable: ReplayableRange, low: int = LOW) -> Evidence:
    return Evidence(
        bounds_ms=1_000, listed_ms=1_000, partitions=(PartitionBounds("t", "id", 0, low, HIGH),), replayable=replayable,
        young_ms=10, skew_ms=1, grace_ms=10, owners_complete=True, unread_offsets=0,
    )  # fmt: skip


def part(start: int, end: int, topic: str = "t", topic_id: str = "id", partition: int = 0) -> ReplayableRange:
    return ReplayableRange(topic, topic_id, partition, start, end)


def test_offsets_that_kafka_held_at_the_recheck_or_got_since_were_searched_or_are_too_young():
    assert unforeseen(evidence(), [part(LOW, HIGH), part(HIGH, HIGH + 5)]) == ()


def test_offsets_that_kafka_had_expired_must_have_been_counted():
    assert unforeseen(evidence(), [part(LOW - 1, HIGH)]) == (part(LOW - 1, HIGH),)
    assert unforeseen(evidence(part(0, LOW)), [part(2, HIGH + 5)]) == ()
    assert unforeseen(evidence(part(3, LOW)), [part(2, HIGH)]) == (part(2, HIGH),)


def test_a_topic_or_partition_that_the_recheck_did_not_know_counts_as_unforeseen():
    others = [part(12, 13, topic="other"), part(12, 13, topic_id="recreated"), part(12, 13, partition=7)]
    assert set(unforeseen(evidence(), others)) == set(others)


def test_what_is_read_no_more_does_not_matter():
    assert unforeseen(evidence(part(0, 5)), []) == ()


RANGES = st.lists(
    st.builds(
        lambda start, length, topic_id: part(start, start + length, topic_id=topic_id),
        st.integers(0, 25),
        st.integers(0, 8),
        st.sampled_from(["id", "id", "old"]),
    ),
    max_size=4,
)


@given(RANGES, RANGES)
def test_where_nothing_is_unforeseen_the_recheck_protected_the_objects_of_all_that_is_read(known, read):
    found = evidence(*known)
    protection = Protection(found)
    foreseen = not unforeseen(found, read)
    offsets = [(each.topic_id, offset) for each in read for offset in range(each.start, each.end)]
    protected = all(protection.protects("t", topic_id, 0, offset) for topic_id, offset in offsets)
    if foreseen:
        assert protected
