"""What a rebuild of a mirror takes: a base, or the table's CREATE TABLE, and the changelogs of the target's coverage after it."""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.domain.errors import ArtifactNotFoundError, ConfigError, PolicyStopError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.changes import kind_of
from ticdc_replay.schemas.ddl.reader import key_of
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.selection import undecoded
from ticdc_replay.stages.set_aside import set_aside
from ticdc_replay.stages.upkeep import overlapping_runs
from ticdc_replay.stages.upkeep.mirrors import opened_target
from ticdc_replay.stages.window.bases import find_bases
from ticdc_replay.state.coverage import Coverage
from ticdc_replay.targets.base import AppliedRun, ReplaceableMirror

_REQUESTS = 16
"""Indexes that are read at once."""


class Source(msgspec.Struct, frozen=True):
    """A changelog that a rebuilt mirror takes rows from."""

    window: Window
    run_hash: str
    is_needed: bool
    """Whether it may have anything of the table."""
    is_named: bool
    """Whether it has rows or DDL of the table under this very name: the mirror's ledger has its load."""

    @property
    def run(self) -> tuple[Window, str]:
        """The window and the run."""
        return self.window, self.run_hash


class RebuildPlan(msgspec.Struct, frozen=True):
    """What a rebuild of one table loads, in its order."""

    table: TableName
    begins: str
    """What it begins with, for people."""
    begin_ts: int
    """From which TSO on it needs the changes."""
    sources: tuple[Source, ...]
    end_ts: int
    """Up to which TSO it has them."""
    superseded: frozenset[str]
    """Runs that the old mirror may have and the new one does not need: newer runs, or the changelogs after a base, have their
    rows."""


def replaceable(context: ReplayContext, name: str) -> ReplaceableMirror[Any]:
    """The mirrors of the target called *name*. Raises ConfigError if they can't be built beside themselves."""
    target = opened_target(context, name)
    if not isinstance(target, ReplaceableMirror):
        raise ConfigError(
            f"{name} ({target.config.description}) can't be built beside itself: drop its table, run `ticdc-replay mirror "
            "forget`, and seed it or load its windows again"
        )
    return target


def plan_rebuild(
    context: ReplayContext, target: str, table: TableName, base: str | None = None, to_ts: int | None = None
) -> RebuildPlan:
    """What a rebuild of the mirror of *table* in *target* takes: from *base*, a run, or the newest base or CREATE TABLE, up to
    *to_ts* (TSO), or all that is loaded.

    Raises ConfigError for a target that can't be rebuilt, or a *base* that is none of the table; PolicyStopError, which names
    the windows, if base and changelogs do not have all changes, or if some that overlap may differ in their rows.
    """
    section = replaceable(context, target).config
    records = [
        record
        for record in context.state.coverage.all(context.pipeline.name)
        if record.place == section.place
        and TablePatterns(record.selection).wants(table.schema, table.table)
        and (to_ts is None or record.window.to_ts <= to_ts)
        and all(covered.quality != "left_out" for covered in record.tables if covered.table == table)
    ]
    superseded = {
        record.run_hash
        for record in records
        if any(other.window == record.window and other.generation > record.generation for other in records)
    }
    current = sorted(
        (record for record in records if record.run_hash not in superseded),
        key=lambda each: (each.window, each.run_hash),
    )
    indexes = dict(_read(context, [record.run_hash for record in current]))
    for record in records:
        if record.run_hash in superseded:
            newer = [each for each in current if each.window == record.window]
            superseded |= _redrives_within(context, record, newer, indexes)
    windows = [record for record in current if not _is_base(indexes.get(record.run_hash))]
    begun = _begin(context, table, windows, indexes, base, to_ts)
    if begun is None:
        raise PolicyStopError(_no_beginning(table, windows))
    begins, begin_ts, first = begun
    needed = [record for record in windows if record.window.to_ts > begin_ts]
    replaced = overlapping_runs.replaced(needed, begin_ts)
    superseded |= {run for record in replaced for run in (record.run_hash, *_redrives(context, record))}
    needed = [record for record in needed if record.run_hash not in superseded]
    lacking = list(_lacking(table, needed, indexes, begin_ts))
    if lacking:
        raise PolicyStopError(
            f"{table} can't be built again from {begins}: changes are missing\n- "
            + "\n- ".join(lacking)
            + "\nReplay these windows, or begin with a newer base: dump the upstream, run `ticdc-replay mirror seed "
            "--only-base`, and run this command again with the --dump-base that it prints"
        )
    mixed = list(overlapping_runs.mixed(context, table, needed, indexes, begin_ts))
    if mixed:
        raise PolicyStopError(
            f"{table} can't be built again from {begins}: of windows that overlap, changelogs may differ in their rows of one "
            "time, and which of them the mirror has last can't be repeated\n- "
            + "\n- ".join(mixed)
            + "\nA run is left out once newer ones have all of its window, and nothing in quarantine. So replay what is named, "
            "and settle their quarantine; or begin with a newer base"
        )
    sources = [] if first is None else [_source(first, table)]
    for record in needed:
        sources.append(_source(indexes[record.run_hash], table))
        sources += [_source(read_index(context.artifacts, redrive), table) for redrive in _redrives(context, record)]
    # As they end: a window that was cut at a DDL, for the mirror to follow it, comes after its parts.
    sources.sort(key=lambda source: (source.window.to_ts, source.window.from_ts))
    end_ts = max([begin_ts, *(record.window.to_ts for record in needed)])
    # Rows of other bases of the time are in the changelogs, too.
    superseded |= {each.run_hash for each in find_bases(context) if first is None or each.run_hash != first.run_hash}
    return RebuildPlan(table, begins, begin_ts, tuple(sources), end_ts, frozenset(superseded))


