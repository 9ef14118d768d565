"""What replaying windows would cost, and what would stop it, without keeping anything. Reads what pinning reads (heads
and tails of Kafka), and a sample of messages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.decode.plan.changelog_store import lost_files
from ticdc_replay.decode.plan.estimate import Estimate, estimate
from ticdc_replay.domain.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ConfigError,
    ExpiredRangeError,
    PermanentError,
    TopicChangedError,
    UnprovenWindowError,
    WatermarkNotReachedError,
    WindowBoundsError,
)
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.window import Grade, PinPolicy, Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.large_messages.source import SourceReader
from ticdc_replay.snapshot.manifest import Manifest, SharedInput
from ticdc_replay.snapshot.pin import FoundRanges, PinnedManifest, check_reusable, find_ranges, load_manifest
from ticdc_replay.snapshot.proof import Finding, prove_in_kafka
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.watermark import watermark_status
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.named import named_in_sources
from ticdc_replay.stages.selection import selected_tables
from ticdc_replay.stages.set_aside import listed_reasons
from ticdc_replay.stages.window.derive import find_changelogs, require_cover
from ticdc_replay.stages.window.jobs import decode_job
from ticdc_replay.stages.window.pin import is_in_changelogs, require_asked
from ticdc_replay.stages.window.prove import prove
from ticdc_replay.stages.window.rates import Rates, rates
from ticdc_replay.stages.window.schemas import recorded_schemas
from ticdc_replay.stages.window.shared import span_of
from ticdc_replay.stages.window.watermark import pin_request
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.submit.commands import refused_locally
from ticdc_replay.submit.properties import refused_properties

Input = Literal["kafka", "manifest", "changelogs"]

_REFUSALS = (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ConfigError,
    ExpiredRangeError,
    TopicChangedError,
    UnprovenWindowError,
    WindowBoundsError,
)


class PlannedTable(msgspec.Struct, frozen=True):
    """A table of the run: about how many rows of it the windows have."""

    table: str
    rows: int
    is_known: bool
    """Whether a definition of it is known, from DDL or the pipeline's file."""


class WindowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected of one window. Bytes and numbers are estimates, but for ``messages``."""

    window: Window
    input: Input = "kafka"
    """What would be read: Kafka as it is now, what a manifest of the window names, or changelogs."""
    refusals: tuple[str, ...] = ()
    """Why the window can't be replayed completely; empty where nothing stands against it."""
    waits_for: str | None = None
    """What is not in Kafka yet; the run would wait for it."""
    notes: tuple[str, ...] = ()
    grade: Grade | None = None
    """The grade that the window would get; None where nothing can be read yet."""
    reasons: tuple[str, ...] = ()
    """Why it would not be proven."""
    partitions: int = 0
    messages: int = 0
    bytes: int = 0
    rows: int = 0
    """Row events in the messages."""
    wanted: int = 0
    """Those of them that belong to the window and to wanted tables."""
    tables: tuple[PlannedTable, ...] = ()
    claim_checks: int = 0
    claim_check_bytes: int = 0
    seconds: float = 0
    """How long the run would take."""


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected of some windows, and of all together."""

    pipeline: str
    selection: tuple[str, ...]
    targets: tuple[str, ...]
    rates: str
    """Where the expected times are from."""
    windows: tuple[WindowPlan, ...]

    @property
    def is_refused(self) -> bool:
        """Whether something stands against one of the windows."""
        return any(window.refusals for window in self.windows)


def plan(
    context: ReplayContext,
    windows: Sequence[Window],
    tables: Sequence[str] | None = None,
    *,
    targets: Sequence[str] | None = None,
    policy: PinPolicy | None = None,
    repin: bool = False,
    cores: int | None = None,
) -> ReplayPlan:
    """What replaying *windows* would read, how long it would take, and what stands against it.

    *tables*, *targets*, *policy* and *repin* are those of the run; for *cores* see ``rates``. Raises ConfigError for
    tables that are not the pipeline's; AuthenticationError and TransientError from servers.
    """
    selection = selected_tables(context.pipeline, tables)
    names = tuple(targets or (target.name for target in context.pipeline.targets))
    planner = _Planner(context, selection, len(names), rates(context, cores), policy, repin)
    return ReplayPlan(
        pipeline=context.pipeline.name,
        selection=selection,
        targets=names,
        rates=planner.rates.basis,
        windows=tuple(map(planner.plan, windows)),
    )


@dataclass
class _Planner:
    _context: ReplayContext
    _selection: tuple[str, ...]
    _targets: int
    rates: Rates
    _policy: PinPolicy | None
    _repin: bool

    def __post_init__(self) -> None:
        self._filter = TablePatterns(self._selection)
        self._refusals = (*refused_properties(self._context.pipeline), *_unreachable_stores(self._context))
        self._reported: set[str] = set()
        """Inputs that windows share, reported with the first of them."""

    def plan(self, window: Window) -> WindowPlan:
        """What is expected of *window*."""
        planned = WindowPlan(window=window, refusals=self._refusals)
        try:
            request = pin_request(self._context, window, recorded_schemas(self._context, window), self._policy)
            planned = self._found(planned, request)
        except _REFUSALS as error:
            return _refused(planned, str(error))
        return msgspec.structs.replace(planned, notes=(*planned.notes, *self._notes(window)))

    def _found(self, planned: WindowPlan, request: PinRequest) -> WindowPlan:
        """*planned* with what the window's input is, and holds."""
        context, window = self._context, planned.window
        entry = context.state.manifests.of_window(context.pipeline.name, window)
        if entry is not None and not self._repin:
            return self._pinned(planned, request, load_manifest(context.artifacts, entry))
        try:
            status = watermark_status(request, context.kafka)
            if not status.reached:
                raise WatermarkNotReachedError(str(status))
            found = find_ranges(request, context.kafka, context.artifacts, context.state, repin=self._repin)
        except (ExpiredRangeError, WatermarkNotReachedError) as error:
            if is_in_changelogs(context, window):
                known = require_cover(context, window)
                return msgspec.structs.replace(planned, input="changelogs", grade=known.grade, reasons=known.reasons)
            if isinstance(error, WatermarkNotReachedError):
                return msgspec.structs.replace(planned, waits_for=str(error))
            raise
        measured = self._measured(planned, request, found)
        return _refused(measured, *refused_locally(context.pipeline, measured.messages))

    def _pinned(self, planned: WindowPlan, request: PinRequest, pinned: PinnedManifest) -> WindowPlan:
        """*planned* for a window that has a manifest."""
        context, manifest = self._context, pinned.manifest
        check_reusable(request, manifest)
        require_asked(context, manifest, self._policy)
        planned = msgspec.structs.replace(
            planned,
            input="manifest" if manifest.reads_kafka else "changelogs",
            grade=manifest.grade,
            reasons=manifest.reasons,
        )
        planned = _refused(planned, *named_in_sources(context, manifest, self._selection))
        job = decode_job(context, pinned, self._selection)
        if manifest.reads_kafka:
            return self._decoded(planned, request, manifest, job.run_hash)
        if _is_whole(context, job.run_hash):
            return planned
        if manifest.shared is not None:
            return self._shared(planned, request, manifest.shared, job)
        proof = prove(context, planned.window)
        return planned if proof.from_others else self._gone(planned, proof.findings)

    def _shared(self, planned: WindowPlan, request: PinRequest, shared: SharedInput, job: DecodeJob) -> WindowPlan:
        """*planned* for a window that is taken from the decode of a wider one."""
        run_hash = job.decoding(shared).run_hash
        if _is_whole(self._context, run_hash):
            return planned
        entry = WindowManifest(job.pipeline, shared.window, shared.input_hash, shared.manifest, 0)
        manifest = load_manifest(self._context.artifacts, entry).manifest
        decoded = self._decoded(planned, request, manifest, run_hash)
        if decoded.refusals or shared.input_hash not in self._reported:
            self._reported.add(shared.input_hash)
            return decoded
        return msgspec.structs.replace(planned, notes=("what its decode reads is listed with an earlier window",))

    def _decoded(self, planned: WindowPlan, request: PinRequest, manifest: Manifest, run_hash: str) -> WindowPlan:
        """*planned* where *manifest* is decoded from Kafka into *run_hash*, or is decoded already."""
        lost = prove_in_kafka(manifest, self._context.kafka, request.codec(), request.clock_skew_ms)
        if not lost:
            found = FoundRanges(manifest.topics, manifest.grade, manifest.reasons, manifest.cluster_id)
            measured = self._measured(planned, request, found)
            if _is_whole(self._context, run_hash):
                return measured
            return _refused(measured, *refused_locally(self._context.pipeline, measured.messages))
        if _is_whole(self._context, run_hash):
            note = f"Kafka has lost a part of what is pinned; changelog {run_hash} of it is whole"
            return msgspec.structs.replace(planned, notes=(note,))
        return self._gone(planned, lost)

    def _gone(self, planned: WindowPlan, findings: Sequence[Finding]) -> WindowPlan:
        """*planned* with missing input, and where else its rows are."""
        refused = _refused(planned, *(f"what the window was pinned to is gone: {finding}" for finding in findings))
        if find_changelogs(self._context, planned.window).lacking:
            return refused
        return _refused(
            refused,
            "changelogs of other runs hold the window (of another version of the library, for example): pin it again to these "
            "(--repin --from-changelog)",
        )

    def _measured(self, planned: WindowPlan, request: PinRequest, found: FoundRanges) -> WindowPlan:
        context, policies = self._context, self._context.pipeline.policies
        pins = [pin for topic in found.topics for pin in topic.partitions]
        ranges = sorted(pin.range for pin in pins if pin.range.length > 0)
        held = estimate(
            ranges, context.kafka, request.codec(), None if request.by_offset else request.window, self._filter
        )
        size, missing = self._object_size(held)
        objects = held.references
        seconds = self.rates.seconds(
            size=held.bytes,
            rows=held.rows,
            wanted=held.wanted,
            objects=objects,
            object_bytes=objects * size,
            targets=self._targets,
        )
        planned = msgspec.structs.replace(
            planned,
            grade=found.grade,
            reasons=found.reasons,
            partitions=len(ranges),
            messages=held.messages,
            bytes=held.bytes,
            rows=held.rows,
            wanted=held.wanted,
            tables=self._tables(request, held),
            claim_checks=objects,
            claim_check_bytes=objects * size,
            seconds=seconds,
            notes=tuple(_sample_notes(held, policies.quarantine)),
        )
        if found.reasons and policies.unproven == "stop":
            planned = _refused(planned, f"it can't be proven complete: {'; '.join(found.reasons)}")
        if missing and policies.claim_check_missing == "stop":
            planned = _refused(planned, f"claim-check objects are gone: {missing} of {len(held.objects)} in a sample")
        return _refused(planned, *self._about_keys(request, held))

    def _about_keys(self, request: PinRequest, held: Estimate) -> Iterator[str]:
        policies = self._context.pipeline.policies
        if held.only_keys and policies.handle_key_only == "stop":
            yield (
                f"{held.only_keys} rows in a sample of {held.sampled} messages have only their key, and nothing says how to make "
                "them whole: set policies.handle_key_only to reread, with connections.source, or to quarantine"
            )
        if policies.handle_key_only == "reread" and self._context.changefeed.large_message == "handle-key-only":
            reader = SourceReader(
                self._context.connections[str(self._context.pipeline.connections.source)],
                self._context.changefeed.timezone,
            )
            try:
                reader.check_safe_point(request.window.from_ts - 1)
            except PermanentError as error:
                yield str(error)
            finally:
                reader.close()
        if request.by_offset:
            for table in held.tables:
                if self._context.changefeed.scatters(table.schema, table.table):
                    yield (
                        f"{table}: the changefeed's dispatcher rules scatter the changes of one row over partitions, and not all "
                        "rows carry a commitTs: take the table out of `tables`"
                    )

    def _object_size(self, held: Estimate) -> tuple[int, int]:
        """The mean size of sampled claim-check objects, in bytes, and how many of them are gone."""
        store = self._context.claim_check
        if store is None or not held.objects:
            return 0, 0
        found = [info for info in map(store.info, held.objects) if info is not None]
        return sum(info.size for info in found) // max(1, len(found)), len(held.objects) - len(found)

    def _tables(self, request: PinRequest, held: Estimate) -> tuple[PlannedTable, ...]:
        """Tables of the sample, the largest first, and those that are known besides."""
        names = {epoch.name for epoch in request.schemas.epochs if epoch.definition is not None}
        names |= {definition.name for definition in request.schemas.versions}
        known = {name for name in names if self._filter.wants(name.schema, name.table)}
        rows = {**dict.fromkeys(known, 0), **held.tables}
        return tuple(
            PlannedTable(str(table), rows[table], table in known)
            for table in sorted(rows, key=lambda each: (-rows[each], each))
        )

    def _notes(self, window: Window) -> Iterator[str]:
        span = span_of(self._context, window)
        if span is not None:
            yield f"the decode of {span} is shared with the other windows in it (window.decode_hours)"
        if self._context.changefeed.large_message == "handle-key-only":
            policy = self._context.pipeline.policies.handle_key_only
            yield f"large rows are sent with their key only (policies.handle_key_only: {policy})"


