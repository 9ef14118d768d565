"""Kafka client settings, from a connection."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.kafka import msk

Option = str | int | float | bool

_EXACT_READING: Final[dict[str, Option]] = {
    "group.id": "ticdc-replay",  # demanded by the client; it is never joined and may be forbidden
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # the default jumps to the end when an offset is gone: a silent gap
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "check.crcs": True,
    "allow.auto.create.topics": False,
}
_FETCH_BYTES: Final = 16 * 1024 * 1024
_QUEUE_KBYTES: Final = 32 * 1024
_RECEIVE_BYTES: Final = 128 * 1024 * 1024
"""Of an answer of a broker, and of a batch that the client decompresses by zstd: some kilobytes could become gigabytes else."""
_LARGEST_RECEIVE: Final = (1 << 31) - 1
_BATCH_OVERHEAD: Final = 64 * 1024
_THROUGHPUT: Final[dict[str, Option]] = {
    # What is fetched after the end of a range is wasted, so queues are smaller than librdkafka's 64 MiB; with a queue this
    # size its back-off of one second would starve the reader.
    "queued.max.messages.kbytes": _QUEUE_KBYTES,
    "fetch.max.bytes": _FETCH_BYTES,
    "max.partition.fetch.bytes": 2 * 1024 * 1024,  # larger ones leave the processor's cache before they are read
    "fetch.queue.backoff.ms": 10,
    # By default five minutes, longer than a reader waits: so a client learns in time what it missed while a broker was away.
    "topic.metadata.refresh.interval.ms": 20_000,
    "receive.message.max.bytes": _RECEIVE_BYTES,  # a batch that is larger than a fetch comes whole
}
_CONNECTION: Final[dict[str, Option]] = {
    "client.id": "ticdc-replay",
    "socket.keepalive.enable": True,
    "log_level": 2,  # a lost broker is logged twenty times a second; it reaches people through ClientHealth instead
}
_CONSUMER_ONLY: Final = frozenset(
    {*_EXACT_READING, *_THROUGHPUT, "auto.commit.interval.ms", "max.poll.interval.ms", "session.timeout.ms"}
    | {"heartbeat.interval.ms", "partition.assignment.strategy", "group.instance.id", "group.protocol"}
    | {"fetch.wait.max.ms", "fetch.min.bytes", "fetch.error.backoff.ms", "fetch.message.max.bytes"}
    | {"queued.min.messages"}
)


class KafkaSettings(msgspec.Struct, frozen=True):
    """How to reach the brokers. ``options`` are librdkafka's own keys, secrets among them: the repr shows none of them."""

    conn_id: str
    options: dict[str, Option]
    max_message_bytes: int = 0
    """The largest message that is expected, where it is known: what a consumer fetches and holds follows it."""
    hint: str = ""
    """How the writer reaches the brokers, for errors of refused credentials."""
    tokens: Callable[[str], tuple[str, float]] | None = None
    """Makes a token for OAUTHBEARER, and says when it expires (s since 1970); None: librdkafka signs in by itself."""

    @classmethod
    def from_connection(cls, connection: Connection, max_message_bytes: int = 0, hint: str = "") -> "KafkaSettings":
        """The settings of an Airflow connection of type ``kafka``; *max_message_bytes* and *hint* as the members say.

        ``extra`` holds librdkafka keys, as for Airflow's own Kafka provider; ``bootstrap.servers`` may be given by host and port
        instead, ``sasl.username`` and ``sasl.password`` by login and password. Keys that decide which messages are read
        (``auto.offset.reset``, ``isolation.level``, group and commit settings) are replaced: reading a pinned range leaves no
        choice. With ``sasl.mechanisms`` AWS_MSK_IAM an AWS identity signs in: login, password and ``msk.FIELDS`` of ``extra``
        describe it as in a connection of type ``aws``. Raises ConfigError for a missing address or a value that is not plain.
        """
        options: dict[str, Option] = {}
        by_aws = msk.is_selected(connection.extra)
        for key, value in connection.extra.items():
            if by_aws and key in msk.FIELDS:
                continue
            if not isinstance(value, Option):
                raise ConfigError(
                    f"connection {connection.conn_id!r}: extra[{key!r}] must be a text, number or boolean"
                )
            options[key] = value
        if connection.host:
            port = f":{connection.port}" if connection.port else ""
            options.setdefault("bootstrap.servers", f"{connection.host}{port}")
        if connection.login and not by_aws:
            options.setdefault("sasl.username", connection.login)
        if connection.password and not by_aws:
            options.setdefault("sasl.password", connection.password)
        if not options.get("bootstrap.servers"):
            raise ConfigError(
                f"connection {connection.conn_id!r} names no broker: set extra['bootstrap.servers'], or host and port"
            )
        tokens = _sign_in_by_aws(connection, options) if by_aws else None
        return cls(connection.conn_id, options, max_message_bytes, hint, tokens)

    @property
    def where(self) -> str:
        """The brokers and the connection, for messages to people."""
        return f"{self.options['bootstrap.servers']} (connection {self.conn_id!r})"

    def consumer(self) -> dict[str, Any]:
        """Configuration of a consumer that reads assigned ranges and nothing else."""
        return {**_CONNECTION, **_THROUGHPUT, **self._sizes(), **self.options, **_EXACT_READING}

    def _sizes(self) -> dict[str, int]:
        """Room for one of the largest messages, where the usual sizes have none.

        A broker sends a batch that is larger than the fetch, but then nothing beside it, and only up to what the client receives.
        """
        fetch = max(_FETCH_BYTES, self.max_message_bytes + _BATCH_OVERHEAD)
        return {
            "fetch.max.bytes": fetch,
            "queued.max.messages.kbytes": max(_QUEUE_KBYTES, fetch // 1024),
            "receive.message.max.bytes": max(_RECEIVE_BYTES, min(2 * fetch, _LARGEST_RECEIVE)),
        }

    def admin(self) -> dict[str, Any]:
        """Configuration of an admin client."""
        options = {key: value for key, value in self.options.items() if key not in _CONSUMER_ONLY}
        return {**_CONNECTION, **options}

    def __repr__(self) -> str:
        return f"KafkaSettings({self.where})"

    __str__ = __repr__


def _sign_in_by_aws(connection: Connection, options: dict[str, Option]) -> msk.MskTokens:
    """Change *options* so that the client asks for tokens, and return what makes them."""
    options.pop("sasl.mechanism", None)
    options["sasl.mechanisms"] = "OAUTHBEARER"
    protocol = options.setdefault("security.protocol", "SASL_SSL")
    if str(protocol).upper() != "SASL_SSL":
        raise ConfigError(
            f"connection {connection.conn_id!r}: security.protocol {protocol!r} with {msk.MECHANISM}: a token must not be sent "
            "without TLS; set SASL_SSL, or remove it"
        )
    return msk.MskTokens.of(connection, str(options["bootstrap.servers"]))
