"""The end of a run: its report, and the coverage it adds."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from ticdc_replay.changelog.index import EventCounts, MessageCounts
from ticdc_replay.changelog.reading import read_index
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Grade, Window
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.manifest import Source
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.recording import finish_run
from ticdc_replay.stages.set_aside import has_way_back, is_set_aside, set_aside
from ticdc_replay.state.records import Coverage, CoveredTable, Quality
from ticdc_replay.targets.base import LEFT_OUT, LoadReport, TableReport


class TargetRun(msgspec.Struct, frozen=True):
    """What one target got of the window."""

    target: str
    type: str
    selection: tuple[str, ...]
    """The patterns of the tables that it was loaded for."""
    quality: Quality
    tables: tuple[TableReport, ...]
    """Those with rows or DDL in the window."""

    @property
    def applied(self) -> int:
        """Rows put or deleted, over all tables."""
        return sum(table.upserted + table.tombstones for table in self.tables)


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """One window from Kafka to its targets, in counts."""

    pipeline: str
    window: Window
    input_hash: str
    run_hash: str
    grade: Grade
    reasons: tuple[str, ...]
    """Why the window is not proven; empty when it is."""
    ranges: tuple[OffsetRange, ...]
    derived: tuple[Source, ...] = ()
    """The changelogs that the window was taken from instead of Kafka, and which part from each."""
    watermark: int | None
    messages: MessageCounts
    events: EventCounts
    quarantine_reasons: dict[str, int]
    accepted: int = 0
    """How many entries of the quarantine a person has accepted as lost."""
    targets: tuple[TargetRun, ...]
    published_at: datetime


def publish(context: ReplayContext, run_hash: str, targets: Sequence[str]) -> RunReport:
    """Record what the run of *run_hash* covers in *targets*, and keep its report as ``reports/<run_hash>.json``.

    Raises ArtifactNotFoundError where a target has no load report: publishing says what happened, never what was planned.
    """
    index = read_index(context.artifacts, run_hash)
    manifest = manifests.decode(context.artifacts.get(f"manifests/{index.input_hash}.json"))
    loads = [last_load(context, run_hash, target) for target in targets]
    for load in loads:
        _forget_overwritten(context, load)
    lacking = {load.target: is_set_aside(context, index, load.target) for load in loads}
    context.state.record_coverage([coverage_of(load, manifest.grade, set_aside=lacking[load.target]) for load in loads])
    accepted = 0
    if index.report.quarantine_reasons and has_way_back(context, index):
        settle(context, run_hash)  # what re-drives brought counts too
        held = set_aside(context, index)
        accepted = sum(held.loss_of(entry) is not None for entry in held.entries)
    report = RunReport(
        pipeline=context.pipeline.name,
        window=index.window,
        input_hash=index.input_hash,
        run_hash=run_hash,
        grade=manifest.grade,
        reasons=manifest.reasons,
        ranges=index.ranges,
        derived=index.derived,
        watermark=index.report.watermark,
        messages=index.report.messages,
        events=index.report.events,
        quarantine_reasons=index.report.quarantine_reasons,
        accepted=accepted,
        targets=tuple(target_run(load, lacking[load.target]) for load in loads),
        published_at=datetime.now(UTC),
    )
    context.artifacts.put(f"reports/{run_hash}.json", canonical.encode(report))
    finish_run(context, run_hash, sum(load.took_ms for load in loads))
    return report


def last_load(context: ReplayContext, run_hash: str, target: str) -> LoadReport:
    """The newest report of a load of *run_hash* into *target*. Raises ArtifactNotFoundError without one."""
    folder = f"loads/{run_hash}/{target}/"
    found = [entry for entry in context.artifacts.list(folder) if entry.name.count("/") == 3]
    if not found:
        raise ArtifactNotFoundError(
            f"{context.artifacts.uri(folder)} has no load report: target {target} was not loaded from run {run_hash}"
        )
    newest = max(found, key=lambda entry: (entry.last_modified, entry.name))
    return msgspec.json.decode(context.artifacts.get(newest.name), type=LoadReport)


def coverage_of(load: LoadReport, grade: Grade, *, set_aside: bool) -> Coverage:
    """What *load* covers: all tables of its selection, so that those without rows in the window show no gap.

    *set_aside* tells that decode put messages or events into quarantine. They may be of any table, also one that is not known.
    """
    return Coverage(
        pipeline=load.pipeline,
        target=load.target,
        window=load.window,
        run_hash=load.run_hash,
        selection=load.selection,
        grade=grade,
        quality=_quality(0, set_aside),
        tables=tuple(
            sorted(
                CoveredTable(
                    table.table,
                    "left_out" if table.outcome in LEFT_OUT else _quality(table.quarantined, set_aside),
                )
                for table in load.tables
            )
        ),
        loaded_at_ms=int(datetime.now(UTC).timestamp() * 1000),
    )


def settle(context: ReplayContext, run_hash: str) -> None:
    """Record anew how well targets hold the run *run_hash*, after a part of its quarantine was loaded or accepted as lost."""
    state, pipeline = context.state, context.pipeline.name
    index = read_index(context.artifacts, run_hash)
    redrives = state.redrives(pipeline, run_hash)
    settled = []
    for record in state.coverage(pipeline):
        if record.run_hash != run_hash:
            continue
        runs = [run_hash, *(redrive.redrive_hash for redrive in redrives if redrive.target == record.target)]
        loads = [last_load(context, run, record.target) for run in runs]
        lacking = is_set_aside(context, index, record.target)
        tables: dict[TableName, CoveredTable] = {}
        for load in loads:
            for covered in coverage_of(load, record.grade, set_aside=lacking).tables:
                tables[covered.table] = max(covered, tables.get(covered.table, covered), key=_weight)
        tables |= {covered.table: covered for covered in record.tables if covered.quality == "forgotten"}
        settled.append(
            msgspec.structs.replace(record, quality=_quality(0, lacking), tables=tuple(sorted(tables.values())))
        )
    state.record_coverage(settled)


def _weight(covered: CoveredTable) -> int:
    """What a load could not hold of a table stays so, whatever another one could."""
    return ("complete", "quarantine", "left_out", "forgotten").index(covered.quality)


def _forget_overwritten(context: ReplayContext, load: LoadReport) -> None:
    """Take back that *load*'s target has the re-drives of its run, where they were there before *load* wrote the run again."""
    if all(table.outcome == "done_before" for table in load.tables):
        return
    written = context.artifacts.info(load.name)
    assert written is not None
    redrives = context.state.redrives(load.pipeline, load.run_hash)
    times = [redrive.recorded_at_ms for redrive in redrives if redrive.target == load.target]
    if times and max(times) < written.last_modified.timestamp() * 1000:
        context.state.forget_redrives(load.pipeline, load.run_hash, load.target)


def target_run(load: LoadReport, set_aside: bool) -> TargetRun:
    """What a target got of *load*; *set_aside* as ``coverage_of`` has it."""
    quarantined = sum(table.quarantined for table in load.tables)
    return TargetRun(load.target, load.type, load.selection, _quality(quarantined, set_aside), load.tables)


def _quality(quarantined: int, set_aside: bool) -> Quality:
    return "quarantine" if quarantined or set_aside else "complete"
