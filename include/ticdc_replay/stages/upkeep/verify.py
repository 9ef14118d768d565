"""Compares the mirrors of a target with the upstream as of the TSO up to which they are loaded."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from operator import itemgetter
from typing import Any

import msgspec

from ticdc_replay.changefeed.rules import SourceTable
from ticdc_replay.domain import canonical, tso
from ticdc_replay.domain.errors import ArtifactNotFoundError, ConfigError, PermanentError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.large_messages.source_session import SourceSession
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.coverage import Covered, coverage
from ticdc_replay.stages.upkeep.mirrors import opened_target
from ticdc_replay.stages.upkeep.verification import TableVerification, Verification, folder_of
from ticdc_replay.stages.upkeep.verify_layout import Layout, layout_of
from ticdc_replay.targets.mirror.comparison import ComparableMirror, Comparisons, MirrorTable
from ticdc_replay.targets.shaped_load import shape_of
from ticdc_replay.verify.compare import Comparison, Pace
from ticdc_replay.verify.findings import Difference, Findings
from ticdc_replay.verify.source import SourceSnapshot

_STATEMENT_S = 3600
"""How long one statement may take: a source without a suitable index reads the whole table for each range."""
_SAVED_EVERY_S = 5.0
_READ_IN_TIME = (
    "leave it out (--table), or load newer windows first, with a longer tidb_gc_life_time, and verify right after them"
)

Tell = Callable[[str], None]


def verify(
    context: ReplayContext,
    target: str,
    tables: Sequence[str] = ("*.*",),
    *,
    at: int | None = None,
    pace: Pace | None = None,
    restart: bool = False,
    tell: Tell = lambda line: None,
) -> Verification:
    """Compare the mirrors of *target* that match *tables* (patterns) with the upstream as of *at* (TSO).

    Without *at*, each mirror is compared as of the end of what is loaded of its table. *tell* gets a line for each table and
    for progress. The report is kept below ``verifications/`` in the artefacts.

    A comparison that broke goes on where it was, unless *restart*: if the TSO, the loaded windows up to it and the columns are
    the same. Raises ConfigError if *target* can't be compared or the pipeline names no source, PermanentError if the source
    no longer has the TSO, TransientError if a server is away after further tries.
    """
    mirror = opened_target(context, target)
    if not isinstance(mirror, ComparableMirror):
        able = [each.name for each in context.pipeline.targets if each.can_be_compared]
        raise ConfigError(f"{target} can't be compared with its source; targets that can: {', '.join(able) or 'none'}")
    if context.pipeline.connections.source is None:
        raise ConfigError(
            f"pipeline {context.pipeline.name}: set connections.source to the connection (type tidb or mysql) of the "
            "changefeed's upstream, which the mirrors are compared with"
        )
    began_ms = _now_ms()
    chosen = chosen_tables(context, mirror, tables)
    with ExitStack() as stack:
        session = stack.enter_context(
            closing(SourceSession(context.connections[context.pipeline.connections.source], _STATEMENT_S))
        )
        comparisons = stack.enter_context(mirror.comparisons())
        run = _Run(context, target, mirror, comparisons, session, pace or Pace(), tell)
        moments = {table: run.moment(table, at) for table in chosen}
        for table, moment in sorted(moments.items(), key=itemgetter(1)):
            session.check_safe_point(moment, f"{table} is as of", _READ_IN_TIME)
        found = tuple(run.table(table, moments[table], restart=restart) for table in chosen)
        newest_ts = max(moments.values())
        patterns = _patterns(context, tables)
        others = run.without_mirror(newest_ts, lambda name: name not in chosen and _is_wanted(name, patterns))
    report = Verification(
        pipeline=context.pipeline.name,
        target=target,
        place=context.place_of(target),
        began_ms=began_ms,
        ended_ms=_now_ms(),
        tables=found,
        without_mirror=others,
    )
    context.artifacts.put_once(report.name, canonical.encode(report))
    run.forget_progress()
    return report


def chosen_tables(context: ReplayContext, mirror: ComparableMirror[Any], tables: Sequence[str]) -> list[TableName]:
    """The pipeline's tables that match *tables* (patterns) and have a mirror. Raises ConfigError if there are none."""
    patterns = _patterns(context, tables)
    chosen = [name for name in mirror.mirrored(context.pipeline.name) if _is_wanted(name, patterns)]
    if not chosen:
        raise ConfigError(f"{mirror.config.name} has no mirror of {', '.join(tables)}: load a window first")
    return chosen


