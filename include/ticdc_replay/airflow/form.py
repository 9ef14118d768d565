"""The forms of a manual run of a pipeline and of its quarantine, and what their answers mean."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import msgspec
from airflow.sdk import Param

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.window import PinPolicy, Window
from ticdc_replay.dumps.dialect import OUTPUT_DIALECTS, Dialect

if TYPE_CHECKING:
    from ticdc_replay.stages.quarantine.entries import Selection
    from ticdc_replay.stages.seed.pin import SeedRequest

Action = Literal["list", "redrive", "accept"]

_FORM = "the form's From and To"
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


class QuarantineOptions(msgspec.Struct, frozen=True):
    """What a run does with the entries that it selects."""

    action: Action
    targets: tuple[str, ...]
    """Empty for those that hold the window."""
    person: str
    why: str


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
            description="Show what the run would read, how long it would take, and what would stop it; nothing is done",
        ),
        "pin": Param(
            None,
            type=["null", "string"],
            enum=[None, *get_args(PinPolicy)],
            title="Pin policy",
            description="Where the window ends in Kafka: first or head; empty: as the pipeline says. With Pin again where it ran",
        ),
        "repin": Param(
            False,
            type="boolean",
            title="Pin again",
            description=(
                "Look for the window's offsets and objects again instead of reading what an earlier run pinned, and decode again"
            ),
        ),
        "reload": Param(
            False,
            type="boolean",
            title="Reload",
            description="Load again even if the target's ledger has the window",
        ),
    }


def run_window(context: Mapping[str, Any]) -> Window:
    """The window of a run: From and To of the form, else the run's data interval.

    Raises ConfigError where the run has neither, where they are no window, or where a backfill gives all its runs one window.
    """
    answers = context["params"]
    start, end = answers["from"], answers["to"]
    source = _FORM
    if (start, end) != (None, None) and context["dag_run"].run_type == "backfill":
        # Airflow shows the form in its backfill dialog too, below a From and To of its own.
        raise ConfigError(
            "every run of this backfill was given the same From and To as a run parameter, but a run of a backfill replays its "
            "own interval; leave them empty, and give From and To as the backfill's date range only"
        )
    if (start, end) == (None, None):
        source = "the run's data interval"
        start, end = context.get("data_interval_start"), context.get("data_interval_end")
        if start is None or end is None:
            raise ConfigError(f"this run has neither From and To nor a data interval, so it has no window. {_HOW}")
    return _window(start, end, source, _HOW)


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


def quarantine_params(pipeline: Pipeline) -> dict[str, Param]:
    """The fields of the trigger form."""
    targets = [target.name for target in pipeline.targets]
    return {
        "action": Param(
            "list",
            type="string",
            enum=["list", "redrive", "accept"],
            title="What to do",
            description="list: show in the log what is there. redrive: decode it again and load what comes out. "
            "accept: accept that it is lost",
        ),
        "run": Param(
            None,
            type=["null", "string"],
            title="Run",
            description="Hash of a run, or the beginning of it. Without it: the run that counts of each window",
        ),
        "from": Param(
            None, type=["null", "string"], format="date-time", title="From", description="Start of one window, with To"
        ),
        "to": Param(None, type=["null", "string"], format="date-time", title="To", description="End of that window"),
        "reasons": Param(
            [], type="array", items={"type": "string"}, title="Reasons", description="Only these, one a line"
        ),
        "tables": Param(
            [],
            type="array",
            items={"type": "string", "pattern": r"^[^.]+\..+$"},
            title="Tables",
            description="Only tables of these patterns, one a line",
        ),
        "messages": Param(
            [],
            type="array",
            items={"type": "string", "pattern": r"^[^\[\]]+\[\d+\]@\d+(#\d+)?$"},
            title="Messages",
            description="Only these: topic[partition]@offset, or with #event, one a line",
        ),
        "targets": Param(
            [],
            type="array",
            items={"type": "string", "enum": targets},
            uniqueItems=True,
            examples=targets,
            title="Targets",
            description="Where to load what comes out. Without any: where the window is loaded",
        ),
        "name": Param(
            "", type="string", title="Your name", description="To accept: who does. It stays with the record"
        ),
        "why": Param("", type="string", title="Why", description="To accept: why the loss is acceptable"),
    }


def maintain_params() -> dict[str, Param]:
    """The fields of the trigger form of maintenance."""
    return {
        "tables": Param(
            ["*.*"],
            type="array",
            items={"type": "string", "pattern": r"^[^.]+\..+$"},
            minItems=1,
            title="Tables",
            description="schema.table patterns of upstream tables, one a line, with * and ?",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Report sizes and what would be removed; nothing is written",
        ),
    }


def seed_params(pipeline: Pipeline) -> dict[str, Param]:
    """The fields of the trigger form of a base load."""
    mirrors = [target.name for target in pipeline.targets if target.is_mirror]
    targets = [target.name for target in pipeline.targets if target.takes_base]
    common = params(pipeline)
    default = Dialect()
    return {
        "dump": Param(
            None,
            type="string",
            minLength=1,
            title="Dump",
            description="URI of the folder that Dumpling wrote to: s3://…, file:///…",
        ),
        "consistency": Param(
            None,
            type="string",
            enum=["snapshot", "auto", "flush", "lock", "none"],
            title="Consistency",
            description="As Dumpling was given it, auto if it was not: no file of a dump says it",
        ),
        "timezone": Param(
            None,
            type=["null", "string"],
            title="Time zone",
            description="Of Dumpling's session, such as +00:00, if a table has a TIMESTAMP",
        ),
        "tables": common["tables"],
        "targets": Param(
            mirrors,
            type="array",
            items={"type": "string", "enum": targets},
            minItems=1,
            uniqueItems=True,
            examples=targets,
            title="Targets",
            description="What to fill: mirrors must be empty",
        ),
        "csv_separator": Param(default.separator, type="string", title="--csv-separator"),
        "csv_delimiter": Param(default.delimiter, type="string", title="--csv-delimiter"),
        "csv_null_value": Param(default.null_value, type="string", title="--csv-null-value"),
        "csv_line_terminator": Param("\\r\\n", type="string", enum=["\\r\\n", "\\n"], title="--csv-line-terminator"),
        "csv_output_dialect": Param("", type="string", enum=list(OUTPUT_DIALECTS), title="--csv-output-dialect"),
        "no_header": Param(False, type="boolean", title="--no-header"),
        "escape_backslash": Param(
            True,
            type="boolean",
            title="--escape-backslash",
            description="Also for SQL files. All as Dumpling was given them",
        ),
    }


def verify_params() -> dict[str, Param]:
    """The fields of the trigger form of a comparison."""
    return {
        "tables": Param(
            ["*.*"],
            type="array",
            items={"type": "string", "pattern": r"^[^.]+\..+$"},
            minItems=1,
            title="Tables",
            description="schema.table patterns of upstream tables, one a line, with * and ?",
        ),
        "at": Param(
            "",
            type="string",
            title="As of",
            description="TSO or ISO 8601 time with a zone; empty: the end of what is loaded of each table",
        ),
        "share": Param(
            0.5,
            type="number",
            exclusiveMinimum=0,
            maximum=1,
            title="Share",
            description="Share of the time that the upstream may work for the comparison; 1: no pauses",
        ),
    }


def seed_request(context: Mapping[str, Any]) -> "SeedRequest":
    """The dump that the run is for."""
    from ticdc_replay.stages.seed.pin import SeedRequest, dump_uri

    answers = context["params"]
    return SeedRequest(
        uri=dump_uri(answers["dump"]),
        consistency=answers["consistency"],
        zone=answers["timezone"] or None,
        dialect=Dialect(
            separator=answers["csv_separator"],
            delimiter=answers["csv_delimiter"],
            null_value=answers["csv_null_value"],
            line_terminator=answers["csv_line_terminator"].replace("\\r", "\r").replace("\\n", "\n"),
            header=not answers["no_header"],
            escape_backslash=answers["escape_backslash"],
            binary=OUTPUT_DIALECTS[answers["csv_output_dialect"]],
        ),
    )


class VerifyOptions(NamedTuple):
    """What a comparison is to look at; ``at`` is a TSO, None for the end of what is loaded."""

    tables: tuple[str, ...]
    at: int | None
    share: float


def verify_options(context: Mapping[str, Any]) -> VerifyOptions:
    """What the run is to compare. Raises ConfigError if *As of* is no moment."""
    answers = context["params"]
    try:
        at = tso.parse(answers["at"]) if answers["at"].strip() else None
    except ValueError as error:
        raise ConfigError(f"As of: {error}") from None
    return VerifyOptions(tuple(answers["tables"]), at, float(answers["share"]))


def quarantine_options(context: Mapping[str, Any]) -> QuarantineOptions:
    """What the run is to do."""
    answers = context["params"]
    return QuarantineOptions(answers["action"], tuple(answers["targets"]), answers["name"], answers["why"])


def quarantine_selection(context: Mapping[str, Any]) -> "Selection":
    """The entries that the run is for. Raises ConfigError where From and To are no window."""
    from ticdc_replay.stages.quarantine.entries import Selection

    answers = context["params"]
    start, end = answers["from"], answers["to"]
    how = "Together they name the window"
    window = None if (start, end) == (None, None) else _window(start, end, _FORM, how)
    lists = (tuple(answers[name]) for name in ("reasons", "tables", "messages"))
    return Selection(answers["run"] or None, window, *lists).checked()


def _window(start: str | datetime | None, end: str | datetime | None, source: str, how: str) -> Window:
    """The window from *start* to *end*, which are of *source*. Raises ConfigError with *how* to name one where they name none."""
    if start is None or end is None:
        raise ConfigError(f"of From and To only one is given. {how}")
    try:
        return Window(_moment(start), _moment(end))
    except ValueError as error:
        raise ConfigError(f"{source} ({start} to {end}) is not a window: {error}. {how}") from None


def _moment(value: str | datetime) -> int:
    return tso.from_datetime(datetime.fromisoformat(value) if isinstance(value, str) else value)