def _refused(planned: WindowPlan, *why: str) -> WindowPlan:
    return msgspec.structs.replace(planned, refusals=(*planned.refusals, *why))


def _sample_notes(held: Estimate, quarantine: str) -> Iterator[str]:
    if held.undecodable:
        reasons = listed_reasons(held.undecodable)
        outcome = "stops the run" if quarantine == "stop" else "goes to quarantine"
        yield f"in a sample of {held.sampled} messages not everything can be decoded ({reasons}), which {outcome}"


def _unreachable_stores(context: ReplayContext) -> Iterator[str]:
    """Why artefacts, or claim-check objects that pinning would list, can't be reached."""
    stores = [("artefact", context.artifacts, "manifests/")]
    if context.claim_check is not None and context.pipeline.window.list_claim_check_store:
        stores.append(("claim-check", context.claim_check, ""))
    for kind, store, prefix in stores:
        try:
            next(iter(store.list(prefix)), None)
        except PermanentError as error:
            yield f"the {kind} store can't be listed: {error}"


def _is_whole(context: ReplayContext, run_hash: str) -> bool:
    """Whether the changelog of *run_hash* is complete, so that nothing is to be decoded."""
    try:
        return not lost_files(context.artifacts, read_index(context.artifacts, run_hash))
    except ArtifactNotFoundError:
        return False
