"""Who still needs objects of messages that Kafka has expired: decodes that run, and quarantined messages; and who uses the store
without being listed."""

import logging
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.changelog.files.reading import complete_changelogs, read_index
from ticdc_replay.changelog.files.set_aside import Entry
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.events import SEARCH
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.large_messages.claim_check import BAD_NAME
from ticdc_replay.reconcile.judge.rules import ReplayableRange, merged
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.leases import Replayed, replayed
from ticdc_replay.stages.set_aside import SetAside, redriven_places, set_aside, sets_aside
from ticdc_replay.stages.window.derive import is_of
from ticdc_replay.state.leases import Lease
from ticdc_replay.store_stages.context import StoreContext

log = logging.getLogger(__name__)

_READERS = 16
_DRIVER_OUTLIVES_MS = 24 * 3_600_000
"""A decode whose lease ended without being released may still run, as its driver outlived the process that watched it: not longer
than this."""


class Replayable(msgspec.Struct, frozen=True):
    """Offsets that are read, or may be read again, whether or not Kafka has expired them."""

    decoding: tuple[ReplayableRange, ...]
    """Of decodes that run. Their references are not recorded yet: they are known only where others have searched, too."""
    quarantined: tuple[ReplayableRange, ...]
    """Of quarantined messages."""
    unsearchable: tuple[ReplayableRange, ...]
    """Those of ``quarantined`` with references that are in no file: they could not be found in the bytes, or the file is gone. As
    long as there are some, nothing shows that no message refers to an object."""

    @property
    def ranges(self) -> tuple[ReplayableRange, ...]:
        """All, merged and in order: references in them protect their objects."""
        return tuple(merged((*self.decoding, *self.quarantined)))


def find_replayable(context: ReplayContext) -> Replayable:
    """What of the changefeed of *context* may be read again though Kafka has expired it.

    To be asked after Kafka's low watermarks: a decode that has read a message before it expired holds its lease by then, or its
    changelog is complete. Of quarantines all entries count that nobody accepted as lost, also those that came out again: a target
    that is added later gets them from there.

    Every changelog is looked at as it is now, whatever the state store has of its run: that may be older than the changelog,
    which was decoded again, or restored from a backup.

    Raises ArtifactNotFoundError where the manifest of a decode that runs is gone, and what the stores raise.
    """
    # In this order: the changelog of a decode that ends meanwhile is complete before its lease is released.
    running, _ = _replays(context)
    decoding = [part for replay in running for part in _pinned(context, replay.manifest)]
    return _replayable(context, decoding, _with_quarantine(context))


def replayable_ranges(context: ReplayContext) -> tuple[ReplayableRange, ...]:
    """The offsets of ``find_replayable``, merged and in order, by what decodes have recorded: cheap enough to be asked all the
    way of a deletion.

    None is lacking that a decode has brought since ``find_replayable`` was asked: it holds a lease, or its lease ended without
    being released, and then its changelog is looked at, or it has recorded what it set aside.
    """
    # In this order: a decode that ends meanwhile is recorded before its lease is released.
    running, ended = _replays(context)
    decoding = [part for replay in running for part in _pinned(context, replay.manifest)]
    recorded = (run.run_hash for run in context.state.runs.all(context.pipeline.name) if sets_aside(run))
    return _replayable(context, decoding, (*recorded, *(replay.run_hash for replay in ended))).ranges


def unlisted_replays(context: StoreContext) -> list[str]:
    """Replays that use the store, or used it when they died, of pipelines that it does not list; sorted, for people.

    Those of ``former_pipelines`` count as long as they may run. Raises what the state stores raise.
    """
    listed = {each.pipeline.name for each in context.pipelines}
    former = set(context.store.former_pipelines)
    long_ago = _long_ago_ms()
    found = set()
    for state in (context.state, *(each.state for each in context.pipelines)):
        for lease in (*state.leases.current(context.store.uri), *state.leases.lapsed(context.store.uri)):
            if lease.kind != "replay":
                continue
            pipeline = replayed(lease).pipeline
            if pipeline in listed or (pipeline in former and lease.expires_at_ms <= long_ago):
                continue
            found.add(
                f"a replay of the pipeline {pipeline}, which is not listed, used the store and did not release its lease "
                f"({lease.subject}): list it, or, when it has ended and nobody will ever read its messages again, name it in "
                "former_pipelines"
            )
    return sorted(found)


