"""What a reconciliation knows (``Evidence``), and the classes that it gives to objects and references.

``judgement`` classifies. The rules for one object and one reference are an executable specification in the tests
(``tests/support/reconciliation_rules.py``), to which a test holds it.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.topics import TopicIdentity

UNREADABLE = "claim_check_unreadable"
"""The status of a reference whose object a decode could not read as a claim-check object."""
REPLACED = "claim_check_altered"
"""The status of a reference whose object a decode found to be another than was pinned."""
USED = "used"
"""The status of a reference whose object a decode has read."""

_CLOCK_ERROR_MS = 1000
"""A store's time is in whole seconds."""


class ObjectClass(StrEnum):
    """What an object is to the changefeeds of its store."""

    REFERENCED = "referenced"
    ORPHANED = "orphaned"
    TOO_YOUNG = "too_young"
    EXPIRED = "expired"
    MALFORMED = "malformed"
    FOREIGN = "foreign"


DELETABLE = (ObjectClass.ORPHANED, ObjectClass.EXPIRED)
"""The only classes of objects that may be deleted."""


class ReferenceClass(StrEnum):
    """The state of the object that a reference names. ``too_young``: the inventory is older than the message."""

    PRESENT = "present"
    MISSING = "missing"
    ALTERED = "altered"
    DUPLICATE = "duplicate"
    TOO_YOUNG = "too_young"


class Reason(StrEnum):
    """Why an object has its class, as people read it."""

    FOREIGN = "its name is not one that TiCDC gives: <uuid>.json right below the store's root"
    UNREADABLE = "a decode could not read it as a claim-check object"
    EMPTY = "it has no bytes"
    REFERENCED = "a message that Kafka retains, or that a pinned window may read again, refers to it"
    TOO_YOUNG = "it was written so shortly before the offsets were read that its message may be still to come"
    REFERENCES_EXPIRED = "all messages that are known to refer to it have expired in Kafka"
    OLDER_THAN_KAFKA = "no retained message refers to it, and Kafka has expired messages of its time"
    ORPHANED = "every message that can refer to it was read, and none does: left over from a retry of TiCDC"


class Verdict(NamedTuple):
    """The class of an object, and why."""

    kind: ObjectClass
    reason: Reason


class _OfPartition:
    """Of one partition of one topic of one cluster."""

    __slots__ = ()
    topic: str
    topic_id: str
    partition: int
    cluster_id: str

    @property
    def identity(self) -> TopicIdentity:
        """Its topic."""
        return TopicIdentity(self.cluster_id, self.topic, self.topic_id)

    @property
    def place(self) -> tuple[TopicIdentity, int]:
        """Its topic and partition."""
        return self.identity, self.partition


class PartitionBounds(_OfPartition, msgspec.Struct, frozen=True, order=True):
    """What Kafka retains of one partition: offsets ``[low, high)``, whether or not they can be read. ``first_ms``: the time of
    the record at ``low``; None where there is none."""

    topic: str
    topic_id: str
    partition: int
    low: int
    high: int
    first_ms: int | None = None
    stable: int | None = None
    """Where an open transaction keeps readers from what follows; None where all can be read."""
    cluster_id: str = ""
    """Kafka's own; empty in files of earlier versions."""

    @property
    def range(self) -> OffsetRange:
        """The offsets ``[low, high)``."""
        return OffsetRange(self.topic, self.partition, self.low, self.high)


