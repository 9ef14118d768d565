"""Which stretches of commit time are loaded in which target, and where the gaps are."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise

import msgspec

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import GRADES, Grade, Window
from ticdc_replay.stages.load.recording import DERIVED
from ticdc_replay.state import StateStore
from ticdc_replay.state.coverage import BegunLoad, Coverage, Quality


class Held(msgspec.Struct, frozen=True):
    """How well something is held: ``quarantine`` where a part was set aside by policy, and the windows' grade."""

    quality: Quality
    grade: Grade


class Span(msgspec.Struct, frozen=True):
    """A stretch that is held without interruption."""

    window: Window
    held: Held


class Gap(msgspec.Struct, frozen=True):
    """A stretch that is not held, between the first and last moment that the target holds, here or where it was before."""

    window: Window
    partial: bool = False
    """Whether runs were here, but only for some tables, or with a load whose end is not recorded."""
    elsewhere: tuple[str, ...] = ()
    """Where windows of it are loaded: places that the target had before (``TargetSection.place``)."""


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


def coverage(pipeline: Pipeline, state: StateStore) -> tuple[TargetCoverage, ...]:
    """What the targets of *pipeline* hold, in the order of its file, also those without a load. Only loads into a
    target's present place count, whatever the target was called."""
    begun = state.coverage.begun(pipeline.name)  # before what is recorded at the end of loads
    records = state.coverage.all(pipeline.name)
    derived = {run.run_hash for run in state.runs.all(pipeline.name) if run.counts.get(DERIVED)}
    found = []
    for target in pipeline.targets:
        mine = [record for record in records if record.place == target.place]
        windows = _merged(record.window for record in mine if record.run_hash in derived)
        loads = in_place(mine, [load for load in begun if load.place == target.place])
        if target.is_mirror:
            loads = side_by_side(mine)
        loads += elsewhere(records, target)
        found.append(msgspec.structs.replace(target_coverage(target.name, pipeline.tables, loads), derived=windows))
    return tuple(found)


def elsewhere(records: Sequence[Coverage], target: TargetSection) -> "tuple[Loads, ...]":
    """The loads into places that *target* had before, each by itself: none of them counts for the target."""
    away = [record for record in records if record.target == target.name and record.place != target.place]
    return tuple(Loads(record.window, (_Run(record),), record.place) for record in away)


def side_by_side(records: Sequence[Coverage]) -> "tuple[Loads, ...]":
    """The loads of a mirror: none takes away what another has brought."""
    return tuple(Loads(record.window, (_Run(record),)) for record in records)


def in_place(records: Sequence[Coverage], begun: Sequence[BegunLoad]) -> "tuple[Loads, ...]":
    """The loads of a target whose newer loads of a window replace older ones, table by table. A load in *begun* may
    have come to any point; it takes nothing away from a window that was never loaded."""
    windows: dict[Window, list[_Run]] = {}
    for record in records:
        windows.setdefault(record.window, []).append(_Run(record))
    for load in begun:
        if load.window in windows:
            windows[load.window].append(_Run(load))
    return tuple(Loads(window, tuple(runs)) for window, runs in windows.items())


def target_coverage(name: str, selection: Sequence[str], loads: "Sequence[Loads]") -> TargetCoverage:
    """What a target holds of the tables in *selection* after *loads*. A run covers each table of its own selection,
    with or without rows. Of several windows, or several runs in a mirror, the best counts."""
    stretches = list(_stretches(loads))
    seen = sorted({table for load in loads for run in load.runs for table in run.seen})
    wanted = TablePatterns(selection)
    mine = [table for table in seen if wanted.wants(table.schema, table.table)]
    return TargetCoverage(
        _covered(name, stretches, partial(_whole, selection, mine)),
        tuple(_covered(str(table), stretches, partial(_table, table)) for table in seen),
    )


def holds(record: Coverage, table: TableName) -> bool:
    """Whether *record* is of a run that brought all of its window that there was of *table*, but for what was set aside."""
    run = _Run(record)
    return run.wants(table) and run.table(table) is not None


def is_replaced(record: Coverage, others: Iterable[Coverage]) -> bool:
    """Whether a newer run of the window, at least of the same tables, is among *others*, those of the target."""
    return any(
        other.window == record.window
        and other.generation > record.generation
        and all(map(_filter(other.selection).covers, record.selection))
        for other in others
    )


def _merged(windows: Iterable[Window]) -> tuple[Window, ...]:
    merged: list[Window] = []
    for window in sorted(windows):
        if merged and window.from_ts <= merged[-1].to_ts:
            merged[-1] = Window(merged[-1].from_ts, max(merged[-1].to_ts, window.to_ts))
        else:
            merged.append(window)
    return tuple(merged)


@lru_cache(maxsize=1_000)
def _filter(selection: tuple[str, ...]) -> TablePatterns:
    return TablePatterns(selection)