def _replayable(context: ReplayContext, decoding: Iterable[ReplayableRange], runs: Iterable[str]) -> Replayable:
    found = [_quarantined(context, index) for index in _indexes(context, runs)]
    return Replayable(
        decoding=tuple(merged(tuple(decoding))),
        quarantined=tuple(merged(tuple(part for entries, _ in found for part in entries))),
        unsearchable=tuple(merged(tuple(part for _, entries in found for part in entries))),
    )


def _replays(context: ReplayContext) -> tuple[list[Replayed], list[Replayed]]:
    """The replays of the pipeline that run, or may, and those that ended without a trace."""
    uri = context.changefeed.claim_check_uri
    if uri is None:
        return [], []
    leases = context.state.leases.current(uri)  # first: what ends in between is among the lapsed
    lapsed = context.state.leases.lapsed(uri)
    long_ago = _long_ago_ms()
    running = [*leases, *(lease for lease in lapsed if lease.expires_at_ms > long_ago)]
    ended = [lease for lease in lapsed if lease.expires_at_ms <= long_ago]
    return _of_pipeline(context, running), _of_pipeline(context, ended)


def _long_ago_ms() -> int:
    """A lease that ended before this moment is of no driver that still runs."""
    return int(time.time() * 1000) - _DRIVER_OUTLIVES_MS


def _of_pipeline(context: ReplayContext, leases: Iterable[Lease]) -> list[Replayed]:
    found = {replayed(lease) for lease in leases if lease.kind == "replay"}
    return sorted(replay for replay in found if replay.pipeline == context.pipeline.name)


def _pinned(context: ReplayContext, name: str) -> Iterator[ReplayableRange]:
    """What the decode of the manifest *name* reads."""
    manifest = manifests.decode(context.artifacts.get(name))
    if manifest.redrive is not None:
        for place in redriven_places(context, manifest):
            yield _one(place.topic, place.partition, place.offset)
    for topic in manifest.topics:
        for pin in topic.partitions:
            yield ReplayableRange.of(manifest.identities[topic.topic], pin.range)


def _with_quarantine(context: ReplayContext) -> list[str]:
    """The runs of the complete changelogs that have a quarantine now."""
    runs = sorted(complete_changelogs(context.artifacts))
    with ThreadPoolExecutor(_READERS) as readers:
        found = readers.map(lambda run_hash: _has_quarantine(context, run_hash), runs)
        return [run_hash for run_hash, has_some in zip(runs, found, strict=True) if has_some]


def _has_quarantine(context: ReplayContext, run_hash: str) -> bool:
    index = _index(context, run_hash)
    return index is not None and bool(index.quarantine_files)


def _indexes(context: ReplayContext, runs: Iterable[str]) -> list[ChangelogIndex]:
    """The changelogs of *runs* whose quarantine can be re-driven. What a re-drive left belongs to the run that it re-drives."""
    found: dict[str, ChangelogIndex] = {}
    for run_hash in sorted(set(runs)):
        index = _index(context, run_hash)
        if index is not None and index.redrives is not None:
            index = _index(context, index.redrives)
        if index is not None:
            found[index.run_hash] = index
    return [index for index in found.values() if _counts(context, index)]


