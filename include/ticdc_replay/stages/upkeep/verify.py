"""Compares the mirrors of a target with the upstream as of the TSO up to which they are loaded.

``verify_job`` decides what is compared, ``drivers.verify`` compares, and ``explained`` writes the report.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from ticdc_replay import __version__, jobspec
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain import canonical, tso
from ticdc_replay.domain.errors import ConfigError, PermanentError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.verify import result_of, run_here
from ticdc_replay.jobspec import ComparedMirror, VerifyJob
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.coverage import Covered, coverage
from ticdc_replay.stages.upkeep.mirror_jobs import Submit, needs_job
from ticdc_replay.stages.upkeep.mirrors import opened_target
from ticdc_replay.stages.upkeep.verification import Verification
from ticdc_replay.state.coverage import Coverage
from ticdc_replay.targets.mirror.comparison import ComparableMirror, MirrorTable
from ticdc_replay.targets.mirror.verify import Compared
from ticdc_replay.verify.compare import Pace
from ticdc_replay.verify.findings import Difference, Findings, TableVerification

Tell = Callable[[str], None]

_BELOW_FLOOR = (
    "rows that have no window here may be from below the floor, as those of a base load are: no window brings them back, "
    "`ticdc-replay mirror rebuild` does"
)


def verify(
    context: ReplayContext,
    target: str,
    tables: Sequence[str] = ("*.*",),
    *,
    at: int | None = None,
    pace: Pace | None = None,
    restart: bool = False,
    submit: Submit | None = None,
    tell: Tell = lambda line: None,
) -> Verification:
    """Compare the mirrors of *target* that match *tables* (patterns) with the upstream as of *at* (TSO).

    Without *at*, each mirror is compared as of the end of what is loaded of its table. Databases are compared in this process,
    and *tell* gets a line for each table and for progress; lake tables by a job, which needs *submit*. The report is kept below
    ``verifications/`` in the artefacts. Raises what ``verify_job`` and ``targets.mirror.verify.compare`` raise.
    """
    pace = pace or Pace()
    job = verify_job(context, target, tables, at=at, pace=pace, restart=restart)
    return explained(context, job, compared(context, job, submit, tell, pace))


def compared(context: ReplayContext, job: VerifyJob, submit: Submit | None, tell: Tell, pace: Pace) -> Compared:
    """What *job* finds: of lake tables, which Spark alone can look at, in a driver of its own by *submit*; else in this process,
    as *pace* says."""
    if submit is None or not needs_job(read_section(job.target)):
        return run_here(job, context.connections, None, tell, pace.sleep)
    submit(jobspec.put(context.artifacts, job))
    return result_of(context.artifacts, job)


def verify_job(
    context: ReplayContext,
    target: str,
    tables: Sequence[str] = ("*.*",),
    *,
    at: int | None = None,
    pace: Pace | None = None,
    restart: bool = False,
    asked_at_ms: int | None = None,
) -> VerifyJob:
    """The job that compares the mirrors of *target* that match *tables* (patterns) with the upstream as of *at* (TSO), or each
    as of the end of what is loaded of it. An attempt that broke is gone on with, unless *restart*.

    *asked_at_ms*, by default now, makes it another job than any before; attempts at one job have the same. Raises ConfigError if
    *target* can't be compared, or the pipeline names no source.
    """
    mirror = _comparable(context, target)
    source, pace = context.pipeline.connections.source, pace or Pace()
    if source is None:
        raise ConfigError(
            f"pipeline {context.pipeline.name}: set connections.source to the connection (type tidb or mysql) of the "
            "changefeed's upstream, which the mirrors are compared with"
        )
    known = _Known(context, target, mirror)
    return VerifyJob(
        library_version=__version__,
        pipeline=context.pipeline.name,
        artifacts=context.artifacts_uri,
        artifacts_connection=context.pipeline.connections.artifacts,
        target=mirror.config.model_dump(mode="json", by_alias=True),
        source_connection=source,
        dispatch=context.changefeed.dispatch,
        mirrors=tuple(known.asked(table, at) for table in chosen_tables(context, mirror, tables)),
        selection=tuple(tables),
        pipeline_tables=tuple(context.pipeline.tables),
        share=pace.share,
        range_rows=pace.range_rows,
        restart=restart,
        asked_at_ms=_now_ms() if asked_at_ms is None else asked_at_ms,
    )


def explained(context: ReplayContext, job: VerifyJob, found: Compared) -> Verification:
    """The report, which is kept, of what *job* has found."""
    target = str(job.target["name"])
    known = _Known(context, target, _comparable(context, target))
    report = Verification(
        pipeline=context.pipeline.name,
        target=target,
        place=context.place_of(target),
        began_ms=job.asked_at_ms,
        ended_ms=_now_ms(),
        tables=tuple(map(known.explained, found.tables)),
        without_mirror=found.without_mirror,
    )
    context.artifacts.put_once(report.name, canonical.encode(report))
    return report


def _comparable(context: ReplayContext, target: str) -> ComparableMirror[Any]:
    mirror = opened_target(context, target)
    if not mirror.config.can_be_compared or not isinstance(mirror, ComparableMirror):
        able = [each.name for each in context.pipeline.targets if each.can_be_compared]
        raise ConfigError(f"{target} can't be compared with its source; targets that can: {', '.join(able) or 'none'}")
    return mirror


def chosen_tables(context: ReplayContext, mirror: ComparableMirror[Any], tables: Sequence[str]) -> list[TableName]:
    """The pipeline's tables that match *tables* (patterns) and have a mirror. Raises ConfigError if there are none."""
    patterns = _patterns(context, tables)
    chosen = [name for name in mirror.mirrored(context.pipeline.name) if _is_wanted(name, patterns)]
    if not chosen:
        raise ConfigError(f"{mirror.config.name} has no mirror of {', '.join(tables)}: load a window first")
    return chosen


