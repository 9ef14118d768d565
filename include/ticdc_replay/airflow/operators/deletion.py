"""The tasks that execute a deletion plan, beside its Spark jobs."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowSkipException, TaskAwaitingInput

from ticdc_replay.airflow.naming import CHOOSE_PLAN, DELETE, RECHECK
from ticdc_replay.airflow.operators.base import EmitsLineage, OnStore, StoreOperator, logged
from ticdc_replay.airflow.store_form import chosen_plan
from ticdc_replay.airflow.xcom import ChosenPlan, Deleted, Rechecked, encode, pull
from ticdc_replay.domain.errors import PermanentError

_SHOWN = 20
"""How many objects the question names; the plan has them all."""
_NAMED = 10
"""How many objects a failing task names; the audit has more, the results have all."""
_FAILED = ("denied", "refused")
"""Outcomes of objects that the store failed to delete; see ``reconcile.delete.results.Outcome``."""


class ChoosePlanOperator(StoreOperator):
    """Finds the plan of this run: the one that the form names, else the oldest one that is due. Skipped where there is none."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.store_stages.deletion import choose_plan

        with self.opened() as store:
            plan = choose_plan(store, chosen_plan(context))
        if plan is None:
            raise AirflowSkipException("No plan is due")
        chosen = ChosenPlan(plan=plan.plan_hash, objects=plan.objects, bytes=plan.bytes, status=plan.status)
        return logged(self.log, encode(chosen))


class ApprovePlanOperator(OnStore, ApprovalOperator):
    """Asks a person whether the plan is to be executed, and records the answer with the person's name.

    Passes without asking where the plan was approved before, such as on the command line.
    """

    ui_color = "#f5e9e9"

    def __init__(self, *, store_file: str, pipelines: str, store: str, **kwargs: Any) -> None:
        # Airflow hands every operator the fields of its DAG's form; those of the question are others.
        kwargs["params"] = {"why": ""}
        super().__init__(subject=f"Delete objects of claim-check store {store}?", **kwargs)
        self.store_file = store_file
        self.pipelines = pipelines

    @property
    def serialized_params(self) -> dict[str, dict[str, Any]]:
        """The fields of the question. They are no params of the task: a reason is required, and the task starts without one."""
        why = Param(None, type="string", minLength=1, title="Why", description="Stays with the record")
        return {"why": why.serialize()}

    def execute(self, context: Any) -> Any:
        from ticdc_replay.airflow import approval
        from ticdc_replay.store_stages.deletion import describe_plan

        chosen = pull(context, CHOOSE_PLAN, ChosenPlan)
        with self.opened() as store:
            description = describe_plan(store, chosen.plan, _SHOWN, approved=True)
        # It may have been settled since it was chosen.
        status = description.record.status
        if status == "approved":
            self.log.info("The plan was approved before")
            return None
        if status != "open":
            raise PermanentError(
                f"plan {chosen.plan} was {status} meanwhile, so nobody is asked about it: start another run"
            )
        self.subject, self.body = approval.subject(description), approval.body(description)
        try:
            return super().execute(context)
        except TaskAwaitingInput as waiting:
            waiting.kwargs = {"plan": chosen.plan}  # what the answer is about, whatever is chosen meanwhile
            raise

    def execute_complete(self, context: Any, event: dict[str, Any], plan: str) -> Any:
        from ticdc_replay.store_stages.deletion import decide

        if "error" not in event:
            person = event["responded_by_user"]
            if person is None:
                raise PermanentError("the answer has no user name: a plan is released by a person; clear this task")
            approve = event["chosen_options"] == [self.APPROVE]
            why = (event["params_input"] or {}).get("why") or ""
            with self.opened() as store:
                decide(store, plan, approve, person["name"], why)
            self.log.info("%s by %s: %s", "Approved" if approve else "Rejected", person["name"], why)
            chosen = pull(context, CHOOSE_PLAN, ChosenPlan).plan
            if chosen != plan:
                raise PermanentError(
                    f"the answer is recorded, and is about plan {plan}; since the question this run has chosen plan {chosen}, "
                    f"about which nobody was asked: clear this task"
                )
        return super().execute_complete(context, event)


class DeletePlanOperator(EmitsLineage, StoreOperator):
    """Deletes what the plan names and the check has just found deletable again. A repeat goes on where it stopped."""

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from ticdc_replay.store_stages.deletion import execute
        from ticdc_replay.store_stages.lineage import deleted

        plan, recheck = pull(context, CHOOSE_PLAN, ChosenPlan).plan, pull(context, RECHECK, Rechecked).recheck
        with self.opened(deleting=True) as store:
            audit = execute(store, plan, recheck, progress=partial(self.log.info, "%d of %d objects are done"))
            self.lineage = deleted(store, audit)
        for outcome, count in audit.counts.items():
            self.log.info("%s: %d objects, %d bytes", outcome, count, audit.bytes.get(outcome, 0))
        trouble = tuple(f"{each.name}: {each.outcome}: {each.detail}" for each in audit.trouble[:_NAMED])
        return encode(Deleted(execution=audit.execution_id, counts=audit.counts, trouble=trouble))


class DeletionAlertOperator(StoreOperator):
    """Fails where objects of the plan are still there that should not be, with the first of them."""

    def execute(self, context: Mapping[str, Any]) -> None:
        done = pull(context, DELETE, Deleted)
        left = {outcome: done.counts[outcome] for outcome in _FAILED if done.counts.get(outcome)}
        if not left:
            self.log.info("Nothing to alert anybody for")
            return
        counted = " and ".join(f"{count} were {outcome}" for outcome, count in left.items())
        raise PermanentError(
            "\n".join([f"execution {done.execution}: of the plan's objects {counted}, such as", *done.trouble])
        )
