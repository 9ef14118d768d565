"""The driver of a reconciliation's join, and of the recheck before a deletion."""

import logging
from collections.abc import Iterable

import msgspec
from pyspark.sql import SparkSession

from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ArtifactExistsError, ArtifactNotFoundError
from ticdc_replay.jobspec import ReconcileJob
from ticdc_replay.reconcile.judge.classified import ClassifiedIndex, classified_name, read_classified
from ticdc_replay.reconcile.judge.rules import Evidence
from ticdc_replay.spark.parquet_files import DecodedBy, Sources
from ticdc_replay.spark.reconcile import classify, classify_objects
from ticdc_replay.storage import open_store
from ticdc_replay.targets.base import StoreAddress

log = logging.getLogger(__name__)


def run_reconcile(
    spark: SparkSession, job: ReconcileJob, connections: Connections, *, parallelism: int
) -> ClassifiedIndex:
    """Put the classes of objects and references into files and, last, what names them; or return what is there.

    Of a recheck there are the classes of objects alone. *parallelism*: how many tasks can run at a time. Raises what a store
    raises, and what ``classify`` raises.
    """
    connection = connections.get(job.artifacts_connection)
    store = open_store(job.artifacts, connection)
    try:
        found = read_classified(store, job.folder)
    except ArtifactNotFoundError:
        pass
    else:
        log.info("%s is there already", job.folder)
        return found
    evidence = msgspec.json.decode(store.get(job.evidence), type=Evidence)
    out = StoreAddress(job.artifacts, connection)
    objects = Sources(out, job.objects)
    references = [Sources(out, job.scanned), *_decoded(job, connections)]
    join = classify if job.plan_hash is None else classify_objects
    joined = join(spark, objects, references, evidence, out, job.folder, parallelism)
    classified = ClassifiedIndex(
        store=job.store,
        id=job.reconciliation_id,
        survey=job.survey,
        evidence=job.evidence,
        inventory=job.inventory,
        plan_hash=job.plan_hash,
        objects=joined.objects,
        references=joined.references,
        summary=joined.summary if job.plan_hash is None else None,
    )
    try:
        store.put_once(classified_name(job.folder), canonical.encode(classified))
    except ArtifactExistsError:  # another attempt was faster, and its files are as good
        classified = read_classified(store, job.folder)
    return classified


def _decoded(job: ReconcileJob, connections: Connections) -> Iterable[Sources]:
    for files in job.decoded:
        place = StoreAddress(files.artifacts, connections.get(files.artifacts_connection))
        yield Sources(place, files.names, DecodedBy(files.pipeline, files.topic_ids))
