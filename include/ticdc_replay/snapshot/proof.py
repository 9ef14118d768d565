"""Compares a manifest with Kafka at any later time: is what it pinned still there, and still what it was?"""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from ticdc_replay.codecs.base import Codec
from ticdc_replay.domain.events import WatermarkEvent
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.kafka.beginnings import read_beginnings
from ticdc_replay.kafka.offsets import Bounds, Offsets, Partition, Topic
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.clocks import Sent, counts, ignored
from ticdc_replay.snapshot.manifest import Manifest, PartitionPin, TopicPin

_TAIL = 1_000
"""In manifests of earlier versions the last resolved-ts of a changefeed may be as far before the end of the range."""


class Finding(msgspec.Struct, frozen=True, order=True):
    """Something that was pinned, or made of what was pinned, and is gone or altered."""

    kind: Literal["manifest", "topic", "offsets", "resolved_ts", "file", "object", "changelog"]
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.place}: {self.text}"


def prove_in_kafka(manifest: Manifest, kafka: KafkaSettings, codec: Codec, skew_ms: int) -> list[Finding]:
    """The parts of *manifest* that Kafka no longer holds as they were pinned; empty if it can be read again.

    Topics are compared by Kafka's id, ranges with what partitions hold, and the resolved-ts that completed the window are read
    again where they were found; each must count with a clock skew of *skew_ms*. *codec* is one for the changefeed's messages.
    Raises AuthenticationError and TransientError.
    """
    with Offsets(kafka) as offsets:
        topics = offsets.topics([topic.topic for topic in manifest.topics])
        pinned = manifest.identities
        findings = [
            finding
            for topic in manifest.topics
            for finding in _topic(topic, pinned[topic.topic], topics.get(topic.topic))
        ]
        pins = {
            Partition(pin.range.topic, pin.range.partition): pin
            for topic in manifest.topics
            if topic.topic in topics and topics[topic.topic].identity.may_be(pinned[topic.topic])
            for pin in topic.partitions
            if pin.range.length > 0 and Partition(topic.topic, pin.range.partition) in topics[topic.topic].partitions
        }
        bounds = offsets.bounds(pins)
    findings += [finding for partition, pin in pins.items() for finding in _offsets(pin, bounds[partition])]
    return [*findings, *_evidence(pins, bounds, kafka, codec, skew_ms)]


def _topic(pinned: TopicPin, identity: TopicIdentity, found: Topic | None) -> Iterator[Finding]:
    if found is None:
        yield Finding("topic", pinned.topic, "no longer exists")
    elif found.topic_id == pinned.topic_id and not found.identity.may_be(identity):
        yield Finding(
            "topic", pinned.topic, f"is of cluster {found.identity.cluster_id}, and was of {identity.cluster_id}"
        )
    elif found.topic_id != pinned.topic_id:
        yield Finding("topic", pinned.topic, f"was recreated: its id is {found.topic_id}, and was {pinned.topic_id}")
    else:
        numbers = {partition.number for partition in found.partitions}
        for pin in pinned.partitions:
            if pin.range.partition not in numbers:
                yield Finding("topic", f"{pinned.topic}[{pin.range.partition}]", "the partition no longer exists")


def _offsets(pin: PartitionPin, held: Bounds) -> Iterator[Finding]:
    part = pin.range
    place = f"{part.topic}[{part.partition}]"
    if held.low > part.start:
        last = min(held.low, part.end) - 1
        of = f"all of {part.start} to {last}" if last == part.end - 1 else f"{part.start} to {last} of {part.end - 1}"
        yield Finding("offsets", place, f"Kafka has removed {of}: it holds offsets from {held.low} on")
    if held.high < part.end:
        yield Finding(
            "offsets", place, f"ends at {held.high}, before the end {part.end} of the range: it lost messages"
        )


def _evidence(
    pins: Mapping[Partition, PartitionPin],
    bounds: Mapping[Partition, Bounds],
    kafka: KafkaSettings,
    codec: Codec,
    skew_ms: int,
) -> Iterator[Finding]:
    expected = {
        partition: (pin.evidence, pin.resolved_ts)
        for partition, pin in pins.items()
        if pin.evidence is not None and bounds[partition].low <= pin.evidence < bounds[partition].high
    }
    seen: dict[Partition, set[tuple[int | None, int | None]]] = {}
    void: dict[Partition, Sent] = {}

    def take(partition: Partition, messages: list[RawMessage]) -> bool:
        for message in messages:
            for event in codec.decode(message) if codec.is_watermark(message) else ():
                if isinstance(event, WatermarkEvent):
                    seen.setdefault(partition, set()).add((message.offset, event.commit_ts))
                    sent = Sent(message.offset, event.commit_ts, message.timestamp_ms, resolves=True)
                    if expected[partition] == (message.offset, event.commit_ts) and not counts(sent, skew_ms):
                        void[partition] = sent
        return False

    places = [(partition, offset) for partition, (offset, _) in expected.items() if offset is not None]
    read_beginnings(kafka, [OffsetRange(at.topic, at.number, offset, offset + 1) for at, offset in places], take)
    unseen = [partition for partition, wanted in expected.items() if wanted not in seen.get(partition, ())]
    old = [pins[partition].range for partition in unseen if pins[partition].resolved_at is None]
    tails = [OffsetRange(at.topic, at.partition, max(at.start, at.end - _TAIL), at.end) for at in old]
    read_beginnings(
        kafka, [tail for tail in tails if tail.start >= bounds[Partition(tail.topic, tail.partition)].low], take
    )
    for partition in unseen:
        offset, resolved_ts = expected[partition]
        if pins[partition].resolved_at is None and resolved_ts in {ts for _, ts in seen.get(partition, ())}:
            continue
        yield Finding("resolved_ts", f"{partition}@{offset}", f"the message is no longer the resolved-ts {resolved_ts}")
    for partition, sent in void.items():
        said = ignored(partition, sent, skew_ms)
        yield Finding(
            "resolved_ts", f"{partition}@{sent.offset}", f"{said}: the window may lack rows. Pin it again (repin)"
        )
