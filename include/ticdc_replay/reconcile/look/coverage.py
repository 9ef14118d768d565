"""Which offsets that Kafka still holds no decode and no scan has searched for claim-check references."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.rules import Dispatch
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.changelog.files.reading import complete_changelogs, read_index
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.events import SEARCH
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.kafka.offsets import Offsets, Topic
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.reconcile.judge.rules import PartitionBounds
from ticdc_replay.reconcile.look.owners import Owner
from ticdc_replay.snapshot.topics import require_topics
from ticdc_replay.state.references import ScannedRange
from ticdc_replay.state.store import StateStore
from ticdc_replay.storage.base import ObjectStore

_READERS = 16


class Retained(msgspec.Struct, frozen=True):
    """What Kafka holds of a changefeed."""

    topic_ids: dict[str, str]
    """Kafka's id of each topic, by name."""
    partitions: tuple[PartitionBounds, ...]
    """Every partition of each topic, sorted."""
    cluster_id: str
    """Kafka's own."""
    gone: tuple[str, ...] = ()
    """Topics that the changefeed has written to and that, according to Kafka, do not exist."""

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """What each partition holds, empty ones left out, in order."""
        return tuple(each.range for each in self.partitions if each.range.length > 0)

    @property
    def held_back(self) -> tuple[OffsetRange, ...]:
        """The parts of ``ranges`` that can't be read as long as a transaction is open."""
        found = ((each, max(each.low, each.stable)) for each in self.partitions if each.stable is not None)
        return tuple(OffsetRange(each.topic, each.partition, start, each.high) for each, start in found)


class Searched(msgspec.Struct, frozen=True, order=True):
    """Offsets whose references are in files that exist, of one topic with a complete identity."""

    topic: TopicIdentity
    range: OffsetRange


class DecodedFiles(msgspec.Struct, frozen=True):
    """Reference files of decodes that read the same topics (``changelog.files.side_files.REFERENCES``)."""

    topics: dict[str, TopicIdentity]
    """Each topic that they name, by name."""
    names: tuple[str, ...]
    """Below the pipeline's artefacts."""


class SearchedByRuns(msgspec.Struct, frozen=True):
    """What the decodes of a pipeline have searched."""

    searched: tuple[Searched, ...]
    topics: frozenset[TopicIdentity]
    """All topics that any of them read."""
    files: tuple[DecodedFiles, ...]


def find_retained(
    changefeed: Changefeed,
    retired_topics: dict[str, int | None],
    read_before: Iterable[str],
    offsets: Offsets,
    kafka: KafkaSettings,
    *,
    tables: Iterable[tuple[str, str]] = (),
    earlier: Iterable[Owner] = (),
) -> Retained:
    """What Kafka holds now of the topics that *changefeed* writes to or has written to, whatever their tables.

    *retired_topics* are those that the pipeline declares: one with a TSO counts, one of another program (None) does not, unless
    it was read. *read_before* are names of topics that earlier runs read, *earlier* what earlier surveys saw of the changefeed:
    their topics count, and those of their rules, also where a rule names them no more. *tables* are names of schema and table
    that are known. All these topics are asked for by name: Kafka lists only what the account may describe. Raises
    TopicChangedError where the default topic is missing, AuthenticationError where a topic that is known may not be described.
    """
    owners = list(earlier)
    read = {*read_before, *(name for owner in owners for name in owner.topic_ids)}
    of_others = {name for name, last in retired_topics.items() if last is None} - read
    default = require_topics(offsets, [changefeed.topic], kafka)
    existed = {*read, *retired_topics}
    dispatches = {canonical.encode(each): each for each in (changefeed.dispatch, *(owner.dispatch for owner in owners))}
    named = existed | _topics_of(dispatches.values(), changefeed.topic, tables, offsets)
    others = offsets.topics(sorted(named - of_others - {changefeed.topic}))
    topics = [*default, *(others[name] for name in sorted(others))]
    return Retained(
        {topic.name: topic.topic_id for topic in topics},
        bounds_of(topics, offsets),
        offsets.cluster_id(),
        tuple(sorted(existed - of_others - {topic.name for topic in topics})),
    )


