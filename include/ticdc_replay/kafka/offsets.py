"""Looking up topics, bounds and offsets by time: batched, and never by reading messages."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import msgspec
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from ticdc_replay.domain.errors import PermanentError, TransientError
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.tso import MAX_MS
from ticdc_replay.kafka.failures import NOT_ALLOWED, ClientHealth, make_client, translate
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.kafka.topic_ids import TopicIds

Answer = TypeVar("Answer")

REQUEST_TIMEOUT_S = 30.0
POLL_S = 0.05
"""How long a look-up waits for its answer before it checks the broker."""


class Partition(msgspec.Struct, frozen=True, order=True):
    """One partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"


class Topic(msgspec.Struct, frozen=True):
    """A topic as it is now: a recreated topic has another identity."""

    identity: TopicIdentity
    partitions: tuple[Partition, ...]

    @property
    def name(self) -> str:
        """Its name."""
        return self.identity.name

    @property
    def topic_id(self) -> str:
        """Kafka's id of it."""
        return self.identity.topic_id


class Bounds(msgspec.Struct, frozen=True):
    """``[low, high)`` is what a partition holds; ``high`` is the end of what committed transactions let be read."""

    low: int
    high: int


class RecordPlace(msgspec.Struct, frozen=True):
    """Where a record is and which time it has (ms), no later than a commit can be."""

    offset: int
    timestamp_ms: int


