"""Pinning: a window becomes an immutable manifest, once.

Kafka can't show whether several changefeeds write to one topic, at a time or one after the other: their resolved-ts look alike.
Nor can it show whether a resolved-ts that stepped back came with all rows since then. A topic belongs to one changefeed; if that
was created again with a later start-ts, the pipeline declares it.
"""

import contextlib
import time
from collections.abc import Mapping

import msgspec

from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.domain import canonical, tso
from ticdc_replay.domain.errors import (
    ArtifactCorruptError,
    ArtifactExistsError,
    ArtifactNotFoundError,
    ExpiredRangeError,
    TopicChangedError,
    UnprovenWindowError,
    WatermarkNotReachedError,
)
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.window import Grade, Window
from ticdc_replay.kafka.offsets import Bounds, Offsets, Partition, RecordPlace, Topic
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.snapshot.clocks import Sent, margin_doubt
from ticdc_replay.snapshot.inventory import pin_inventory
from ticdc_replay.snapshot.manifest import Manifest, PartitionPin, PinnedFile, TopicPin
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.resolved import first_watermarks, tails_from
from ticdc_replay.snapshot.start import (
    RangeHead,
    beginning_doubt,
    check_retention,
    compaction_doubt,
    read_heads,
    recreation_doubt,
    skip_known,
)
from ticdc_replay.snapshot.topics import (
    check_none_is_gone,
    check_same_topics,
    find_topics,
    gone_doubts,
    has_topic_rules,
    recreated,
)
from ticdc_replay.snapshot.watermark import (
    PartitionWatermark,
    partition_in_time,
    partition_watermarks,
    retire,
    status_of,
)
from ticdc_replay.state.coverage import Coverage
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.sparse_index import Stretch
from ticdc_replay.state.store import StateStore
from ticdc_replay.storage.base import ObjectStore


class PinnedManifest(msgspec.Struct, frozen=True):
    """The manifest of a window. ``name`` is relative to the artefact store; ``reused`` where it was pinned before."""

    manifest: Manifest
    name: str
    uri: str
    reused: bool


class FoundRanges(msgspec.Struct, frozen=True):
    """Where a window lies in Kafka, and how sure that is."""

    topics: tuple[TopicPin, ...]
    grade: Grade
    reasons: tuple[str, ...]
    """Why the window is not proven; empty when it is."""
    cluster_id: str | None
    """Kafka's own; None in manifests of earlier versions."""


_NO_HEAD = RangeHead()


class _End(msgspec.Struct, frozen=True):
    """Where a window ends in a partition: at a resolved-ts, or why not.

    *stop* is the end of the range: after the resolved-ts, where the window ends by time, or the end of the partition.
    """

    watermark: Sent | None
    state: PartitionWatermark
    stop: int


class _Look(msgspec.Struct, frozen=True):
    """What was looked up of every partition. Bounds were asked for last: a record that was found may be expired by then.

    *asked_ms* is the time of the clock before the first question; *cleanup* is by topic, see ``Offsets.cleanup_policies``;
    *known* are topics that the pipeline has read, or pinned for this window or last.
    """

    asked_ms: float
    topics: list[Topic]
    since: Mapping[Partition, RecordPlace | None]
    needed: Mapping[Partition, RecordPlace | None]
    complete: Mapping[Partition, RecordPlace | None]
    over: Mapping[Partition, RecordPlace | None]
    bounds: Mapping[Partition, Bounds]
    cleanup: Mapping[str, frozenset[str] | None]
    known: frozenset[TopicIdentity]


