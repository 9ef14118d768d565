"""Which offsets that Kafka still holds no decode and no scan has searched for claim-check references."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ticdc_replay.changelog import index as changelog_index
from ticdc_replay.changelog.index import ChangelogIndex
from ticdc_replay.changelog.layout import changelog_root
from ticdc_replay.config.changefeed import Changefeed
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.topics import require_topics
from ticdc_replay.state.records import Run, ScannedRange
from ticdc_replay.state.store import StateStore
from ticdc_replay.storage.base import ObjectStore

_READERS = 16


class Retained(msgspec.Struct, frozen=True):
    """What Kafka holds of a changefeed: offsets ``[low, high)`` of each partition of each topic, empty ones left out."""

    topic_ids: dict[str, str]
    """Kafka's id of each topic, by name."""
    ranges: tuple[OffsetRange, ...]


class Searched(msgspec.Struct, frozen=True, order=True):
    """Offsets whose references are in files that exist. ``topic_id`` is Kafka's: a recreated topic has another."""

    topic_id: str
    range: OffsetRange


class SearchedByRuns(msgspec.Struct, frozen=True):
    """What the decodes of a pipeline have searched."""

    searched: tuple[Searched, ...]
    topics: frozenset[str]
    """Names of all topics that any of them read."""
    files: tuple[str, ...]
    """Their reference files, below the pipeline's artefacts."""


def find_retained(
    changefeed: Changefeed,
    retired_topics: dict[str, int | None],
    read_before: Iterable[str],
    offsets: Offsets,
    kafka: KafkaSettings,
) -> Retained:
    """What Kafka holds now of the topics that *changefeed* writes to or has written to, whatever their tables.

    *retired_topics* are those that the pipeline declares: one with a TSO counts, one of another program (None) does not.
    *read_before* are names of topics that earlier runs read: those that still exist count, also where a rule names them no more.
    They are asked for by name, so that a topic which the account may not describe any more is no topic that is gone. Raises
    TopicChangedError where the default topic is missing, AuthenticationError where a topic that is known may not be described.
    """
    dispatch = changefeed.dispatch
    of_others = {name for name, last in retired_topics.items() if last is None}
    default = require_topics(offsets, [changefeed.topic], kafka)
    named = {*read_before, *dispatch.fixed_topics(), *retired_topics}
    if any(rule.topic is not None for rule in dispatch.rules):
        named |= {*dispatch.topics_among(offsets.names())}
    others = offsets.topics(sorted(named - of_others - {changefeed.topic}))
    topics = [*default, *(others[name] for name in sorted(others))]
    held = offsets.bounds(partition for topic in topics for partition in topic.partitions)
    ranges = (OffsetRange(each.topic, each.number, bounds.low, bounds.high) for each, bounds in held.items())
    return Retained(
        {topic.name: topic.topic_id for topic in topics}, tuple(sorted(part for part in ranges if part.length > 0))
    )


def searched_by_runs(state: StateStore, artifacts: ObjectStore, pipeline: str) -> SearchedByRuns:
    """What the runs of *pipeline* have searched, as far as all their reference files still exist in *artifacts*, the pipeline's.

    A run of which a file is gone, or by a version that did not search what it could not read, counts for nothing.
    """
    runs = [run for run in state.runs(pipeline) if run.index is not None]
    with ThreadPoolExecutor(_READERS) as readers:
        indexes = readers.map(lambda run: _index_of(artifacts, run), runs)
        found = [index for index in indexes if index is not None]
    searched: list[Searched] = []
    for index in found:
        ranges = without(index.ranges, index.unsearched or ())
        searched += [Searched(index.topic_ids[part.topic], part) for part in ranges if part.topic in index.topic_ids]
    return SearchedByRuns(
        searched=tuple(sorted(searched)),
        topics=frozenset(topic for index in found for topic in index.topic_ids),
        files=tuple(f"{changelog_root(index.run_hash)}/{name}" for index in found for name in index.reference_files),
    )


def searched_by_scans(scans: Iterable[ScannedRange], artifacts: ObjectStore) -> list[Searched]:
    """What *scans* have searched, as far as their files still exist in *artifacts*, the store's."""
    records = list(scans)
    there = {entry.name for entry in artifacts.list("scans/")} if any(scan.file for scan in records) else set()
    return sorted(
        Searched(scan.topic_id, OffsetRange(scan.topic, scan.partition, scan.start, scan.end))
        for scan in records
        if scan.file is None or scan.file in there
    )


def unsearched(retained: Retained, searched: Iterable[Searched]) -> list[OffsetRange]:
    """The offsets of *retained* that are not among *searched*, in (topic, partition, offset) order."""
    names = {topic_id: name for name, topic_id in retained.topic_ids.items()}
    done = [
        OffsetRange(names[each.topic_id], each.range.partition, each.range.start, each.range.end)
        for each in searched
        if each.topic_id in names
    ]
    return without(retained.ranges, done)


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


def _index_of(artifacts: ObjectStore, run: Run) -> ChangelogIndex | None:
    """The index of *run*, None where its search can't be relied on."""
    assert run.index is not None
    try:
        index = changelog_index.decode(artifacts.get(run.index))
    except ArtifactNotFoundError:
        return None
    if index.unsearched is None:
        return None
    if index.reference_files:
        root = changelog_root(run.run_hash)
        there = {entry.name.removeprefix(f"{root}/") for entry in artifacts.list(f"{root}/references/")}
        if not there.issuperset(index.reference_files):
            return None
    return index
