"""The Spark jobs of a store: the scan for references, the join of a reconciliation, the check before a deletion."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ticdc_replay.airflow.naming import CHOOSE_PLAN, LIST_OBJECTS, SURVEY
from ticdc_replay.airflow.operators.step import Finished, SparkStep
from ticdc_replay.airflow.xcom import ChosenPlan, Inventoried, Rechecked, Reconciled, Surveyed, encode, pull
from ticdc_replay.jobspec import WrittenJob

if TYPE_CHECKING:
    from ticdc_replay.store_stages.context import StoreContext


@dataclass(frozen=True)
class Scan(SparkStep["StoreContext"]):
    """Searches the retained offsets that nobody has searched. Skipped where there are none."""

    def skip(self, context: Mapping[str, Any]) -> str | None:
        searched = pull(context, SURVEY, Surveyed).scan is None
        return "Every retained offset has been searched before" if searched else None

    def find(self, engine: "StoreContext", context: Mapping[str, Any]) -> WrittenJob:
        job = pull(context, SURVEY, Surveyed).scan
        assert job is not None
        return job

    def finish(self, engine: "StoreContext", job: WrittenJob) -> Finished:
        from ticdc_replay.store_stages.reconcile import record_scan

        return Finished(
            {
                feed.pipeline: {
                    "messages": feed.counts.messages,
                    "decoded": feed.counts.decoded,
                    "references": feed.counts.references,
                    "unread": len(feed.unsearched),
                }
                for feed in record_scan(engine, job.uri).feeds
            }
        )


@dataclass(frozen=True)
class Reconcile(SparkStep["StoreContext"]):
    """Joins the store's inventory with every known reference. The spec is written here: a repeat has evidence of its own time."""

    def find(self, engine: "StoreContext", context: Mapping[str, Any]) -> WrittenJob:
        from ticdc_replay.store_stages.reconcile import write_reconcile_job

        inventory = pull(context, LIST_OBJECTS, Inventoried).inventory
        return write_reconcile_job(engine, pull(context, SURVEY, Surveyed).survey, inventory)

    def finish(self, engine: "StoreContext", job: WrittenJob) -> Finished:
        return Finished(encode(Reconciled(job.run_hash)))


@dataclass(frozen=True)
class Recheck(SparkStep["StoreContext"]):
    """Joins the objects of a deletion plan with every reference that is known now. The spec is written here."""

    def find(self, engine: "StoreContext", context: Mapping[str, Any]) -> WrittenJob:
        from ticdc_replay.store_stages.reconcile import write_recheck_job

        plan = pull(context, CHOOSE_PLAN, ChosenPlan).plan
        return write_recheck_job(engine, pull(context, SURVEY, Surveyed).survey, plan)

    def finish(self, engine: "StoreContext", job: WrittenJob) -> Finished:
        return Finished(encode(Rechecked(job.run_hash)))
