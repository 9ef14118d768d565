"""The sparse index of what was decoded."""

import pytest

from tests.support.topics import identity
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.state import StateStore
from ticdc_replay.state.sparse_index import Stretch

TOPIC = identity()
ZERO = "AAAAAAAAAAAAAAAAAAAAAA"


def test_the_topics_that_decodes_have_read_are_known_by_their_identity(state: StateStore) -> None:
    one, again, old = identity(), identity(made="again"), identity(cluster="")
    for each in (one, again, old):
        state.sparse_index.record("shop", [Stretch(each, number, 0, 10, 5, 5) for number in range(2)])
    state.sparse_index.record("other", [Stretch(identity("another"), 0, 0, 10, 5, 5)])
    assert state.sparse_index.topics("shop") == sorted([one, again])


def test_known_stretches_end_where_an_event_is_needed(state: StateStore) -> None:
    def stretch(start: int, newest: int | None, topic: TopicIdentity = TOPIC) -> Stretch:
        return Stretch(topic, 0, start, start + 10, newest, newest)

    state.sparse_index.record(
        "shop", [stretch(start, newest) for start, newest in ((0, 5), (10, None), (20, 7), (30, 9))]
    )
    state.sparse_index.record("shop", [stretch(0, 99, identity(made="again"))])
    state.sparse_index.record("shop", [stretch(0, 99, identity(cluster="other")), stretch(0, 99, identity("other"))])
    before = state.sparse_index.before
    assert before("shop", TOPIC, {0: 5}, commit_ts=9) == {0: [stretch(0, 5), stretch(10, None), stretch(20, 7)]}
    assert before("shop", TOPIC, {0: 20}, commit_ts=100) == {0: [stretch(20, 7), stretch(30, 9)]}
    assert before("shop", TOPIC, {0: 0}, commit_ts=5) == {}
    assert before("shop", TOPIC, {1: 0}, commit_ts=5) == {}


@pytest.mark.parametrize("shared", [ZERO, identity().topic_id])
def test_what_was_found_in_one_topic_says_nothing_of_another_with_its_id(state: StateStore, shared: str) -> None:
    one, other = (TopicIdentity("cluster", name, shared) for name in ("one", "other"))
    state.sparse_index.record("shop", [Stretch(one, 0, 0, 10, 5, 5)])
    assert state.sparse_index.before("shop", other, {0: 0}, commit_ts=9) == {}
    usable = shared != ZERO
    assert bool(state.sparse_index.before("shop", one, {0: 0}, commit_ts=9)) is usable


def test_what_is_of_no_known_cluster_or_topic_keeps_nobody_from_reading(state: StateStore) -> None:
    for unknown in (identity(cluster=""), identity("")):
        state.sparse_index.record("shop", [Stretch(unknown, 0, 0, 10, 5, 5)])
        assert state.sparse_index.before("shop", unknown, {0: 0}, commit_ts=9) == {}
        assert state.sparse_index.before("shop", identity(), {0: 0}, commit_ts=9) == {}


def test_known_stretches_of_thousands_of_partitions_are_asked_for_at_once(state: StateStore) -> None:
    state.sparse_index.record("shop", [Stretch(TOPIC, at, 0, 10 + at, 1, 1) for at in range(2_500)])
    state.sparse_index.record("shop", [Stretch(TOPIC, 7, 17, 20, 5, 5)])
    found = state.sparse_index.before("shop", TOPIC, dict.fromkeys(range(2_500), 12), commit_ts=5)
    assert found == {at: [Stretch(TOPIC, at, 0, 10 + at, 1, 1)] for at in range(3, 2_500)}


def test_many_records_are_kept_in_one_go(state: StateStore) -> None:
    state.sparse_index.record("shop", [Stretch(TOPIC, 0, at, at + 1, at, at) for at in range(2_500)])
    assert len(state.sparse_index.before("shop", TOPIC, {0: 0}, commit_ts=2_500)[0]) == 2_500
