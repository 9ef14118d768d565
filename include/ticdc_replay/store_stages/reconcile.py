"""The steps of a reconciliation, and of the recheck before a deletion, in their order.

``survey`` → scan (Spark, where anything is unsearched) → ``record_scan`` → ``take_inventory`` → ``write_reconcile_job`` → join
(Spark) → ``store_stages.reconcile_report``. A recheck: ``survey`` → scan → ``write_recheck_job`` → join.
"""

import time
from typing import NamedTuple

import msgspec

from ticdc_replay import __version__, jobspec
from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import ReconcileJob, ScanJob, WrittenJob
from ticdc_replay.reconcile.delete.deletion_plan import read_plan
from ticdc_replay.reconcile.look import scan_report
from ticdc_replay.reconcile.look.inventory import Destination, Inventory, store_clock, write_listing
from ticdc_replay.reconcile.look.owners import Owner, put_owner, read_owners
from ticdc_replay.reconcile.look.s3_inventory import write_report
from ticdc_replay.reconcile.look.scan_report import ScanReport
from ticdc_replay.reconcile.look.survey import Survey, SurveyedFeed, put_survey, read_survey
from ticdc_replay.storage.facts import Versioning
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.evidence import JoinInput, gather, put_evidence
from ticdc_replay.store_stages.scan import scan_feed, searched_feed, write_scan_job


class WrittenSurvey(NamedTuple):
    """The name of a survey, and the job that scans what nobody has searched; None where there is nothing."""

    name: str
    scan_job: WrittenJob | None


def survey(context: StoreContext) -> WrittenSurvey:
    """Read what Kafka retains of every changefeed of the store now, and which offsets nobody has searched.

    Raises TopicChangedError where the default topic of a changefeed is missing, and what Kafka and the stores raise.
    """
    bounds_ms = time.time_ns() // 1_000_000  # before anything is asked: what comes from now on may be missed
    owners = read_owners(context.artifacts, context.store.uri)
    feeds = [(each, searched_feed(each, context.state, context.artifacts, owners)) for each in context.pipelines]
    for pipeline, feed in feeds:
        seen = Owner(
            uri=context.store.uri,
            pipeline=feed.pipeline,
            cluster_id=feed.retained.cluster_id,
            topic_ids=feed.retained.topic_ids,
            dispatch=pipeline.changefeed.dispatch,
        )
        put_owner(context.artifacts, seen)
    made = Survey(
        store=context.store.name,
        uri=context.store.uri,
        bounds_ms=bounds_ms,
        feeds=tuple(
            SurveyedFeed(
                pipeline=feed.pipeline,
                cluster_id=feed.retained.cluster_id,
                partitions=feed.retained.partitions,
                gone_topics=feed.retained.gone,
                unsearched=feed.unsearched,
            )
            for _, feed in feeds
        ),
    )
    to_scan = [scan_feed(pipeline, feed, context.artifacts) for pipeline, feed in feeds if feed.to_scan]
    scan_job = None
    if to_scan:
        artifacts_connection = context.store.connections.artifacts
        scan_job = write_scan_job(context.store.name, context.artifacts, artifacts_connection, to_scan)
    return WrittenSurvey(put_survey(context.artifacts, made), scan_job)


def record_scan(context: StoreContext, scan_job: str) -> ScanReport:
    """Note what the job at the URI *scan_job* has scanned, so that nothing of it is scanned again. Safe to repeat.

    Raises ArtifactNotFoundError where the scan did not come to its end.
    """
    job = jobspec.read(context.artifacts, scan_job)
    if not isinstance(job, ScanJob):
        raise ConfigError(f"{scan_job} is a {type(job).__name__}, not a scan")
    report = scan_report.decode(context.artifacts.get(job.report))
    scan_report.record_scan(context.state, report)
    return report


def take_inventory(context: StoreContext, survey_name: str) -> str:
    """Write down which objects the store holds. Returns the name of the ``reconcile.look.inventory.Inventory``, below the store's
    artefacts.

    Raises what ``reconcile.look.inventory.write_listing`` and ``reconcile.look.s3_inventory.write_report`` raise.
    """
    folder = _inventories_of(survey_name)
    out = Destination(context.artifacts, folder)
    declared = context.store
    if declared.inventory.source == "listing":
        # Which version it is matters only to a deletion, and takes a right of its own.
        deleting = declared.deletion.policy != "never"
        versions = deleting and context.objects.deletion().facts().versioning in (
            Versioning.ENABLED,
            Versioning.SUSPENDED,
        )
        inventory = write_listing(context.objects, out, versions=versions)
    else:
        hours = declared.inventory.max_age_hours
        inventory = write_report(context.inventory_reports, declared.uri, out, max_age_hours=hours)
    content = canonical.encode(inventory)
    name = f"{folder}/{canonical.digest(content)}.json"
    context.artifacts.put_once(name, content)
    return name


def _inventories_of(survey_name: str) -> str:
    """The folder of inventories that were begun after the survey."""
    return f"inventories/{survey_name.rpartition('/')[2].removesuffix('.json')}"


def write_reconcile_job(context: StoreContext, survey_name: str, inventory_name: str) -> WrittenJob:
    """The spec that joins all objects with all references that are known now; ``run_hash`` is the reconciliation's id.

    Raises what ``store_stages.evidence.gather`` raises.
    """
    inventory = msgspec.json.decode(context.artifacts.get(inventory_name), type=Inventory)
    made = read_survey(context.artifacts, survey_name)
    # One of an earlier survey is as old as it says.
    follows = inventory_name.startswith(f"{_inventories_of(survey_name)}/")
    listed_ms = inventory.began_since_ms(made.bounds_ms) if follows else inventory.began_ms
    known = gather(context, made, listed_ms, inventory.clock_ahead_ms)
    objects = tuple(file.name for file in inventory.files)
    return _write(context, survey_name, known, objects, inventory=inventory_name)


def write_recheck_job(context: StoreContext, survey_name: str, plan_hash: str) -> WrittenJob:
    """The spec that judges the objects of a deletion plan again; ``run_hash`` is the recheck's id, another for each survey.

    Raises what ``store_stages.evidence.gather`` and ``reconcile.delete.deletion_plan.read_plan`` raise.
    """
    plan = read_plan(context.artifacts, plan_hash)
    made = read_survey(context.artifacts, survey_name)
    ahead_ms, _ = store_clock(context.objects)
    known = gather(context, made, made.bounds_ms, ahead_ms)
    return _write(context, survey_name, known, plan.file_names(), plan_hash=plan_hash)


def _write(
    context: StoreContext,
    survey_name: str,
    known: JoinInput,
    objects: tuple[str, ...],
    *,
    inventory: str | None = None,
    plan_hash: str | None = None,
) -> WrittenJob:
    job = ReconcileJob(
        library_version=__version__,
        store=context.store.name,
        artifacts=context.artifacts.root,
        artifacts_connection=context.store.connections.artifacts,
        survey=survey_name,
        evidence=put_evidence(context.artifacts, known.evidence),
        inventory=inventory,
        plan_hash=plan_hash,
        objects=objects,
        scanned=known.scanned,
        decoded=known.decoded,
    )
    return WrittenJob(jobspec.put(context.artifacts, job), job.reconciliation_id)
