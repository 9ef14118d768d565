"""What a load of a base adds to that of a window: it fills empty mirrors, and ends what older windows could bring.

A base has the rows of the upstream at one TSO, and their changelog is the window of that TSO alone. So the mirror's floor is
raised to the window's end, in the same commit as the rows: an older window changes nothing from then on, and brings back no row
that was deleted before. Where rows and ledger do not share a commit, the ledger is written first, with the base that it expects
(``TableState.base``): a load that broke in between is repeated, and any other one is refused.
"""

from ticdc_replay.domain.errors import TargetMismatchError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import describe
from ticdc_replay.targets.base import Load, TableReport
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.planning.tables import Observed, TableState
from ticdc_replay.targets.mirror.planning.window_ddl import Floor
from ticdc_replay.targets.mirror.session import Session
from ticdc_replay.targets.mirror.staging import Staged

_NO_SNAPSHOT = (
    "the folder holds more than one dump, or it was not taken with --consistency snapshot. Dump again into an empty one"
)


def find_done(session: Session, load: Load, plan: TablePlan) -> TableReport | None:
    """The report of the load that has applied to the mirror what *load* brings; None if none has, or if it is a reload. Of a base
    any run counts that was made of the same files of the table, with the same options: a person repeats a seed with other tables
    of the dump, or after an upgrade."""
    index = load.index
    if load.reload:
        return None
    report = session.ledger.find_done(plan.target, index.window, index.run_hash)
    content = index.contents.get(str(plan.source), "")
    if report is None and index.is_base and content:
        return session.ledger.find_same_base(plan.target, index.window, content)
    return report


def is_repeated(load: Load, state: TableState | None) -> bool:
    """Whether a load of the same base has begun to write to the mirror, and may have broken."""
    return load.index.is_base and state is not None and state.base == load.index.run_hash


def floor_before(load: Load, state: TableState | None) -> Floor:
    """The floor of the mirror; if *load* repeats its base, without what the base itself has raised."""
    if state is None:
        return Floor(0, 0)
    if not is_repeated(load, state):
        return Floor(state.floor_ts, state.form_floor_ts)
    window = load.index.window
    # What is higher than the base's own floor was raised since, by a TRUNCATE, a DROP or a person, and stays.
    rows, form = (window.from_ts if each == window.to_ts else each for each in (state.floor_ts, state.form_floor_ts))
    return Floor(rows, form)


def floor_after(load: Load, plan: TablePlan) -> Floor:
    """The floor that *load* leaves."""
    if load.index.is_base:
        return Floor(load.index.window.to_ts, load.index.window.to_ts)
    return Floor(plan.next_floor_ts, plan.next_form_floor_ts)


def newest_after(load: Load, staged: Staged) -> int:
    """No version is newer that the load has applied (TSO); of a base at least its floor, so that a mirror that is lost later
    is noticed."""
    return max(staged.last_ts, load.index.window.to_ts) if load.index.is_base else staged.last_ts


def obstacles(load: Load, plan: TablePlan, observed: Observed) -> list[str]:
    """Why a base can't be loaded into the mirror, one line each; empty for any other load."""
    if not load.index.is_base or is_repeated(load, observed.state):
        return []
    from_ts = load.index.window.from_ts
    forget = (
        f"drop the table, run `ticdc-replay mirror forget <pipeline> {plan.source}`, and seed again; `mirror seed --only-base` "
        "and `mirror rebuild` do that beside the old one"
    )
    if observed.found is not None and observed.found.is_table and not observed.empty:
        return [
            f"target table {plan.target} holds rows, and a base fills empty mirrors only. Leave {plan.source} out (--table); or, "
            f"to build the mirror again, {forget}"
        ]
    if plan.floor_ts > from_ts:
        return [
            f"the floor of {plan.target} is {describe(plan.floor_ts)}, above the dump, which was taken at {describe(from_ts)}: "
            f"none of its rows would be applied. Take a newer dump; or, if the mirror is to begin with this one, {forget}"
        ]
    return []


def is_direct(load: Load, plan: TablePlan, observed: Observed) -> bool:
    """Whether the rows of a base may be put into the table that becomes the mirror: there is none yet, and no row of it is
    known; what workers stage is what it holds."""
    pieces = [piece for piece in plan.pieces if piece.version.files]
    return (
        load.index.is_base
        and plan.order == "commit_ts"
        and observed.found is None
        and observed.state is None
        and not plan.kept
        and len(pieces) == 1
        and not pieces[0].lacking
        and not any(file.only for file in pieces[0].version.files)
        and all(plan.dialect.stage_type(column.type) == column.type for column in plan.columns)
    )


def repeated_key(source: TableName) -> TargetMismatchError:
    """For rows of a dump that have the same key."""
    return TargetMismatchError(f"{source}: a row has a key that another row of the dump has: {_NO_SNAPSHOT}")


def refuse(load: Load, plan: TablePlan, observed: Observed) -> None:
    """Raise TargetMismatchError for ``obstacles``."""
    found = obstacles(load, plan, observed)
    if found:
        raise TargetMismatchError("\n".join(found))


def refuse_repeats(load: Load, plan: TablePlan, staged: Staged) -> None:
    """Raise TargetMismatchError if rows of a base have the same key: which of them is the upstream's is unknown."""
    folded = staged.events - plan.below_floor - staged.quarantined - staged.keys
    if load.index.is_base and folded:
        raise TargetMismatchError(
            f"{plan.source}: {folded} {'row has a key' if folded == 1 else 'rows have keys'} that another row of the dump "
            f"{load.index.base} has: {_NO_SNAPSHOT}"
        )