def pin_window(
    request: PinRequest,
    kafka: KafkaSettings,
    artifacts: ObjectStore,
    claim_check: ObjectStore | None,
    state: StateStore,
    *,
    repin: bool = False,
) -> PinnedManifest:
    """The manifest of the window: the one it has, or a new one where it has none or *repin* asks for it.

    A window that is pinned again always gets another ``input_hash``, so it is decoded again, too. Runs that pin one window at the
    same time get the same manifest. Raises WatermarkNotReachedError if a live partition lags, ExpiredRangeError if retention took
    a part of the range, TopicChangedError if a topic is missing or is not the one pinned last (unless *repin*). Raises
    UnprovenWindowError if completeness can't be shown and the policy stops, ArtifactNotFoundError if the window's manifest was
    deleted.
    """
    existing = state.manifests.of_window(request.pipeline, request.window)
    if existing is not None and not repin:
        pinned = load_manifest(artifacts, existing)
        check_reusable(request, pinned.manifest)
        return pinned
    found = find_ranges(request, kafka, artifacts, state, repin=repin)
    if found.reasons and request.unproven == "stop":
        raise UnprovenWindowError(
            f"window {request.window} can't be proven complete:\n"
            + "\n".join(f"  {reason}" for reason in found.reasons)
            + "\n"
            "Remove the cause, or accept unproven windows with policies.unproven: allow"
        )
    inventory = pin_inventory(request, claim_check, artifacts) if claim_check and request.list_store else None
    manifest = Manifest(
        pipeline=request.pipeline,
        changefeed_hash=request.changefeed.hash,
        window=request.window,
        grade=found.grade,
        reasons=found.reasons,
        pin=request.pin,
        topics=found.topics,
        cluster_id=found.cluster_id,
        tables=request.tables if has_topic_rules(request) else None,
        inventory=inventory,
        schemas=_pin_schemas(request, artifacts),
        all_earlier_ddl=not request.ends_by_time,
        replaces=existing.input_hash if existing is not None else None,
        pinned_at_ms=int(time.time() * 1000),
    )
    return _register(manifest, artifacts, state, existing)


def find_ranges(
    request: PinRequest, kafka: KafkaSettings, artifacts: ObjectStore, state: StateStore, *, repin: bool = False
) -> FoundRanges:
    """What pinning the window now would pin of Kafka; nothing is kept.

    Raises what ``pin_window`` raises, but for UnprovenWindowError.
    """
    with Offsets(kafka) as offsets:
        look = _look_up(request, kafka, offsets, _known_topics(request, artifacts, state))
        if not repin:
            last = state.manifests.last(request.pipeline)
            if last is not None:
                manifest = load_manifest(artifacts, last).manifest
                check_same_topics(look.topics, manifest)
                check_none_is_gone(look.topics, manifest, request)
        ends = _find_ends(request, kafka, offsets, look)
        _check_no_new_topic(request, kafka, offsets, look)
        used = {partition for partition, end in ends.items() if end.state.state != "unused"}
        check_retention(request, offsets, {partition: look.needed[partition] for partition in used}, look.bounds)
    before = _ends_before(request, artifacts, state, look) if request.by_offset else {}
    topics, reasons = _pin_topics(request, kafka, look, ends, before, state)
    grade: Grade = "offset" if request.by_offset else "unproven" if reasons else "proven"
    return FoundRanges(topics, grade, tuple(reasons), look.topics[0].identity.cluster_id)


def check_reusable(request: PinRequest, manifest: Manifest) -> None:
    """Check that the window's manifest matches what the pipeline asks for.

    Raises TopicChangedError if the changefeed's configuration or the topics differ, UnprovenWindowError if the policy now stops.
    """
    if manifest.changefeed_hash != request.changefeed.hash:
        raise TopicChangedError(
            f"window {request.window} was pinned with another configuration of the changefeed (sink_uri, config or timezone): "
            "pin it again (repin)"
        )
    pinned_for = manifest.tables
    if pinned_for is not None and "*.*" not in pinned_for and not {*request.tables} <= {*pinned_for}:
        raise TopicChangedError(
            f"window {request.window} was pinned over the topics of {', '.join(pinned_for)}; the pipeline asks for "
            f"{', '.join(request.tables)}: pin it again (repin)"
        )
    if manifest.reasons and request.unproven == "stop":
        raise UnprovenWindowError(
            f"window {request.window} was pinned without proof that it is complete: {'; '.join(manifest.reasons)}. "
            "Remove the cause and pin again (repin), or accept unproven windows with policies.unproven: allow"
        )


def _look_up(request: PinRequest, kafka: KafkaSettings, offsets: Offsets, known: frozenset[TopicIdentity]) -> _Look:
    asked_ms = time.time() * 1000
    topics = find_topics(request, offsets, kafka)
    partitions = [partition for topic in topics for partition in topic.partitions]
    times = (request.read_from_ms, request.needed_from_ms, request.complete_from_ms)
    since, needed, complete = (offsets.at_or_after(dict.fromkeys(partitions, ms)) for ms in times)
    over = offsets.at_or_after(dict.fromkeys(partitions, request.end_ms)) if request.ends_by_time else {}
    cleanup = offsets.cleanup_policies(topic.name for topic in topics)
    return _Look(asked_ms, topics, since, needed, complete, over, offsets.bounds(partitions), cleanup, known)


