"""Compares the mirrors of a target with a base and the changelogs after it, without the upstream.

What these have is loaded into a mirror beside each one, as a rebuild does it (``rebuild.build_beside``), and both are compared in
their database. A mirror beside one that differs stays: ``ticdc-replay mirror rebuild`` lets it take its place.
"""

import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import ConfigError, PermanentError
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.domain.tso import describe
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.upkeep.mirrors import opened_target
from ticdc_replay.stages.upkeep.rebuild import Submit, Tell, abandon, build_beside
from ticdc_replay.stages.upkeep.verification import TableVerification, Verification
from ticdc_replay.stages.upkeep.verify import chosen_tables
from ticdc_replay.targets.base import ReplaceableMirror
from ticdc_replay.targets.load import open_target
from ticdc_replay.targets.mirror.comparison import ComparableMirror, Comparisons, MirrorTable
from ticdc_replay.targets.mirror.planning.tables import kept_since
from ticdc_replay.verify.compare import Comparison, Pace
from ticdc_replay.verify.findings import Findings
from ticdc_replay.verify.forms import Form
from ticdc_replay.verify.side import ComparedColumn

_TYPES = {
    Form.INTEGER: ColumnType("bigint"),
    Form.FLOAT: ColumnType("double"),
    Form.DATE: ColumnType("date"),
    Form.MOMENT: ColumnType("datetime", scale=6),
    Form.INSTANT: ColumnType("timestamp", scale=6),
    Form.SPAN: ColumnType("time", scale=6),
    Form.TEXT: ColumnType("longtext"),
    Form.BYTES: ColumnType("longblob"),
    Form.JSON: ColumnType("json"),
}
"""A type of the upstream whose cells have each form: both sides are tables of one database, with equal types."""
_BEST = (Form.DECIMAL, *_TYPES)
_SCALE = re.compile(r".*\(\d+, ?(\d+)\)")
_MOST_DIGITS = 30


def verify_changelogs(
    context: ReplayContext,
    target: str,
    submit: Submit,
    tables: Sequence[str] = ("*.*",),
    *,
    pace: Pace | None = None,
    tell: Tell = lambda line: None,
) -> Verification:
    """Compare the mirrors of *target* that match *tables* (patterns) with what their base and changelogs have.

    *submit* runs loads into the mirrors beside. The report is kept below ``verifications/`` in the artefacts. Raises ConfigError
    for a target that can't be compared so, and what ``rebuild.plan_rebuild`` and loads raise.
    """
    mirror = opened_target(context, target)
    if not isinstance(mirror, ComparableMirror) or not isinstance(mirror, ReplaceableMirror):
        raise ConfigError(
            f"{target} ({mirror.config.description}) can't be compared with its changelogs: it is no database"
        )
    began_ms = _now_ms()
    found = tuple(
        _Table(context, target, mirror, table, pace or Pace(), tell).verified(submit)
        for table in chosen_tables(context, mirror, tables)
    )
    report = Verification(
        pipeline=context.pipeline.name,
        target=target,
        place=context.place_of(target),
        against="changelogs",
        began_ms=began_ms,
        ended_ms=_now_ms(),
        tables=found,
    )
    context.artifacts.put_once(report.name, canonical.encode(report))
    return report


class _Table:
    """One mirror, and what is beside it."""

    def __init__(
        self,
        context: ReplayContext,
        target: str,
        mirror: ComparableMirror[Any],
        table: TableName,
        pace: Pace,
        tell: Tell,
    ) -> None:
        self._context, self._target, self._mirror, self._table = context, target, mirror, table
        self._pace, self._tell = pace, tell

    def verified(self, submit: Submit) -> TableVerification:
        begun, table = time.monotonic(), self._table
        plan = build_beside(self._context, self._target, table, submit, self._tell)
        assert isinstance(self._mirror, ReplaceableMirror), "a mirror of a database"
        beside = open_target(self._mirror.beside(table), self._context.connections)
        assert isinstance(beside, ComparableMirror), "a mirror as the one that it is beside"
        new, old, at = beside.mirror_of(table), self._mirror.mirror_of(table), plan.end_ts - 1
        if old is None:
            raise PermanentError(f"the mirror of {table} in {self._target} was forgotten meanwhile: verify again")
        self._tell(f"{table} as of {describe(at)}")
        with ExitStack() as stack:
            sessions = [stack.enter_context(each.comparisons()) for each in (beside, self._mirror)]
            columns, key, problems = _layout(new, old, sessions[0])
            found = Findings()
            if new is not None and key:
                made, held = (
                    session.side(each, columns, key) for session, each in zip(sessions, (new, old), strict=True)
                )
                found = Comparison(made, held, columns, key, at, self._pace).run(found, lambda _: None)
        verified = TableVerification(
            table=table,
            mirror=str(old.relation),
            at=at,
            key=tuple(columns[place].name for place in key),
            columns=len(columns),
            problems=tuple(problems),
            notes=(f"compared with {plan.begins} and {len(plan.sources)} changelogs",),
            findings=found,
            seconds=round(time.monotonic() - begun, 3),
        )
        if verified.outcome == "equal":
            abandon(self._context, self._target, table)
        return verified


def _layout(
    new: MirrorTable | None, old: MirrorTable, comparisons: Comparisons
) -> tuple[list[ComparedColumn], list[int], list[str]]:
    """The columns that both have, the places of the key's, and what of the tables as a whole differs."""
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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
