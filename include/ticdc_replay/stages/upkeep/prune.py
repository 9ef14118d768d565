"""The changelogs of a pipeline: listing them, and removing those that nothing needs any more."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.changelog.files.reading import complete_changelogs, read_index
from ticdc_replay.config.pipeline import MAX_KEEP_DAYS
from ticdc_replay.domain.errors import ArtifactNotFoundError, ConfigError
from ticdc_replay.domain.window import Grade, Window
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.leases import replayed
from ticdc_replay.stages.quarantine.entries import holding
from ticdc_replay.stages.set_aside import set_aside
from ticdc_replay.stages.upkeep import begun_rebuilds
from ticdc_replay.stages.window.derive import find_changelogs
from ticdc_replay.stages.window.prove import prove_manifest


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A complete changelog in the artefacts. Sizes in bytes."""

    run_hash: str
    window: Window
    decoded_at: datetime
    rows: int
    files: int
    bytes: int
    derived_from: tuple[str, ...]
    """The runs in whose folders its rows lie."""
    redrives: str | None
    kept: tuple[str, ...] = ()
    """Why it is not removed; empty where it may be."""


def list_changelogs(context: ReplayContext) -> tuple[Stored, ...]:
    """Every complete changelog of the pipeline, oldest window first."""
    return tuple(sorted(_stored(context, _indexes(context)), key=lambda each: (each.window, each.decoded_at)))


def prune(
    context: ReplayContext,
    *,
    keep_days: float | None = None,
    even_if_last: bool = False,
    execute: bool = False,
    tell: Callable[[Stored], None] = lambda _: None,
) -> tuple[Stored, ...]:
    """The changelogs that are removed (or would be, unless *execute*), and those that are kept and why; oldest first.

    *tell* is called right after each removal, since a later one may fail. A changelog stays for *keep_days*, by default
    the pipeline's ``changelog.keep_days``, and then as long as

    * a changelog that stays takes rows from it, or a window pinned to it has not been decoded yet;
    * an entry of its quarantine is open, in the changelogs or in a target that holds it, or was re-driven recently;
    * a run that decodes it, or whose claim-check objects it is about, has a lease;
    * a rebuild of a mirror that has begun may have to load it (``begun_rebuilds``);
    * nothing else has its rows: its input can't be decoded again (``stages.window.prove``), and no other changelog that stays
      holds them, proven no less and with nothing more in quarantine (unless *even_if_last*).

    Re-drives of its quarantine go with it. Raises ConfigError without a valid number of days.
    """
    days = keep_days if keep_days is not None else context.pipeline.changelog.keep_days
    if days is None:
        raise ConfigError(
            f"{context.loaded.path}: changelog.keep_days is not set, so changelogs are kept for ever; set it, or give --keep-days"
        )
    if not 0 <= days <= MAX_KEEP_DAYS:
        raise ConfigError(f"changelogs can't be kept for {days} days: give 0 to {MAX_KEEP_DAYS}")
    pruning = _Pruning(context, context.artifacts.now() - timedelta(days=days), even_if_last)
    return tuple(pruning.run(tell if execute else None))