class _Known:
    """What is known of the mirrors of *target*, beside their rows."""

    def __init__(self, context: ReplayContext, target: str, mirror: ComparableMirror[Any]) -> None:
        self._context, self._target, self._mirror = context, target, mirror
        place = context.place_of(target)
        [covered] = [each for each in coverage(context.pipeline, context.state) if each.target.name == target]
        self._whole, self._covered = covered.target, {each.name: each for each in covered.tables}
        self._records = [each for each in context.state.coverage.all(context.pipeline.name) if each.place == place]

    def asked(self, table: TableName, at: int | None) -> ComparedMirror:
        """What a job is asked to compare of *table*: as of *at*, or of the end of what is loaded."""
        mirror = self._known(table)
        if mirror.state.topic_id is not None:
            raise ConfigError(
                f"{mirror.relation} is ordered by places in Kafka, which no snapshot of the source has: only mirrors ordered by "
                "commitTs can be compared"
            )
        moment = self._moment(table, mirror, at)
        # Forgotten tables and floors are in them, too, but not a re-drive that left a part of the table in quarantine.
        records = [each for each in self._records if each.window.from_ts <= moment]
        loads = sorted(canonical.hash_of(each) for each in records)
        loads += sorted({each for record in records for each in self._redrives(record)})
        return ComparedMirror(table, moment, canonical.hash_of(loads))

    def _redrives(self, record: Coverage) -> Iterator[str]:
        """Those that the mirror's place holds of the run of *record*, if a part of it is still in quarantine."""
        if "quarantine" in {record.quality, *(each.quality for each in record.tables)}:
            for each in self._context.state.quarantine.redrives(record.pipeline, record.run_hash):
                if each.place == record.place:
                    yield each.redrive_hash

    def explained(self, found: TableVerification) -> TableVerification:
        """*found* with the windows of its rows, and what explains differences."""
        mirror = self._known(found.table)
        notes, floor_ts = list(self._notes(found.table, found.at, mirror)), mirror.state.floor_ts
        if any(each.version < floor_ts for each in found.findings.differences):
            notes.append(_BELOW_FLOOR)
        differences = tuple(self._with_windows(found.findings, floor_ts))
        findings = msgspec.structs.replace(found.findings, differences=differences)
        return msgspec.structs.replace(found, notes=tuple(notes), findings=findings)

    def _moment(self, table: TableName, mirror: MirrorTable, at: int | None) -> int:
        """The TSO as of which the mirror of *table* is compared: *at*, or the last of its windows and base load."""
        if at is not None:
            return at
        ends = [span.window.to_ts - 1 for span in self._of(table).spans]
        last, floor_ts = max(ends, default=0), mirror.state.floor_ts
        if floor_ts > last + 1:  # a base load's floor is the end of its window
            last = floor_ts
        if not last:
            raise ConfigError(
                f"nothing of {table} is loaded into {self._target}: load a window first, or name a TSO (--at)"
            )
        return last

    def _known(self, table: TableName) -> MirrorTable:
        known = self._mirror.mirror_of(table)
        if known is None:
            raise PermanentError(f"the mirror of {table} in {self._target} was forgotten meanwhile: verify again")
        return known

    def _of(self, table: TableName) -> Covered:
        return self._covered.get(str(table), self._whole)

    def _notes(self, table: TableName, at: int, mirror: MirrorTable) -> Iterator[str]:
        covered, floor_ts = self._of(table), mirror.state.floor_ts
        starts = [span.window.from_ts for span in covered.spans]
        if floor_ts == 0 and starts:
            yield (
                f"no base load is known (the floor is 0): rows that did not change since {tso.describe(min(starts))} are in the "
                "mirror only if the table was created after that"
            )
        if floor_ts > at:
            yield f"the floor {tso.describe(floor_ts)} is above: the mirror never was what the upstream was at {at}"
        for gap in covered.gaps:
            if _counts(gap.window, floor_ts, at):
                yield f"{gap.window} is not loaded"
        for span in covered.spans:
            # A base load sets the floor to the end of its own window.
            if span.held.quality == "quarantine" and _counts(span.window, floor_ts - 1, at):
                yield f"a part of {span.window} was set aside: `ticdc-replay quarantine list`, and the reports of its loads"
        ends = [span.window.to_ts for span in covered.spans if span.window.to_ts > at + 1]
        if ends:
            yield f"windows up to {tso.describe(max(ends))} are loaded: rows that changed in them can't be compared as of {at}"
        elif starts and max(span.window.to_ts for span in covered.spans) <= at:
            yield f"windows up to {tso.describe(max(span.window.to_ts for span in covered.spans))} are loaded, not up to {at}"

    def _with_windows(self, found: Findings, floor_ts: int) -> Iterator[Difference]:
        windows = sorted({each.window for each in self._records})
        for difference in found.differences:
            version, window = difference.version, None
            if version and version >= floor_ts:  # else no load of a window applies it
                window = next((each for each in windows if version in each), None)
            yield msgspec.structs.replace(difference, window=window)


def _patterns(context: ReplayContext, tables: Sequence[str]) -> tuple[TablePatterns, TablePatterns]:
    return TablePatterns(tables), TablePatterns(context.pipeline.tables)


def _is_wanted(table: TableName, patterns: Sequence[TablePatterns]) -> bool:
    return all(each.wants(table.schema, table.table) for each in patterns)


def _counts(window: Window, floor_ts: int, at: int) -> bool:
    """Whether rows of *window* can be in a mirror with *floor_ts* as of *at*."""
    return window.to_ts > floor_ts and window.from_ts <= at


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
