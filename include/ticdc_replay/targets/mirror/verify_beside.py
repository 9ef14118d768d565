"""Compares a mirror with one that was filled beside it, out of a base and changelogs, in the same database or lake."""

import re
import time
from collections.abc import Collection
from contextlib import ExitStack
from typing import Any

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.jobspec import ComparedMirror
from ticdc_replay.targets.mirror.comparison import ComparableMirror, Comparisons, MirrorTable
from ticdc_replay.targets.mirror.planning.tables import kept_since
from ticdc_replay.targets.shaped_load import unsalted
from ticdc_replay.verify.compare import Comparison, Pace
from ticdc_replay.verify.findings import Findings, Progress, TableVerification
from ticdc_replay.verify.forms import Form
from ticdc_replay.verify.scan import ScanComparison
from ticdc_replay.verify.side import ComparedColumn, ScannedSide

_TYPES = {
    Form.INTEGER: ColumnType("bigint"),
    Form.FLOAT: ColumnType("double"),
    Form.BITS: ColumnType("double"),
    Form.DATE: ColumnType("date"),
    Form.MOMENT: ColumnType("datetime", scale=6),
    Form.INSTANT: ColumnType("timestamp", scale=6),
    Form.SPAN: ColumnType("time", scale=6),
    Form.TEXT: ColumnType("longtext"),
    Form.BYTES: ColumnType("longblob"),
    Form.JSON: ColumnType("json"),
}
"""A type of the upstream whose cells have each form: both sides are tables of one database, with equal types."""
_BEST = (Form.TEXT, Form.DECIMAL, *_TYPES)
"""Which of several forms is taken: a text need be no number or JSON."""
_SCALE = re.compile(r".*\(\d+, ?(\d+)\)")
_MOST_DIGITS = 30


def compare_beside(
    beside: ComparableMirror[Any], mirror: ComparableMirror[Any], asked: ComparedMirror, pace: Pace
) -> TableVerification:
    """Compare the mirror of a table with what *beside* has of it. Raises PermanentError if the mirror was forgotten, and what
    sides raise."""
    begun, table = time.monotonic(), asked.table
    new, old = beside.mirror_of(table), mirror.mirror_of(table)
    if old is None:
        raise PermanentError(f"the mirror of {table} in {mirror.config.name} was forgotten meanwhile: verify again")
    with ExitStack() as stack:
        sessions = [stack.enter_context(each.comparisons()) for each in (beside, mirror)]
        columns, key, problems = _layout(new, old, sessions[0], _of_loads(beside, table))
        found = Findings()
        if new is not None and key:
            made, held = (session.side(each, columns, key) for session, each in zip(sessions, (new, old), strict=True))
            comparison: Comparison | ScanComparison
            if isinstance(held, ScannedSide):
                comparison = ScanComparison(made, held, columns, asked.at, pace)
            else:
                assert not isinstance(made, ScannedSide), "both are in one database"
                comparison = Comparison(made, held, columns, key, asked.at, pace)
            found = comparison.run(Progress(), lambda _: None)
        version = sessions[1].version_of(old)
    return TableVerification(
        table=table,
        mirror=str(old.relation),
        at=asked.at,
        version=version,
        key=tuple(columns[place].name for place in key),
        columns=len(columns),
        problems=tuple(problems),
        findings=found,
        seconds=round(time.monotonic() - begun, 3),
    )


def _of_loads(mirror: ComparableMirror[Any], table: TableName) -> frozenset[str]:
    """The folded names of the columns of *table* whose values depend on which load brought a row, not on the row: a row that a
    window brought may be in a newer base, too, and a window may have had several runs. The pipeline's name is equal everywhere
    unless several pipelines load the mirror."""
    shape = unsalted(mirror.config, table)
    by_name = {} if shape is None else shape.section.constants
    is_one_pipeline = not mirror.config.same_upstream_as
    return frozenset(
        folded(mirror.dialect.fit_column(name))
        for name, value in by_name.items()
        if not (value == "pipeline" and is_one_pipeline)
    )


def _layout(
    new: MirrorTable | None, old: MirrorTable, comparisons: Comparisons, of_loads: Collection[str]
) -> tuple[list[ComparedColumn], list[int], list[str]]:
    """The columns that both have, without those of the folded names *of_loads*, the places of the key's, and what of the tables
    as a whole differs."""
    made, is_there = new is not None and new.found is not None, old.found is not None
    if not made and not is_there:
        return [], [], []
    if new is None or new.found is None:
        return [], [], [f"the changelogs leave no table, and {old.relation} exists"]
    if old.found is None or not old.found.is_table:
        return [], [], [f"there is no table {old.relation}"]
    problems, columns = [], []
    mine = {column.name: column for column in old.found.columns if not column.generated}
    # Columns that the upstream dropped, and policy keeps, are not compared: which values they have depends on the windows.
    kept = {*kept_since(old.state.events, str), *kept_since(new.state.events, str)}
    kept |= {folded(name) for name in (new.version_column, new.state.deleted_column) if name is not None}
    mine = {name: column for name, column in mine.items() if folded(name) not in kept}
    for column in new.found.columns:
        if folded(column.name) in kept:
            continue
        if mine.pop(column.name, None) is None:
            problems.append(f"the mirror has no column {column.name}")
            continue
        if folded(column.name) in of_loads:
            continue
        held = comparisons.forms(column.type)
        form = next((form for form in _BEST if form in held), None)
        if form is None:
            problems.append(f"column {column.name}: {column.type} can't be compared")
            continue
        is_key = column.name in new.found.primary_key
        type_ = _type_of(form, column.type, is_key=is_key)
        columns.append(ComparedColumn(column.name, column.name, type_, not column.not_null, form))
    problems += [f"the changelogs have no column for {name} of the mirror" for name in sorted(mine)]
    places = {column.name: at for at, column in enumerate(columns)}
    key = new.found.primary_key
    if set(key) != set(old.found.primary_key) or not places.keys() >= set(key):
        named = ", ".join(old.found.primary_key)
        return (
            columns,
            [],
            [*problems, f"the key of the changelogs ({', '.join(key)}) is not that of the mirror ({named})"],
        )
    return columns, [places[name] for name in key], problems


def _type_of(form: Form, type_name: str, *, is_key: bool) -> ColumnType:
    if form is Form.DECIMAL:
        scale = _SCALE.fullmatch(type_name)
        return ColumnType("decimal", length=65, scale=_MOST_DIGITS if scale is None else int(scale[1]))
    if form is Form.TEXT and is_key:
        return ColumnType("varchar")
    return _TYPES[form]
