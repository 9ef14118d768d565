"""What keeps the floor of a mirror from being raised: rows below it that may still come."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, starmap

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.changelog.files.set_aside import Entry
from ticdc_replay.domain.errors import ArtifactNotFoundError, PermanentError
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.coverage import holds
from ticdc_replay.stages.load.publish import last_load
from ticdc_replay.stages.load.recording import DERIVED
from ticdc_replay.stages.set_aside import set_aside, sets_aside
from ticdc_replay.stages.window.jobs import require_current
from ticdc_replay.state.coverage import Coverage, CoveredTable
from ticdc_replay.targets.base import StoppedLoad, TableReport
from ticdc_replay.targets.refused_rows import read_refused


class _Load(msgspec.Struct, frozen=True):
    """What counts of a window in the mirror: a load whose coverage is recorded, or one that DDL at its window's end stopped."""

    window: Window
    run_hash: str
    reports: tuple[TableReport, ...]
    """Of the table, by this load and by those of re-drives, where they may have set rows aside."""
    has_ended: bool


def still_to_come(
    context: ReplayContext, target: str, table: TableName, span: Window, stopped: Sequence[StoppedLoad]
) -> list[str]:
    """What the mirror of *table* in *target* may still get of *span*, one line each, with what to do.

    *stopped* are its loads that DDL at their window's end stopped after all rows. The list is empty if all of *span*,
    from the first moment that is held here or in an earlier place, was loaded here from what its windows are pinned to
    now, and everything that a decode or a load set aside is settled.
    """
    place = context.place_of(target)
    runs = _Runs(context, place, table, span)
    held = [record for record in context.state.coverage.all(context.pipeline.name) if holds(record, table)]
    ever = [record for record in held if record.place == place]
    away = [record for record in held if record.target == target and record.place != place]
    records = [record for record in ever if _meet(record.window, span)]
    current = [record for record in records if runs.is_current(record.run_hash, record.window)]
    halted = [
        _Load(load.window, load.run_hash, (load.report,), False)
        for load in stopped
        if _meet(load.window, span) and runs.brought_window(load) and runs.is_current(load.run_hash, load.window)
    ]
    loaded, ended = {record.window for record in records}, {record.window for record in current}
    lines = [
        f"{window} was pinned again, and what it is pinned to now is not loaded: run it"
        for window in sorted(loaded - ended)
    ]
    known = {*loaded, *(load.window for load in halted)}
    first = min(
        (window.from_ts for window in (*known, *(record.window for record in (*ever, *away)))), default=span.to_ts
    )
    if first >= span.to_ts:
        return []
    span = Window(max(span.from_ts, first), span.to_ts)
    for window in _outside(known, span):
        places = sorted({record.place for record in away if _meet(record.window, window)})
        where = f" here, but elsewhere, where the target was before ({'; '.join(places)})" if places else ""
        lines.append(f"{window} is not loaded{where}: load it")
    for record in sorted(_newest(current), key=lambda record: (record.window, record.run_hash)):
        load = _Load(record.window, record.run_hash, _reports(context, record, table), True)
        lines += runs.lacking(load, span)
    # What only a load that was stopped has brought. One of them that lacks nothing is enough.
    edges = {edge for load in halted for edge in (load.window.from_ts, load.window.to_ts)}
    for part in _outside(loaded, span):
        for piece in _cut(part, edges):
            found = [runs.lacking(load, piece) for load in halted if _meet(load.window, piece)]
            lines += found[-1] if all(found) and found else []
    return lines