def _known_topics(request: PinRequest, artifacts: ObjectStore, state: StateStore) -> frozenset[TopicIdentity]:
    """Topics that the pipeline has read, or pinned for this window or last, as far as their manifests exist."""
    known = set(state.sparse_index.topics(request.pipeline))
    for entry in (state.manifests.of_window(request.pipeline, request.window), state.manifests.last(request.pipeline)):
        if entry is not None:
            with contextlib.suppress(ArtifactNotFoundError, ArtifactCorruptError):
                known.update(load_manifest(artifacts, entry).manifest.identities.values())
    return frozenset(known)


def _check_no_new_topic(request: PinRequest, kafka: KafkaSettings, offsets: Offsets, look: _Look) -> None:
    """Raise WatermarkNotReachedError if a topic appeared during the search for the window's ends: it may hold rows of it."""
    new = {topic.name for topic in find_topics(request, offsets, kafka)} - {topic.name for topic in look.topics}
    if new:
        raise WatermarkNotReachedError(
            f"topic {', '.join(sorted(new))} appeared while window {request.window} was pinned"
        )


def _find_ends(request: PinRequest, kafka: KafkaSettings, offsets: Offsets, look: _Look) -> dict[Partition, _End]:
    """Where the window ends in every partition. Raises WatermarkNotReachedError where it has not ended in one that is live."""
    if request.ends_by_time:
        ends = {partition: _end_by_time(request, partition, look) for partition in look.bounds}
    else:
        ends = _ends_by_watermark(request, kafka, offsets, look)
    states = retire(request, kafka, offsets, [end.state for end in ends.values()])
    ends = {state.partition: msgspec.structs.replace(ends[state.partition], state=state) for state in states}
    status = status_of(request, states)
    if not status.reached:
        raise WatermarkNotReachedError(
            f"window {request.window} is not complete in Kafka {kafka.where} yet: {status}. Is the changefeed running? A "
            "partition that TiCDC does not write to is left out where the sink-uri gives partition-num"
        )
    return ends


def _end_by_time(request: PinRequest, partition: Partition, look: _Look) -> _End:
    state = partition_in_time(request, partition, look.since[partition], look.asked_ms)
    over = None if request.pin == "head" else look.over[partition]
    return _End(None, state, look.bounds[partition].high if over is None else over.offset)


def _ends_by_watermark(
    request: PinRequest, kafka: KafkaSettings, offsets: Offsets, look: _Look
) -> dict[Partition, _End]:
    found = first_watermarks(request, kafka, offsets, tails_from(look.complete, look.bounds))
    missing = {partition: record for partition, record in look.since.items() if partition not in found}
    states = partition_watermarks(request, kafka, missing, look.bounds)
    # In a record without a time, which no search by time finds.
    untimed = {partition: missing[partition] for partition, state in states.items() if state.state == "reached"}
    found |= first_watermarks(request, kafka, offsets, tails_from(untimed, look.bounds))
    ends = {}
    for partition, bounds in look.bounds.items():
        watermark = found.get(partition)
        if watermark is None:
            ends[partition] = _End(None, states[partition], bounds.high)
            continue
        stop = bounds.high if request.ends_at_head else watermark.offset + 1
        ends[partition] = _End(watermark, PartitionWatermark(partition, "reached", watermark.commit_ts), stop)
    return ends


def _ends_before(request: PinRequest, artifacts: ObjectStore, state: StateStore, look: _Look) -> dict[Partition, int]:
    """The ends, by partition, of the windows by offset before this one: as pinned now or as a target holds them, the lower.

    A record can arrive after a window was pinned and have a time in it. The next window reads it, so that nothing is lost.
    """
    topics = {topic.name: topic.identity for topic in look.topics}
    held = _held_inputs(state, request.pipeline, request.window.from_ts)
    found: dict[Partition, int] = {}
    for entry in state.manifests.ending_at(request.pipeline, request.window.from_ts, held):
        manifest = load_manifest(artifacts, entry).manifest
        if manifest.grade != "offset":
            continue
        for topic in manifest.topics:
            if topic.topic not in topics or not topics[topic.topic].may_be(manifest.identities[topic.topic]):
                continue
            for pin in topic.partitions:
                partition = Partition(topic.topic, pin.range.partition)
                found[partition] = min(pin.range.end, found.get(partition, pin.range.end))
    return found


