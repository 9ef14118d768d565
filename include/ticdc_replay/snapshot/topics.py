"""The topics of a changefeed as Kafka has them."""

from collections.abc import Iterable

from ticdc_replay.domain.errors import TopicChangedError
from ticdc_replay.kafka.offsets import Offsets, Topic
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.manifest import Manifest


def require_topics(offsets: Offsets, names: Iterable[str], kafka: KafkaSettings) -> list[Topic]:
    """The topics called *names*, by name. Raises TopicChangedError when one does not exist."""
    wanted = sorted(set(names))
    found = offsets.topics(wanted)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise TopicChangedError(
            f"topic {', '.join(missing)} does not exist at Kafka {kafka.where}: it was deleted, or the sink-uri names another"
        )
    return [found[name] for name in wanted]


def check_same_topics(topics: Iterable[Topic], manifest: Manifest) -> None:
    """Raise TopicChangedError where a topic is not the one that *manifest* pinned, although it has the name."""
    pinned = {topic.topic: topic for topic in manifest.topics}
    for topic in topics:
        before = pinned.get(topic.name)
        if before is None:
            continue
        if before.topic_id != topic.topic_id:
            raise TopicChangedError(
                f"topic {topic.name} was recreated: its id is {topic.topic_id}, and was {before.topic_id} when window "
                f"{manifest.window} was pinned, so offsets and what was replayed up to now belong to the topic that is gone. "
                "If that is meant, pin with repin"
            )
        if len(topic.partitions) < len(before.partitions):
            raise TopicChangedError(
                f"topic {topic.name} has {len(topic.partitions)} partitions, and had {len(before.partitions)} when window "
                f"{manifest.window} was pinned"
            )
