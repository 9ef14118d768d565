"""What stops a load, or leaves a table out: found before a row is read, and after all rows of the window."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from ticdc_replay.domain.errors import PermanentError, PolicyStopError, TargetMismatchError
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.targets.base import Load, TableReport
from ticdc_replay.targets.layouts import layouts_of
from ticdc_replay.targets.mirror import base, emptying
from ticdc_replay.targets.mirror.planning import differences, moved_columns
from ticdc_replay.targets.mirror.planning.section import MirrorSection
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import MakeTable, Relation, TableState
from ticdc_replay.targets.mirror.session import Session

log = logging.getLogger(__name__)


class Pending(msgspec.Struct, frozen=True):
    """A table that this attempt loads, and what the ledger had of it at the beginning, after the window's DDL of columns."""

    plan: TablePlan
    state: TableState | None
    direct: MakeTable | None = None
    """What makes the mirror, where a base's rows are put into the table that becomes it (``base.is_direct``)."""


def begin(
    session: Session, load: Load, plans: Sequence[TablePlan], same_upstream: Sequence[str]
) -> tuple[dict[TableName, TableReport], list[Pending]]:
    """What the ledger has already, and what is to be loaded. Refuses what can't be loaded before a row is read."""
    done: dict[TableName, TableReport] = {}
    pending: list[Pending] = []
    stops: list[str] = []
    earlier: list[str] = []
    apart: list[str] = []
    mismatches: list[str] = []
    for plan in plans:
        observed = session.observe(plan.target)
        if observed.state is not None:
            differences.refuse_others(plan.target, observed.state, load.index.pipeline, same_upstream)
            differences.refuse_other_deletes(plan.target, plan.source, observed.state, plan.deleted_column)
        differences.refuse_lost(plan, observed)
        differences.refuse_history(plan, observed)
        report = base.find_done(session, load, plan)
        if report is not None:
            done[plan.source] = report
            continue
        obstacles = base.obstacles(load, plan, observed)
        if obstacles:
            mismatches += obstacles
            continue
        observed = emptying.after_emptying(session, plan, observed)
        unfollowed = differences.unfollowed_changes(plan, observed)
        stops += unfollowed
        if unfollowed and observed.state is not None and observed.state.newest_ts >= load.index.window.to_ts:
            stops.append(
                f"{plan.source}: its mirror has rows from after this window, which a change by hand would also change: "
                f"rebuild it from a dump of the upstream at or after {describe(observed.state.newest_ts)}, up to which windows "
                "count as loaded; or from one at or after this commitTs, and then reload the windows after the dump"
            )
        stops += emptying.rows_before_creation(session, plan, observed)
        try:
            moves, observed = moved_columns.moves_to(plan, observed)
            has_rows = partial(session.has_rows_between, plan.target, plan.version_column)
            moved_columns.refuse_mixed(plan, moves, has_rows)
            steps = differences.steps_to(plan, observed)
        except TargetMismatchError as error:
            mismatches.append(f"{error}{layouts_of(load, plan.source)}")
            continue
        except PolicyStopError as error:
            apart.append(str(error))
            continue
        if "ddl" in load.stopping and observed.found is not None and not unfollowed:
            earlier += [
                f"{plan.source}: DDL of an earlier window was not followed, and policies.ddl is stop: load that window first. "
                f"The rows need {step.text}"
                for step in steps
                if step.text
            ]
        makes = [step.action for step in steps if isinstance(step.action, MakeTable)]
        is_direct = session.direct is not None and bool(makes) and base.is_direct(load, plan, observed)
        pending.append(Pending(plan, observed.state, makes[0] if is_direct else None))
    if stops or earlier:
        stops += [line for plan in plans for line in plan.last_stops]
        raise PolicyStopError(
            "schema changes that a mirror does not follow by itself; nothing was loaded:\n- "
            + "\n- ".join([*stops, *earlier])
            + (_what_to_do(load) if stops else "")
        )
    if mismatches:
        raise TargetMismatchError("\n".join(mismatches))
    if apart:
        raise PolicyStopError("\n".join(apart))
    return done, pending


def _what_to_do(load: Load) -> str:
    window = load.index.window
    if load.index.order != "commit_ts":
        return _numbered(
            "Do to each mirror table what its line says.",
            "Bring the tables to the upstream's state at or after the window.",
            f"Raise each mirror's floor to {window.to_ts}, the window's end: {_RAISE_FLOOR} --holds-all-rows",
            "Run this load again.",
        )
    return _numbered(
        "Load a window that ends at the first commitTs named here.",
        f"Load what is missing before that commitTs, also out of quarantine: {_BELOW_FLOOR}",
        "Load a window from that commitTs to that TSO + 1. It loads the rows of exactly this commitTs, then stops.",
        _FOLLOW,
        f"Raise each mirror's floor to that TSO + 1: {_RAISE_FLOOR}",
        "Run this load again.",
    )


def _numbered(*steps: str) -> str:
    return "".join(f"\n{number}. {step}" for number, step in enumerate(steps, 1))


_FOLLOW = (
    "Do to each mirror table what its line says. `ticdc-replay mirror follow <pipeline> <table>` does this and the next step, "
    "where the upstream is not needed."
)
_BELOW_FLOOR = "rows from before it are not applied once the floor is raised."
_RAISE_FLOOR = "ticdc-replay mirror floor <pipeline> <table> --at <TSO>"


