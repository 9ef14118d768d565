"""What a reconciliation read and what a deletion changed, for lineage."""

from ticdc_replay.lineage import stores
from ticdc_replay.lineage.datasets import Lineage
from ticdc_replay.reconcile.delete.audit import Audit, audit_name
from ticdc_replay.reconcile.judge.report import ReconciliationReport
from ticdc_replay.reconcile.judge.rules import PartitionBounds
from ticdc_replay.reconcile.look.survey import read_survey
from ticdc_replay.store_stages.context import StoreContext


def reconciled(context: StoreContext, report: ReconciliationReport, survey_name: str) -> Lineage:
    """From the store and what Kafka retained at the survey to the lists of the reconciliation."""
    pipelines = {each.pipeline.name: each for each in context.pipelines}
    retained: dict[str, list[PartitionBounds]] = {}
    for feed in read_survey(context.artifacts, survey_name).feeds:
        servers = str(pipelines[feed.pipeline].kafka.options["bootstrap.servers"])
        retained.setdefault(servers, []).extend(feed.partitions)
    return stores.reconciled(report, artifacts_uri=context.artifacts_uri, retained=retained)


def deleted(context: StoreContext, audit: Audit) -> Lineage:
    """From the plan to the store."""
    name = audit_name(audit.plan_hash, audit.execution_id)
    return stores.deleted(audit, artifacts_uri=context.artifacts_uri, audit_uri=context.artifacts.uri(name))