def _held_inputs(state: StateStore, pipeline: str, ts: int) -> set[str]:
    """The inputs of the runs that targets hold for windows ending at *ts*; for the same tables, the newest run counts."""
    newest: dict[tuple[Window, str, str, tuple[str, ...]], Coverage] = {}
    for record in state.coverage.all(pipeline):
        if record.window.to_ts == ts:
            of = (record.window, record.target, record.place, record.selection)
            newest[of] = max(newest.get(of, record), record, key=lambda each: each.generation)
    runs = (state.runs.get(pipeline, record.run_hash) for record in newest.values())
    return {run.input_hash for run in runs if run is not None}


def _pin_by_offset(
    request: PinRequest, partition: Partition, look: _Look, stop: int, before: int | None
) -> PartitionPin:
    """What was recorded in the time of the window, and what came too late for the window that ended at offset *before*."""
    since, bounds = look.since[partition], look.bounds[partition]
    start = bounds.high if since is None else max(since.offset, bounds.low)
    if before is not None and before < start:
        if before < bounds.low:
            raise ExpiredRangeError(
                f"{partition}: the window before {request.window} ended at offset {before}, and Kafka holds what came from "
                f"{bounds.low} on: what was recorded in between is gone. Start the window later, and bring the tables up to date "
                "from the upstream"
            )
        start = before
    live = since is not None or start < bounds.high
    return PartitionPin(OffsetRange(partition.topic, partition.number, start, max(start, stop)), live, None, None)


def _pin_topics(
    request: PinRequest,
    kafka: KafkaSettings,
    look: _Look,
    ends: Mapping[Partition, _End],
    before: Mapping[Partition, int],
    state: StateStore,
) -> tuple[tuple[TopicPin, ...], list[str]]:
    """The pinned ranges with their evidence, and why they don't prove the window, if so.

    *before* is where windows by offset that lie before this one ended.
    """
    if request.by_offset:
        pins = {
            partition: _pin_by_offset(request, partition, look, end.stop, before.get(partition))
            for partition, end in ends.items()
        }
        return _by_topic(look, pins), _doubts(request, look, ends, {})
    whole = {
        partition: OffsetRange(partition.topic, partition.number, start, ends[partition].stop)
        for partition, (start, _) in tails_from(look.since, look.bounds).items()
        if ends[partition].state.state != "unused"
    }
    heads = read_heads(request, kafka, list(whole.values()))
    known = _known_stretches(request, look, whole, state)
    pins = {}
    for partition, end in ends.items():
        part = whole.get(partition)
        if part is None:
            high = look.bounds[partition].high
            empty = OffsetRange(partition.topic, partition.number, high, high)
            pins[partition] = PartitionPin(empty, live=False, resolved_ts=None, start_margin_ms=None)
            continue
        start = skip_known(known.get(partition, ()), part.start, part.end, request.window.from_ts)
        pins[partition] = PartitionPin(
            OffsetRange(part.topic, part.partition, start, part.end),
            live=end.watermark is not None or end.state.state == "retired",
            resolved_ts=end.watermark.commit_ts if end.watermark else None,
            start_margin_ms=heads[partition].margin_ms,
            resolved_at=end.watermark.offset if end.watermark and end.watermark.offset + 1 < end.stop else None,
        )
    return _by_topic(look, pins), _doubts(request, look, ends, heads)


def _by_topic(look: _Look, pins: Mapping[Partition, PartitionPin]) -> tuple[TopicPin, ...]:
    return tuple(
        TopicPin(topic.name, topic.topic_id, tuple(pins[partition] for partition in topic.partitions))
        for topic in look.topics
    )


def _known_stretches(
    request: PinRequest, look: _Look, ranges: Mapping[Partition, OffsetRange], state: StateStore
) -> dict[Partition, list[Stretch]]:
    """What earlier decodes found from the start of each of *ranges* on, as far as it may be passed over."""
    found: dict[Partition, list[Stretch]] = {}
    for topic in look.topics:
        starts = {partition.number: ranges[partition].start for partition in topic.partitions if partition in ranges}
        stretches = state.sparse_index.before(request.pipeline, topic.identity, starts, request.window.from_ts)
        found |= {Partition(topic.name, number): known for number, known in stretches.items()}
    return found


