"""Pinning a window to changelogs that hold it, instead of ranges of Kafka."""

import contextlib
import logging
from collections.abc import Iterator, Sequence

import msgspec

from ticdc_replay.changelog.copies.cover import Candidate, Cover, choose
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.decode.plan.changelog_store import lost_files
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import (
    ArtifactExistsError,
    ArtifactNotFoundError,
    NotCoveredError,
    UnprovenWindowError,
)
from ticdc_replay.domain.window import GRADES, Grade, Window
from ticdc_replay.jobspec import variant_of
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest, ManifestSource, TopicPin
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.named import named_since
from ticdc_replay.stages.selection import undecoded
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.runs import Run

log = logging.getLogger(__name__)


class FoundChangelogs(msgspec.Struct, frozen=True):
    """What changelogs of the pipeline hold of a window, and why others that overlap it can't be used."""

    window: Window
    cover: Cover
    indexes: dict[str, ChangelogIndex]
    manifests: dict[str, Manifest]
    """Of the runs in ``indexes``, the pinned input of each."""
    refused: tuple[str, ...]

    @property
    def lacking(self) -> str:
        """Why the window can't be taken from changelogs; empty where it can."""
        if not self.cover.gaps:
            return ""
        gaps = ", ".join(map(str, self.cover.gaps))
        return "; ".join([f"no changelog that can be used holds {gaps}", *self.refused])

    @property
    def used(self) -> list[Manifest]:
        """The pinned input of each part."""
        return [self.manifests[part.candidate.run_hash] for part in self.cover.parts]

    @property
    def grade(self) -> Grade:
        """The weakest of what is used."""
        return max((manifest.grade for manifest in self.used), key=GRADES.index)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why not all of what is used is proven; empty where it is."""
        return tuple(dict.fromkeys(reason for manifest in self.used for reason in manifest.reasons))


def find_changelogs(
    context: ReplayContext,
    window: Window,
    *,
    tables: Sequence[str] | None = None,
    without: frozenset[str] = frozenset(),
) -> FoundChangelogs:
    """Which complete changelogs hold which parts of *window*, without the runs in *without*. Asks nothing of Kafka.

    A changelog counts if its window is still pinned to its input, it is of the changefeed as configured now and of all
    *tables* (patterns; by default the pipeline's), its rows carry a commitTs, all its files exist, and it has no row of
    these that ``set_aside`` of the pipeline file names since.
    """
    wanted = context.pipeline.tables if tables is None else tables
    found: dict[str, ChangelogIndex] = {}
    pinned: dict[str, Manifest] = {}
    candidates: list[Candidate] = []
    refused: dict[str, str] = {}
    for run_hash, held, manifest, at_ms in _runs(context, window):
        if run_hash in without or run_hash in refused:
            continue
        if run_hash not in found:
            try:
                index = read_index(context.artifacts, run_hash)
            except ArtifactNotFoundError:
                continue  # removed, or not decoded yet
            why = _refusal(context, manifest, index, wanted, window)
            if why is not None:
                refused[run_hash] = f"run {run_hash[:12]} of {index.window}: {why}"
                continue
            found[run_hash], pinned[run_hash] = index, manifest
        set_aside = bool(found[run_hash].report.quarantine_reasons)
        candidates.append(Candidate(run_hash, held, manifest.grade, set_aside, at_ms))
    return FoundChangelogs(window, choose(window, candidates), found, pinned, tuple(refused.values()))


def require_cover(context: ReplayContext, window: Window) -> FoundChangelogs:
    """What *window* would be taken from. Raises NotCoveredError if changelogs do not hold all of it,
    UnprovenWindowError if one of them is not proven and the policy stops."""
    known = find_changelogs(context, window)
    if known.lacking:
        raise NotCoveredError(f"window {window} can't be taken from changelogs: {known.lacking}")
    if known.reasons and context.pipeline.policies.unproven == "stop":
        raise UnprovenWindowError(
            f"window {window} would be taken from changelogs of windows that are not proven: {'; '.join(known.reasons)}. "
            "Accept unproven windows with policies.unproven: allow"
        )
    return known


def derive(context: ReplayContext, window: Window) -> PinnedManifest:
    """Pin *window* to the changelogs that hold it, whatever it was pinned to before. Raises what ``require_cover`` raises."""
    known = require_cover(context, window)
    existing = context.state.manifests.of_window(context.pipeline.name, window)
    manifest = Manifest(
        pipeline=context.pipeline.name,
        changefeed_hash=context.changefeed.hash,
        window=window,
        grade=known.grade,
        reasons=known.reasons,
        topics=topics_of(*known.used),
        cluster_id=cluster_of(*known.used),
        tables=context.pipeline.tables,
        replaces=existing.input_hash if existing is not None else None,
        derived=tuple(
            ManifestSource(
                part.candidate.run_hash,
                canonical.digest(context.artifacts.get(f"{changelog_root(part.candidate.run_hash)}/{INDEX}")),
                part.window,
            )
            for part in known.cover.parts
        ),
        # Kafka was last asked when the newest of them was pinned: a topic is compared with what it was then.
        pinned_at_ms=max(part.candidate.pinned_at_ms for part in known.cover.parts),
    )
    for part in known.cover.parts:
        log.info("%s is taken from changelog %s", part.window, part.candidate.run_hash)
    return register(context, manifest, existing)


def is_shared(context: ReplayContext, run: Run) -> bool:
    """Whether *run* is the decode that other windows share."""
    for entry in context.state.manifests.within(run.pipeline, run.window):
        with contextlib.suppress(ArtifactNotFoundError):
            shared = manifests.decode(context.artifacts.get(entry.name)).shared
            if shared is not None and shared.input_hash == run.input_hash:
                return True
    return False


def topics_of(*used: Manifest) -> tuple[TopicPin, ...]:
    """The topics of *used*, without ranges to read."""
    newest = sorted(used, key=lambda manifest: manifest.pinned_at_ms)
    ids = {topic.topic: topic.topic_id for manifest in newest for topic in manifest.topics}
    return tuple(TopicPin(topic, topic_id, ()) for topic, topic_id in sorted(ids.items()))


def cluster_of(*used: Manifest) -> str | None:
    """The cluster of all of *used*; None where they don't agree on one."""
    found = {manifest.cluster_id for manifest in used}
    return found.pop() if len(found) == 1 else None


def register(context: ReplayContext, manifest: Manifest, replaces: WindowManifest | None) -> PinnedManifest:
    """Write *manifest*, which names changelogs, and register it for its window; the manifest of a faster run wins."""
    name = f"manifests/{manifest.input_hash}.json"
    with contextlib.suppress(ArtifactExistsError):  # equal but for what is not part of the hash
        context.artifacts.put_once(name, canonical.encode(manifest))
    made = WindowManifest(manifest.pipeline, manifest.window, manifest.input_hash, name, manifest.pinned_at_ms)
    winner = context.state.manifests.register(made, replaces=replaces)
    counts = manifests.decode(context.artifacts.get(winner.name))
    return PinnedManifest(counts, winner.name, context.artifacts.uri(winner.name), winner != made)


def _runs(context: ReplayContext, window: Window) -> Iterator[tuple[str, Window, Manifest, int]]:
    """Each run that holds a part of *window*: its hash, that part, its manifest, and when that was pinned (ms). For a
    window taken from changelogs these are its sources, if their own windows are still pinned to them."""
    pipeline = context.pipeline.name
    runs = context.state.runs.within(pipeline, window)
    entries: dict[Window, tuple[WindowManifest, Manifest]] = {}
    for entry in context.state.manifests.within(pipeline, window):
        # If it is gone or damaged, the input of its run is unknown.
        with contextlib.suppress(ArtifactNotFoundError, msgspec.DecodeError):
            entries[entry.window] = entry, manifests.decode(context.artifacts.get(entry.name))
    current = {run.run_hash for run in runs if run.window in entries and is_of(run, *entries[run.window])}
    for entry, manifest in entries.values():
        if manifest.shared is not None:
            continue  # the wider window is among the entries
        if manifest.derived:
            mine = [(each.run_hash, each.window) for each in manifest.derived]
        else:
            mine = [(run.run_hash, entry.window) for run in runs if run.input_hash == entry.input_hash]
        yield from ((run_hash, held, manifest, entry.pinned_at_ms) for run_hash, held in mine if run_hash in current)


def is_of(run: Run | ChangelogIndex, entry: WindowManifest, manifest: Manifest) -> bool:
    """Whether *run* is of what its window is pinned to, or what that is taken from."""
    return run.input_hash == entry.input_hash or any(each.run_hash == run.run_hash for each in manifest.derived)


def _refusal(
    context: ReplayContext, manifest: Manifest, index: ChangelogIndex, wanted: Sequence[str], window: Window
) -> str | None:
    """Why the changelog of *index* can't be a source of *window*, None where it can."""
    if manifest.changefeed_hash != context.changefeed.hash:
        return "decoded with another configuration of the changefeed (sink_uri, config or timezone)"
    if index.order == "place":
        return "its rows are in the order of Kafka, not of commitTs"
    if not index.selection:
        return "an older version of the library decoded it, which did not note for which tables"
    if lacking := undecoded(index, wanted):
        return f"decoded for tables {', '.join(index.selection)}; the pipeline asks for {', '.join(lacking)}"
    if index.variant != variant_of(context.pipeline.policies.handle_key_only, context.pipeline.policies.damaged):
        return "decoded with other policies.handle_key_only or policies.damaged"
    if context.state.quarantine.redrives(context.pipeline.name, index.run_hash):
        return "a part of its rows came out of its quarantine later, in a changelog of its own"
    lost = lost_files(context.artifacts, index)
    if lost:
        return f"{len(lost)} of its files are gone"
    named = named_since(context, index, wanted, window)
    if named:
        return (
            f"it has rows of {', '.join(map(str, named))}, which set_aside names since; decode its window again from Kafka (in "
            "Airflow clear its run from decode on), or take these lines out of the pipeline file"
        )
    return None
