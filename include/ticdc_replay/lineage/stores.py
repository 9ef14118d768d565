"""Lineage of a store's reconciliation and deletion."""

from collections.abc import Iterable, Mapping

from ticdc_replay.domain.dataset_names import kafka_namespace, of_uri
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.lineage.datasets import (
    Check,
    Dataset,
    DeletionRun,
    Lineage,
    Quality,
    ReconciliationRun,
    Rows,
    TopicRanges,
)
from ticdc_replay.reconcile.delete.audit import Audit
from ticdc_replay.reconcile.judge.report import ReconciliationReport, report_name
from ticdc_replay.reconcile.judge.rules import ObjectClass, PartitionBounds, ReferenceClass
from ticdc_replay.reconcile.judge.summary import Summary


def reconciled(
    report: ReconciliationReport,
    *,
    artifacts_uri: str,
    retained: Mapping[str, Iterable[PartitionBounds]],
) -> Lineage:
    """From the store and the topics of its changefeeds to the lists of one reconciliation.

    *artifacts_uri* is the root of the store's artefacts, *retained* what Kafka held, by bootstrap servers.
    """
    owned = of_uri(report.uri)
    store = Dataset(namespace=owned.namespace, name=owned.name, quality=_quality(report))
    topics = [dataset for servers, bounds in retained.items() for dataset in _topics(servers, bounds)]
    folder = of_uri(f"{artifacts_uri}/reconciliations")
    lists = Dataset(
        namespace=folder.namespace,
        name=folder.name,
        version=report.reconciliation_id,
        written=Rows(sum(part.objects for part in report.summary.by_day)),
    )
    run = ReconciliationRun(
        store=report.store,
        reconciliation=report.reconciliation_id,
        report=f"{artifacts_uri}/{report_name(report.reconciliation_id)}",
        bounds_ms=report.evidence.bounds_ms,
        listed_ms=report.evidence.listed_ms,
        complete=report.complete,
        deletable=report.summary.deletable,
        alerts=len(report.alerts),
        library_version=report.library_version,
    )
    return Lineage(run, (store, *topics), (lists,))


def _quality(report: ReconciliationReport) -> Quality:
    summary = report.summary
    objects = {str(kind): summary.objects(kind) for kind in ObjectClass}
    sizes = {str(kind): summary.bytes(kind) for kind in ObjectClass}
    return Quality(
        objects=sum(objects.values()),
        bytes=sum(sizes.values()),
        objects_by_class=objects,
        bytes_by_class=sizes,
        references_by_class={str(kind): summary.references(kind) for kind in ReferenceClass},
        checks=_checks(summary, report),
    )


def _checks(summary: Summary, report: ReconciliationReport) -> tuple[Check, ...]:
    return (
        Check(
            name="referenced_objects_exist",
            description="Messages that can still be read whose object is missing",
            actual=summary.lost_rows,
        ),
        Check(
            name="referenced_objects_unaltered",
            description="References whose object is another than was pinned or read",
            actual=summary.references(ReferenceClass.ALTERED),
        ),
        Check(
            name="objects_readable",
            description="Objects that are empty or can't be read as claim-check objects",
            actual=summary.objects(ObjectClass.MALFORMED),
            severity="warn",
        ),
        Check(
            name="objects_belong_to_ticdc",
            description="Objects whose name is not one that TiCDC gives",
            actual=summary.objects(ObjectClass.FOREIGN),
            severity="warn",
        ),
        Check(
            name="retained_offsets_searched",
            description="Offsets that Kafka retains and nobody has searched for references",
            actual=report.evidence.unread_offsets,
        ),
    )


def _topics(bootstrap_servers: str, bounds: Iterable[PartitionBounds]) -> Iterable[Dataset]:
    found: dict[tuple[str, str], list[OffsetRange]] = {}
    for part in bounds:
        if part.range.length > 0:
            found.setdefault((part.topic, part.topic_id), []).append(part.range)
    for (topic, topic_id), ranges in found.items():
        yield Dataset(
            namespace=kafka_namespace(bootstrap_servers), name=topic, topic=TopicRanges(topic_id, tuple(ranges))
        )


def deleted(audit: Audit, *, artifacts_uri: str, audit_uri: str) -> Lineage:
    """From a plan to the store that it was executed on. *artifacts_uri* is the root of the store's artefacts."""
    plans, store = of_uri(f"{artifacts_uri}/plans"), of_uri(audit.uri)
    inputs = (Dataset(namespace=plans.namespace, name=plans.name, version=audit.plan_hash),)
    run = DeletionRun(
        store=audit.store,
        plan=audit.plan_hash,
        execution=audit.execution_id,
        audit=audit_uri,
        counts=audit.counts,
        library_version=audit.library_version,
    )
    return Lineage(run, inputs, (Dataset(namespace=store.namespace, name=store.name),))
