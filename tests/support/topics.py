"""Topics as Kafka would know them, and topics of a real broker."""

import base64
import hashlib
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.domain.topics import TopicIdentity

_NOT_LED_YET = {
    KafkaError._NOENT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def topic_id(seed: str) -> str:
    """An id such as Kafka gives, always the same for *seed*."""
    return base64.urlsafe_b64encode(hashlib.sha256(seed.encode()).digest()[:16]).decode().rstrip("=")


def identity(name: str = "topic", *, made: str = "first", cluster: str = "cluster") -> TopicIdentity:
    """The topic *name* of *cluster*; another one where it was *made* another time."""
    return TopicIdentity(cluster, name, topic_id(f"{name} {made}"))


def create_topic(admin: AdminClient, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    """Make topic *name*; when this returns, any client may ask for offsets of all its partitions.

    The controller has made a topic a moment before the broker leads its partitions. A client that asks for offsets in between
    answers ``_NOENT`` from memory from then on, until it describes the topic again.
    """
    admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))])[name].result(PATIENCE_S)

    def gives_offsets() -> bool:
        try:
            described = admin.describe_topics(TopicCollection([name]))[name].result(PATIENCE_S)
            asked = [TopicPartition(name, each.id) for each in described.partitions]
            for answer in admin.list_offsets(dict.fromkeys(asked, OffsetSpec.latest())).values():
                answer.result(PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_LED_YET:
                raise
            return False
        return len(asked) == partitions

    wait_for(f"the broker to lead the partitions of topic {name}", gives_offsets, pause_s=0.05)
