"""Compares the mirrors of a target with a base and the changelogs after it, without the upstream.

What these have is loaded into a mirror beside each one, as a rebuild does it (``rebuild.build_beside``), and both are compared in
their database or lake. A mirror beside one that differs stays: ``ticdc-replay mirror rebuild`` lets it take its place. What a
rebuild has begun is left alone.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ticdc_replay import __version__
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ConfigError, PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.tso import describe
from ticdc_replay.jobspec import ComparedMirror, VerifyJob
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.leases import holding_mirror
from ticdc_replay.stages.upkeep import begun_rebuilds
from ticdc_replay.stages.upkeep.mirror_jobs import Submit
from ticdc_replay.stages.upkeep.mirrors import opened_target
from ticdc_replay.stages.upkeep.rebuild import Tell, build_beside, remove_beside
from ticdc_replay.stages.upkeep.rebuild_plan import plan_rebuild
from ticdc_replay.stages.upkeep.verification import Verification
from ticdc_replay.stages.upkeep.verify import chosen_tables, compared
from ticdc_replay.targets.base import ReplaceableMirror
from ticdc_replay.targets.mirror.comparison import ComparableMirror
from ticdc_replay.verify.compare import Pace
from ticdc_replay.verify.findings import TableVerification


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

    *submit* runs loads into the mirrors beside; of a lake also the jobs that compare and remove these. The report is kept below
    ``verifications/`` in the artefacts. Raises ConfigError for a target that can't be compared so, PolicyStopError if a rebuild
    of one has begun, LeaseHeldError while another comparison runs, and what ``plan_rebuild`` and loads raise.
    """
    mirror = opened_target(context, target)
    if not isinstance(mirror, ComparableMirror) or not isinstance(mirror, ReplaceableMirror):
        raise ConfigError(
            f"{target} ({mirror.config.description}) can't be compared with its changelogs, as no mirror can be "
            "built beside it: compare it with the upstream, without --against"
        )
    began_ms = _now_ms()
    chosen = chosen_tables(context, mirror, tables)
    for table in chosen:
        _refuse_rebuild(context, target, table)
    found = tuple(_Table(context, target, mirror, table, pace or Pace(), tell).verified(submit) for table in chosen)
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
        leases, place = self._context.state.leases, self._mirror.config.place_of(self._table)
        with holding_mirror(leases, place, "verify --against changelogs") as hold:
            _refuse_rebuild(self._context, self._target, self._table)
            verified = self._compared(submit)
            if verified.outcome == "equal":
                hold.verify()
                remove_beside(self._context, self._target, self._table, submit)
        return verified

    def _compared(self, submit: Submit) -> TableVerification:
        context, table = self._context, self._table
        assert isinstance(self._mirror, ReplaceableMirror), "a mirror that can be built beside itself"
        plan = plan_rebuild(context, self._target, table)
        build_beside(context, self._mirror, self._target, plan, submit, self._tell, is_comparison=True)
        at = plan.end_ts - 1
        self._tell(f"{table} as of {describe(at)}")
        job = VerifyJob(
            library_version=__version__,
            pipeline=context.pipeline.name,
            artifacts=context.artifacts_uri,
            artifacts_connection=context.pipeline.connections.artifacts,
            target=self._mirror.config.model_dump(mode="json", by_alias=True),
            beside=self._mirror.beside(table).model_dump(mode="json", by_alias=True),
            source_connection=None,
            dispatch=context.changefeed.dispatch,
            mirrors=(ComparedMirror(table, at, ""),),
            selection=(),
            pipeline_tables=(),
            share=self._pace.share,
            range_rows=self._pace.range_rows,
            restart=True,
            asked_at_ms=_now_ms(),
        )
        (found,) = compared(context, job, submit, self._tell, self._pace).tables
        notes = (f"compared with {plan.begins} and {len(plan.sources)} changelogs",)
        return msgspec.structs.replace(found, notes=notes)


def _refuse_rebuild(context: ReplayContext, target: str, table: TableName) -> None:
    """Raise PolicyStopError if a rebuild of *table* in *target* has begun, which may go on."""
    begun = begun_rebuilds.of_table(context, target, table)
    if begun is not None and not begun.is_comparison:
        raise PolicyStopError(
            f"{table}: a rebuild of its mirror in {target} has begun, and has not ended. Run `ticdc-replay mirror rebuild` for "
            "it again, which ends it, or with --abandon, which gives it up; then compare again"
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
