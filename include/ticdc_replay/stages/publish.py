"""The end of a run: its report, and the coverage it adds."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from ticdc_replay.changelog.index import ChangelogIndex, EventCounts, MessageCounts
from ticdc_replay.changelog.reading import read_index
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.recording import finish_run
from ticdc_replay.state.records import Coverage, Quality
from ticdc_replay.targets.base import LoadReport, TableReport


class TargetRun(msgspec.Struct, frozen=True):
    """What one target got of the window."""

    target: str
    type: str
    tables: tuple[TableReport, ...]

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
    ranges: tuple[OffsetRange, ...]
    watermark: int | None
    messages: MessageCounts
    events: EventCounts
    quarantine_reasons: dict[str, int]
    targets: tuple[TargetRun, ...]
    published_at: datetime


def publish(context: ReplayContext, run_hash: str, targets: Sequence[str]) -> RunReport:
    """Record what the run of *run_hash* covers in *targets*, and keep its report as ``reports/<run_hash>.json``.

    Raises ArtifactNotFoundError where a target has no load report: publishing says what happened, never what was planned.
    """
    index = read_index(context.artifacts, run_hash)
    loads = [last_load(context, run_hash, target) for target in targets]
    context.state.record_coverage([record for load in loads for record in _coverage(context, index, load)])
    report = RunReport(
        pipeline=context.pipeline.name,
        window=index.window,
        input_hash=index.input_hash,
        run_hash=run_hash,
        ranges=index.ranges,
        watermark=index.report.watermark,
        messages=index.report.messages,
        events=index.report.events,
        quarantine_reasons=index.report.quarantine_reasons,
        targets=tuple(TargetRun(load.target, load.type, load.tables) for load in loads),
        published_at=datetime.now(UTC),
    )
    context.artifacts.put(f"reports/{run_hash}.json", canonical.encode(report))
    finish_run(context, run_hash)
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


def _coverage(context: ReplayContext, index: ChangelogIndex, load: LoadReport) -> list[Coverage]:
    """A table without rows in the window is covered too: the next window must not see a gap."""
    set_aside = bool(index.report.quarantine_reasons)
    records = []
    for table in load.tables:
        if table.outcome == "without_key":
            continue
        quality: Quality = "quarantine" if set_aside or table.quarantined else "complete"
        records.append(
            Coverage(
                context.pipeline.name,
                load.target,
                table.table,
                index.window,
                index.run_hash,
                quality,
                int(datetime.now(UTC).timestamp() * 1000),
            )
        )
    return records