def _topics_of(
    dispatches: Iterable[Dispatch], default: str, tables: Iterable[tuple[str, str]], offsets: Offsets
) -> set[str]:
    """The topics that a rule of *dispatches* may have sent a table to: those that Kafka lists, and those of known *tables*, also
    where it does not list them. A topic that is listed in another letter case is taken for the table's."""
    with_topics = [each for each in dispatches if any(rule.topic is not None for rule in each.rules)]
    if not with_topics:
        return set()
    listed = offsets.names()
    seen = {name.lower() for name in listed}
    of_tables = {dispatch.topic_of(*table, default) for table in set(tables) for dispatch in with_topics}
    named = {name for name in of_tables if name is not None and name.lower() not in seen}
    for dispatch in with_topics:
        named |= {*dispatch.fixed_topics(), *dispatch.topics_among(listed)}
    return named


def bounds_of(topics: Iterable[Topic], offsets: Offsets) -> tuple[PartitionBounds, ...]:
    """What each partition of *topics* holds now, sorted. Includes messages after the start of an open transaction: a reader that
    ignores transactions, such as TiCDC's own, sees them."""
    topics = list(topics)
    identities = {topic.name: topic.identity for topic in topics}
    partitions = [partition for topic in topics for partition in topic.partitions]
    # Asked before the bounds: a message that comes in between is not held back.
    ends = offsets.high_watermarks(partitions)
    held = offsets.bounds(partitions)
    firsts = offsets.at_or_after({partition: 0 for partition, bounds in held.items() if bounds.low < bounds.high})
    found = []
    for partition, bounds in held.items():
        first = firsts.get(partition)
        found.append(
            PartitionBounds(
                partition.topic,
                identities[partition.topic].topic_id,
                partition.number,
                bounds.low,
                max(bounds.high, ends[partition]),
                None if first is None else first.timestamp_ms,
                bounds.high if bounds.high < ends[partition] else None,
                identities[partition.topic].cluster_id,
            )
        )
    return tuple(sorted(found))


def still_retained(surveyed: Iterable[PartitionBounds], offsets: Offsets) -> tuple[PartitionBounds, ...]:
    """What of the bounds *surveyed* Kafka still holds: they begin where it begins now, be that earlier or later, and are empty
    where it has expired all of them. Topics that were recreated are left out. One that Kafka does not list counts as it was
    surveyed: the next survey finds whether it is gone."""
    wanted = tuple(surveyed)
    topics = offsets.topics(sorted({bounds.topic for bounds in wanted}))
    held = {(now.topic, now.partition): now for now in bounds_of(topics.values(), offsets)}
    left = []
    for bounds in wanted:
        now = held.get((bounds.topic, bounds.partition))
        if now is None:
            left.append(bounds)
        elif now.identity.may_be(bounds.identity):
            moved = now.low != bounds.low
            changed = {"low": min(now.low, bounds.high), "first_ms": now.first_ms} if moved else {}
            left.append(msgspec.structs.replace(bounds, **changed))
    return tuple(left)


