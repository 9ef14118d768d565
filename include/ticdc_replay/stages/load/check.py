"""The gate between decode and load: compares the report with the pipeline's policies, before a target is touched."""

from collections.abc import Mapping, Sequence

import msgspec

from ticdc_replay.changelog.files.index import ChangelogIndex, Elsewhere
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.changelog.files.writer import ROW_DAMAGED, ROW_UNLIKE
from ticdc_replay.config.pipeline import Pipeline, PoliciesSection
from ticdc_replay.config.target_rules import with_drop_column
from ticdc_replay.config.target_section import TargetSection
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.recording import record_decode
from ticdc_replay.stages.named import require_set_aside
from ticdc_replay.stages.set_aside import by_reason, has_way_back, listed_reasons, set_aside
from ticdc_replay.targets.ddl import foreseen_stops, stopping_policies
from ticdc_replay.targets.shaped_load import unsalted, with_key, without_unclear_texts


class CheckResult(msgspec.Struct, frozen=True):
    """What the gate let through."""

    run_hash: str
    written: int
    quarantined: int
    reasons: dict[str, int]
    undeclared_tables: tuple[str, ...]
    idle_patterns: tuple[str, ...]
    """Wanted patterns that no table with changes in the window matches: quiet tables, or a name mistyped."""
    placed: int = 0
    """Rows of a sample whose topic and partition were compared with the dispatcher rules."""
    elsewhere: tuple[Elsewhere, ...] = ()
    """Tables with rows among these that stand elsewhere."""
    accepted: int = 0
    """Entries of the quarantine that a person accepted as lost; not among ``quarantined``."""
    redriven: int = 0
    """Entries of the quarantine that were decoded again since; not among ``quarantined``."""
    ddl_stops: dict[str, tuple[str, ...]] = {}
    """By target: what of the window's DDL will stop its load, unless the floor of the mirror lies above it."""
    idle_places: tuple[str, ...] = ()
    """Places in ``set_aside`` of the pipeline file that were read, and at which nothing was set aside."""
    idle_shapes: dict[str, tuple[str, ...]] = {}
    """By target: patterns in ``tables`` of its ``shape`` that match no table known so far: quiet tables, or a name mistyped."""

    @property
    def summary(self) -> str:
        """One line for a log."""
        text = f"changelog {self.run_hash[:12]}: {self.written} rows"
        if self.quarantined:
            text += f", {self.quarantined} quarantined ({listed_reasons(self.reasons)})"
        if self.accepted:
            text += f", {self.accepted} accepted as lost"
        if self.redriven:
            text += f", {self.redriven} decoded again since"
        if self.undeclared_tables:
            text += f"; types known from the wire only: {', '.join(self.undeclared_tables)}"
        if self.idle_patterns:
            text += f"; no change of a table called {' or '.join(self.idle_patterns)} in this window"
        if self.idle_places:
            text += f"; {_idle_text(self.idle_places)}"
        for target, patterns in self.idle_shapes.items():
            text += (
                f"; `shape` of target {target} has entries for {' and '.join(patterns)}, and no table of such a name is known "
                "yet: if the name is mistyped, the table that it means is loaded as it is upstream"
            )
        if self.elsewhere:
            rows = sum(each.rows for each in self.elsewhere)
            text += (
                f"; {rows} of {self.placed} sampled rows stand in another topic or partition than the dispatcher rules of the "
                f"changefeed say ({'; '.join(f'{each.table}: {each.example}' for each in self.elsewhere[:_SHOWN])}): are the "
                "rules right, were partitions added, or does another program write there?"
            )
        for target, lines in self.ddl_stops.items():
            text += (
                f"; DDL that stops load_{target} unless the floor of the mirror lies above it: {', and '.join(lines)}"
            )
        return text


_SHOWN = 3