def _counts(context: ReplayContext, index: ChangelogIndex) -> bool:
    """Whether the run with *index* is of what its window is pinned to, or what that takes rows from: until it is decoded, and for
    tables that it is not decoded for, nobody else has what the run set aside. Else it was pinned again, when Kafka still held it.

    A run that the state store does not know counts: what that has of the window may be older.
    """
    name = context.pipeline.name
    pinned = context.state.manifests.of_window(name, index.window)
    if pinned is None or index.input_hash == pinned.input_hash or context.state.runs.get(name, index.run_hash) is None:
        return True
    try:
        manifest = manifests.decode(context.artifacts.get(pinned.name))
    except (ArtifactNotFoundError, msgspec.DecodeError):
        return True  # what it takes rows from is not known
    return is_of(index, pinned, manifest)


def _index(context: ReplayContext, run_hash: str) -> ChangelogIndex | None:
    try:
        return read_index(context.artifacts, run_hash)
    except ArtifactNotFoundError:
        return None  # removed, or never written: nothing of it can be re-driven


def _quarantined(context: ReplayContext, index: ChangelogIndex) -> tuple[list[ReplayableRange], list[ReplayableRange]]:
    """The quarantined messages of the run with *index*, and those among them with references that nobody knows."""
    try:
        held = set_aside(context, index)
    except ArtifactNotFoundError as error:
        # Backups may bring the file back; as long as there is an index, nothing of the run is given up.
        log.warning("run %s protects all that it read: %s", index.run_hash, error)
        return _of_run(index, index.ranges), _of_run(index, index.unsearched or index.ranges)
    entries = [entry for entry in held.entries if held.loss_of(entry) is None]
    known_to = [
        each for each in held.indexes.values() if _looked(context, each) and _has_reference_files(context, each)
    ]
    unknown = [entry for entry in entries if not any(_is_searched(held, entry, index) for index in known_to)]
    return [_entry(entry) for entry in entries], [_entry(entry) for entry in unknown]


def _looked(context: ReplayContext, index: ChangelogIndex) -> bool:
    """Whether the decode of *index* searched what it could not read. Earlier versions did not with protocols that have no claim
    checks; its protocol shows only in its schemas of a registry and in what is declared now."""
    return index.search >= SEARCH or (context.changefeed.traits.has_claim_checks and not index.writer_schemas)


def _has_reference_files(context: ReplayContext, index: ChangelogIndex) -> bool:
    """Whether the references of what *index* was decoded from are known: those of its own messages, or of the changelogs that it
    takes its rows from."""
    for source in index.derived:
        try:
            taken = read_index(context.artifacts, source.run_hash)
        except ArtifactNotFoundError:
            return False
        if not _has_reference_files(context, taken):
            return False
    root = changelog_root(index.run_hash)
    wanted = {f"{root}/{name}" for name in index.reference_files}
    return not wanted or wanted <= {entry.name for entry in context.artifacts.list(f"{root}/references/")}


def _is_searched(held: SetAside, entry: Entry, index: ChangelogIndex) -> bool:
    """Whether the references of *entry* are in the files of the run with *index*, which has it in its quarantine or brought it
    out of one. A location that names no object is in none; earlier versions counted it as searched."""
    settled = any(each.index is index and each.settles(entry.place) for each in held.redrives)
    if not settled and (index.run_hash != entry.run_hash or entry.reason == BAD_NAME):
        return False
    place = (entry.topic, entry.partition)
    return index.unsearched is not None and not any(
        (part.topic, part.partition) == place and part.start <= entry.offset < part.end for part in index.unsearched
    )


def _of_run(index: ChangelogIndex, ranges: Iterable[OffsetRange]) -> list[ReplayableRange]:
    topics = index.identities
    return [ReplayableRange.of(topics[part.topic], part) for part in ranges]


def _entry(entry: Entry) -> ReplayableRange:
    return _one(entry.place.topic, entry.partition, entry.offset)


def _one(topic: TopicIdentity, partition: int, offset: int) -> ReplayableRange:
    return ReplayableRange.of(topic, OffsetRange(topic.name, partition, offset, offset + 1))
