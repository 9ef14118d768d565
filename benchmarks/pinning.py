"""Pins a whole topic without looking for watermarks: benchmarks measure reading, not pinning."""

from confluent_kafka import Consumer, TopicPartition

from ticdc_replay.domain import canonical
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.snapshot.manifest import Manifest, PartitionPin, TopicPin
from ticdc_replay.storage import open_store


def pin_everything(bootstrap: str, topic: str, partitions: int, artifacts: str) -> Manifest:
    """A manifest of all that *topic* holds, written below *artifacts*."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "pin"})
    try:
        ranges = [
            OffsetRange(topic, partition, *consumer.get_watermark_offsets(TopicPartition(topic, partition), 30))
            for partition in range(partitions)
        ]
    finally:
        consumer.close()
    pins = tuple(PartitionPin(part, live=True, resolved_ts=None, start_margin_ms=None) for part in ranges)
    manifest = Manifest(
        pipeline="bench",
        changefeed_hash="",
        window=Window(1, 1 << 62),
        grade="proven",
        topics=(TopicPin(topic, "", pins),),
        pinned_at_ms=0,
    )
    open_store(artifacts).put_once(manifest_name(manifest), canonical.encode(manifest))
    return manifest


def manifest_name(manifest: Manifest) -> str:
    """Where the manifest lies below the artefacts."""
    return f"manifests/{manifest.input_hash}.json"