class _Run:
    """One verification of the mirrors of *target*."""

    def __init__(
        self,
        context: ReplayContext,
        target: str,
        mirror: ComparableMirror[Any],
        comparisons: Comparisons,
        session: SourceSession,
        pace: Pace,
        tell: Tell,
    ) -> None:
        self._context, self._target, self._mirror = context, target, mirror
        self._comparisons, self._session, self._pace, self._tell = comparisons, session, pace, tell
        self._place = context.place_of(target)
        [covered] = [each for each in coverage(context.pipeline, context.state) if each.target.name == target]
        self._whole, self._covered = covered.target, {each.name: each for each in covered.tables}
        self._records = [
            each for each in context.state.coverage.all(context.pipeline.name) if each.place == self._place
        ]
        self._progress: list[str] = []

    def moment(self, table: TableName, at: int | None) -> int:
        """The TSO as of which the mirror of *table* is compared: *at*, or the last of its windows and base load."""
        if at is not None:
            return at
        ends = [span.window.to_ts - 1 for span in self._of(table).spans]
        last, floor_ts = max(ends, default=0), self._known(table).state.floor_ts
        if floor_ts > last + 1:  # a base load's floor is the end of its window
            last = floor_ts
        if not last:
            raise ConfigError(
                f"nothing of {table} is loaded into {self._target}: load a window first, or name a TSO (--at)"
            )
        return last

    def table(self, table: TableName, at: int, *, restart: bool) -> TableVerification:
        """Compare one table."""
        begun = time.monotonic()
        mirror = self._known(table)
        if mirror.state.topic_id is not None:
            raise ConfigError(
                f"{mirror.relation} is ordered by places in Kafka, which no snapshot of the source has: only mirrors ordered by "
                "commitTs can be compared"
            )
        snapshot = SourceSnapshot(self._session, at)
        source = self._context.changefeed.dispatch.source_of(table.schema, table.table)
        if source is None:
            raise ConfigError(
                f"rules of the changefeed route several tables of the source to {table}: leave it out (--table)"
            )
        layout = layout_of(
            snapshot,
            TableName(*source),
            mirror,
            self._mirror.dialect,
            self._comparisons,
            self._keeps(table),
            shape_of(self._mirror.config, self._context.connections, table),
        )
        found = Findings()
        self._tell(f"{table} as of {tso.describe(at)}")
        if layout.can_be_compared:
            found = self._compared(table, at, snapshot, mirror, layout, restart=restart)
        return TableVerification(
            table=table,
            mirror=str(mirror.relation),
            at=at,
            key=tuple(layout.columns[place].name for place in layout.key),
            columns=len(layout.columns),
            problems=layout.problems,
            notes=tuple(self._notes(table, at, mirror)),
            findings=msgspec.structs.replace(found, differences=tuple(self._with_windows(found))),
            seconds=round(time.monotonic() - begun, 3),
        )

    def without_mirror(self, at: int, wants: Callable[[TableName], bool]) -> tuple[TableName, ...]:
        """The tables of the source as of *at* (TSO), by their names in the changefeed, that *wants* and have rows and a key:
        a load would make a mirror of each. Sorted."""
        snapshot, dispatch = SourceSnapshot(self._session, at), self._context.changefeed.dispatch
        found = []
        for source in snapshot.tables():
            table = TableName(*dispatch.routed(SourceTable(source.schema, source.table)))
            if wants(table) and self._can_be_mirrored(snapshot, source):
                found.append(table)
        return tuple(sorted(found))

    def _can_be_mirrored(self, snapshot: SourceSnapshot, source: TableName) -> bool:
        definition = snapshot.definition(source)
        return definition is not None and bool(definition.handle_key()) and snapshot.has_rows(source)

    def forget_progress(self) -> None:
        """The report is kept: the next verification begins anew."""
        for name in self._progress:
            self._context.artifacts.delete(name)

    def _compared(
        self,
        table: TableName,
        at: int,
        snapshot: SourceSnapshot,
        mirror: MirrorTable,
        layout: Layout,
        *,
        restart: bool,
    ) -> Findings:
        assert layout.definition is not None
        # Re-drives, forgotten tables and floors are in them, too.
        loads = sorted(map(canonical.hash_of, (each for each in self._records if each.window.from_ts <= at)))
        parts = (str(table), at, mirror.state.floor_ts, layout.columns, layout.key, self._pace.range_rows, loads)
        name = f"{folder_of(self._target)}/progress/{canonical.hash_of(parts)}.json"
        self._progress.append(name)
        found = Findings() if restart else self._saved(name)
        if found.ranges:
            self._tell(f"{table}: goes on after {found.source_rows:,} rows")
        keeping = _Keeping(self._context, name, table, self._tell)
        comparison = Comparison(
            snapshot.side(layout.definition, layout.columns, layout.key),
            self._comparisons.side(mirror, layout.columns, layout.key),
            layout.columns,
            layout.key,
            at,
            self._pace,
        )
        try:
            return comparison.run(found, keeping.keep)
        finally:
            keeping.save()

    def _saved(self, name: str) -> Findings:
        try:
            return msgspec.json.decode(self._context.artifacts.get(name), type=Findings)
        except ArtifactNotFoundError:
            return Findings()

    def _known(self, table: TableName) -> MirrorTable:
        known = self._mirror.mirror_of(table)
        if known is None:
            raise PermanentError(f"the mirror of {table} in {self._target} was forgotten meanwhile: verify again")
        return known

    def _of(self, table: TableName) -> Covered:
        return self._covered.get(str(table), self._whole)

    def _keeps(self, table: TableName) -> Callable[[str], bool]:
        """Whether the changefeed sends a column of *table*."""
        dispatch = self._context.changefeed.dispatch
        source = dispatch.source_of(table.schema, table.table)
        selector = dispatch.selector_of(source) if source is not None else None
        return (lambda name: True) if selector is None else selector.columns.keeps

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

    def _with_windows(self, found: Findings) -> Iterator[Difference]:
        windows = sorted({each.window for each in self._records})
        for difference in found.differences:
            window = next((each for each in windows if difference.version and difference.version in each), None)
            yield msgspec.structs.replace(difference, window=window)