def _doubts(
    request: PinRequest, look: _Look, ends: Mapping[Partition, _End], heads: Mapping[Partition, RangeHead]
) -> list[str]:
    """Every reason why the window is not proven."""
    doubts = []
    if request.changefeed.required_acks != -1:
        doubts.append(
            f"required-acks is {request.changefeed.required_acks}, not all (-1): brokers may have lost messages that TiCDC "
            "counts as sent"
        )
    doubts += filter(None, (compaction_doubt(name, policies) for name, policies in look.cleanup.items()))
    doubts += gone_doubts(look.topics, look.known, request)
    if request.changefeed.loses_old_keys:
        doubts.append(
            "output-raw-change-event without old values: an UPDATE that changes a row's key does not carry the old one, so "
            "the old row stays in mirrors"
        )
    if request.by_offset:
        which = "deletes" if carried_by(request.changefeed).commit_ts == "rows but deletes" else "rows"
        return [
            *doubts,
            f"protocol={request.changefeed.protocol} with these options sends {which} without commitTs: the window is what was "
            "recorded in Kafka in its time, whenever it committed",
        ]
    if request.ends_by_time:
        doubts.append(
            f"the changefeed (protocol={request.changefeed.protocol}) sends no resolved-ts: the window was taken as complete "
            f"{request.lag_ms // 1000} s after its end (window.lag_seconds), and rows that TiCDC sent later are missing"
        )
    live = {
        partition: heads.get(partition, _NO_HEAD)
        for partition, end in ends.items()
        if end.state.state == "reached" and look.bounds[partition].high > 0
    }
    beginning = beginning_doubt(request, live, look.needed, look.bounds)
    if beginning is not None:
        doubts.append(beginning)
    for name in recreated(look.topics, look.known):
        own = {partition: head for partition, head in live.items() if partition.topic == name}
        doubts += filter(None, [recreation_doubt(request, name, own, look.needed, look.bounds)])
    for partition, end in ends.items():
        if end.state.state == "silent":
            doubts.append(
                f"{partition}: holds messages since the window's start but no resolved-ts; TiCDC sends one every second to each "
                "partition it uses. Does another writer use the topic, or is partition-num of the sink-uri wrong?"
            )
        doubt = margin_doubt(request, partition, heads.get(partition, _NO_HEAD).soonest)
        if doubt is not None:
            doubts.append(doubt)
    return doubts


def _pin_schemas(request: PinRequest, artifacts: ObjectStore) -> PinnedFile | None:
    needed = request.schemas.since(request.window.from_ts)
    if not needed:
        return None
    content = needed.encode()
    digest = canonical.digest(content)
    name = f"schemas/{digest}.json"
    artifacts.put_once(name, content)
    return PinnedFile(artifacts.uri(name), digest, len(needed.epochs) + len(list(needed.versions)))


def _register(
    manifest: Manifest, artifacts: ObjectStore, state: StateStore, replaces: WindowManifest | None
) -> PinnedManifest:
    """Write *manifest* and give it to its window, unless another run was faster: then that one's counts."""
    input_hash = manifest.input_hash
    name = f"manifests/{input_hash}.json"
    with contextlib.suppress(ArtifactExistsError):  # equal but for the moment of pinning, which is not part of the hash
        artifacts.put_once(name, canonical.encode(manifest))
    made = WindowManifest(manifest.pipeline, manifest.window, input_hash, name, manifest.pinned_at_ms)
    winner = state.manifests.register(made, replaces=replaces)
    pinned = load_manifest(artifacts, winner)
    return msgspec.structs.replace(pinned, reused=winner != made)


def load_manifest(artifacts: ObjectStore, entry: WindowManifest) -> PinnedManifest:
    """The manifest that *entry* names.

    Raises ArtifactNotFoundError, and ArtifactCorruptError where its content is not what its name says.
    """
    uri = artifacts.uri(entry.name)
    try:
        manifest = manifests.decode(artifacts.get(entry.name))
    except ArtifactNotFoundError:
        raise ArtifactNotFoundError(
            f"{uri}, the manifest of window {entry.window} pinned {tso.to_datetime(tso.from_ms(entry.pinned_at_ms))}, was "
            "deleted; pin with repin"
        ) from None
    except msgspec.DecodeError as error:
        raise ArtifactCorruptError(f"{uri} is not a manifest: {error}; pin with repin") from None
    if manifest.input_hash != entry.input_hash:
        raise ArtifactCorruptError(
            f"{uri} was changed after pinning: its hash is {manifest.input_hash}; pin with repin"
        )
    return PinnedManifest(manifest, entry.name, uri, reused=True)
