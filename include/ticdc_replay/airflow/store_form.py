"""The forms of a store's DAGs, and what their answers mean."""

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param

from ticdc_replay.config.store import Store


def store_params(store: Store) -> dict[str, Param]:
    """The fields of the form that starts a reconciliation: none where nothing may be planned."""
    if store.deletion.policy == "never":
        return {}
    return {
        "plan": Param(
            True,
            type="boolean",
            title="Plan a deletion",
            description="Put what may be deleted on a plan. Nothing is deleted: a plan waits for its grace period, and for "
            f"what deletion.policy ({store.deletion.policy}) asks for",
        )
    }


def deletion_params() -> dict[str, Param]:
    """The fields of the form that starts a deletion."""
    return {
        "plan": Param(
            None,
            type=["null", "string"],
            pattern="^[0-9a-f]{64}$",
            title="Plan",
            description="Hash of the plan, as the store's page and `ticdc-replay deletion list` show it. Without it: the oldest "
            "plan that is due",
        )
    }


def plans_deletion(context: Mapping[str, Any]) -> bool:
    """Whether a reconciliation is to put what may be deleted on a plan."""
    return bool(context["params"]["plan"])


def chosen_plan(context: Mapping[str, Any]) -> str | None:
    """The plan that the form names, None where the oldest one that is due is meant."""
    plan: str | None = context["params"]["plan"]
    return plan