class _Keeping:
    """Keeps how far a comparison of *table* has come under *name*, so that the next attempt goes on from there."""

    def __init__(self, context: ReplayContext, name: str, table: TableName, tell: Tell) -> None:
        self._context, self._name, self._table, self._tell = context, name, table, tell
        self._last: Findings | None = None
        self._saved_s = time.monotonic()

    def keep(self, found: Findings) -> None:
        self._last = found
        if time.monotonic() - self._saved_s >= _SAVED_EVERY_S:
            self.save()
            self._tell(f"{self._table}: {found.source_rows:,} rows compared")

    def save(self) -> None:
        if self._last is not None:
            self._context.artifacts.put(self._name, canonical.encode(self._last))
        self._last, self._saved_s = None, time.monotonic()


def _patterns(context: ReplayContext, tables: Sequence[str]) -> tuple[TablePatterns, TablePatterns]:
    return TablePatterns(tables), TablePatterns(context.pipeline.tables)


def _is_wanted(table: TableName, patterns: Sequence[TablePatterns]) -> bool:
    return all(each.wants(table.schema, table.table) for each in patterns)


def _counts(window: Window, floor_ts: int, at: int) -> bool:
    """Whether rows of *window* can be in a mirror with *floor_ts* as of *at*."""
    return window.to_ts > floor_ts and window.from_ts <= at


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
