"""The rules that decide what an object or a reference is."""

import msgspec
import pytest

from tests.support.reconciliation_rules import (
    Found,
    ObjectFacts,
    Protection,
    ReferenceFacts,
    classify_object,
    classify_reference,
    deletable,
)
from ticdc_replay.domain import tso
from ticdc_replay.reconcile.judge.rules import (
    Evidence,
    ObjectClass,
    PartitionBounds,
    Reason,
    ReferenceClass,
    ReplayableRange,
    SurveyedOffsets,
    merged,
)

HOUR = 3_600_000
NOW = 1_800_000_000_000
NAME = "0b1c2d3e-0000-4000-8000-00000000000f.json"
OLD = NOW - 30 * HOUR
NOTHING = ObjectFacts(0, 0, False)

EVIDENCE = Evidence(
    bounds_ms=NOW,
    listed_ms=NOW,
    partitions=(PartitionBounds("t", "id", 0, 100, 200, NOW - 72 * HOUR), PartitionBounds("t", "id", 1, 0, 50, OLD)),
    replayable=(ReplayableRange("t", "id", 0, 40, 60),),
    young_ms=24 * HOUR,
    skew_ms=HOUR,
    grace_ms=168 * HOUR,
    owners_complete=True,
    unread_offsets=0,
)


def with_(**changes):
    return msgspec.structs.replace(EVIDENCE, **changes)


@pytest.mark.parametrize(
    ("topic", "topic_id", "partition", "offset", "protects"),
    [
        ("t", "id", 0, 100, True),  # the first that Kafka retains
        ("t", "id", 0, 99, False),
        ("t", "id", 0, 200, True),  # behind what was read: not known to be gone
        ("t", "id", 0, 40, True),  # expired, but of a window that may be read again
        ("t", "id", 0, 60, False),
        ("t", "id", 1, 50, True),
        ("t", "id", 2, 0, True),  # a partition of which nothing is known
        ("t", "before", 0, 150, False),  # of a topic of that name that was deleted
        ("t", "before", 0, 50, False),
        ("other", "id", 0, 0, True),  # a topic of which nothing is known
        ("gone", "id", 0, 0, False),
    ],
)
def test_a_reference_protects_its_object_unless_its_message_is_known_to_be_gone(
    topic, topic_id, partition, offset, protects
):
    protection = Protection(with_(gone_topics=("gone",)))
    assert protection.protects(topic, topic_id, partition, offset) is protects


def test_a_window_that_may_be_read_again_protects_where_its_topic_is_gone():
    pinned = (ReplayableRange("gone", "id", 0, 0, 10),)
    protection = Protection(with_(gone_topics=("gone",), replayable=pinned))
    assert protection.protects("gone", "id", 0, 9)
    assert not protection.protects("gone", "id", 0, 10)


def test_topics_of_one_name_in_two_clusters_are_told_apart():
    of_both = (PartitionBounds("t", "here", 0, 10, 20), PartitionBounds("t", "there", 0, 50, 60))
    for partitions in (of_both, of_both[::-1]):
        protection = Protection(with_(partitions=partitions, replayable=()))
        assert protection.protects("t", "here", 0, 10)
        assert not protection.protects("t", "there", 0, 10)
        assert not protection.protects("t", "neither", 0, 55)


def test_everything_that_speaks_against_a_deletion_is_told():
    assert with_().obstacles() == ()
    found = with_(owners_complete=False, unread_offsets=3, clock_ahead_ms=2 * HOUR).obstacles()
    assert [word for word, text in zip(("owners_complete", "3 offsets", "clock"), found, strict=True) if word in text]
    assert len(found) == 3
    assert not with_(clock_ahead_ms=-2 * HOUR).complete


def test_ranges_that_touch_or_overlap_become_one():
    pieces = [("t", "a", 0, 5, 9), ("t", "a", 0, 0, 5), ("t", "a", 0, 6, 7), ("t", "b", 0, 8, 9), ("t", "a", 1, 3, 3)]
    assert merged(tuple(ReplayableRange(*piece) for piece in pieces)) == [
        ReplayableRange("t", "a", 0, 0, 9),
        ReplayableRange("t", "b", 0, 8, 9),
    ]


@pytest.mark.parametrize(
    ("name", "size", "age_ms", "facts", "kind", "reason"),
    [
        (NAME, 9, 49 * HOUR, ObjectFacts(2, 1, False), ObjectClass.REFERENCED, Reason.REFERENCED),
        (NAME, 9, 0, ObjectFacts(1, 1, False), ObjectClass.REFERENCED, Reason.REFERENCED),
        (NAME, 9, 26 * HOUR, NOTHING, ObjectClass.ORPHANED, Reason.ORPHANED),
        (NAME, 9, 25 * HOUR, NOTHING, ObjectClass.ORPHANED, Reason.ORPHANED),
        (NAME, 9, 25 * HOUR - 1, NOTHING, ObjectClass.TOO_YOUNG, Reason.TOO_YOUNG),
        (NAME, 9, -99 * HOUR, NOTHING, ObjectClass.TOO_YOUNG, Reason.TOO_YOUNG),
        (NAME, 9, 2 * HOUR, ObjectFacts(1, 0, False), ObjectClass.TOO_YOUNG, Reason.TOO_YOUNG),
        (NAME, 9, 30 * HOUR, ObjectFacts(1, 0, False), ObjectClass.EXPIRED, Reason.REFERENCES_EXPIRED),
        (NAME, 9, 71 * HOUR - 1, NOTHING, ObjectClass.ORPHANED, Reason.ORPHANED),
        (NAME, 9, 71 * HOUR, NOTHING, ObjectClass.EXPIRED, Reason.OLDER_THAN_KAFKA),
        (NAME, 9, 30 * HOUR, ObjectFacts(1, 1, True), ObjectClass.MALFORMED, Reason.UNREADABLE),
        (NAME, 0, 30 * HOUR, ObjectFacts(1, 1, False), ObjectClass.MALFORMED, Reason.EMPTY),
        (NAME, 0, HOUR, NOTHING, ObjectClass.TOO_YOUNG, Reason.TOO_YOUNG),
        (f"sub/{NAME}", 9, 999 * HOUR, NOTHING, ObjectClass.FOREIGN, Reason.FOREIGN),
        (NAME.upper(), 9, 999 * HOUR, NOTHING, ObjectClass.FOREIGN, Reason.FOREIGN),
        (f"{NAME}\n", 9, 999 * HOUR, NOTHING, ObjectClass.FOREIGN, Reason.FOREIGN),
        ("", 9, 999 * HOUR, ObjectFacts(1, 1, False), ObjectClass.FOREIGN, Reason.FOREIGN),
    ],
)
def test_the_class_of_an_object(name, size, age_ms, facts, kind, reason):
    assert classify_object(EVIDENCE, name, size, NOW - age_ms, facts) == (kind, reason)


