"""Which DDL of a topic is known without a gap, as the scans of its first partition show it."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ticdc_replay.decode.plan.schema_pass import Unread
from ticdc_replay.domain import tso
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.tso import MAX_TSO
from ticdc_replay.state.ddl import DdlScan, SchemaScan


class Chain(msgspec.Struct, frozen=True):
    """Scans that leave no gap between ``start`` and ``end``; the other fields are those of ``DdlScan``."""

    start: int
    end: int
    known_from: int
    resolved_ts: int = 0


class Reach(msgspec.Struct, frozen=True):
    """The commitTs (TSO) from which DDL of a topic is known without a gap: as sent from ``ddl_from`` on, and between
    ``known_from`` and that as definitions that an earlier version of the library recorded."""

    known_from: int
    ddl_from: int

    def since(self, commit_ts: int) -> "Reach":
        """This, but nothing from before *commit_ts* (TSO)."""
        return Reach(max(self.known_from, commit_ts), max(self.ddl_from, commit_ts))


def chains_of(scans: Iterable[DdlScan | Chain]) -> list[Chain]:
    """What *scans* of one partition cover, in order of offsets. What one scan shows holds for the whole chain."""
    found: list[Chain] = []
    for scan in sorted(scans, key=lambda scan: (scan.start, scan.end)):
        if found and scan.start <= found[-1].end:
            last = found.pop()
            found.append(
                Chain(
                    last.start,
                    max(last.end, scan.end),
                    min(last.known_from, scan.known_from),
                    max(last.resolved_ts, scan.resolved_ts),
                )
            )
        else:
            found.append(Chain(scan.start, scan.end, scan.known_from, scan.resolved_ts))
    return found


def without(unread: Iterable[Unread], scan: DdlScan, clock_skew_ms: int) -> list[DdlScan]:
    """*scan* with a gap at each of the messages *unread*. What such a message says was committed when its key says, else before
    its time, or before now if it has none or a future one."""
    found = []
    now_ms = int(time.time() * 1000)
    for message in sorted(unread, key=lambda message: message.offset):
        if scan.start < message.offset:
            found.append(msgspec.structs.replace(scan, end=message.offset, resolved_ts=0))
        if message.commit_ts is not None:
            committed_before = message.commit_ts + 1
        else:
            written_ms = message.timestamp_ms if 0 <= message.timestamp_ms < now_ms else now_ms
            committed_before = tso.from_ms(written_ms + clock_skew_ms + 1)
        known_from = max(scan.known_from, committed_before)
        scan = msgspec.structs.replace(scan, start=message.offset + 1, known_from=known_from)
    return [*found, scan]


def reaches(
    scans: Iterable[DdlScan], earlier: Iterable[SchemaScan], at_ts: int, ends: Mapping[TopicIdentity, int]
) -> dict[TopicIdentity, Reach]:
    """How far back the DDL of each topic is known for rows up to *at_ts* (TSO).

    *ends* has the offset before which all DDL below *at_ts* was sent, for topics searched now. For other topics it lies in the
    first chain with a resolved-ts from *at_ts* on: a gap before that may hold DDL from before *at_ts*, however late it was
    recorded. Without such a chain the last one that begins by then counts: tables are known as of its end, and followed if they
    move to another topic.
    *earlier* are scans of earlier versions, whose start is unknown: they count only without a gap before them.
    """
    by_topic: defaultdict[TopicIdentity, list[DdlScan]] = defaultdict(list)
    for scan in scans:
        by_topic[scan.topic].append(scan)
    before: defaultdict[str, list[Chain]] = defaultdict(list)
    for old in earlier:
        before[old.topic.topic_id].append(Chain(old.start, old.end, 0))
    found = {}
    for topic in _current(by_topic, ends):
        own = by_topic[topic]
        chain = _chosen(chains_of(own), at_ts, ends.get(topic))
        end = chain.end if chain is not None else ends.get(topic)
        # Earlier versions kept only the id of a topic: enough to see whether they left a gap.
        chains = chains_of([*own, *before[topic.topic_id]])
        whole = _chosen(chains, at_ts, end)
        if whole is not None and whole != chains[0]:
            whole = chain
        if whole is None:
            found[topic] = Reach(at_ts, at_ts)
        else:
            found[topic] = Reach(whole.known_from, MAX_TSO if chain is None else chain.known_from)
    return found


def _current(scans: Mapping[TopicIdentity, Sequence[DdlScan]], ends: Mapping[TopicIdentity, int]) -> set[TopicIdentity]:
    """The topics without those that were made again: of what came between the two nothing is known."""
    newest: dict[str, TopicIdentity] = {}
    for topic in sorted(scans, key=lambda each: max(scan.resolved_ts for scan in scans[each])):
        newest[topic.name] = topic
    return {*(newest | {topic.name: topic for topic in ends}).values()}


def _chosen(chains: Sequence[Chain], at_ts: int, end: int | None) -> Chain | None:
    if end is not None:
        return next((chain for chain in chains if chain.start <= end <= chain.end), None)
    complete = next((chain for chain in chains if chain.resolved_ts >= at_ts), None)
    return complete or next((chain for chain in reversed(chains) if chain.known_from <= at_ts), None)
