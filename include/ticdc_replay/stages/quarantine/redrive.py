"""Decoding quarantined messages again, with the version and the configuration of now, and loading what comes out."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex, EventCounts, MessageCounts
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.changelog.files.set_aside import Entry, EntryPlace, pack_messages
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.window import Window
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Manifest, PinnedFile, RedrivenMessages, TopicPin
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.publish import TargetRun, holds_redrive, last_load, load_of, publish, settle, target_run
from ticdc_replay.stages.load.recording import finish_run, read_ddl_again, record_decode
from ticdc_replay.stages.quarantine.entries import RunQuarantine, Selection, holding, list_quarantine
from ticdc_replay.stages.set_aside import by_reason, listed_reasons, set_aside
from ticdc_replay.stages.window.jobs import require_current, write_load_job
from ticdc_replay.stages.window.schemas import recorded_schemas
from ticdc_replay.state.quarantine import Redrive
from ticdc_replay.targets.base import LoadReport


class RedriveCheck(msgspec.Struct, frozen=True):
    """What the decode of a re-drive brought. ``left`` has the reasons of what could not be used again."""

    run_hash: str
    window_run: str
    """The run whose quarantine it was."""
    messages: int
    written: int
    left: dict[str, int]

    @property
    def summary(self) -> str:
        """One line for a log."""
        text = f"re-drive {self.run_hash[:12]} of run {self.window_run[:12]}: {self.messages} messages, {self.written} rows"
        if self.left:
            text += f"; again in quarantine: {listed_reasons(self.left)}"
        return text


class RedriveLoads(msgspec.Struct, frozen=True):
    """The job specs that load a re-drive into one target. ``window_job`` loads the window's run first, where it is not there."""

    target: str
    window_job: str | None
    redrive_job: str


class RedriveReport(msgspec.Struct, frozen=True, kw_only=True):
    """A re-drive from quarantine to targets, in counts."""

    pipeline: str
    window: Window
    run_hash: str
    redrives: str
    """The run whose quarantine it was."""
    messages: MessageCounts
    events: EventCounts
    left: dict[str, int]
    """What could not be used again, by reason."""
    open: dict[str, dict[str, int]]
    """What of the window is still to be dealt with, by target and reason."""
    targets: tuple[TargetRun, ...]
    published_at: datetime


def open_runs(context: ReplayContext, selection: Selection) -> tuple[RunQuarantine, ...]:
    """The runs of *selection* with its open entries, and only those; latest window first."""
    found = []
    for run in list_quarantine(context, selection):
        entries = tuple(listed for listed in run.entries if listed.status == "open")
        if entries:
            found.append(msgspec.structs.replace(run, entries=entries))
    return tuple(found)


def pin_redrive(context: ReplayContext, run: RunQuarantine) -> PinnedManifest:
    """The manifest of a re-drive of the entries of *run*: a new input with their bytes. Kafka is not asked.

    Raises PermanentError if the window was pinned again, ArtifactNotFoundError if a file of the quarantine is gone.
    """
    store = context.artifacts
    index = read_index(store, run.run_hash)
    require_current(context, index)
    before = manifests.decode(store.get(f"manifests/{index.input_hash}.json"))
    held = set_aside(context, index)
    content, count = pack_messages(
        store, _wanted([listed.entry for listed in run.entries]), list(held.indexes.values())
    )
    now_ms = int(time.time() * 1000)
    history = recorded_schemas(context, run.window, read_ddl_again(context, index))
    schemas = None
    if history:
        schemas = _keep(context, "schemas", "json", history.encode(), len(history.epochs) + len(list(history.versions)))
    manifest = Manifest(
        pipeline=context.pipeline.name,
        changefeed_hash=context.changefeed.hash,
        window=before.window,
        grade=before.grade,
        reasons=before.reasons,
        topics=tuple(TopicPin(topic, topic_id, ()) for topic, topic_id in index.topic_ids.items()),
        cluster_id=index.cluster_id,
        tables=before.tables,
        schemas=schemas,
        redrive=RedrivenMessages(run.run_hash, now_ms, _keep(context, "redriven", "parquet", content, count)),
        pinned_at_ms=now_ms,
    )
    name = f"manifests/{manifest.input_hash}.json"
    store.put_once(name, canonical.encode(manifest))
    return PinnedManifest(manifest, name, store.uri(name), reused=False)


def check_redrive(context: ReplayContext, run_hash: str) -> RedriveCheck:
    """Record the re-drive *run_hash*, whose changelog is complete. What it could not use again stops nothing: it stays aside."""
    index = read_index(context.artifacts, run_hash)
    first = _first(index.redrives, run_hash)
    record_decode(context, index)
    _record(context, first, run_hash)
    report = index.report
    return RedriveCheck(run_hash, first, report.messages.consumed, report.events.written, report.quarantine_reasons)


