"""Missing objects whose loss a person has accepted."""

from collections.abc import Iterable, Sequence

from ticdc_replay.decode.read.unread_references import NO_ORDINAL
from ticdc_replay.domain.topics import is_topic_id
from ticdc_replay.reconcile.judge.lost_rows import LostRow
from ticdc_replay.stages.context import ReplayContext

_OF_OBJECTS = "claim_check_"
"""Prefix of the reasons for missing or unusable objects."""


def not_accepted(pipelines: Iterable[ReplayContext], lost: Sequence[LostRow]) -> list[LostRow]:
    """Those of *lost* whose loss nobody has accepted in the quarantine of their pipeline, by event or by message."""
    accepted: dict[tuple[str, str, str, int, int], set[int]] = {}
    for each in pipelines:
        for loss in each.state.quarantine.accepted_losses(each.pipeline.name):
            if loss.reason.startswith(_OF_OBJECTS):
                message = loss.pipeline, loss.topic.name, loss.topic.topic_id, loss.partition, loss.offset
                accepted.setdefault(message, set()).add(loss.ordinal)

    def is_accepted(row: LostRow) -> bool:
        # Records of an earlier version have no name: then the id must identify the topic.
        names = (row.topic, "") if is_topic_id(row.topic_id) else (row.topic,)
        places = [(row.pipeline, name, row.topic_id, row.partition, row.offset) for name in names]
        ordinals = {ordinal for place in places for ordinal in accepted.get(place, ())}
        return bool(ordinals & {row.ordinal, NO_ORDINAL}) or (row.ordinal == NO_ORDINAL and bool(ordinals))

    return [row for row in lost if not is_accepted(row)]