def searched_by_runs(state: StateStore, artifacts: ObjectStore, pipeline: str) -> SearchedByRuns:
    """What the runs of *pipeline* have searched, as far as all their reference files still exist in *artifacts*, the pipeline's.

    Also runs that the state store does not know: they were not recorded yet, or it was restored from a backup.
    Does not count a run with a missing file, nor one by a version that searched less (``domain.events.SEARCH``) or did not know
    the cluster.
    """
    runs = {run.run_hash for run in state.runs.all(pipeline) if run.index is not None} | complete_changelogs(artifacts)
    with ThreadPoolExecutor(_READERS) as readers:
        indexes = readers.map(lambda run_hash: _index_of(artifacts, run_hash), sorted(runs))
        found = [index for index in indexes if index is not None and index.pipeline == pipeline]
    searched: list[Searched] = []
    files: list[tuple[dict[str, TopicIdentity], list[str]]] = []
    for index in found:
        topics = index.identities
        ranges = without(index.ranges, index.unsearched or ())
        searched += [Searched(topics[part.topic], part) for part in ranges if topics[part.topic].complete]
        names = [f"{changelog_root(index.run_hash)}/{name}" for name in index.reference_files]
        if names:
            _add_files(files, topics, names)
    return SearchedByRuns(
        searched=tuple(sorted(searched)),
        topics=frozenset(topic for index in found for topic in index.identities.values()),
        files=tuple(DecodedFiles(topics, tuple(names)) for topics, names in files),
    )


def _add_files(
    files: list[tuple[dict[str, TopicIdentity], list[str]]], topics: dict[str, TopicIdentity], names: Iterable[str]
) -> None:
    """Put *names* with files of the same *topics*: one that was recreated, or is in another cluster, has several identities."""
    for known, of_them in files:
        if all(known.get(name, topic) == topic for name, topic in topics.items()):
            known.update(topics)
            of_them.extend(names)
            return
    files.append((dict(topics), [*names]))


def standing_scans(scans: Iterable[ScannedRange], artifacts: ObjectStore) -> list[ScannedRange]:
    """Those of *scans* whose files still exist in *artifacts*, the store's, or which found no reference."""
    records = list(scans)
    there = {entry.name for entry in artifacts.list("scans/")} if any(scan.file for scan in records) else set()
    return [scan for scan in records if scan.file is None or scan.file in there]


def searched_by_scans(scans: Iterable[ScannedRange]) -> list[Searched]:
    """What *scans*, whose files exist, have searched. Those of versions that knew no cluster, or searched less, don't count."""
    return sorted(
        Searched(scan.identity, OffsetRange(scan.topic, scan.partition, scan.start, scan.end))
        for scan in scans
        if scan.identity.complete and scan.search >= SEARCH
    )


def unsearched(held: Iterable[PartitionBounds], searched: Iterable[Searched]) -> list[OffsetRange]:
    """The offsets of *held*, partitions of one cluster, that are not among *searched*; in (topic, partition, offset) order."""
    bounds = list(held)
    topics = {each.identity for each in bounds if each.identity.complete}
    done = [each.range for each in searched if each.topic in topics]
    return without([each.range for each in bounds], done)


def without(ranges: Iterable[OffsetRange], taken: Iterable[OffsetRange]) -> list[OffsetRange]:
    """What is left of *ranges*, which are apart from each other, when the offsets of *taken* are taken away; in order."""
    holes: dict[tuple[str, int], list[OffsetRange]] = {}
    for hole in sorted(taken):
        holes.setdefault((hole.topic, hole.partition), []).append(hole)
    left: list[OffsetRange] = []
    for part in sorted(ranges):
        at = part.start
        for hole in holes.get((part.topic, part.partition), ()):
            if hole.start >= part.end:
                break
            if hole.start > at:
                left.append(OffsetRange(part.topic, part.partition, at, hole.start))
            at = max(at, hole.end)
        if at < part.end:
            left.append(OffsetRange(part.topic, part.partition, at, part.end))
    return left


def _index_of(artifacts: ObjectStore, run_hash: str) -> ChangelogIndex | None:
    """The index of the run *run_hash*, None where its search can't be relied on."""
    try:
        index = read_index(artifacts, run_hash)
    except ArtifactNotFoundError:
        return None
    if (
        index.unsearched is None
        or index.search < SEARCH
        or not {part.topic for part in index.ranges} <= set(index.topic_ids)
    ):
        return None
    if index.reference_files:
        root = changelog_root(run_hash)
        there = {entry.name.removeprefix(f"{root}/") for entry in artifacts.list(f"{root}/references/")}
        if not there.issuperset(index.reference_files):
            return None
    return index
