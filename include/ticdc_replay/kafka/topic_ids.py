"""Ids of topics as brokers give them, held to what is built on them: one id belongs to one topic, for good (KIP-516)."""

from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.topics import is_topic_id


class TopicIds:
    """The ids that one cluster has given up to now; *where* names the cluster in errors."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._names: dict[str, str] = {}

    def accept(self, name: str, answer: object) -> str:
        """The id of topic *name* out of a broker's *answer*, in the base-64 alphabet for URLs.

        Raises PermanentError for an id that is missing, zero or reserved, and for one that another topic has.
        """
        # librdkafka prints the plain base-64 alphabet, Kafka's own tools the one for URLs.
        topic_id = "" if answer is None else str(answer).replace("+", "-").replace("/", "_")
        if not is_topic_id(topic_id):
            raise PermanentError(
                f"Kafka {self._where} gives topic {name} no usable id ({topic_id or 'none'}): a recreated topic can't be "
                "distinguished from the one before, nor one topic's offsets from another's. Brokers before 2.8 and some proxies "
                "give no topic ids (KIP-516): upgrade them, or connect to the brokers themselves"
            )
        owner = self._names.setdefault(topic_id, name)
        if owner != name:
            raise PermanentError(
                f"Kafka {self._where} gives topics {owner} and {name} the same id {topic_id}: their offsets can't be "
                "distinguished. A proxy that makes up ids is the likely cause: connect to the brokers themselves"
            )
        return topic_id
