"""The form of a run of a pipeline's quarantine DAG, and what its answers mean."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from airflow.sdk import Param

from ticdc_replay.airflow.form import window_between
from ticdc_replay.config.pipeline import Pipeline

if TYPE_CHECKING:
    from ticdc_replay.stages.quarantine.entries import Selection

Action = Literal["list", "redrive", "accept"]


class QuarantineOptions(msgspec.Struct, frozen=True):
    """What a run is to do, beside what with."""

    action: Action
    targets: tuple[str, ...]
    """Empty for those that hold the window."""
    person: str
    why: str


def quarantine_params(pipeline: Pipeline) -> dict[str, Param]:
    """The fields of the trigger form."""
    targets = [target.name for target in pipeline.targets]
    return {
        "action": Param(
            "list",
            type="string",
            enum=["list", "redrive", "accept"],
            title="What to do",
            description="list: tell in the log what is there. redrive: decode it again and load what comes out. "
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


def quarantine_options(context: Mapping[str, Any]) -> QuarantineOptions:
    """What the run is to do."""
    answers = context["params"]
    return QuarantineOptions(answers["action"], tuple(answers["targets"]), answers["name"], answers["why"])


def quarantine_selection(context: Mapping[str, Any]) -> "Selection":
    """The entries that the run is for. Raises ConfigError where From and To are no window."""
    from ticdc_replay.stages.quarantine.entries import Selection

    answers = context["params"]
    start, end = answers["from"], answers["to"]
    window = None if start is None and end is None else window_between(start, end)
    lists = (tuple(answers[name]) for name in ("reasons", "tables", "messages"))
    return Selection(answers["run"] or None, window, *lists).checked()