def unrecorded_and_replaced(
    context: ReplayContext, place: str, table: TableName, runs: Sequence[AppliedRun], known: Collection[str]
) -> frozenset[str]:
    """Those of *runs*, which the old mirror in *place* has, whose end was never recorded, if a newer run of their window is one
    of *known*, those of a plan.

    A run without a generation is of another pipeline, or of a state store that was lost: then the other one must be complete.
    """
    given = context.state.generations.given(context.pipeline.name)
    records = [record for record in context.state.coverage.all(context.pipeline.name) if record.place == place]
    recorded = {record.run_hash for record in records}

    def is_newer(record: Coverage, run: AppliedRun) -> bool:
        generation = given.get(run.run_hash)
        return _is_complete(record, table) if generation is None else record.generation > generation

    return frozenset(
        run.run_hash
        for run in runs
        if run.run_hash not in recorded
        and any(each.run_hash in known and each.window == run.window and is_newer(each, run) for each in records)
    )


def _is_complete(record: Coverage, table: TableName) -> bool:
    """Whether nothing of *table* was set aside by the run of *record*, or all of that was re-driven."""
    return next((each.quality for each in record.tables if each.table == table), record.quality) == "complete"


def _begin(
    context: ReplayContext,
    table: TableName,
    windows: Sequence[Coverage],
    indexes: dict[str, ChangelogIndex],
    base: str | None,
    to_ts: int | None,
) -> tuple[str, int, ChangelogIndex | None] | None:
    """What a rebuild begins with, for people, the TSO from which on it needs changes, and the base; None if there is nothing."""
    found = None
    for each in find_bases(context):
        is_wanted = each.run_hash.startswith(base) if base is not None else to_ts is None or each.window.to_ts <= to_ts
        if is_wanted and _has_table(each, table):
            found = each
            break
    if base is not None and found is None:
        raise ConfigError(
            f"--dump-base: no complete changelog of a dump begins with {base} and has {table}. List "
            "them: ticdc-replay changelog list"
        )
    if found is not None:
        text = f"the base {found.run_hash[:12]} of {describe(found.window.from_ts)}"
        if base is not None:
            return text, found.window.to_ts, found
    created = max(
        (
            change.commit_ts
            for record in windows
            if (index := indexes.get(record.run_hash)) is not None and index.order == "commit_ts"
            for change in index.changes
            if change.table == table and any(kind_of(each) == "table_created" for each in change.changes)
        ),
        default=0,
    )
    if found is not None and found.window.to_ts > created:
        return text, found.window.to_ts, found
    if created:
        return f"the CREATE TABLE of {describe(created)}", created, None
    return None


