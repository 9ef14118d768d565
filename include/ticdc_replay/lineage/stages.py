"""Lineage of each stage, made from its results."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.domain.dataset_names import DatasetName, kafka_namespace, of_uri
from ticdc_replay.lineage.datasets import (
    ClaimChecks,
    Dataset,
    Lineage,
    ReplayRun,
    Rows,
    TopicRanges,
)
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.targets.base import LEFT_OUT, LoadReport

Names = Callable[[str], tuple[DatasetName, ...]]
"""The names of a target's dataset, by the ``destination`` of a table's report: see ``TargetSection.dataset_names``."""


@dataclass(frozen=True, kw_only=True)
class DecodedRun:
    """One decoded run: what it read, and its changelog."""

    manifest: Manifest
    index: ChangelogIndex
    artifacts_uri: str
    """The root of the pipeline's artefacts."""
    bootstrap_servers: str
    """Kafka's address as the connection has it."""
    claim_check_uri: str | None
    """The changefeed's store."""

    def decoded(self) -> Lineage:
        """From topics and claim-check store to the changelog."""
        return Lineage(self._run(), self._inputs(), (self._changelog(written=True),))

    def loaded(self, report: LoadReport, names: Names) -> Lineage:
        """From the changelog to the tables of one target, which *names* calls."""
        return Lineage(self._run(), (self._changelog(written=False),), tuple(_tables(report, names)))

    def published(self, loads: Iterable[tuple[LoadReport, Names]]) -> Lineage:
        """From topics and claim-check store to the tables of every target, as if in one step."""
        outputs = [table for report, names in loads for table in _tables(report, names)]
        return Lineage(self._run(), self._inputs(), tuple(outputs))

    def _run(self) -> ReplayRun:
        manifest, index = self.manifest, self.index
        return ReplayRun(
            pipeline=manifest.pipeline,
            from_ts=manifest.window.from_ts,
            to_ts=manifest.window.to_ts,
            window=str(manifest.window),
            grade=manifest.grade,
            manifest=f"{self.artifacts_uri}/manifests/{manifest.input_hash}.json",
            input_hash=manifest.input_hash,
            run_hash=index.run_hash,
            library_version=index.library_version,
            messages=index.report.messages.consumed,
            events=index.report.events.rows,
            duplicates=index.report.events.duplicates,
        )

    def _inputs(self) -> tuple[Dataset, ...]:
        folder = of_uri(f"{self.artifacts_uri}/runs")
        runs = dict.fromkeys(source.run_hash for source in self.index.derived)
        changelogs = [Dataset(namespace=folder.namespace, name=folder.name, version=run_hash) for run_hash in runs]
        if self.manifest.derived:
            return tuple(changelogs)
        if self.manifest.base is not None:
            dump = of_uri(self.manifest.base.uri)
            return (Dataset(namespace=dump.namespace, name=dump.name),)
        # What windows share is decoded within the run of one of them, so each names its topics.
        topics = [
            Dataset(
                namespace=kafka_namespace(self.bootstrap_servers),
                name=pin.topic,
                topic=TopicRanges(pin.topic_id, tuple(part.range for part in pin.partitions if part.range.length > 0)),
            )
            for pin in self.manifest.topics
        ]
        return (*topics, *self._claim_check_store(), *changelogs)

    def _claim_check_store(self) -> list[Dataset]:
        if self.claim_check_uri is None:
            return []
        store = of_uri(self.claim_check_uri)
        inventory, events = self.manifest.inventory, self.index.report.events
        read = ClaimChecks(
            inventory=inventory.sha256 if inventory else None,
            listed=inventory.count if inventory else None,
            resolved=events.claim_checks_resolved,
            bytes=events.claim_check_bytes,
        )
        return [Dataset(namespace=store.namespace, name=store.name, claim_checks=read)]

    def _changelog(self, *, written: bool) -> Dataset:
        """One dataset for all runs of the pipeline; the run's hash is its version."""
        folder = of_uri(f"{self.artifacts_uri}/runs")
        files = [file for table in self.index.tables for file in table.files]
        rows = Rows(sum(file.rows for file in files), sum(file.bytes for file in files), len(files))
        return Dataset(
            namespace=folder.namespace,
            name=folder.name,
            version=self.index.run_hash,
            written=rows if written else None,
        )


def _tables(report: LoadReport, names: Names) -> Iterable[Dataset]:
    for table in report.tables:
        if table.outcome in LEFT_OUT:
            continue
        first, *others = names(table.destination)
        yield Dataset(
            namespace=first.namespace,
            name=first.name,
            other_names=tuple(others),
            version=table.commit or None,
            fields=table.fields,
            written=Rows(table.upserted + table.deleted),
        )