class _Runs:
    """What is known of the runs that brought rows of a table in *span*, and of what their windows are pinned to."""

    def __init__(self, context: ReplayContext, place: str, table: TableName, span: Window) -> None:
        self._context, self._place, self._table = context, place, table
        self._runs = {run.run_hash: run for run in context.state.runs.within(context.pipeline.name, span)}
        pinned = context.state.manifests.within(context.pipeline.name, span)
        self._pinned = {manifest.window: manifest.input_hash for manifest in pinned}

    def is_current(self, run_hash: str, window: Window) -> bool:
        """Whether its rows come from what its window, and each source window, is pinned to now. If its changelog is
        removed, only its own window counts."""
        run = self._runs.get(run_hash)
        if run is not None and self._pinned.get(window, run.input_hash) != run.input_hash:
            return False
        if run is not None and not run.counts.get(DERIVED):
            return True
        index = self._index(run_hash)
        try:
            if index is not None:
                require_current(self._context, index)
        except PermanentError:
            return False
        return run is not None or index is not None

    def brought_window(self, load: StoppedLoad) -> bool:
        """Whether *load* brought its window, and not what came out of the window's quarantine."""
        index = self._index(load.run_hash)
        return index is not None and index.redrives is None

    def lacking(self, load: _Load, span: Window) -> list[str]:
        """What was set aside of *span* by the decode of *load* or by the load, and is not settled."""
        return [*self._open_entries(load, span), *self._refused(load, span)]

    def _open_entries(self, load: _Load, span: Window) -> Iterator[str]:
        run, index = self._runs.get(load.run_hash), self._index(load.run_hash)
        if index is None or (run is not None and not sets_aside(run)):
            return  # removed only where nothing was open
        entries = [
            entry
            for entry in set_aside(self._context, index).open([self._place])
            if _may_be_of(entry, self._table) and _is_in(entry.commit_ts, span)
        ]
        if entries:
            redrive = f"`ticdc-replay quarantine redrive <pipeline> --run {load.run_hash[:12]}`"
            if not load.has_ended:
                redrive = f"load a window that ends at {load.window.to_ts - 1}, and re-drive what is in its quarantine"
            yield (
                f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'} in the quarantine of window {load.window} "
                f"({entries[0].coordinates}: {entries[0].reason}): {redrive}, or accept as lost what can't come back"
            )

    def _refused(self, load: _Load, span: Window) -> Iterator[str]:
        for report in load.reports:
            times = read_refused(self._context.artifacts, report.quarantine_files, self._table)
            # Files of an earlier version may not list all rows: then each counts.
            times += [None] * (report.quarantined - len(times))
            count = sum(_is_in(commit_ts, span) for commit_ts in times)
            if count:
                where = ", ".join(report.quarantine_files) or f"below loads/{load.run_hash}"
                again = "run it with reload" if load.has_ended else "run its load again"
                yield (
                    f"{count} {'row' if count == 1 else 'rows'} of window {load.window} that its load set aside "
                    f"(policies.target_value; {where}): change the column of the mirror so that it holds them, and {again}; "
                    "where no column can hold them, correct the mirror's rows by hand, and use --holds-all-rows"
                )

    def _index(self, run_hash: str) -> ChangelogIndex | None:
        try:
            return read_index(self._context.artifacts, run_hash)
        except ArtifactNotFoundError:
            return None


def _reports(context: ReplayContext, record: Coverage, table: TableName) -> tuple[TableReport, ...]:
    """The reports on *table* of the load of *record* and of re-drives of its run; none if none set rows aside."""
    if CoveredTable(table, "quarantine") not in record.tables:
        return ()
    redrives = context.state.quarantine.redrives(context.pipeline.name, record.run_hash)
    runs = [record.run_hash, *(each.redrive_hash for each in redrives if each.place == record.place)]
    loads = [last_load(context, run, record.place) for run in runs]
    return tuple(report for load in loads for report in load.tables if report.table == table)


def _newest(records: Sequence[Coverage]) -> list[Coverage]:
    """Those of each window that no newer one replaces."""
    newest: dict[Window, int] = {}
    for record in records:
        newest[record.window] = max(newest.get(record.window, 0), record.generation)
    return [record for record in records if record.generation == newest[record.window]]


def _outside(windows: Iterable[Window], span: Window) -> Iterator[Window]:
    """The parts of *span* that none of *windows* has, in order."""
    reached = span.from_ts
    for window in sorted(windows):
        if reached < min(window.from_ts, span.to_ts):
            yield Window(reached, min(window.from_ts, span.to_ts))
        reached = max(reached, window.to_ts)
    if reached < span.to_ts:
        yield Window(reached, span.to_ts)


def _cut(part: Window, edges: Iterable[int]) -> Iterator[Window]:
    """*part* in pieces, cut at *edges* (TSO)."""
    inner = (edge for edge in edges if part.from_ts < edge < part.to_ts)
    return starmap(Window, pairwise(sorted({part.from_ts, part.to_ts, *inner})))


def _meet(window: Window, span: Window) -> bool:
    return window.from_ts < span.to_ts and span.from_ts < window.to_ts


def _is_in(commit_ts: int | None, span: Window) -> bool:
    return commit_ts is None or span.from_ts <= commit_ts < span.to_ts


def _may_be_of(entry: Entry, table: TableName) -> bool:
    """Whether a row of *table* may come out of *entry*, which could be read in part."""
    read = ((entry.schema, table.schema), (entry.table, table.table))
    return all(name is None or folded(name) == folded(own) for name, own in read)