def write_redrive_loads(
    context: ReplayContext, run_hash: str, targets: Sequence[str] | None = None
) -> tuple[RedriveLoads, ...]:
    """The specs that load the re-drive *run_hash* into *targets*.

    By default these are the targets that hold its window's run and have an open entry that it was for; without such,
    all that hold the run. Into a target without the run, or if none has it because its check stopped it, the run is
    loaded first. Raises PolicyStopError if its check still stops it.
    """
    index = read_index(context.artifacts, run_hash)
    first = _first(index.redrives, run_hash)
    selections = {
        record.place: record.selection
        for record in context.state.coverage.all(context.pipeline.name)
        if record.run_hash == first
    }
    held = _holding(context, first)
    wanted = tuple(targets) if targets else _lacking(context, index, first, held) or held
    wanted = wanted or tuple(target.name for target in context.pipeline.targets)
    if not set(wanted) <= set(held):
        check(context, first)
    return tuple(
        RedriveLoads(
            target,
            None if target in held else write_load_job(context, first, target).uri,
            write_load_job(context, run_hash, target, selections.get(context.place_of(target))).uri,
        )
        for target in wanted
    )


def publish_redrive(context: ReplayContext, run_hash: str, targets: Sequence[str]) -> RedriveReport:
    """Record that *targets* have the re-drive *run_hash*, and its window's new coverage. Raises what ``publish`` raises."""
    index = read_index(context.artifacts, run_hash)
    first = _first(index.redrives, run_hash)
    loads = [load_of(context, run_hash, target) for target in targets]
    held = _holding(context, first)
    if not set(targets) <= set(held):
        publish(context, first, sorted({*held, *targets}))
    for load in loads:
        if _is_there(context, first, load):
            _record(context, first, run_hash, load)
    settle(context, first)
    aside = set_aside(context, read_index(context.artifacts, first))
    remaining = {load.target: by_reason(aside.open([load.place])) for load in loads}
    report = RedriveReport(
        pipeline=context.pipeline.name,
        window=index.window,
        run_hash=run_hash,
        redrives=first,
        messages=index.report.messages,
        events=index.report.events,
        left=index.report.quarantine_reasons,
        open=remaining,
        targets=tuple(target_run(load, bool(remaining[load.target])) for load in loads),
        published_at=datetime.now(UTC),
    )
    context.artifacts.put(f"reports/{run_hash}.json", canonical.encode(report))
    finish_run(context, run_hash, sum(load.took_ms for load in loads))
    return report


def _holding(context: ReplayContext, first: str) -> tuple[str, ...]:
    """The targets that hold the run *first*, and into which no load of it has begun since that was recorded."""
    begun = {load.place for load in context.state.coverage.begun(context.pipeline.name) if load.run_hash == first}
    return tuple(target for target, place in holding(context, first).items() if place not in begun)


def _lacking(context: ReplayContext, redrive: ChangelogIndex, first: str, targets: Sequence[str]) -> tuple[str, ...]:
    """Those of *targets* in which an entry of the run *first* is open that *redrive* was for."""
    aside = set_aside(context, read_index(context.artifacts, first))
    (own,) = (each for each in aside.redrives if each.index.run_hash == redrive.run_hash)
    return tuple(
        target
        for target in targets
        if any(own.was_for(entry.place) for entry in aside.open([context.place_of(target)]))
    )


def _is_there(context: ReplayContext, first: str, redriven: LoadReport) -> bool:
    """Whether the target still has what *redriven*, a load of a re-drive, brought: the run *first* may have been loaded since."""
    last, redriven = (last_load(context, run, redriven.place) for run in (first, redriven.run_hash))
    infos = [context.artifacts.info(load.name) for load in (last, redriven)]
    before, after = (info.last_modified for info in infos if info is not None)
    return before <= after or holds_redrive(context, last, redriven.run_hash)


def _wanted(entries: Sequence[Entry]) -> dict[EntryPlace, set[int] | None]:
    """The events of each message; None for all, as where one of the entries is for the whole message."""
    found: dict[EntryPlace, set[int] | None] = {}
    for entry in entries:
        ordinals = found.setdefault(entry.place.message, set())
        if entry.ordinal is None:
            found[entry.place.message] = None
        elif ordinals is not None:
            ordinals.add(entry.ordinal)
    return found


def _keep(context: ReplayContext, folder: str, suffix: str, content: bytes, count: int) -> PinnedFile:
    digest = canonical.digest(content)
    name = f"{folder}/{digest}.{suffix}"
    context.artifacts.put_once(name, content)
    return PinnedFile(context.artifacts.uri(name), digest, count)


def _record(context: ReplayContext, first: str, run_hash: str, load: LoadReport | None = None) -> None:
    """Record the re-drive *run_hash* of the run *first*, or that *load* brought it into a target."""
    target, place = ("", "") if load is None else (load.target, load.place)
    context.state.quarantine.record_redrive(
        Redrive(context.pipeline.name, first, run_hash, target, int(time.time() * 1000), place)
    )


def _first(redrives: str | None, run_hash: str) -> str:
    if redrives is None:
        raise ConfigError(f"run {run_hash} is not a re-drive of a quarantine")
    return redrives
