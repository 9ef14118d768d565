"""Finds out what of a reconciliation somebody has to look after."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.reconcile import alerts
from ticdc_replay.reconcile.alerts import MOST
from ticdc_replay.reconcile.lost_rows import later_versions, lost_rows
from ticdc_replay.reconcile.report import Alert
from ticdc_replay.reconcile.rules import Evidence
from ticdc_replay.reconcile.summary import Summary
from ticdc_replay.reconcile.survey import Survey
from ticdc_replay.stages.store_context import StoreContext

_ASKING = 16


class Watched(msgspec.Struct, frozen=True):
    """What is to be told. ``notes``: what could not be found out."""

    alerts: tuple[Alert, ...]
    notes: tuple[str, ...]


def look_after(
    context: StoreContext, survey: Survey, evidence: Evidence, summary: Summary, reference_files: Sequence[str]
) -> Watched:
    """All alerts of a reconciliation that knew *survey* and *evidence* and found *summary*.

    *reference_files* are below the store's artefacts.

    Raises what Kafka and the stores raise.
    """
    facts = context.objects.facts()
    retention = _retention(context, survey)
    found = [
        *_missing(context, summary, reference_files),
        *alerts.altered_alerts(summary),
        *alerts.malformed_alerts(summary),
        *alerts.lifecycle_alerts(facts, retention, alerts.oldest_ms(evidence.partitions, evidence.bounds_ms)),
        *alerts.evidence_alerts(evidence),
    ]
    return Watched(tuple(found), tuple(alerts.lifecycle_notes(facts, retention)))


def _missing(context: StoreContext, summary: Summary, files: Sequence[str]) -> list[Alert]:
    if not summary.lost_rows:
        return []
    lost = lost_rows(context.artifacts, files, MOST + 1)
    # The inventory may be older than the object, or lack it as S3's own reports may.
    with ThreadPoolExecutor(_ASKING, thread_name_prefix="look-again") as pool:
        there = pool.map(lambda row: bool(row.object_name) and context.objects.info(row.object_name) is not None, lost)
        still_lost = [row for row, found in zip(lost, there, strict=True) if not found]
    told = still_lost[:MOST]
    later = later_versions(context.artifacts, files, told)
    sources = {each.pipeline.name: each.pipeline.connections.source for each in context.pipelines}
    more = [alerts.more_missing_alert(summary.lost_rows)] if len(lost) > MOST else []
    return [*alerts.missing_alerts(told, later, sources), *more]


def _retention(context: StoreContext, survey: Survey) -> dict[str, int | None]:
    """How long Kafka keeps messages of each topic that was surveyed; of one in two clusters the longest."""
    topics = {feed.pipeline: sorted({bounds.topic for bounds in feed.partitions}) for feed in survey.feeds}
    found: dict[str, int | None] = {}
    for pipeline in context.pipelines:
        with Offsets(pipeline.kafka) as offsets:
            there = offsets.topics(topics.get(pipeline.pipeline.name, ()))
            for name, kept in offsets.retention_ms(sorted(there)).items():
                found[name] = _longer(found[name], kept) if name in found else kept
    return found


def _longer(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return None
    return -1 if min(one, other) < 0 else max(one, other)
