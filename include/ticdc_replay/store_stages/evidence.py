"""The evidence of a join of objects with references: how far Kafka, decodes and clocks can be relied on."""

from collections.abc import Iterable, Sequence

import msgspec

from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.jobspec import DecodedReferences
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.reconcile.judge.rules import Evidence, PartitionBounds, ReplayableRange, merged
from ticdc_replay.reconcile.look.coverage import Searched, still_retained, without
from ticdc_replay.reconcile.look.owners import ReadTopic, objections, read_owners
from ticdc_replay.reconcile.look.survey import Survey, SurveyedFeed
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.storage.base import ObjectStore
from ticdc_replay.storage.documents import put_document
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.replayable import find_replayable, unlisted_replays
from ticdc_replay.store_stages.scan import known_references

_HOUR_MS = 3_600_000
_UNREAD_NAMED = 20


class JoinInput(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of the references to a store's objects."""

    evidence: Evidence
    decoded: tuple[DecodedReferences, ...]
    scanned: tuple[str, ...]


class _FeedInput(msgspec.Struct, frozen=True, kw_only=True):
    held: tuple[PartitionBounds, ...]
    unread: tuple[ReplayableRange, ...]
    replayable: tuple[ReplayableRange, ...]
    decoded: tuple[DecodedReferences, ...]
    scanned: tuple[str, ...]
    references_of: tuple[ReadTopic, ...]


def gather(context: StoreContext, survey: Survey, listed_ms: int, clock_ahead_ms: int) -> JoinInput:
    """What is known now, after the scan, about the moment of *survey*.

    *listed_ms* and *clock_ahead_ms* are those of the inventory (``Inventory.began_since_ms`` and ``clock_ahead_ms``).

    Raises PermanentError where the store's file has other pipelines than were surveyed, and what Kafka and the stores raise.
    """
    pipelines = {each.pipeline.name: each for each in context.pipelines}
    surveyed = {feed.pipeline for feed in survey.feeds}
    if surveyed != set(pipelines) or survey.uri != context.store.uri:
        raise PermanentError(
            f"{context.store.name}: its file has changed since Kafka was surveyed: it was {survey.uri} of "
            f"{', '.join(sorted(surveyed))}, and is {context.store.uri} of {', '.join(sorted(pipelines))}. Survey again"
        )
    known = [_of_feed(context, pipelines[feed.pipeline], feed) for feed in survey.feeds]
    # A topic that two pipelines read is one topic.
    bounds: dict[tuple[TopicIdentity, int], PartitionBounds] = {}
    for feed, found in zip(survey.feeds, known, strict=True):
        # Not as they were surveyed: of what Kafka has expired since without anybody having searched it, nothing is known.
        held = {part.place: part for part in found.held}
        for surveyed_part in feed.partitions:
            place = surveyed_part.place
            part = held.get(place, surveyed_part)
            bounds[place] = _wider(part, bounds.get(place, part))
    existing = {found.topic for found in bounds.values()}
    gone = {name for feed in survey.feeds for name in feed.gone_topics} - existing
    unread = merged(tuple(part for each in known for part in each.unread))
    rules = context.store.rules
    evidence = Evidence(
        bounds_ms=survey.bounds_ms,
        listed_ms=listed_ms,
        partitions=tuple(sorted(bounds.values())),
        gone_topics=tuple(sorted(gone)),
        replayable=tuple(sorted({part for each in known for part in each.replayable})),
        young_ms=int(rules.young_hours * _HOUR_MS),
        skew_ms=rules.clock_skew_seconds * 1000,
        grace_ms=context.store.deletion.grace_hours * _HOUR_MS,
        owners_complete=context.loaded.owners_complete,
        unread_offsets=sum(part.end - part.start for part in unread),
        unread=tuple(unread[:_UNREAD_NAMED]),
        clock_ahead_ms=clock_ahead_ms,
        objections=(
            *objections(
                context.store,
                read_owners(context.artifacts, context.store.uri),
                {feed.pipeline: feed.cluster_id for feed in survey.feeds},
                (read for each in known for read in each.references_of),
            ),
            *unlisted_replays(context),
        ),
    )
    return JoinInput(
        evidence=evidence,
        decoded=tuple(files for each in known for files in each.decoded),
        scanned=tuple(sorted({name for each in known for name in each.scanned})),
    )


def put_evidence(artifacts: ObjectStore, evidence: Evidence) -> str:
    """Put *evidence* into *artifacts*, the store's; its name."""
    return put_document(artifacts, "evidence/", evidence)


def read_evidence(artifacts: ObjectStore, name: str) -> Evidence:
    """The evidence called *name*. Raises ArtifactNotFoundError, msgspec.ValidationError with the path inside the document."""
    return msgspec.json.decode(artifacts.get(name), type=Evidence)


def _of_feed(context: StoreContext, pipeline: ReplayContext, feed: SurveyedFeed) -> _FeedInput:
    # In this order. What a decode has read before Kafka expired it is asked for after Kafka, and what decodes have found after
    # those that run: one that ends in between is in one of the two.
    with Offsets(pipeline.kafka) as offsets:
        if offsets.cluster_id() != feed.cluster_id:
            raise PermanentError(
                f"{feed.pipeline}: the Kafka connection leads to cluster {offsets.cluster_id()}, and the survey read cluster "
                f"{feed.cluster_id}: what that holds can't be known from here. Correct the connection, or survey again"
            )
        held = still_retained(feed.partitions, offsets)
    replayable = find_replayable(pipeline)
    known = known_references(pipeline, context.state, context.artifacts)
    retained = [ReplayableRange.of(each.identity, each.range) for each in held]
    readable = merged((*retained, *before_survey(replayable.decoding, feed)))
    unread = [*_not_searched(readable, known.searched), *before_survey(replayable.unsearchable, feed)]
    return _FeedInput(
        held=held,
        unread=tuple(unread),
        replayable=replayable.ranges,
        decoded=tuple(
            DecodedReferences(
                pipeline=pipeline.pipeline.name,
                artifacts=pipeline.artifacts_uri,
                artifacts_connection=pipeline.pipeline.connections.artifacts,
                topic_ids={name: topic.topic_id for name, topic in files.topics.items()},
                names=files.names,
            )
            for files in known.decoded
        ),
        scanned=known.scanned,
        references_of=tuple(ReadTopic(feed.pipeline, topic) for topic in known.topics),
    )


def before_survey(ranges: Iterable[ReplayableRange], feed: SurveyedFeed) -> list[ReplayableRange]:
    """What of *ranges* lies below the ends that were surveyed: messages that came later refer to young objects only."""
    ends = {each.place: each.high for each in feed.partitions}
    cut = (msgspec.structs.replace(part, end=min(part.end, ends.get(part.place, part.end))) for part in ranges)
    return [part for part in cut if part.start < part.end]


def _not_searched(ranges: Sequence[ReplayableRange], searched: Iterable[Searched]) -> list[ReplayableRange]:
    """What of *ranges*, which are apart from each other, is not among *searched*."""
    done: dict[TopicIdentity, list[OffsetRange]] = {}
    for each in searched:
        done.setdefault(each.topic, []).append(each.range)
    wanted: dict[TopicIdentity, list[OffsetRange]] = {}
    for part in ranges:
        wanted.setdefault(part.identity, []).append(part.range)
    left = []
    for topic, parts in sorted(wanted.items()):
        found = without(parts, done.get(topic, ()) if topic.complete else ())
        left += [ReplayableRange.of(topic, part) for part in found]
    return left


def _wider(one: PartitionBounds, other: PartitionBounds) -> PartitionBounds:
    """The bounds of a partition that was looked at twice, so that neither forgets a message."""
    first = one if one.low <= other.low else other
    return msgspec.structs.replace(first, high=max(one.high, other.high))
