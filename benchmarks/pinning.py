"""Pins a whole topic without looking for watermarks: benchmarks measure reading, not pinning."""

from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.manifest import Manifest, PartitionPin, TopicPin
from ticdc_replay.storage import open_store


def pin_everything(bootstrap: str, topic: str, artifacts: str) -> Manifest:
    """A manifest of all that *topic* holds, written below *artifacts*."""
    connection = Connection(conn_id="bench", conn_type="kafka", extra={"bootstrap.servers": bootstrap})
    with Offsets(KafkaSettings.from_connection(connection)) as offsets:
        found = offsets.topics([topic])[topic]
        bounds = offsets.bounds(found.partitions)
    ranges = [OffsetRange(topic, part.number, bounds[part].low, bounds[part].high) for part in found.partitions]
    pins = tuple(PartitionPin(part, live=True, resolved_ts=None, start_margin_ms=None) for part in ranges)
    manifest = Manifest(
        pipeline="bench",
        changefeed_hash="",
        window=Window(1, 1 << 62),
        grade="proven",
        topics=(TopicPin(topic, found.topic_id, pins),),
        pinned_at_ms=0,
    )
    open_store(artifacts).put_once(manifest_name(manifest), canonical.encode(manifest))
    return manifest


def manifest_name(manifest: Manifest) -> str:
    """Where the manifest lies below the artefacts."""
    return f"manifests/{manifest.input_hash}.json"