class ReplayableRange(_OfPartition, msgspec.Struct, frozen=True, order=True):
    """Offsets ``[start, end)`` that the manifest of a window pins, where that window may be read again."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    cluster_id: str = ""
    """Kafka's own; empty where its manifest does not have it."""

    @classmethod
    def of(cls, topic: TopicIdentity, part: OffsetRange) -> "ReplayableRange":
        """The offsets *part* of *topic*."""
        return cls(topic.name, topic.topic_id, part.partition, part.start, part.end, topic.cluster_id)

    @property
    def range(self) -> OffsetRange:
        """The offsets."""
        return OffsetRange(self.topic, self.partition, self.start, self.end)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a reconciliation knows of its store beside objects and references. Times are Unix ms by the clock of whoever read
    the offsets; spans are ms."""

    bounds_ms: int
    """When the offsets of Kafka were read, at the latest: a message that came later may be unknown."""
    listed_ms: int
    """What the inventory is of: when listing began, or the moment of S3's report."""
    partitions: tuple[PartitionBounds, ...]
    """Every partition of every topic of all changefeeds of the store. Topics of two clusters may have one name, not one id."""
    gone_topics: tuple[str, ...] = ()
    """Topics that, according to Kafka, do not exist any more. A topic that is neither here nor in ``partitions`` is not known,
    and references from it protect their objects."""
    replayable: tuple[ReplayableRange, ...] = ()
    young_ms: int
    skew_ms: int
    """The clocks of the store, the brokers, TiCDC and the reader differ by at most this."""
    grace_ms: int
    owners_complete: bool
    """A person's confirmation that only changefeeds of the listed pipelines write to the store."""
    unread_offsets: int
    """Offsets within the bounds that neither a decode nor a scan has covered to its end, and those whose references are not all
    known although they can be read again after Kafka has expired them."""
    unread: tuple[ReplayableRange, ...] = ()
    """The first of these offsets, for people."""
    clock_ahead_ms: int = 0
    """How far the store's clock was found to be ahead of the reader's, to the second; negative if it is slow."""
    objections: tuple[str, ...] = ()
    """Reasons to doubt that all owners, their clusters and their topics are known (``reconcile.look.owners``)."""

    @property
    def complete(self) -> bool:
        """Whether "no reference is known" means that no message that can be read has one, and times can be compared."""
        return not self.obstacles()

    @property
    def protected(self) -> list[ReplayableRange]:
        """``replayable`` of whatever cluster, merged: references have none, and more of them protect their objects."""
        return merged(tuple(msgspec.structs.replace(part, cluster_id="") for part in self.replayable))

    @property
    def clock_differs(self) -> bool:
        """Whether the clocks of store and reader differ by more than ``skew_ms``: then ages of objects are not known."""
        return abs(self.clock_ahead_ms) > self.skew_ms + _CLOCK_ERROR_MS

    def obstacles(self) -> tuple[str, ...]:
        """Why nothing may be deleted, whatever its class; empty where something may."""
        found = []
        if not self.owners_complete:
            found.append(
                "nobody has confirmed that all changefeeds which write to the store are listed (owners_complete)"
            )
        if self.unread_offsets:
            found.append(
                f"{self.unread_offsets} offsets that can be read have not been searched for references, or hold messages that "
                "can't be searched"
            )
        if self.clock_differs:
            side = "ahead of" if self.clock_ahead_ms > 0 else "behind"
            found.append(
                f"the store's clock is {abs(self.clock_ahead_ms) / 1000:.0f} s {side} this program's, more than "
                f"rules.clock_skew_seconds ({self.skew_ms / 1000:.0f}) allows, so ages are not known"
            )
        return (*found, *self.objections)

    @property
    def judged_before_ms(self) -> int:
        """Objects last modified at this moment or earlier, by the store's clock, are judged; later ones are too young."""
        return self.bounds_ms - self.young_ms - self.skew_ms

    @property
    def deletable_before_ms(self) -> int:
        """Only objects last modified at this moment or earlier, by the store's clock, may be deleted."""
        return min(self.judged_before_ms, self.bounds_ms - self.grace_ms - self.skew_ms)

    @property
    def listed_before_ms(self) -> int:
        """What existed up to this moment is in the inventory."""
        return self.listed_ms - self.skew_ms

    @property
    def surveyed_before_listing(self) -> bool:
        """Whether the inventory is younger than the offsets of Kafka, so that it has the object of each message within them."""
        return self.bounds_ms <= self.listed_ms

    @property
    def lost_before_ms(self) -> int:
        """Kafka may have expired the message of an object that was last modified at this moment or earlier, by the store's clock;
        -1 where Kafka has expired nothing."""
        if self.gone_topics:
            return self.bounds_ms
        lost = [found for found in self.partitions if found.low > 0]
        firsts = [self.bounds_ms if found.first_ms is None else found.first_ms for found in lost]
        return max(firsts) + self.skew_ms if firsts else -1


class SurveyedOffsets:
    """Which messages were there when the offsets of Kafka were read, whatever time they have: a producer sets it."""

    def __init__(self, evidence: Evidence) -> None:
        self._ends = {(each.topic, each.topic_id, each.partition): each.high for each in evidence.partitions}

    def has(self, topic: str, topic_id: str, partition: int, offset: int) -> bool:
        """Whether the message at these coordinates was there."""
        return offset < self._ends.get((topic, topic_id, partition), 0)


def merged(ranges: tuple[ReplayableRange, ...]) -> list[ReplayableRange]:
    """The same offsets as *ranges*, sorted and without overlap."""
    result: list[ReplayableRange] = []
    held = (found for found in ranges if found.start < found.end)
    for part in sorted(held, key=lambda found: (found.topic, found.topic_id, found.cluster_id, found.range)):
        last = result[-1] if result else None
        if last is None or last.place != part.place or part.start > last.end:
            result.append(part)
        elif part.end > last.end:
            result[-1] = msgspec.structs.replace(last, end=part.end)
    return result
