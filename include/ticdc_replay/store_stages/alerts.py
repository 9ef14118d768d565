"""Collects the alerts of a reconciliation."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.reconcile.judge import alerts
from ticdc_replay.reconcile.judge.alerts import MOST
from ticdc_replay.reconcile.judge.lost_rows import LostRow, later_versions, lost_rows, references_to
from ticdc_replay.reconcile.judge.report import Alert
from ticdc_replay.reconcile.judge.rules import Evidence
from ticdc_replay.reconcile.judge.summary import Summary
from ticdc_replay.reconcile.look.survey import Survey
from ticdc_replay.stages.quarantine.accepted_losses import not_accepted
from ticdc_replay.store_stages.context import StoreContext

_ASKING = 16


class Watched(msgspec.Struct, frozen=True):
    """What people have to know. ``notes``: what could not be found out."""

    alerts: tuple[Alert, ...]
    notes: tuple[str, ...]
    summary: Summary
    """What was found, with the objects that only the second look has seen."""
    unlisted: int = 0
    """How many of those the inventory should have had."""


class _SecondLook(NamedTuple):
    still_lost: list[LostRow]
    """The first of them."""
    there: set[str]
    """Objects that are there, though the inventory lacks them."""
    unlisted: list[str]
    """Those of them that are older than it."""
    all: bool
    """Whether every missing object was looked for."""


def look_after(
    context: StoreContext, survey: Survey, evidence: Evidence, summary: Summary, reference_files: Sequence[str]
) -> Watched:
    """All alerts of a reconciliation that knew *survey* and *evidence* and found *summary*.

    *reference_files* are below the store's artefacts.

    Raises what Kafka and the stores raise.
    """
    facts = context.objects.deletion().facts()
    retention = _retention(context, survey)
    second = _look_again(context, evidence, summary, reference_files)
    summary = summary.with_present(references_to(context.artifacts, reference_files, second.there))
    found = [
        *_missing(context, summary, reference_files, second),
        *alerts.unlisted_alerts(second.unlisted),
        *alerts.altered_alerts(summary),
        *alerts.malformed_alerts(summary),
        *alerts.lifecycle_alerts(facts, retention, alerts.oldest_ms(evidence.partitions, evidence.bounds_ms)),
        *alerts.evidence_alerts(evidence),
    ]
    notes = tuple(alerts.lifecycle_notes(facts, retention))
    return Watched(tuple(found), notes, summary, len(second.unlisted))


def _look_again(context: StoreContext, evidence: Evidence, summary: Summary, files: Sequence[str]) -> _SecondLook:
    """Ask for the missing objects of the first rows: the inventory may be older than the object, or lack it."""
    if not summary.lost_rows:
        return _SecondLook([], set(), [], True)
    lost = lost_rows(context.artifacts, files, MOST + 1)
    names = sorted({row.object_name for row in lost if row.object_name})
    with ThreadPoolExecutor(_ASKING, thread_name_prefix="look-again") as pool:
        there = {found.name: found for found in pool.map(context.objects.info, names) if found is not None}
    before = evidence.listed_before_ms / 1000
    unlisted = [name for name, found in there.items() if found.last_modified.timestamp() <= before]
    still_lost = [row for row in lost if row.object_name not in there]
    return _SecondLook(still_lost, set(there), unlisted, len(lost) <= MOST)


def _missing(context: StoreContext, summary: Summary, files: Sequence[str], second: _SecondLook) -> list[Alert]:
    if not summary.lost_rows:
        return []
    named = not_accepted(context.pipelines, second.still_lost)[:MOST]
    later = later_versions(context.artifacts, files, named)
    sources = {each.pipeline.name: each.pipeline.connections.source for each in context.pipelines}
    more = [alerts.more_missing_alert(summary.lost_rows)] if not second.all else []
    return [*alerts.missing_alerts(named, later, sources), *more]


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
