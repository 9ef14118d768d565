"""Databases that the upstream dropped, noted in the ledger for mirrors that are made later.

A DROP DATABASE names no table, so only mirrors that exist when its window is loaded follow it. A mirror that is made
later, by an older window or by a floor, finds the note here. A note counts for the mirrors that its load may write to,
as ``marks`` do. A newer run of the window replaces it, also by nothing. A forgotten mirror ignores notes until the
window is loaded again.
"""

from collections.abc import Iterator, Sequence

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.database_ddl import dropped_databases
from ticdc_replay.targets.mirror.ledger import MirrorPlaces
from ticdc_replay.targets.mirror.marks import place_of
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.section import MirrorSection
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan, target_of
from ticdc_replay.targets.mirror.session import Session


def note(session: Session, load: Load, config: MirrorSection, dialect: Dialect) -> None:
    """Note the databases that the window of *load* drops, in place of older notes, before mirrors are looked up.

    Waits for transactions that make a mirror: mirrors of earlier ones are looked up, later ones find the note.
    """
    index = load.index
    floors = {
        name: index.window.to_ts if index.order == "place" else commit_ts + 1
        for name, commit_ts in sorted(dropped_databases(index).items())
    }
    session.ledger.replace_drops(load, place_of(config, dialect), _window_run(index), floors)


def floor_of(session: Session, load: Load, config: MirrorSection, dialect: Dialect, table: TableName) -> int:
    """The commitTs (TSO) below which rows of *table*, still without mirror, were dropped with their database, or 0.

    For its own window only the drops of the run of *load* count. In a window by offset with both rows and the DDL
    nothing shows which came first: the DDL itself stops that load.
    """
    return max(floors_of(session, load, config, dialect, table), default=0)


def floors_of(session: Session, load: Load, config: MirrorSection, dialect: Dialect, table: TableName) -> list[int]:
    """All that ``floor_of`` chooses from: for each drop the commitTs (TSO) below which rows went with it."""
    index = load.index
    by_place = index.order == "place" and bool(load.index.versions_of(table))
    window = (index.pipeline, index.window.from_ts, index.window.to_ts)
    return list(_floors(session, config, dialect, table, window, "" if by_place else _window_run(index)))


def floor_of_new(session: Session, pipeline: str, config: MirrorSection, dialect: Dialect, table: TableName) -> int:
    """As ``floor_of``, for the transaction that makes the mirror of *table* without a load."""
    session.ledger.share_drops()
    return max(_floors(session, config, dialect, table, (pipeline, 0, 0), ""), default=0)


def look_again(session: Session, load: Load, config: MirrorSection, plan: TablePlan) -> None:
    """Raise TransientError if notes changed since *plan* was made; in the transaction that makes its mirror."""
    session.ledger.share_drops()
    if floor_of(session, load, config, plan.dialect, plan.source) != plan.dropped_ts:
        raise TransientError(
            f"whether the database of {plan.source} was dropped has changed with a window that was loaded while this load "
            "staged its rows; try again"
        )


def forget(session: Session, config: MirrorSection, dialect: Dialect, table: TableName) -> None:
    """Let no note made so far count for the mirror of *table*."""
    session.ledger.forget_drops(_places(config, dialect, table))


def _floors(
    session: Session,
    config: MirrorSection,
    dialect: Dialect,
    table: TableName,
    window: tuple[str, int, int],
    window_run: str,
) -> Iterator[int]:
    """The floors noted for *table*. Of *window*, a pipeline and two TSO, only loads of *window_run* count."""
    pipelines = [window[0], *config.same_upstream_as]
    for drop in session.ledger.noted_drops(_places(config, dialect, table), pipelines, window, window_run):
        is_for = drop.selection is None or _wants(drop.selection, table)
        if is_for and not any(_wants(patterns, table) for patterns in drop.newer):
            yield drop.floor_ts


def _places(config: MirrorSection, dialect: Dialect, table: TableName) -> MirrorPlaces:
    target = target_of(config, dialect, table)
    places = [target.schema, ""] if dialect.fit(table.schema) == target.schema else [target.schema]
    if place_of(config, dialect) not in places:  # a pattern, under which loads note their drops
        places.append(place_of(config, dialect))
    return MirrorPlaces(str(target), places, [folded(table.schema), ""])


def _wants(patterns: Sequence[str], table: TableName) -> bool:
    return TablePatterns(patterns).wants(table.schema, table.table)


def _window_run(index: ChangelogIndex) -> str:
    """The run of the window that *index* is of, or adds to."""
    return index.redrives or index.run_hash
