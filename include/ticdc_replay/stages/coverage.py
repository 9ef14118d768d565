"""Which stretches of commit time are loaded in which target, and where the gaps are."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import msgspec

from ticdc_replay.decode.filter import TableFilter
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import GRADES, Grade, Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.recording import DERIVED
from ticdc_replay.state.records import Coverage, Quality


class Held(msgspec.Struct, frozen=True):
    """How well something is held: ``quarantine`` where a part was set aside by policy, and the windows' grade."""

    quality: Quality
    grade: Grade


class Span(msgspec.Struct, frozen=True):
    """A stretch that is held without interruption."""

    window: Window
    held: Held


class Gap(msgspec.Struct, frozen=True):
    """A stretch that is not held, between the first and the last moment that the target holds anything of."""

    window: Window
    partial: bool = False
    """Whether runs for some of the tables only were here: a gap of the target, not of each table."""


class Covered(msgspec.Struct, frozen=True):
    """What is held of a target or a table: spans and gaps, each in order, together all from the first moment to the last."""

    name: str
    spans: tuple[Span, ...]
    gaps: tuple[Gap, ...]


class TargetCoverage(msgspec.Struct, frozen=True):
    """A target as a whole, for which each of the pipeline's tables must be there, and its tables one by one."""

    target: Covered
    tables: tuple[Covered, ...]
    """The tables that had rows or DDL in any window."""
    derived: tuple[Window, ...] = ()
    """What runs brought that were taken from other changelogs instead of Kafka; merged, in order."""


def coverage(context: ReplayContext) -> tuple[TargetCoverage, ...]:
    """What the targets of the pipeline hold, in the order of its file; targets without any load included."""
    pipeline = context.pipeline
    records = context.state.coverage(pipeline.name)
    derived = {run.run_hash for run in context.state.runs(pipeline.name) if run.counts.get(DERIVED)}
    found = []
    for target in pipeline.targets:
        mine = [record for record in records if record.target == target.name]
        windows = _merged(record.window for record in mine if record.run_hash in derived)
        found.append(msgspec.structs.replace(target_coverage(target.name, pipeline.tables, mine), derived=windows))
    return tuple(found)


def target_coverage(name: str, selection: Sequence[str], records: Sequence[Coverage]) -> TargetCoverage:
    """What *records* say that a target holds of the tables that *selection* wants.

    A run covers each table of its own selection, whether or not it had rows. What several runs hold counts as the best of them
    does: a later run takes nothing away.
    """
    stretches = list(_stretches(records))
    seen = sorted({covered.table for record in records for covered in record.tables if covered.quality != "left_out"})
    wanted = TableFilter(selection)
    mine = [table for table in seen if wanted.wants(table.schema, table.table)]
    return TargetCoverage(
        _covered(name, stretches, partial(_whole, selection, mine)),
        tuple(_covered(str(table), stretches, partial(_table, table)) for table in seen),
    )


def not_held(records: Iterable[Coverage], table: TableName, from_ts: int, to_ts: int) -> tuple[Window, ...]:
    """What of ``[from_ts, to_ts)`` (TSO) *records*, those of one target, do not hold of *table*; nothing from before the first
    moment that they hold of it."""
    spans = _covered(str(table), tuple(_stretches(tuple(records))), partial(_table, table)).spans
    lacking = []
    reached = max(from_ts, spans[0].window.from_ts) if spans else to_ts
    for span in spans:
        if reached < min(span.window.from_ts, to_ts):
            lacking.append(Window(reached, min(span.window.from_ts, to_ts)))
        reached = max(reached, span.window.to_ts)
    if reached < to_ts:
        lacking.append(Window(reached, to_ts))
    return tuple(lacking)


def _merged(windows: Iterable[Window]) -> tuple[Window, ...]:
    merged: list[Window] = []
    for window in sorted(windows):
        if merged and window.from_ts <= merged[-1].to_ts:
            merged[-1] = Window(merged[-1].from_ts, max(merged[-1].to_ts, window.to_ts))
        else:
            merged.append(window)
    return tuple(merged)


class _Run:
    """What one run brought into the target."""

    def __init__(self, record: Coverage, selection: TableFilter) -> None:
        self.record = record
        self.selection = selection
        self._others = Held(record.quality, record.grade)
        self._tables = {
            covered.table: None
            if covered.quality == "left_out" or covered.quality == "forgotten"
            else Held(covered.quality, record.grade)
            for covered in record.tables
        }
        self.forgotten = {covered.table for covered in record.tables if covered.quality == "forgotten"}

    def table(self, table: TableName) -> Held | None:
        if table in self._tables:
            return self._tables[table]
        return self._others if self.selection.wants(table.schema, table.table) else None

    def pattern(self, pattern: str) -> Held | None:
        """Of the tables of *pattern* that the run saw nothing of."""
        return self._others if self.selection.covers(pattern) else None


_Stretch = tuple[Window, tuple[_Run, ...]]
_State = Held | bool
"""``False`` for a gap, ``True`` for one where some tables are held."""


def _stretches(records: Sequence[Coverage]) -> Iterator[_Stretch]:
    """The time from the first window to the last, cut wherever one begins or ends, with the runs of each piece."""
    filters = {record.selection: TableFilter(record.selection) for record in records}
    coming = sorted(records, key=lambda record: record.window, reverse=True)
    running: list[_Run] = []
    for start, end in pairwise(sorted({edge for r in records for edge in (r.window.from_ts, r.window.to_ts)})):
        running = [run for run in running if run.record.window.to_ts > start]
        while coming and coming[-1].window.from_ts == start:
            record = coming.pop()
            running.append(_Run(record, filters[record.selection]))
        yield Window(start, end), tuple(running)


def _covered(name: str, stretches: Sequence[_Stretch], state_of: Callable[[tuple[_Run, ...]], _State]) -> Covered:
    """Neighbours of one state are one span or gap."""
    joined: list[tuple[Window, _State]] = []
    for window, runs in stretches:
        state = state_of(runs)
        if joined and joined[-1][1] == state:
            joined[-1] = (Window(joined[-1][0].from_ts, window.to_ts), state)
        else:
            joined.append((window, state))
    return Covered(
        name,
        tuple(Span(window, state) for window, state in joined if isinstance(state, Held)),
        tuple(Gap(window, state) for window, state in joined if isinstance(state, bool)),
    )


def _table(table: TableName, runs: tuple[_Run, ...]) -> _State:
    return _best(run.table(table) for run in runs) or False


def _whole(selection: Sequence[str], seen: Sequence[TableName], runs: tuple[_Run, ...]) -> _State:
    patterns = [_best(run.pattern(pattern) for run in runs) for pattern in selection]
    tables = {table: _best(run.table(table) for run in runs) for table in seen}
    lost = any(held is None and any(table in run.forgotten for run in runs) for table, held in tables.items())
    if lost or not all(patterns):
        return bool(runs)
    parts = [part for part in (*patterns, *tables.values()) if part]
    return Held(
        "quarantine" if any(part.quality == "quarantine" for part in parts) else "complete",
        max((part.grade for part in parts), key=GRADES.index),
    )


def _best(candidates: Iterator[Held | None]) -> Held | None:
    """The one that lacks least: a known hole weighs more than a missing proof."""
    found = [held for held in candidates if held is not None]
    return min(found, key=lambda held: (held.quality == "quarantine", GRADES.index(held.grade)), default=None)