class _Run:
    """What one run brought into the target; of a load that has only begun nothing is known."""

    def __init__(self, load: Coverage | BegunLoad) -> None:
        tables = load.tables if isinstance(load, Coverage) else ()
        self.generation = load.generation
        self.patterns = load.selection
        self.seen = {covered.table for covered in tables if covered.quality != "left_out"}
        self.selection = _filter(load.selection)
        self.others = Held(load.quality, load.grade) if isinstance(load, Coverage) else None
        """Of the tables that the run saw nothing of."""
        self._left_out = {covered.table for covered in tables if covered.quality == "left_out"}
        self._tables = {
            covered.table: Held(covered.quality, load.grade)
            for covered in tables
            if covered.quality != "left_out" and covered.quality != "forgotten" and isinstance(load, Coverage)
        }

    def wants(self, table: TableName) -> bool:
        return table in self.seen or table in self._left_out or self.selection.wants(table.schema, table.table)

    def table(self, table: TableName) -> Held | None:
        """Of *table*, which the run wants."""
        return self._tables.get(table) if table in self.seen or table in self._left_out else self.others

    def lacks(self, table: TableName) -> bool:
        """Whether the target lacks *table*, which it might hold: it was dropped since, or may be about to be replaced."""
        return self.wants(table) and table not in self._left_out and self.table(table) is None


class Loads(msgspec.Struct, frozen=True):
    """The runs that were loaded of one window, the newest of a table in place of the others."""

    window: Window
    runs: "tuple[_Run, ...]"
    elsewhere: str = ""
    """The place that they were loaded into, where that is not the target's."""

    def table(self, table: TableName) -> Held | None:
        """What the target holds of *table*; None where that is nothing."""
        newest = _newest([run for run in self.runs if run.wants(table)])
        return _worst([run.table(table) for run in newest])

    def pattern(self, pattern: str) -> Held | None:
        """What the target holds of the tables of *pattern* that the runs saw nothing of."""
        newest = _newest([run for run in self.runs if run.selection.covers(pattern)])
        return _worst([run.others for run in newest])

    def lacks(self, table: TableName) -> bool:
        """Whether the target lacks *table*, which it might hold."""
        return any(run.lacks(table) for run in _newest([run for run in self.runs if run.wants(table)]))


def _newest(runs: Sequence[_Run]) -> list[_Run]:
    """The newest of *runs*: several where they decode the same rows (``Generations``), and nobody knows which was loaded last."""
    generation = max((run.generation for run in runs), default=0)
    return [run for run in runs if run.generation == generation]


_Stretch = tuple[Window, tuple[Loads, ...]]


_State = Held | tuple[bool, tuple[str, ...]]
"""Of a span, or of a gap: ``Gap.partial`` and ``Gap.elsewhere``."""


def _stretches(loads: Sequence[Loads]) -> Iterator[_Stretch]:
    """The time from the first window to the last, cut wherever one begins or ends, with the loads of each piece."""
    coming = sorted(loads, key=lambda load: load.window, reverse=True)
    running: list[Loads] = []
    for start, end in pairwise(sorted({edge for load in loads for edge in (load.window.from_ts, load.window.to_ts)})):
        running = [load for load in running if load.window.to_ts > start]
        while coming and coming[-1].window.from_ts == start:
            running.append(coming.pop())
        yield Window(start, end), tuple(running)


def _covered(name: str, stretches: Sequence[_Stretch], state_of: Callable[[tuple[Loads, ...]], _State]) -> Covered:
    """Neighbours of one state are one span or gap."""
    joined: list[tuple[Window, _State]] = []
    for window, loads in stretches:
        state = state_of(loads)
        if joined and joined[-1][1] == state:
            joined[-1] = (Window(joined[-1][0].from_ts, window.to_ts), state)
        else:
            joined.append((window, state))
    return Covered(
        name,
        tuple(Span(window, state) for window, state in joined if isinstance(state, Held)),
        tuple(Gap(window, *state) for window, state in joined if not isinstance(state, Held)),
    )


def _table(table: TableName, loads: tuple[Loads, ...]) -> _State:
    here, away = _apart(loads)
    found = _best(load.table(table) for load in here)
    return found or (False, _places(load for load in away if load.table(table)))


def _whole(selection: Sequence[str], seen: Sequence[TableName], loads: tuple[Loads, ...]) -> _State:
    here, away = _apart(loads)
    wanted = _filter(tuple(selection))
    narrower = {pattern for load in here for run in load.runs for pattern in run.patterns if wanted.covers(pattern)}
    patterns = [_best(load.pattern(pattern) for load in here) for pattern in sorted({*selection, *narrower})]
    tables = {table: _best(load.table(table) for load in here) for table in seen}
    lost = any(held is None and any(load.lacks(table) for load in here) for table, held in tables.items())
    if lost or not all(patterns):
        return bool(here), _places(away)
    parts = [part for part in (*patterns, *tables.values()) if part]
    return Held(
        "quarantine" if any(part.quality == "quarantine" for part in parts) else "complete",
        max((part.grade for part in parts), key=GRADES.index),
    )


def _apart(loads: tuple[Loads, ...]) -> tuple[list[Loads], list[Loads]]:
    """Those of *loads* into the target's place, and those into others."""
    return [load for load in loads if not load.elsewhere], [load for load in loads if load.elsewhere]


def _places(loads: Iterable[Loads]) -> tuple[str, ...]:
    return tuple(sorted({load.elsewhere for load in loads}))


def _best(candidates: Iterator[Held | None]) -> Held | None:
    """The one that lacks least."""
    return min((held for held in candidates if held is not None), key=_lack, default=None)


def _worst(candidates: Sequence[Held | None]) -> Held | None:
    """The one that lacks most; None where that is everything."""
    found = [held for held in candidates if held is not None]
    return max(found, key=_lack, default=None) if len(found) == len(candidates) else None


def _lack(held: Held) -> tuple[bool, int]:
    """How much is lacking: a known hole weighs more than a missing proof."""
    return held.quality == "quarantine", GRADES.index(held.grade)
