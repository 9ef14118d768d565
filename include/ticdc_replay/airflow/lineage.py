"""Lineage values as OpenLineage facets, for the operators' ``get_openlineage_facets_on_complete``."""

from typing import Any

import attr
import msgspec
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
    symlinks_dataset,
)

from ticdc_replay.lineage.datasets import Dataset, DeletionRun, Lineage, Quality, ReconciliationRun, ReplayRun


class _Ours:
    """A facet whose schema is a URN with its name."""

    @classmethod
    def _get_schema(cls) -> str:
        return f"urn:ticdc-replay:facets:1:{cls.__name__.removesuffix('Facet')}"


@attr.define
class ReplayRunFacet(_Ours, RunFacet):
    """What was replayed: window (TSO), hashes, counts. See ``lineage.datasets.ReplayRun``."""

    pipeline: str
    fromTs: int  # noqa: N815
    toTs: int  # noqa: N815
    window: str
    grade: str
    manifest: str
    inputHash: str  # noqa: N815
    runHash: str  # noqa: N815
    libraryVersion: str  # noqa: N815
    messages: int | None = None
    events: int | None = None
    duplicates: int | None = None


@attr.define
class ReconciliationRunFacet(_Ours, RunFacet):
    """What was reconciled: see ``lineage.datasets.ReconciliationRun``. Times are Unix ms."""

    store: str
    reconciliation: str
    report: str
    boundsMs: int  # noqa: N815
    listedMs: int  # noqa: N815
    complete: bool
    deletable: int
    alerts: int
    libraryVersion: str  # noqa: N815


@attr.define
class DeletionRunFacet(_Ours, RunFacet):
    """What was deleted: see ``lineage.datasets.DeletionRun``."""

    store: str
    plan: str
    execution: str
    audit: str
    counts: dict[str, int]
    libraryVersion: str  # noqa: N815


@attr.define
class StoreClassesFacet(_Ours, InputDatasetFacet):
    """Objects and references of a claim-check store by class, and bytes of the objects."""

    objects: dict[str, int]
    bytes: dict[str, int]
    references: dict[str, int]


@attr.define
class TopicRangesFacet(_Ours, InputDatasetFacet):
    """Offsets that were read: ``partitions`` holds partition, start (included) and end (not included)."""

    topicId: str  # noqa: N815
    partitions: list[dict[str, int]]


@attr.define
class ClaimChecksFacet(_Ours, InputDatasetFacet):
    """Objects of a claim-check store: the hash and size of the pinned listing, and what was read (bytes)."""

    inventory: str | None
    listed: int | None
    resolved: int
    bytes: int


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
            return {"ticdcReplay_run": ReplayRunFacet(**msgspec.to_builtins(run))}
        case ReconciliationRun():
            return {"ticdcReplay_reconciliation": ReconciliationRunFacet(**msgspec.to_builtins(run))}
        case DeletionRun():
            return {"ticdcReplay_deletion": DeletionRunFacet(**msgspec.to_builtins(run))}


def _input(dataset: Dataset) -> Any:
    facets: dict[str, InputDatasetFacet] = {}
    if dataset.topic is not None:
        parts = dataset.topic.ranges
        facets["ticdcReplay_topicRanges"] = TopicRangesFacet(
            topicId=dataset.topic.topic_id,
            partitions=[{"partition": part.partition, "start": part.start, "end": part.end} for part in parts],
        )
        facets["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            rowCount=sum(part.length for part in parts)
        )
    if dataset.claim_checks is not None:
        read = dataset.claim_checks
        facets["ticdcReplay_claimChecks"] = ClaimChecksFacet(**msgspec.to_builtins(read))
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
                    success=check.actual == 0,
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
    if dataset.other_names:
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(
            identifiers=[
                symlinks_dataset.Identifier(namespace=other.namespace, name=other.name, type="TABLE")
                for other in dataset.other_names
            ]
        )
    if dataset.version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=dataset.version)
    return facets