class _Pruning:
    """One go over all changelogs; what it lets go counts as gone for those after it."""

    def __init__(self, context: ReplayContext, before: datetime, even_if_last: bool) -> None:
        self._context = context
        self._before = before
        self._even_if_last = even_if_last
        self._indexes = _indexes(context)
        self._stored = tuple(_stored(context, self._indexes))
        self._decoded = {index.input_hash for index in self._indexes.values()}
        self._gone: set[str] = set()
        self._leased = _leased(context)
        self._rebuilds = begun_rebuilds.begun(context)

    def run(self, tell: Callable[[Stored], None] | None) -> Iterator[Stored]:
        # What takes rows from others, or is a part of them, goes before these do.
        order = sorted(
            self._stored,
            key=lambda each: (not each.derived_from, each.redrives is not None, each.decoded_at, each.run_hash),
        )
        for stored in order:
            index = self._indexes[stored.run_hash]
            kept = tuple(self._reasons(stored, index))
            if not kept and tell is not None:  # a rebuild may have begun since
                self._rebuilds = begun_rebuilds.begun(self._context)
                kept = tuple(self._rebuild_reasons(index))
            if not kept:
                self._gone.add(stored.run_hash)
                if tell is not None:
                    remove(self._context, index)
                    tell(stored)
            yield msgspec.structs.replace(stored, kept=kept)

    def _rebuild_reasons(self, index: ChangelogIndex) -> Iterator[str]:
        for rebuild in self._rebuilds:
            if rebuild.needs(index):
                yield (
                    f"a rebuild of {rebuild.table} in {rebuild.target} has begun, which needs it: run `mirror rebuild` again, or "
                    "give it up with --abandon"
                )

    def _reasons(self, stored: Stored, index: ChangelogIndex) -> Iterator[str]:
        if stored.decoded_at > self._before:
            yield "not old enough"
            return  # the other questions cost more
        if index.is_base:
            yield "it is the base of mirrors"
            return
        if stored.redrives is not None:
            if stored.redrives in self._indexes and stored.redrives not in self._gone:
                yield f"came out of the quarantine of run {stored.redrives[:12]}, which is kept"
            return
        if stored.run_hash in self._leased:
            yield "a run that decodes it has a lease"
        yield from self._rebuild_reasons(index)
        yield from self._takers(index)
        yield from self._quarantine(index)
        if not self._even_if_last and not index.derived and not self._is_given_again(index):
            yield "what it was decoded from can't be decoded again, and no other changelog holds it"

    def _quarantine(self, index: ChangelogIndex) -> Iterator[str]:
        """Unsettled parts of its quarantine: a re-drive can be loaded only while its run exists."""
        for other in self._stored:
            if other.redrives == index.run_hash and other.decoded_at > self._before:
                yield f"re-drive {other.run_hash[:12]} of its quarantine is not old enough"
        if index.report.quarantine_reasons:
            try:
                entries = set_aside(self._context, index).open(holding(self._context, index.run_hash).values())
            except ArtifactNotFoundError as error:
                yield f"its quarantine can't be read: {error}"
                return
            if entries:
                yield f"{len(entries)} entries of its quarantine are open"

    def _takers(self, index: ChangelogIndex) -> Iterator[str]:
        """Who takes rows from *index*: changelogs that stay, and windows that are pinned to it and not decoded."""
        for other in self._indexes.values():
            if other.run_hash not in self._gone and any(each.run_hash == index.run_hash for each in other.derived):
                yield f"run {other.run_hash[:12]} of {other.window} takes rows from it"
        for entry in self._context.state.manifests.within(self._context.pipeline.name, index.window):
            manifest = _manifest(self._context, entry.name)
            if manifest is None or entry.input_hash in self._decoded:
                continue
            named = any(each.run_hash == index.run_hash for each in manifest.derived)
            if named or (manifest.shared is not None and manifest.shared.input_hash == index.input_hash):
                # Only the file shows when the window was pinned: its entry has the time at which Kafka was last asked.
                file = self._context.artifacts.info(entry.name)
                if file is not None and file.last_modified >= self._before:
                    yield f"{entry.window} is pinned to it, and not decoded yet"

    def _is_given_again(self, index: ChangelogIndex) -> bool:
        """Whether changelogs that stay, or all that its window was pinned to, give the rows of *index* once more."""
        manifest = _manifest(self._context, f"manifests/{index.input_hash}.json")
        if self._is_held_by_others(index, "proven" if manifest is None else manifest.grade):
            return True
        return manifest is not None and prove_manifest(self._context, index.input_hash).from_kafka

    def _is_held_by_others(self, index: ChangelogIndex, grade: Grade) -> bool:
        """Whether changelogs that stay hold the rows of *index*, proven no less and with no holes where it has none."""
        if not index.selection:
            return False  # for which tables it was decoded is unknown
        without = frozenset({*self._gone, index.run_hash})
        known = find_changelogs(self._context, index.window, tables=index.selection, without=without)
        # What came out of its quarantine later goes with it: that is no hole which others may have.
        redriven = self._context.state.quarantine.redrives(self._context.pipeline.name, index.run_hash)
        has_holes = bool(index.report.quarantine_reasons) and not redriven
        return not known.lacking and all(
            part.candidate.is_as_good(grade, set_aside=has_holes) for part in known.cover.parts
        )


def remove(context: ReplayContext, index: ChangelogIndex) -> None:
    """Remove the changelog of *index*, its index first: from then on there is none for readers. What another decode of
    it writes meanwhile stays."""
    root = changelog_root(index.run_hash)
    names = [entry.name for entry in context.artifacts.list(f"{root}/")]
    context.artifacts.delete(f"{root}/{INDEX}")
    run = context.state.runs.get(context.pipeline.name, index.run_hash)
    if run is not None:
        context.state.runs.record(msgspec.structs.replace(run, index=None))
    for name in names:
        if name != f"{root}/{INDEX}":
            context.artifacts.delete(name)


def _indexes(context: ReplayContext) -> dict[str, ChangelogIndex]:
    found = {}
    for run_hash in sorted(complete_changelogs(context.artifacts)):
        try:
            found[run_hash] = read_index(context.artifacts, run_hash)
        except ArtifactNotFoundError:
            continue  # removed meanwhile
    return found


def _stored(context: ReplayContext, indexes: Mapping[str, ChangelogIndex]) -> Iterator[Stored]:
    """What the store holds of *indexes*; nothing of those that somebody else removes meanwhile."""
    for run_hash, index in indexes.items():
        entries = list(context.artifacts.list(f"{changelog_root(run_hash)}/"))
        if not entries:
            continue
        yield Stored(
            run_hash=run_hash,
            window=index.window,
            decoded_at=max(entry.last_modified for entry in entries),
            rows=index.report.events.written,
            files=len(entries),
            bytes=sum(entry.size for entry in entries),
            derived_from=tuple(dict.fromkeys(each.run_hash for each in index.derived)),
            redrives=index.redrives,
        )


def _leased(context: ReplayContext) -> frozenset[str]:
    """The runs that are being decoded, or may be."""
    uri, state = context.changefeed.claim_check_uri, context.state
    leases = [] if uri is None else [*state.leases.current(uri), *state.leases.lapsed(uri)]
    found = {replayed(lease) for lease in leases if lease.kind == "replay"}
    return frozenset(replay.run_hash for replay in found if replay.pipeline == context.pipeline.name)


def _manifest(context: ReplayContext, name: str) -> Manifest | None:
    try:
        return manifests.decode(context.artifacts.get(name))
    except (ArtifactNotFoundError, msgspec.DecodeError):
        return None
