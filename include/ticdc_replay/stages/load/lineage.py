"""What a run read and wrote, for lineage, from the artefacts it left behind."""

from collections.abc import Sequence
from functools import partial

from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.lineage.datasets import Lineage
from ticdc_replay.lineage.stages import DecodedRun, Names
from ticdc_replay.snapshot import manifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.publish import load_of
from ticdc_replay.targets.base import LoadReport


def decoded(context: ReplayContext, run_hash: str) -> Lineage:
    """What the decode of *run_hash* read, and its changelog."""
    return _source(context, run_hash).decoded()


def loaded(context: ReplayContext, report: LoadReport) -> Lineage:
    """What the load of *report* wrote into its target."""
    return _source(context, report.run_hash).loaded(report, _names(context, report.target))


def published(context: ReplayContext, run_hash: str, targets: Sequence[str]) -> Lineage:
    """The whole run, from Kafka to *targets*."""
    return _source(context, run_hash).published(
        [(load_of(context, run_hash, target), _names(context, target)) for target in targets]
    )


def _source(context: ReplayContext, run_hash: str) -> DecodedRun:
    index = read_index(context.artifacts, run_hash)
    return DecodedRun(
        manifest=manifest.decode(context.artifacts.get(f"manifests/{index.input_hash}.json")),
        index=index,
        artifacts_uri=context.artifacts_uri,
        bootstrap_servers=str(context.kafka.options["bootstrap.servers"]),
        claim_check_uri=context.changefeed.claim_check_uri,
    )


def _names(context: ReplayContext, name: str) -> Names:
    target = next(target for target in context.pipeline.targets if target.name == name)
    return partial(target.dataset_names, context.connections.get(target.connection_id))
