"""The form of a manual run, and what a run's answers mean."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, get_args

import msgspec
from airflow.sdk import Param

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.window import PinPolicy, Window

_HOW = "Trigger with From and To, or let the schedule or a backfill start the run"


class RunOptions(msgspec.Struct, frozen=True):
    """What one run does beside its window."""

    tables: tuple[str, ...]
    targets: tuple[str, ...]
    dry_run: bool
    repin: bool
    reload: bool
    pin: PinPolicy | None
    """In place of the pipeline's ``window.pin``."""


def params(pipeline: Pipeline) -> dict[str, Param]:
    """The fields of the trigger form; a backfill takes the same names in its JSON configuration."""
    targets = [target.name for target in pipeline.targets]
    return {
        "from": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="From",
            description="Start of the window, included. Without From and To: the run's data interval",
        ),
        "to": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="To",
            description="End of the window, not included",
        ),
        "tables": Param(
            list(pipeline.tables),
            type="array",
            items={"type": "string", "pattern": r"^[^.]+\..+$"},
            minItems=1,
            title="Tables",
            description="schema.table patterns, one a line, with * and ?, within those of the pipeline",
        ),
        "targets": Param(
            targets,
            type="array",
            items={"type": "string", "enum": targets},
            minItems=1,
            uniqueItems=True,
            examples=targets,
            title="Targets",
            description="Where to load",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Tell what the run would read, how long it would take, and what it would stop at; nothing is done",
        ),
        "pin": Param(
            None,
            type=["null", "string"],
            enum=[None, *get_args(PinPolicy)],
            title="Pin policy",
            description="Where the window ends in Kafka: first or head; empty: as the pipeline says. With Pin anew where it ran",
        ),
        "repin": Param(
            False,
            type="boolean",
            title="Pin anew",
            description=(
                "Look for the window's offsets and objects again instead of reading what an earlier run pinned, and decode anew"
            ),
        ),
        "reload": Param(
            False,
            type="boolean",
            title="Reload",
            description="Load again though the target's ledger says that the window is loaded",
        ),
    }


def run_window(context: Mapping[str, Any]) -> Window:
    """The window of a run: From and To of the form, else the run's data interval.

    Raises ConfigError where the run has neither, where they are no window, or where a backfill gives all its runs one window.
    """
    answers = context["params"]
    start, end = answers["from"], answers["to"]
    source = "the form's From and To"
    if (start, end) != (None, None) and context["dag_run"].run_type == "backfill":
        # Airflow shows the form in its backfill dialog too, below a From and To of its own.
        raise ConfigError(
            "every run of this backfill was given the same From and To as a run parameter, but a run of a backfill replays its "
            "own interval; leave them empty, and give From and To as the backfill's date range only"
        )
    if (start is None) != (end is None):
        raise ConfigError(f"of From and To only one is given; {_HOW}")
    if start is None:
        source = "the run's data interval"
        start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None:
        raise ConfigError(f"this run has neither From and To nor a data interval, so it has no window. {_HOW}")
    try:
        return Window(_moment(start), _moment(end))
    except ValueError as error:
        raise ConfigError(f"{source} ({start} to {end}) is no window: {error}. {_HOW}") from None


def window_between(start: str | None, end: str | None) -> Window:
    """The window that From and To of a form name. Raises ConfigError where they name none."""
    if start is None or end is None:
        raise ConfigError("of From and To only one is given; together they name a window")
    try:
        return Window(_moment(start), _moment(end))
    except ValueError as error:
        raise ConfigError(f"the form's From and To ({start} to {end}) is no window: {error}") from None


def run_options(context: Mapping[str, Any]) -> RunOptions:
    """The other answers of the form."""
    answers = context["params"]
    return RunOptions(
        tables=tuple(answers["tables"]),
        targets=tuple(answers["targets"]),
        dry_run=answers["dry_run"],
        repin=answers["repin"],
        reload=answers["reload"],
        pin=answers["pin"],
    )


def _moment(value: str | datetime) -> int:
    return tso.from_datetime(datetime.fromisoformat(value) if isinstance(value, str) else value)
