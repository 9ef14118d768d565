"""Which topic is meant: one value for everything that is known about offsets."""

import base64
import binascii

import msgspec

_RESERVED = frozenset({0, 1})
"""Kafka's own: no topic, and the metadata log of KRaft."""


class TopicIdentity(msgspec.Struct, frozen=True, order=True):
    """A topic of one cluster until it is recreated: offsets mean the same only within equal identities.

    ``cluster_id`` is Kafka's, empty in records of earlier versions. ``topic_id`` is in URL-safe base-64 (KIP-516).
    """

    cluster_id: str
    name: str
    topic_id: str

    @property
    def complete(self) -> bool:
        """Whether what is known of it may keep anybody from reading its offsets."""
        return bool(self.cluster_id and self.name) and is_topic_id(self.topic_id)

    def may_be(self, other: "TopicIdentity") -> bool:
        """Whether both may be one topic: if one cluster is unknown, name and id decide. Only for decisions where a
        mistake is safe, such as reading more; skipping offsets needs equal, complete identities."""
        one_cluster = "" in (self.cluster_id, other.cluster_id) or self.cluster_id == other.cluster_id
        return one_cluster and (self.name, self.topic_id) == (other.name, other.topic_id)


def is_topic_id(text: str) -> bool:
    """Whether *text* is an id that Kafka gives to one topic: 16 bytes in base-64, and none of its reserved ids."""
    try:
        content = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return False
    return len(text) == 22 and len(content) == 16 and int.from_bytes(content, "big") not in _RESERVED