class Offsets:
    """Look-ups at one cluster. A context manager: leaving it ends the client.

    Every method may raise AuthenticationError (within seconds), and TransientError when no broker answers in time or a
    partition has no leader. A partition that does not exist looks the same: ask for the topic first.

    Do not reuse it after a TransientError: a client that has found no leader for a partition of a fresh topic repeats that answer
    from memory until it describes the topic again. Retry with a new one.
    """

    def __init__(self, settings: KafkaSettings, *, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._settings = settings
        self._health = ClientHealth(settings)
        self._admin = make_client(AdminClient, settings.admin(), self._health)
        self._timeout_s = request_timeout_s
        self._ids = TopicIds(settings.where)
        self._cluster_id: str | None = None

    def __enter__(self) -> "Offsets":
        return self

    def __exit__(self, *_: object) -> None:
        del self._admin

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics of *names* that exist, by name.

        Raises PermanentError if the brokers give ids that do not identify topics (``topic_ids.TopicIds``).
        """
        wanted = list(names)
        found = {}
        asked = self._admin.describe_topics(TopicCollection(wanted), request_timeout=self._timeout_s)
        for name, future in asked.items():
            try:
                answer = self._await(future, f"describing topic {name}")
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._translated(error, f"describing topic {name}") from None
                continue
            partitions = tuple(Partition(name, part.id) for part in answer.partitions)
            identity = TopicIdentity(self.cluster_id(), name, self._ids.accept(name, answer.topic_id))
            found[name] = Topic(identity, tuple(sorted(partitions)))
        return found

    def names(self) -> set[str]:
        """The names of all topics that the account may describe."""
        try:
            return set(self._admin.list_topics(timeout=self._timeout_s).topics)
        except KafkaException as error:
            self._health.check()
            raise self._translated(error, "listing topics") from None

    def cluster_id(self) -> str:
        """Kafka's id of the cluster: another cluster at the same address has another id."""
        if self._cluster_id is not None:
            return self._cluster_id
        what = "asking for the cluster's id"
        try:
            answer = self._await(self._admin.describe_cluster(request_timeout=self._timeout_s), what)
        except KafkaException as error:
            raise self._translated(error, what) from None
        if not answer.cluster_id:
            raise PermanentError(f"Kafka {self._settings.where} gives no cluster id: it is older than 0.10.1")
        self._cluster_id = str(answer.cluster_id)
        return self._cluster_id

    def cleanup_policies(self, names: Iterable[str]) -> dict[str, frozenset[str] | None]:
        """How Kafka removes messages of each topic (``delete``, ``compact``); None where the account may not ask for it.

        Raises TopicChangedError for a topic that does not exist.
        """
        return {
            name: None if found is None else _policies(found) for name, found in self._configurations(names).items()
        }

    def retention_ms(self, names: Iterable[str]) -> dict[str, int | None]:
        """How long Kafka keeps messages of each topic (``retention.ms``), whatever limits of size do before; -1: for ever, None
        where the account may not ask for it.

        Raises TopicChangedError for a topic that does not exist.
        """
        kept: dict[str, int | None] = {}
        for name, found in self._configurations(names).items():
            if found is None:
                kept[name] = None
            elif "delete" in _policies(found):
                kept[name] = int(found["retention.ms"])
            else:
                kept[name] = -1
        return kept

    def _configurations(self, names: Iterable[str]) -> dict[str, dict[str, str] | None]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        found: dict[str, dict[str, str] | None] = {}
        asked = self._admin.describe_configs(resources, request_timeout=self._timeout_s)
        for resource, future in asked.items():
            what = f"asking for the configuration of topic {resource.name}"
            try:
                entries = self._await(future, what)
            except KafkaException as error:
                if error.args[0].code() not in NOT_ALLOWED:
                    raise self._translated(error, what) from None
                found[resource.name] = None
            else:
                found[resource.name] = {key: entry.value for key, entry in entries.items()}
        return found

    def bounds(self, partitions: Iterable[Partition]) -> dict[Partition, Bounds]:
        """What each partition holds now."""
        wanted = list(partitions)
        low = self._list_offsets({partition: OffsetSpec.earliest() for partition in wanted})
        high = self._list_offsets({partition: OffsetSpec.latest() for partition in wanted})
        return {partition: Bounds(low[partition].offset, high[partition].offset) for partition in wanted}

    def high_watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The end of what each partition holds now, messages after an open transaction included: these are not in ``bounds``."""
        specs = {partition: OffsetSpec.latest() for partition in partitions}
        found = self._list_offsets(specs, IsolationLevel.READ_UNCOMMITTED)
        return {partition: record.offset for partition, record in found.items()}

    def at_or_after(self, times: Mapping[Partition, int]) -> dict[Partition, RecordPlace | None]:
        """Per partition, the first record that has at least the given time (ms); None where every record is older.

        Times after ``MAX_MS`` are all the same; those before 1970 are 0, since Kafka gives negative ones meanings of their own.
        """
        specs = {partition: OffsetSpec.for_timestamp(max(0, min(ms, MAX_MS))) for partition, ms in times.items()}
        found = self._list_offsets(specs)
        return {partition: record if record.offset >= 0 else None for partition, record in found.items()}

    def _list_offsets(
        self, specs: Mapping[Partition, Any], isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[Partition, RecordPlace]:
        if not specs:
            return {}
        request = {TopicPartition(partition.topic, partition.number): spec for partition, spec in specs.items()}
        futures = self._admin.list_offsets(request, isolation_level=isolation, request_timeout=self._timeout_s)
        found = {}
        for asked, future in futures.items():
            partition = Partition(asked.topic, asked.partition)
            what = f"looking up offsets of {partition}"
            try:
                answer = self._await(future, what)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    # A broker hears of a new topic after others.
                    raise TransientError(f"{what} at Kafka {self._settings.where}: {error.args[0].str()}") from None
                raise self._translated(error, what) from None
            found[partition] = RecordPlace(answer.offset, min(answer.timestamp, MAX_MS))
        return found

    def _await(self, future: "Future[Answer]", what: str) -> Answer:
        """The future's answer; error callbacks are served meanwhile, so that refused credentials end it early."""
        deadline = time.monotonic() + self._timeout_s + 1
        while not future.done():
            wait((future,), POLL_S)  # not in the poll: an answer would not end that
            self._admin.poll(0)
            self._health.check()
            if time.monotonic() > deadline:
                raise self._health.explain(what)
        answer = future.result()
        self._health.progress()
        return answer

    def _translated(self, error: KafkaException, what: str) -> Exception:
        failure = translate(error.args[0], f"{what} at Kafka {self._settings.where}")
        if isinstance(failure, TransientError):
            return self._health.explain(f"{what}: {error.args[0].str()}")
        return failure


def _policies(configuration: Mapping[str, str]) -> frozenset[str]:
    return frozenset(each.strip() for each in configuration["cleanup.policy"].split(","))
