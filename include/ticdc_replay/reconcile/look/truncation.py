"""Offsets that Kafka has given to two messages: after an unclean leader election it continues at a lower offset.

A search of such offsets may have seen the messages that Kafka lost, so it no longer counts until Kafka has expired these offsets.
A survey notices a loss if the end of a partition is below what was searched. It can't notice a loss if Kafka has passed that
offset before.
"""

from collections.abc import Iterable

import msgspec

from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.reconcile.judge.rules import PartitionBounds
from ticdc_replay.reconcile.look.coverage import Searched, without
from ticdc_replay.storage.base import ObjectStore
from ticdc_replay.storage.documents import put_document, read_documents

_FOLDER = "truncations/"


class Truncated(msgspec.Struct, frozen=True, order=True):
    """Offsets ``[start, end)`` that were searched when the partition ended at ``start``. Both ids are Kafka's; the
    cluster's is empty in notes of earlier versions."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    cluster_id: str = ""

    @property
    def identity(self) -> TopicIdentity:
        """The topic."""
        return TopicIdentity(self.cluster_id, self.topic, self.topic_id)


def truncated(held: Iterable[PartitionBounds], searched: Iterable[Searched]) -> list[Truncated]:
    """Which offsets of *searched*, read before, lie beyond what Kafka has *held* since."""
    ends: dict[tuple[TopicIdentity, int], int] = {}
    for each in searched:
        place = (each.topic, each.range.partition)
        ends[place] = max(each.range.end, ends.get(place, 0))
    found = ((part, ends.get(part.place, 0)) for part in held)
    return [
        Truncated(part.topic, part.topic_id, part.partition, part.high, end, part.cluster_id)
        for part, end in found
        if part.high < end
    ]


def put_truncated(artifacts: ObjectStore, found: Iterable[Truncated]) -> None:
    """Record *found* in *artifacts*, the store's, permanently."""
    for each in found:
        put_document(artifacts, _FOLDER, each)


def read_truncated(artifacts: ObjectStore) -> list[Truncated]:
    """All that was noted. Raises msgspec.ValidationError with the path inside the document."""
    return read_documents(artifacts, _FOLDER, Truncated)


def searched_once(searched: Iterable[Searched], found: Iterable[Truncated]) -> tuple[Searched, ...]:
    """*searched* without offsets that more than one message may have had."""
    reused: dict[str, list[Truncated]] = {}
    for each in found:
        reused.setdefault(each.topic, []).append(each)
    result: list[Searched] = []
    for one in searched:
        holes = [
            OffsetRange(hole.topic, hole.partition, hole.start, hole.end)
            for hole in reused.get(one.topic.name, ())
            if hole.identity.may_be(one.topic)
        ]
        result += [Searched(one.topic, part) for part in without([one.range], holes)]
    return tuple(result)
