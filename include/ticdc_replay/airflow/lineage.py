"""Lineage values as OpenLineage facets, for the operators' ``get_openlineage_facets_on_complete``."""

from typing import Any

from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    RunFacet,
    data_quality_assertions_dataset,
    data_quality_metrics_input_dataset,
    dataset_version_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from ticdc_replay.airflow.facets import (
    ClaimChecksFacet,
    DeletionRunFacet,
    ReconciliationRunFacet,
    ReplayRunFacet,
    StoreClassesFacet,
    TopicRangesFacet,
)
from ticdc_replay.lineage.datasets import Dataset, DeletionRun, Lineage, Quality, ReconciliationRun, ReplayRun


def operator_lineage(lineage: Lineage) -> OperatorLineage:
    """*lineage* as Airflow's OpenLineage provider takes it."""
    return OperatorLineage(
        inputs=[_input(dataset) for dataset in lineage.inputs],
        outputs=[_output(dataset) for dataset in lineage.outputs],
        run_facets=_run(lineage.run),
    )


def _run(run: ReplayRun | ReconciliationRun | DeletionRun) -> dict[str, RunFacet]:
    match run:
        case ReplayRun():
            return {"ticdcReplay_run": _replay_run(run)}
        case ReconciliationRun():
            return {"ticdcReplay_reconciliation": _reconciliation_run(run)}
        case DeletionRun():
            return {"ticdcReplay_deletion": _deletion_run(run)}


def _reconciliation_run(run: ReconciliationRun) -> ReconciliationRunFacet:
    return ReconciliationRunFacet(
        store=run.store,
        reconciliation=run.reconciliation,
        report=run.report,
        boundsMs=run.bounds_ms,
        listedMs=run.listed_ms,
        complete=run.complete,
        deletable=run.deletable,
        alerts=run.alerts,
        libraryVersion=run.library_version,
    )


def _deletion_run(run: DeletionRun) -> DeletionRunFacet:
    return DeletionRunFacet(
        store=run.store,
        plan=run.plan,
        execution=run.execution,
        audit=run.audit,
        counts=run.counts,
        libraryVersion=run.library_version,
    )


def _replay_run(run: ReplayRun) -> ReplayRunFacet:
    return ReplayRunFacet(
        pipeline=run.pipeline,
        fromTs=run.from_ts,
        toTs=run.to_ts,
        window=run.window,
        grade=run.grade,
        manifest=run.manifest,
        inputHash=run.input_hash,
        runHash=run.run_hash,
        libraryVersion=run.library_version,
        messages=run.messages,
        events=run.events,
        duplicates=run.duplicates,
    )


def _input(dataset: Dataset) -> Any:
    facets: dict[str, InputDatasetFacet] = {}
    if dataset.topic is not None:
        parts = dataset.topic.partitions
        facets["ticdcReplay_topicRanges"] = TopicRangesFacet(
            topicId=dataset.topic.topic_id,
            partitions=[{"partition": part.partition, "start": part.start, "end": part.end} for part in parts],
        )
        facets["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            rowCount=sum(part.end - part.start for part in parts)
        )
    if dataset.claim_checks is not None:
        read = dataset.claim_checks
        facets["ticdcReplay_claimChecks"] = ClaimChecksFacet(
            inventory=read.inventory, listed=read.listed, resolved=read.resolved, bytes=read.bytes
        )
        facets["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            fileCount=read.resolved, size=read.bytes
        )
    if dataset.quality is not None:
        facets |= _quality(dataset.quality)
    return InputDataset(
        namespace=dataset.namespace, name=dataset.name, facets=_dataset_facets(dataset), inputFacets=facets
    )


def _quality(found: Quality) -> dict[str, InputDatasetFacet]:
    """A store's own facet beside the standard ones, in which each object counts as a file."""
    return {
        "ticdcReplay_storeClasses": StoreClassesFacet(
            objects=found.objects_by_class, bytes=found.bytes_by_class, references=found.references_by_class
        ),
        "dataQualityMetrics": data_quality_metrics_input_dataset.DataQualityMetricsInputDatasetFacet(
            columnMetrics={}, fileCount=found.objects, bytes=found.bytes
        ),
        "dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(
            assertions=[
                data_quality_assertions_dataset.Assertion(
                    assertion=check.name,
                    success=check.success,
                    severity=check.severity,
                    description=check.description,
                    expected="0",
                    actual=str(check.actual),
                )
                for check in found.checks
            ]
        ),
    }


def _output(dataset: Dataset) -> Any:
    facets = {}
    if dataset.written is not None:
        facets["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=dataset.written.rows, size=dataset.written.bytes, fileCount=dataset.written.files
        )
    return OutputDataset(
        namespace=dataset.namespace, name=dataset.name, facets=_dataset_facets(dataset), outputFacets=facets
    )


def _dataset_facets(dataset: Dataset) -> dict[str, DatasetFacet]:
    facets: dict[str, DatasetFacet] = {}
    if dataset.fields:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(
            fields=[
                schema_dataset.SchemaDatasetFacetFields(name=field.name, type=field.type) for field in dataset.fields
            ]
        )
    if dataset.version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=dataset.version)
    return facets
