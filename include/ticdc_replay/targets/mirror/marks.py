"""The marks of loads that have begun in a mirror's database.

A mark concerns the mirrors that its load may write to, whatever the target is called: tables that match its patterns,
in the target's ``schema`` or in the upstream's. So a renamed target, or two that load one mirror, respect each other's
marks; equally named targets with other mirrors don't.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.generations import Mark, refuse_superseded, wants_any
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.section import MirrorSection, filled
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan
from ticdc_replay.targets.mirror.session import Session


class _Placed(NamedTuple):
    """A mark, and the schema of the mirrors it is about; empty for that of each upstream's table."""

    mark: Mark
    schema: str

    def reaches(self, plan: TablePlan) -> bool:
        """Whether the load that left the mark would write to the mirror of *plan*, had it rows of that."""
        return plan.dialect.fit(filled(self.schema or "{schema}", plan.source)) == plan.target.schema


Marks = frozenset[_Placed]


def leave(session: Session, load: Load, config: MirrorSection, dialect: Dialect, plans: Sequence[TablePlan]) -> Marks:
    """Leave the mark of *load*, in the transaction before its rows are staged; newer marks of overlapping windows.

    *plans* are the tables with rows. Raises SupersededError if a newer run of the window or a source has begun with one.
    """
    newer = _newer(session, load, config, dialect)
    for plan in plans:
        _refuse(load, newer, plan)
    session.ledger.put_mark(load, place_of(config, dialect), Mark.of(load))
    return newer


def place_of(config: MirrorSection, dialect: Dialect) -> str:
    """The schema of the mirrors that a load with *config* writes to, a pattern or a name; empty for that of each upstream's
    table."""
    return "" if config.db_schema is None else dialect.fit(config.db_schema)


def look_again(session: Session, load: Load, config: MirrorSection, plan: TablePlan, seen: Marks) -> None:
    """Check that *load* may still apply rows to the mirror of *plan*, in that transaction. *seen* is from ``leave``.

    Raises SupersededError if a newer run of the window, or of a source's, has begun. Raises TransientError if a newer
    run of an overlapping window has begun since: an old load must not commit after it, but a repeat is newer.
    """
    newer = _newer(session, load, config, plan.dialect)
    _refuse(load, newer, plan)
    for mark, _ in (each for each in newer - seen if each.reaches(plan)):
        if mark.generation > load.generation and wants_any(mark, [plan.source]):
            raise TransientError(
                f"target {load.target}: a newer run, {mark.run_hash} of the overlapping window {mark.window}, has begun to load "
                f"{plan.source} while this load staged its rows; try again"
            )


def _refuse(load: Load, newer: Marks, plan: TablePlan) -> None:
    refuse_superseded(load, [each.mark for each in newer if each.reaches(plan)], [plan.source])


def _newer(session: Session, load: Load, config: MirrorSection, dialect: Dialect) -> Marks:
    """The marks in overlapping windows that are newer than *load*, or than rows it takes from one of them."""
    known = min([load.generation, *(source.generation for source in load.sources)])
    return frozenset(
        _Placed(mark, place_of(config, dialect) if place is None else place)
        for mark, place in session.ledger.newer_marks(load, known)
    )
