"""What librdkafka's errors mean for a retry.

librdkafka reports a lost broker or refused credentials to a callback and goes on trying for ever. ``ClientHealth`` collects
these reports and decides when to give up.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from ticdc_replay.domain.errors import (
    AuthenticationError,
    ConfigError,
    ExpiredRangeError,
    PermanentError,
    TicdcReplayError,
    TopicChangedError,
    TransientError,
)
from ticdc_replay.kafka.settings import KafkaSettings

Client = TypeVar("Client")

_LOGGER = logging.getLogger("ticdc_replay.kafka")

CREDENTIALS_DEADLINE_S = 10.0
"""How long refused credentials or TLS are retried: a broker that restarts may refuse for a moment."""

_TOKEN_RETRY_S = 10.0

_REFUSED = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED}
    | {KafkaError.UNSUPPORTED_SASL_MECHANISM, KafkaError.ILLEGAL_SASL_STATE}
)
NOT_ALLOWED = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
    | {KafkaError.GROUP_AUTHORIZATION_FAILED}
)
"""The account is known, and lacks an ACL."""
_NO_TOPIC = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
    | {KafkaError.UNKNOWN_TOPIC_ID}
)
_OFFSET_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_AWAY = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT}
    | {KafkaError._TIMED_OUT_QUEUE, KafkaError._WAIT_COORD, KafkaError._NOENT, KafkaError._DESTROY}
)

_NOT_NOW = frozenset(
    {KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REPLICA_NOT_AVAILABLE}
    | {KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE}
    | {KafkaError.BROKER_NOT_AVAILABLE, KafkaError.NETWORK_EXCEPTION, KafkaError.REQUEST_TIMED_OUT}
    | {KafkaError.KAFKA_STORAGE_ERROR, KafkaError.NOT_CONTROLLER, KafkaError.THROTTLING_QUOTA_EXCEEDED}
)
"""What brokers answer while a partition gets a leader, or another one; librdkafka calls only some of these retriable."""


def translate(error: KafkaError, what: str) -> TicdcReplayError:
    """*error* as one of the library's. *what* names the operation, the place and the connection."""
    message = f"{what}: {error.str()}"
    code = error.code()
    if _is_refusal(error):
        return AuthenticationError(f"{message}; check login, password, security.protocol and ssl.* of the connection")
    if code in NOT_ALLOWED:
        return AuthenticationError(f"{message}; the user lacks an ACL (Describe and Read on the topic)")
    if code in _NO_TOPIC:
        return TopicChangedError(f"{message}; was the topic deleted or renamed?")
    if code in _OFFSET_GONE:
        return ExpiredRangeError(message)
    if code == KafkaError._BAD_COMPRESSION:
        return PermanentError(
            f"{message}; the batch is damaged, or larger decompressed than receive.message.max.bytes: where it may be so, "
            "set a higher receive.message.max.bytes in the connection's extra, and give workers as much more memory"
        )
    if code in _AWAY or code in _NOT_NOW or error.retriable():
        return TransientError(message)
    return PermanentError(message)


def _is_refusal(error: KafkaError) -> bool:
    """Whether *error* says that the broker does not take the client's credentials.

    With TLS 1.3 a broker refuses a client's certificate, or that there is none, after the handshake: as a lost connection.
    """
    return error.code() in _REFUSED or (error.code() == KafkaError._TRANSPORT and "SSL alert number" in error.str())


class ClientHealth:
    """What a client's error callback has reported since the last progress. One per client; thread-safe enough for flags."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self._refused_since: float | None = None
        self._refused: KafkaError | None = None
        self._last: KafkaError | None = None
        self._token: tuple[str, float] | None = None
        self._is_first = True
        self._no_token: TicdcReplayError | None = None

    def note(self, error: KafkaError) -> None:
        """The ``error_cb`` of the client."""
        if _is_refusal(error):
            self._refused = error
            if self._refused_since is None:
                self._refused_since = time.monotonic()
        self._last = error

    def first_token(self) -> None:
        """Make the token that the client begins with. Raises what making one raises: a client would hide it."""
        if self.settings.tokens is not None:
            self._token = self.settings.tokens("")

    def token(self, config: str) -> tuple[str, float]:
        """The ``oauth_cb`` of the client, which must not raise: an error would come out of another call of the client.

        Where no token can be made, it gives the last one for some seconds more, so that the client asks again.
        """
        if self._token is None or self.settings.tokens is None:
            raise AssertionError("a client is given this callback after its first token")
        try:
            if not self._is_first:
                self._token = self.settings.tokens(config)
        except Exception as error:
            known = error if isinstance(error, TicdcReplayError) else None
            self._no_token = known or PermanentError(f"cannot make a token: {error!r}")
            if self._refused_since is None:
                self._refused_since = time.monotonic()
            return self._token[0], time.time() + _TOKEN_RETRY_S
        self._is_first = False
        self._no_token = None
        return self._token

    def progress(self) -> None:
        """A broker has answered: what was reported before is over."""
        self._refused_since = self._refused = self._last = None

    def check(self) -> None:
        """Raise AuthenticationError when credentials have been refused for longer than the deadline."""
        if self._refused_since is None or time.monotonic() - self._refused_since < CREDENTIALS_DEADLINE_S:
            return
        if isinstance(self._no_token, AuthenticationError):
            raise self._no_token
        if self._refused is not None:
            raise self._refusal(f"Kafka {self.settings.where} refuses the client", self._refused)

    def _refusal(self, what: str, refused: KafkaError) -> TicdcReplayError:
        failure = translate(refused, what)
        hint = self.settings.hint
        return type(failure)(f"{failure}. {hint}") if hint else failure

    def explain(self, what: str) -> TicdcReplayError:
        """The error for an operation that never ended: refused credentials, else a broker that is away."""
        if self._no_token is not None:
            return self._no_token
        if self._refused is not None:
            return self._refusal(f"{what} at Kafka {self.settings.where}", self._refused)
        reported = f"; the client reported: {self._last.str()}" if self._last is not None else ""
        return TransientError(f"{what}: no answer from Kafka {self.settings.where}{reported}")


def make_client(factory: Callable[..., Client], config: dict[str, Any], health: ClientHealth) -> Client:
    """A client of *config* that reports to *health*. Raises ConfigError for an option that librdkafka refuses.

    Where it signs in with tokens, raises what making the first one raises.
    """
    health.first_token()
    callbacks = {"error_cb": health.note, "logger": _LOGGER}
    if health.settings.tokens is not None:
        callbacks["oauth_cb"] = health.token
    try:
        return factory({**config, **callbacks})
    except KafkaException as error:
        raise ConfigError(f"connection {health.settings.conn_id!r}: {error.args[0].str()}") from None