def test_nothing_was_lost_where_all_partitions_begin_at_their_first_offset():
    fresh = with_(partitions=(PartitionBounds("t", "id", 0, 0, 9, OLD),))
    assert classify_object(fresh, NAME, 1, 0, NOTHING).kind is ObjectClass.ORPHANED


@pytest.mark.parametrize(
    "changes", [{"partitions": (PartitionBounds("t", "id", 0, 9, 9, None),)}, {"gone_topics": ("old",)}]
)
def test_an_object_is_not_called_a_left_over_where_its_message_may_have_expired_unread(changes):
    assert classify_object(with_(**changes), NAME, 1, OLD, NOTHING).kind is ObjectClass.EXPIRED


@pytest.mark.parametrize("kind", ObjectClass)
def test_only_orphaned_and_expired_objects_may_be_deleted(kind):
    oldest = NOW - 169 * HOUR
    assert deletable(EVIDENCE, kind, oldest) is (kind in {ObjectClass.ORPHANED, ObjectClass.EXPIRED})
    assert not deletable(EVIDENCE, kind, oldest + 1)
    assert not deletable(with_(owners_complete=False), kind, oldest)
    assert not deletable(with_(unread_offsets=1), kind, oldest)


def test_no_grace_makes_a_young_object_deletable():
    assert not deletable(with_(grace_ms=0), ObjectClass.EXPIRED, NOW - 25 * HOUR + 1)
    assert deletable(with_(grace_ms=0), ObjectClass.EXPIRED, NOW - 25 * HOUR)


THERE = Found("e", 9)
BEFORE = NOW - HOUR


@pytest.mark.parametrize(
    ("reference", "found", "copies", "kind"),
    [
        (ReferenceFacts("used", "e", 9, None, None), THERE, 1, ReferenceClass.PRESENT),
        (ReferenceFacts("seen", None, None, None, None), THERE, 1, ReferenceClass.PRESENT),
        (ReferenceFacts("used", "e", 9, None, None), THERE, 2, ReferenceClass.DUPLICATE),
        (ReferenceFacts("used", "f", 9, None, None), THERE, 2, ReferenceClass.ALTERED),
        (ReferenceFacts("used", "e", 8, None, None), THERE, 1, ReferenceClass.ALTERED),
        (ReferenceFacts("claim_check_altered", None, None, None, None), THERE, 1, ReferenceClass.ALTERED),
        (ReferenceFacts("used", "e", 9, None, None), None, 1, ReferenceClass.MISSING),
        (ReferenceFacts("seen", None, None, BEFORE, None), None, 0, ReferenceClass.MISSING),
        (ReferenceFacts("seen", None, None, BEFORE + 1, None), None, 0, ReferenceClass.TOO_YOUNG),
        (ReferenceFacts("used", None, None, None, tso.from_ms(BEFORE) + 5), None, 0, ReferenceClass.MISSING),
        (ReferenceFacts("used", None, None, None, tso.from_ms(BEFORE + 1)), None, 0, ReferenceClass.TOO_YOUNG),
        (ReferenceFacts("seen", None, None, BEFORE, tso.from_ms(NOW)), None, 0, ReferenceClass.MISSING),
    ],
)
def test_the_class_of_a_reference(reference, found, copies, kind):
    assert classify_reference(EVIDENCE, reference, found, copies) is kind


@pytest.mark.parametrize(
    ("listed_ms", "offset", "kind"),
    [
        (NOW, 199, ReferenceClass.MISSING),
        (NOW, 200, ReferenceClass.TOO_YOUNG),  # came after the survey
        (NOW - 1, 199, ReferenceClass.TOO_YOUNG),  # the inventory is older than the survey
    ],
)
def test_a_message_from_the_future_is_no_younger_than_the_survey_that_saw_it(listed_ms, offset, kind):
    evidence = with_(listed_ms=listed_ms)
    surveyed = SurveyedOffsets(evidence).has("t", "id", 0, offset)
    reference = ReferenceFacts("seen", None, None, NOW + 1000 * HOUR, None, surveyed)
    assert classify_reference(evidence, reference, None, 0) is kind


def test_a_recreated_topic_was_not_there_at_the_survey():
    assert not SurveyedOffsets(EVIDENCE).has("t", "before", 0, 10)
    assert not SurveyedOffsets(EVIDENCE).has("t", "id", 2, 0)