def _no_beginning(table: TableName, windows: Sequence[Coverage]) -> str:
    held = (
        f"The loaded windows begin at {describe(windows[0].window.from_ts)}, and none of their changelogs has its CREATE TABLE: "
        "rows from before that TSO are missing"
        if windows
        else "No window of it is loaded, either"
    )
    return (
        f"{table} can't be built again: no base of it is kept. {held}. Dump the upstream, run `ticdc-replay mirror seed "
        "--only-base`, and run this command again"
    )


def _lacking(
    table: TableName, windows: Sequence[Coverage], indexes: dict[str, ChangelogIndex], begin_ts: int
) -> Iterator[str]:
    """What is missing of the changes of *table* from *begin_ts* (TSO) on, a line each."""
    reached = begin_ts
    for record in windows:
        window, index = record.window, indexes.get(record.run_hash)
        if window.from_ts > reached:
            yield f"no run of {Window(reached, window.from_ts)} is loaded"
        reached = max(reached, window.to_ts)
        if index is None:
            yield f"the changelog of run {record.run_hash[:12]} of {window} was removed"
        elif index.order != "commit_ts":
            yield f"rows of {window} are ordered by offset, and a rebuild needs their commitTs"
        elif undecoded(index, [str(table)]):
            yield f"run {record.run_hash[:12]} of {window} was decoded for other tables only"


def _is_base(index: ChangelogIndex | None) -> bool:
    return index is not None and index.is_base


def _has_table(index: ChangelogIndex, table: TableName) -> bool:
    return table in index.table_names()


def _source(index: ChangelogIndex, table: TableName) -> Source:
    return Source(index.window, index.run_hash, _concerns(index, table), _has_table(index, table))


def _concerns(index: ChangelogIndex, table: TableName) -> bool:
    """Whether the changelog may have anything of *table*: rows, DDL under any spelling or without schema, or DDL of a whole
    database."""
    return any(key_of(name) == key_of(table) for name in index.table_names()) or any(
        not ddl.table or folded(ddl.table) == folded(table.table) for ddl in index.ddl
    )


def _redrives(context: ReplayContext, record: Coverage) -> list[str]:
    """The re-drives of the run's quarantine that its place holds, oldest first."""
    found = context.state.quarantine.redrives(context.pipeline.name, record.run_hash)
    return list(dict.fromkeys(each.redrive_hash for each in found if each.place == record.place))


def _redrives_within(
    context: ReplayContext, record: Coverage, newer: Sequence[Coverage], indexes: dict[str, ChangelogIndex]
) -> set[str]:
    """The re-drives of the older run of *record* that brought nothing but what the *newer* runs of its window have, too."""
    redrives = _redrives(context, record)
    aside = {
        entry.place
        for each in newer
        if each.run_hash in indexes and each.quality != "complete"
        for entry in set_aside(context, indexes[each.run_hash]).open([each.place])
    }
    if not redrives or not aside:
        return set(redrives)
    return {
        result.index.run_hash
        for _, index in _read(context, [record.run_hash])
        for result in set_aside(context, index).redrives
        if result.index.run_hash in redrives and not any(map(result.settles, aside))
    }


def _read(context: ReplayContext, runs: Sequence[str]) -> Iterator[tuple[str, ChangelogIndex]]:
    """The changelogs of *runs* that are there."""

    def opened(run_hash: str) -> ChangelogIndex | None:
        try:
            return read_index(context.artifacts, run_hash)
        except ArtifactNotFoundError:
            return None

    with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="rebuild") as pool:
        for run_hash, index in zip(runs, pool.map(opened, runs), strict=True):
            if index is not None:
                yield run_hash, index
