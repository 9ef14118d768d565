"""A missing object is nobody's business any more once the loss of its row is accepted."""

import pytest

from tests.support.topics import identity
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.reconcile.judge.lost_rows import LostRow
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.quarantine.accepted_losses import not_accepted
from ticdc_replay.state.quarantine import AcceptedLoss

TOPIC = identity("t")


def lost(offset: int, ordinal: int, topic_id: str = TOPIC.topic_id, pipeline: str = "shop") -> LostRow:
    return LostRow("t", 0, offset, ordinal, topic_id, pipeline, "x.json", 1, "s", "t", None, None, None)


def accept(
    context: ReplayContext, ordinal: int, reason: str = "claim_check_missing", topic: TopicIdentity = TOPIC
) -> None:
    loss = AcceptedLoss("shop", topic, 0, 5, ordinal, reason, "run", "Ada", "why", "accepted/a.json", 1)
    context.state.quarantine.record_accepted_losses([loss])


@pytest.mark.parametrize(("accepted", "ordinal"), [(0, 0), (-1, 0), (0, -1), (-1, -1)])
def test_a_row_whose_loss_was_accepted_is_left_out(context: ReplayContext, accepted: int, ordinal: int) -> None:
    rows = [lost(5, ordinal), lost(6, ordinal)]
    assert not_accepted([context], rows) == rows
    accept(context, accepted)
    assert not_accepted([context], rows) == rows[1:]


def test_another_event_topic_pipeline_or_reason_is_not_accepted(context: ReplayContext) -> None:
    accept(context, 0)
    accept(context, 2, "bad_value")
    others = [lost(5, 1), lost(5, 0, topic_id="recreated"), lost(5, 0, pipeline="billing"), lost(5, 2)]
    assert not_accepted([context], others) == others


@pytest.mark.parametrize(
    ("topic", "taken"),
    [
        (TopicIdentity("", "", TOPIC.topic_id), True),
        (TopicIdentity("", "", "AAAAAAAAAAAAAAAAAAAAAA"), False),
        (TopicIdentity("cluster", "other", TOPIC.topic_id), False),
    ],
    ids=str,
)
def test_what_an_earlier_version_recorded_counts_where_its_id_names_one_topic(
    context: ReplayContext, topic: TopicIdentity, taken: bool
) -> None:
    accept(context, 0, topic=topic)
    row = lost(5, 0, topic_id=topic.topic_id)
    assert not_accepted([context], [row]) == ([] if taken else [row])
