"""The executable specification of a reconciliation: the class of one object and of one reference, and what may be deleted.

The library judges whole columns (``reconcile.judge.judgement``, ``reconcile.judge.protection``), and
``tests/unit/reconcile/judge/test_judgement.py`` compares the two. A change of the rules begins here.
"""

from typing import NamedTuple

from ticdc_replay.domain import tso
from ticdc_replay.large_messages.locations import object_name
from ticdc_replay.reconcile.judge.rules import (
    REPLACED,
    USED,
    Evidence,
    ObjectClass,
    PartitionBounds,
    Reason,
    ReferenceClass,
    ReplayableRange,
    Verdict,
)


class Protection:
    """Which references protect their object, as their message can still be read: from Kafka, or as part of a pinned window."""

    def __init__(self, evidence: Evidence) -> None:
        self._bounds: dict[tuple[str, int], list[PartitionBounds]] = {}
        for bounds in evidence.partitions:
            self._bounds.setdefault((bounds.topic, bounds.partition), []).append(bounds)
        self._gone = frozenset(evidence.gone_topics)
        self._replayable: dict[tuple[str, str, int], list[ReplayableRange]] = {}
        for part in evidence.protected:
            self._replayable.setdefault((part.topic, part.topic_id, part.partition), []).append(part)

    def protects(self, topic: str, topic_id: str, partition: int, offset: int) -> bool:
        """Whether a reference at these coordinates protects its object. What is not known to be gone does."""
        ranges = self._replayable.get((topic, topic_id, partition), ())
        if any(part.start <= offset < part.end for part in ranges):
            return True
        if topic in self._gone:
            return False
        known = self._bounds.get((topic, partition))
        return known is None or any(bounds.topic_id == topic_id and offset >= bounds.low for bounds in known)


class ObjectFacts(NamedTuple):
    """What all references to one object say together. ``protecting`` counts those that ``Protection.protects``."""

    references: int
    protecting: int
    unreadable: bool
    """Whether one of them has the status ``UNREADABLE``, and none read the object as it is now (``reads``)."""


class ReferenceFacts(NamedTuple):
    """What a row of ``records.REFERENCES`` says of its object. ``etag`` and ``size`` (bytes) as recorded or pinned; the others
    as there."""

    status: str
    etag: str | None
    size: int | None
    timestamp_ms: int | None
    commit_ts: int | None
    surveyed: bool = False
    """Whether ``SurveyedOffsets`` has its message."""
    read_since: bool = False
    """Whether another row for its message ``reads`` the object as it is now: of a re-drive, say."""


class Found(NamedTuple):
    """An object as the inventory has it."""

    etag: str
    size: int


def reads(reference: ReferenceFacts, found: Found | None) -> bool:
    """Whether a decode has read, at *reference*, what the inventory has *found*: then nothing is wrong with the object, whatever
    other decodes said of it."""
    return (
        found is not None
        and reference.status == USED
        and reference.etag == found.etag
        and reference.size in (None, found.size)
    )


def classify_object(evidence: Evidence, name: str, size: int, last_modified_ms: int, facts: ObjectFacts) -> Verdict:
    """The class of the object *name* of *size* bytes, last modified at *last_modified_ms* by the store's clock."""
    young = last_modified_ms > evidence.judged_before_ms
    if not name or object_name(name) != name:
        return Verdict(ObjectClass.FOREIGN, Reason.FOREIGN)
    if facts.unreadable:
        return Verdict(ObjectClass.MALFORMED, Reason.UNREADABLE)
    if size == 0 and not young:
        return Verdict(ObjectClass.MALFORMED, Reason.EMPTY)
    if facts.protecting > 0:
        return Verdict(ObjectClass.REFERENCED, Reason.REFERENCED)
    if young:
        return Verdict(ObjectClass.TOO_YOUNG, Reason.TOO_YOUNG)
    if facts.references > 0:
        return Verdict(ObjectClass.EXPIRED, Reason.REFERENCES_EXPIRED)
    if last_modified_ms <= evidence.lost_before_ms:
        return Verdict(ObjectClass.EXPIRED, Reason.OLDER_THAN_KAFKA)
    return Verdict(ObjectClass.ORPHANED, Reason.ORPHANED)


def deletable(evidence: Evidence, kind: ObjectClass, last_modified_ms: int) -> bool:
    """Whether an object of class *kind* may be put on a plan: nothing that can still be read refers to it, and it is old
    enough."""
    return (
        kind in (ObjectClass.ORPHANED, ObjectClass.EXPIRED)
        and evidence.complete
        and last_modified_ms <= evidence.deletable_before_ms
    )


def classify_reference(
    evidence: Evidence, reference: ReferenceFacts, found: Found | None, present_copies: int
) -> ReferenceClass:
    """The class of a reference. *found*: its object in the inventory. *present_copies*: how many different objects of its row
    version are in the inventory, this one included; 1 where the row's key is not known."""
    if found is None:
        written_ms = reference.timestamp_ms
        if written_ms is None and reference.commit_ts is not None:
            written_ms = tso.physical_ms(reference.commit_ts)
        before_listing = reference.surveyed and evidence.surveyed_before_listing
        if written_ms is not None and written_ms > evidence.listed_before_ms and not before_listing:
            return ReferenceClass.TOO_YOUNG
        return ReferenceClass.MISSING
    if not reference.read_since and (
        reference.status == REPLACED
        or reference.etag not in (None, found.etag)
        or reference.size not in (None, found.size)
    ):
        return ReferenceClass.ALTERED
    return ReferenceClass.DUPLICATE if present_copies > 1 else ReferenceClass.PRESENT
