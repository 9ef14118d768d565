"""A manifest held against Kafka, before it is read and after."""

from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.snapshot.topics import check_same_topics, require_topics


def verify_topics(manifest: Manifest, kafka: KafkaSettings) -> None:
    """Raise TopicChangedError where a topic of *manifest* is gone or was recreated since it was pinned.

    Offsets alone can't tell: a recreated topic may hold the same ones with other messages.
    """
    names = [topic.topic for topic in manifest.topics]
    with Offsets(kafka) as offsets:
        check_same_topics(require_topics(offsets, names, kafka), manifest)
