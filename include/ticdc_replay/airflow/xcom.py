"""What tasks hand over to each other, as values. An XCom is plain JSON, which people read in Airflow's UI.

A task that others go on from returns one of these structs, perhaps with more for people beside it. A task that nobody goes on
from returns a summary for people alone.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import WrittenJob

Value = TypeVar("Value", bound=msgspec.Struct)


def encode(value: msgspec.Struct) -> dict[str, Any]:
    """*value* as an XCom: of types that JSON has, as Airflow wraps all others, tuples too."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return plain


def pull(context: Mapping[str, Any], task_id: str, kind: type[Value]) -> Value:
    """What the task *task_id* of this run handed over. Raises ConfigError where it left no *kind*."""
    try:
        return msgspec.convert(context["ti"].xcom_pull(task_ids=task_id), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"task {task_id} returned no usable result ({error}); clear the run from there on") from None


class Pinned(msgspec.Struct, frozen=True):
    """From snapshot, or the selection of a quarantine."""

    window: str
    manifest: str
    """URI."""
    decode: WrittenJob


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """From check: by target, the job that loads it."""

    summary: str
    run_hash: str
    loads: dict[str, WrittenJob]
    window_loads: dict[str, WrittenJob] = {}
    """Of a re-drive: for each target that lacks the window's own run, the job that loads that first."""


class Surveyed(msgspec.Struct, frozen=True):
    """From survey: its name, and the job that scans what nobody has searched; None where there is nothing."""

    survey: str
    scan: WrittenJob | None


class Inventoried(msgspec.Struct, frozen=True):
    """From the listing of objects: the inventory's name."""

    inventory: str


class Reconciled(msgspec.Struct, frozen=True):
    """From the join of a reconciliation: its id."""

    reconciliation: str


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """From the report of a reconciliation."""

    reconciliation: str
    totals: dict[str, int]
    alerts: int
    first_alerts: tuple[str, ...]


class ChosenPlan(msgspec.Struct, frozen=True, kw_only=True):
    """From the choice of a plan."""

    plan: str
    objects: int
    bytes: int
    status: str


class Rechecked(msgspec.Struct, frozen=True):
    """From the check before a deletion: its id."""

    recheck: str


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """From a deletion: how many objects had which outcome, and the first in trouble."""

    execution: str
    counts: dict[str, int]
    trouble: tuple[str, ...]
