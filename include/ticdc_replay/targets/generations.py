"""The loads that have begun in a target, so that an older run's load never commits after a newer one.

A load leaves a mark before it applies anything: its window, its table patterns, and the generation of its run
(``state.generations``). Whatever applies rows later reads the marks first, in the same transaction or under the same
condition. A load without generation (0) loses against every other. A load that takes rows from changelogs of other
windows also gives way to newer runs of those.
"""

from collections.abc import Iterable

import msgspec

from ticdc_replay.domain.errors import SupersededError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.targets.base import Load


class Mark(msgspec.Struct, frozen=True, order=True):
    """A load that began: the newest of its window and its patterns of tables."""

    window: Window
    selection: tuple[str, ...]
    """Sorted."""
    generation: int
    run_hash: str
    tables: tuple[TableName, ...] = ()
    """Sorted: those that this load, or earlier ones with this mark, may leave something of. For targets that can't read
    marks and apply rows in one step: a newer load then knows what an older one may still write."""

    @classmethod
    def of(cls, load: Load) -> "Mark":
        """The mark of *load*."""
        return cls(load.index.window, tuple(sorted(load.selection)), load.generation, load.index.run_hash)


def with_mark(marks: Iterable[Mark], own: Mark) -> tuple[Mark, ...]:
    """*marks* of the window with *own* among them, unless a newer one of the same patterns is there; sorted."""
    marks = list(marks)
    same = [own, *(mark for mark in marks if mark.selection == own.selection)]
    newest = max(same, key=lambda mark: mark.generation)  # of equal ones the first, which is own
    tables = sorted({table for mark in same for table in mark.tables})
    others = [mark for mark in marks if mark.selection != own.selection]
    return tuple(sorted([*others, msgspec.structs.replace(newest, tables=tuple(tables))]))


def refuse_superseded(load: Load, marks: Iterable[Mark], tables: Iterable[TableName]) -> None:
    """Raise SupersededError if one of *marks* is newer than *load* and was for one of *tables*. Marks of other windows
    count only for sources of the load."""
    for mark in marks:
        known = load.generation_in(mark.window)
        if known is not None and mark.generation > known and wants_any(mark, tables):
            raise superseded(load, mark.run_hash, mark.window)


def superseded(load: Load, newer: str, window: Window) -> SupersededError:
    """The error of *load*, of whose *window*, or a source's, the run *newer* is loaded."""
    if window != load.index.window:
        return SupersededError(
            f"target {load.target}: run {load.index.run_hash} of window {load.index.window} takes rows from a changelog of "
            f"window {window}, of which run {newer} has begun to load there since this load was prepared: it would replace rows "
            "that the newer run may have repaired. Nothing more of it was applied. Clear it from check on, which says whether "
            "its rows still count; if not, pin its window again (repin)"
        )
    return SupersededError(
        f"target {load.target}: run {load.index.run_hash} of window {load.index.window} is older than run {newer}, which has "
        "begun to load there since this load was prepared: it would replace rows that the newer run may have repaired. Nothing "
        "more of it was applied. Nothing is to be done where the newer run has ended well; to load this run all the same, "
        "start it with reload"
    )


def wants_any(mark: Mark, tables: Iterable[TableName]) -> bool:
    """Whether the load that left *mark* was for one of *tables*."""
    wanted = TablePatterns(mark.selection)
    return any(wanted.wants(table.schema, table.table) for table in tables)