def check(context: ReplayContext, run_hash: str, tables: Sequence[str] | None = None) -> CheckResult:
    """Let the changelog of *run_hash* through, or raise PolicyStopError with what is in quarantine and how to go on.

    *tables* are the patterns of the run, by default the pipeline's. What the decode found is recorded either way, for
    later windows. Also raises what ``require_set_aside`` raises.
    """
    index = read_index(context.artifacts, run_hash)
    record_decode(context, index)
    wanted = context.pipeline.tables if tables is None else tables
    require_set_aside(context, index, wanted)
    idle = tuple(map(str, index.report.idle_places))
    reasons, accepted, redriven = index.report.quarantine_reasons, 0, 0
    if reasons and has_way_back(context, index):
        held = set_aside(context, index)
        reasons = by_reason(held.open())
        accepted = sum(held.status(entry, ()) == "accepted" for entry in held.entries)
        redriven = len(held.entries) - accepted - sum(reasons.values())
    stopping = stopping_reasons(reasons, context.pipeline.policies)
    if stopping:
        files = "\n".join(f"  {context.artifacts.uri(f'runs/{run_hash}/{name}')}" for name in index.quarantine_files)
        raise PolicyStopError(
            f"{sum(stopping.values())} messages or events of window {index.window} are in quarantine: "
            f"{listed_reasons(stopping)}.\nNo target was touched. They are kept with their bytes in\n{files}\n"
            "Repair the cause, then run the window again with repin, or decode them again from there (ticdc-replay "
            "quarantine redrive); or accept the loss of these and clear this task (ticdc-replay quarantine accept); or let the "
            "pipeline go on without such: "
            + "; ".join(sorted({_policy(reason)[1] for reason in stopping}))
            + (f".\nThe pipeline file's {_idle_text(idle)}" if idle else "")
        )
    return CheckResult(
        run_hash,
        index.report.events.written,
        sum(reasons.values()),
        reasons,
        index.report.undeclared_tables,
        idle_patterns(wanted, index.table_names()),
        index.report.events.placed,
        index.report.elsewhere,
        accepted,
        redriven,
        ddl_stops(index, context.pipeline, tables),
        idle,
        _idle_shapes(context, index),
    )


def ddl_stops(
    index: ChangelogIndex, pipeline: Pipeline, tables: Sequence[str] | None = None
) -> dict[str, tuple[str, ...]]:
    """By target, of those that DDL of *index* stops: what does. *tables* as ``check`` has them."""
    wanted = TablePatterns(pipeline.tables if tables is None else tables)
    policies = pipeline.policies
    stopping = stopping_policies(policies.ddl, policies.truncate, policies.drop, policies.drop_column)
    found = {}
    for target in pipeline.targets:
        shaped, lines = _shaped(index, target)
        rules = with_drop_column(target.rules, policies.drop_column)
        lines += foreseen_stops(shaped, wanted, rules, stopping)
        if lines:
            found[target.name] = tuple(lines)
    return found


def _shaped(index: ChangelogIndex, target: TargetSection) -> tuple[ChangelogIndex, list[str]]:
    """*index* with the DDL as *target* is to have it, and what of it stops there for its shape."""
    changes, stops = [], []
    index = without_unclear_texts(target, index)
    for entry in index.changes:
        shape = unsalted(target, entry.table)
        try:
            changes.append(entry if shape is None else with_key(shape, index).changes(entry))
        except PolicyStopError as error:
            stops.append(str(error))
    return msgspec.structs.replace(index, changes=tuple(changes)), stops


def stopping_reasons(reasons: Mapping[str, int], policies: PoliciesSection) -> dict[str, int]:
    """Those of *reasons*, which are counts, that *policies* say stop the run."""
    return {reason: number for reason, number in reasons.items() if getattr(policies, _policy(reason)[0]) == "stop"}


def idle_patterns(patterns: Sequence[str], changed: Sequence[TableName]) -> tuple[str, ...]:
    """Those of *patterns* that match none of the *changed* tables."""
    filters = {pattern: TablePatterns([pattern]) for pattern in patterns}
    return tuple(
        pattern
        for pattern, wanted in filters.items()
        if not any(wanted.wants(table.schema, table.table) for table in changed)
    )


def _idle_shapes(context: ReplayContext, index: ChangelogIndex) -> dict[str, tuple[str, ...]]:
    """``CheckResult.idle_shapes``: known are the tables of *index*, and of all that was loaded before."""
    shapes = {
        target.name: [name for entry in target.shape for name in entry.tables] for target in context.pipeline.targets
    }
    if not any(shapes.values()):
        return {}
    loaded = (
        covered.table for record in context.state.coverage.all(context.pipeline.name) for covered in record.tables
    )
    known = [*{*index.table_names(), *loaded}]
    found = {target: idle_patterns(patterns, known) for target, patterns in shapes.items()}
    return {target: idle for target, idle in found.items() if idle}


def _policy(reason: str) -> tuple[str, str]:
    """The policy that decides on *reason*, and how to set it so that the run goes on."""
    if reason == "handle_key_only":
        return "handle_key_only", "policies.handle_key_only: quarantine, or reread"
    if reason == ROW_DAMAGED:
        return "damaged", "policies.damaged: quarantine"
    if reason == ROW_UNLIKE:  # of good rows, too, where DDL was not sent: a person is asked
        return "quarantine", "policies.quarantine: continue, or policies.damaged: accept to judge no layout"
    if reason.startswith("claim_check_"):
        return "claim_check_missing", "policies.claim_check_missing: quarantine"
    return "quarantine", "policies.quarantine: continue"


def _idle_text(idle_places: Sequence[str]) -> str:
    places = " and ".join(idle_places)
    return f"set_aside names {places}, where no row of this window and its tables is: nothing was set aside there"
