"""A missing object is nobody's business any more once the loss of its row is accepted."""

import pytest

from ticdc_replay.reconcile.lost_rows import LostRow
from ticdc_replay.stages.accepted_losses import not_accepted
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.state.records import AcceptedLoss


def lost(offset: int, ordinal: int, topic_id: str = "id", pipeline: str = "shop") -> LostRow:
    return LostRow("t", 0, offset, ordinal, topic_id, pipeline, "x.json", 1, "s", "t", None, None, None)


def accept(context: ReplayContext, ordinal: int, reason: str = "claim_check_missing") -> None:
    loss = AcceptedLoss("shop", "id", 0, 5, ordinal, reason, "run", "Ada", "why", "accepted/a.json", 1)
    context.state.record_accepted_losses([loss])


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
