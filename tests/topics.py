"""Topics as Kafka would know them."""

import base64
import hashlib

from ticdc_replay.domain.topics import TopicIdentity


def topic_id(seed: str) -> str:
    """An id such as Kafka gives, always the same for *seed*."""
    return base64.urlsafe_b64encode(hashlib.sha256(seed.encode()).digest()[:16]).decode().rstrip("=")


def identity(name: str = "topic", *, made: str = "first", cluster: str = "cluster") -> TopicIdentity:
    """The topic *name* of *cluster*; another one where it was *made* another time."""
    return TopicIdentity(cluster, name, topic_id(f"{name} {made}"))
