"""Lineage values as OpenLineage facets, for the operators' ``get_openlineage_facets_on_complete``."""

from typing import Any

import attr
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    RunFacet,
    dataset_version_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from ticdc_replay.lineage.datasets import Dataset, Lineage, ReplayRun

_SCHEMA = "urn:ticdc-replay:facets:1:"


@attr.define
class ReplayRunFacet(RunFacet):
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

    @staticmethod
    def _get_schema() -> str:
        return f"{_SCHEMA}ReplayRun"


@attr.define
class TopicRangesFacet(InputDatasetFacet):
    """Offsets that were read: ``partitions`` holds partition, start (included) and end (not included)."""

    topicId: str  # noqa: N815
    partitions: list[dict[str, int]]

    @staticmethod
    def _get_schema() -> str:
        return f"{_SCHEMA}TopicRanges"


@attr.define
class ClaimChecksFacet(InputDatasetFacet):
    """Objects of a claim-check store: the hash and size of the pinned listing, and what was read (bytes)."""

    inventory: str | None
    listed: int | None
    resolved: int
    bytes: int

    @staticmethod
    def _get_schema() -> str:
        return f"{_SCHEMA}ClaimChecks"


def operator_lineage(lineage: Lineage) -> OperatorLineage:
    """*lineage* as Airflow's OpenLineage provider takes it."""
    return OperatorLineage(
        inputs=[_input(dataset) for dataset in lineage.inputs],
        outputs=[_output(dataset) for dataset in lineage.outputs],
        run_facets={"ticdcReplay_run": _run(lineage.run)},
    )


def _run(run: ReplayRun) -> ReplayRunFacet:
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
    return InputDataset(
        namespace=dataset.namespace, name=dataset.name, facets=_dataset_facets(dataset), inputFacets=facets
    )


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