def stop_at_the_end(load: Load, plans: Sequence[TablePlan], reports: Mapping[TableName, TableReport]) -> None:
    """Raise PolicyStopError where the window ends with DDL that a mirror does not follow; its rows are all older, and loaded."""
    stops = [line for plan in plans for line in plan.last_stops]
    if stops:
        stopped = [reports[plan.source] for plan in plans if plan.last_stops]
        aside = [
            f"\n{report.quarantined} {'row' if report.quarantined == 1 else 'rows'} of {report.table} set aside "
            f"({', '.join(report.quarantine_files)}): no load applies them once the floor is there"
            for report in stopped
            if report.quarantined
        ]
        raise PolicyStopError(
            "schema changes that a mirror does not follow by itself end the window; all rows before them are loaded:\n- "
            + "\n- ".join(stops)
            + "".join(aside)
            + _numbered(
                f"Load what is missing before the window's end, also out of quarantine: {_BELOW_FLOOR}",
                _FOLLOW,
                f"Raise each mirror's floor to {load.index.window.to_ts}, the window's end: {_RAISE_FLOOR}",
                "Run this load again.",
            )
        )


def refuse_shared_tables(plans: Sequence[TablePlan]) -> None:
    """Raise TargetMismatchError where two tables of the upstream would have one mirror."""
    sources: dict[str, TableName] = {}
    for plan in plans:
        other = sources.setdefault(str(plan.target), plan.source)
        if other != plan.source:
            way_on = "leave `schema` of the target out, or load them with two targets"
            if folded(str(other)) == folded(str(plan.source)):
                way_on = differences.one_name(other)
            raise TargetMismatchError(f"{other} and {plan.source} would both be mirrored in {plan.target}: {way_on}")


def refuse_named_reserved(load: Load, config: MirrorSection, reserved: Sequence[TableName]) -> None:
    """Raise PermanentError where the pipeline names a table, of those whose schema is *reserved*."""
    named = [str(table) for table in reserved if table in load.named]
    if named:
        raise PermanentError(
            f"{', '.join(named)}: {config.reserved_schemas} are reserved in {config.database}; name another `schema` "
            "in the target, or take these tables out of `tables`"
        )


def with_reserved_name(load: Load, config: MirrorSection, table: TableName) -> TableReport:
    """The report of a table that is left out as its schema is reserved."""
    log.warning(
        "%s: its schema's name is reserved in %s, so it has no mirror; name another `schema`", table, config.database
    )
    rows = sum(version.rows for version in load.index.versions_of(table))
    return TableReport(table=table, outcome="reserved_name", destination="", events=rows)


def refuse_named_keyless(load: Load, keyless: Sequence[TablePlan]) -> None:
    """Raise PermanentError where the pipeline names a table, of those without key."""
    named = [str(plan.source) for plan in keyless if plan.source in load.named]
    if named:
        raise PermanentError(
            f"{', '.join(named)}: without primary key or NOT NULL unique key rows have no identity, so a mirror can't hold them; "
            "take them out of `tables`, or load their history into a parquet target"
        )


def refuse_lost_keys(session: Session, load: Load, keyless: Iterable[TablePlan]) -> None:
    """Raise PolicyStopError for those of *keyless*, the tables whose rows have no key in the window of *load*, whose mirror has
    rows from before its end: left out, it would show them for ever."""
    lines = [
        f"{plan.source}: rows of this window have no key, and {plan.target} mirrors earlier ones: take the table out of "
        f"`tables`; or drop {plan.target} and run `ticdc-replay mirror forget <pipeline> {plan.source}`, and loads leave it out"
        for plan in keyless
        if has_rows_before_end(session, load, plan.target, plan.version_column)
    ]
    if lines:
        raise PolicyStopError("\n".join(lines))


def has_rows_before_end(
    session: Session, load: Load, target: Relation, version_column: str, null_column: str | None = None
) -> bool:
    """Whether *target*, a table of the ledger or unknown, has rows from before the end of the window of *load*, with NULL in
    *null_column* if it is given. Of rows ordered by place: whether it is there."""
    if session.ledger.state_of(target) is None or session.find_table(target) is None:
        return False
    return load.index.order == "place" or session.has_rows_between(
        target, version_column, -1, load.index.window.to_ts, null_column
    )


def without_key(plan: TablePlan) -> TableReport:
    """The report of a table that is left out as it has no key."""
    log.warning("%s has no key: its history stays in the changelog, a mirror can't hold it", plan.source)
    rows = sum(piece.version.rows for piece in plan.pieces)
    return TableReport(table=plan.source, outcome="without_key", destination="", events=rows)


def moved_row(plan: TablePlan, key: Sequence[object], before: int, now: int) -> TargetMismatchError:
    """The error for a row, ordered by place, that was in the partition *before* and is in partition *now*."""
    return TargetMismatchError(
        f"{plan.target}: the row with key {tuple(key)} was in partition {before}, and is in partition {now} "
        "now; without commitTs the later one is unknown. Were partitions added or the dispatcher changed? "
        f"Bring the table up to date from the upstream, set {plan.version_column} to 0 in all its rows, empty "
        f"{plan.tombstones}, and set floor_ts to the end of a window after that in _ticdc_replay.tables"
    )
