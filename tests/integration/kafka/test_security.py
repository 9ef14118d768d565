"""What a sink-uri says of security, held against a broker that asks for it."""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.integration.kafka.secured import Identity, SecuredKafka, make_certificates, token_endpoint, unsigned_token
from tests.support.topics import create_topic
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.changefeed.kafka_access import KafkaAccess
from ticdc_replay.changefeed.sink_uri import from_sink_uri
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, TicdcReplayError, TransientError
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.reader import read_range
from ticdc_replay.kafka.settings import KafkaSettings

pytestmark = pytest.mark.integration

FILES = "&ca=/etc/cdc/ca.pem&cert=/etc/cdc/c.pem&key=/etc/cdc/k.pem"


@pytest.fixture(scope="module")
def folder(servers_folder: Path) -> Path:
    return servers_folder / "secured-kafka"


@pytest.fixture(scope="module")
def certificates(folder: Path) -> tuple[str, Identity]:
    return make_certificates(folder)


@pytest.fixture(scope="module")
def broker(folder: Path, certificates: tuple[str, Identity]) -> Iterator[SecuredKafka]:
    with SecuredKafka(folder, heap_mb=256) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        create_topic(admin, "t")
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            secret = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion("reader", secret, f"{mechanism.name}-pw".encode())
            admin.alter_user_scram_credentials([change])["reader"].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": server.bootstrap})
        producer.produce("t", b"hello")
        assert producer.flush(PATIENCE_S) == 0
        yield server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticdc_replay.kafka.failures.CREDENTIALS_DEADLINE_S", 1.0)


def access_of(address: str, parameters: str, toml: str = "") -> KafkaAccess:
    return from_sink_uri(f"kafka://{address}/t?protocol=simple{parameters}", toml, "UTC", "shop.yaml").access


def settings_of(access: KafkaAccess, secrets: dict[str, str]) -> KafkaSettings:
    """The connection that *access* asks for: what it tells, and *secrets* for what it leaves to the reader."""
    assert {field.name for field in access.fields if field.value is None} == set(secrets)
    extra = {field.name: field.value for field in access.fields if field.value is not None} | secrets
    return KafkaSettings.from_connection(Connection("kafka_shop", "kafka", extra=extra), hint=access.hint())


def read(settings: KafkaSettings) -> list[bytes | None]:
    with Offsets(settings) as offsets:
        (partition,) = offsets.topics(["t"])["t"].partitions
        assert offsets.bounds([partition])[partition].high == 1
    return [message.value for batch in read_range(settings, OffsetRange("t", 0, 0, 1)) for message in batch]


def test_tls_with_a_ca_of_one_s_own(broker: SecuredKafka, certificates: tuple[str, Identity]) -> None:
    access = access_of(broker.tls, "&enable-tls=true&ca=/etc/cdc/ca.pem")
    assert read(settings_of(access, {"ssl.ca.pem": certificates[0]})) == [b"hello"]


def test_tls_that_verifies_nothing(broker: SecuredKafka) -> None:
    access = access_of(broker.tls, "&enable-tls=true&insecure-skip-verify=true")
    assert read(settings_of(access, {})) == [b"hello"]


def test_mutual_tls(broker: SecuredKafka, certificates: tuple[str, Identity]) -> None:
    ca, reader = certificates
    secrets = {"ssl.ca.pem": ca, "ssl.certificate.pem": reader.certificate, "ssl.key.pem": reader.key}
    assert read(settings_of(access_of(broker.mtls, FILES), secrets)) == [b"hello"]


@pytest.mark.parametrize(
    ("mechanism", "password"),
    [
        ("plain", "pw"),
        ("SCRAM-SHA-256", "SCRAM_SHA_256-pw"),
        ("scram-sha-512", "SCRAM_SHA_512-pw"),
    ],
)
def test_passwords_over_tls(
    broker: SecuredKafka, certificates: tuple[str, Identity], mechanism: str, password: str
) -> None:
    access = access_of(
        broker.sasl_tls, f"&sasl-mechanism={mechanism}&sasl-user=ticdc&enable-tls=true&ca=/etc/cdc/ca.pem"
    )
    secrets = {"ssl.ca.pem": certificates[0], "sasl.username": "reader", "sasl.password": password}
    assert read(settings_of(access, secrets)) == [b"hello"]


def test_passwords_without_tls(broker: SecuredKafka) -> None:
    access = access_of(broker.sasl_bootstrap, "&sasl-mechanism=SCRAM-SHA-512&sasl-user=ticdc")
    assert "security.protocol=SASL_PLAINTEXT" in map(str, access.fields)
    secrets = {"sasl.username": broker.sasl_username, "sasl.password": broker.sasl_password}
    assert read(settings_of(access, secrets)) == [b"hello"]


def oauth_access(address: str, url: str) -> KafkaAccess:
    toml = f"""
    [sink.kafka-config]
    sasl-mechanism = "OAUTHBEARER"
    sasl-oauth-client-id = "ticdc"
    sasl-oauth-token-url = "{url}"
    sasl-oauth-scopes = ["kafka", "read"]
    """
    return access_of(address, "&enable-tls=true&ca=/etc/cdc/ca.pem", toml)


def test_tokens_of_an_identity_provider(broker: SecuredKafka, certificates: tuple[str, Identity]) -> None:
    with token_endpoint("reader", "token-pw") as url:
        secrets = {"ssl.ca.pem": certificates[0], "sasl.oauthbearer.client.id": "reader"}
        secrets["sasl.oauthbearer.client.secret"] = "token-pw"
        assert read(settings_of(oauth_access(broker.oauth, url), secrets)) == [b"hello"]


class Tokens:
    """Makes tokens that the broker takes, of *lifetime_s* each, or fails as it is told to."""

    def __init__(self, lifetime_s: float) -> None:
        self.lifetime_s = lifetime_s
        self.made = 0
        self.failure: TicdcReplayError | None = None

    def __call__(self, config: str) -> tuple[str, float]:
        if self.failure is not None:
            raise self.failure
        self.made += 1
        return unsigned_token("reader", self.lifetime_s), time.time() + self.lifetime_s


def with_tokens(broker: SecuredKafka, certificates: tuple[str, Identity], tokens: Tokens) -> KafkaSettings:
    """As a connection with AWS_MSK_IAM makes them, with tokens that this broker can judge."""
    extra = {"bootstrap.servers": broker.oauth, "security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER"}
    connection = Connection("kafka_shop", "kafka", extra=extra | {"ssl.ca.pem": certificates[0]})
    return msgspec.structs.replace(KafkaSettings.from_connection(connection), tokens=tokens)


def test_every_client_signs_in_with_tokens_of_a_callback(
    broker: SecuredKafka, certificates: tuple[str, Identity]
) -> None:
    tokens = Tokens(300)
    assert read(with_tokens(broker, certificates, tokens)) == [b"hello"]
    assert tokens.made == 2, "one for the admin client and one for the consumer"


def test_a_client_that_nobody_polls_renews_its_token(broker: SecuredKafka, certificates: tuple[str, Identity]) -> None:
    tokens = Tokens(4)
    with Offsets(with_tokens(broker, certificates, tokens)) as offsets:
        assert "t" in offsets.names()
        wait_for("three tokens", lambda: tokens.made >= 3)
        assert "t" in offsets.names()
        tokens.failure = TransientError("STS is away")
        made = tokens.made
        time.sleep(5)
        tokens.failure = None
        wait_for("another token, after STS came back", lambda: tokens.made > made)
        assert "t" in offsets.names()


def test_without_a_first_token_the_reason_is_said_at_once(
    broker: SecuredKafka, certificates: tuple[str, Identity]
) -> None:
    tokens = Tokens(300)
    tokens.failure = AuthenticationError("the role can't be assumed")
    with pytest.raises(AuthenticationError, match="the role can't be assumed"):
        read(with_tokens(broker, certificates, tokens))


@pytest.mark.usefixtures("impatient")
def test_a_token_that_the_broker_refuses_is_an_error_of_credentials(
    broker: SecuredKafka, certificates: tuple[str, Identity]
) -> None:
    class Expired(Tokens):
        def __call__(self, config: str) -> tuple[str, float]:
            return unsigned_token("reader", -600), time.time() + 300

    with pytest.raises(AuthenticationError, match="kafka_shop"):
        read(with_tokens(broker, certificates, Expired(0)))


@pytest.mark.usefixtures("impatient")
def test_a_refused_password_is_told_with_how_ticdc_signs_in(
    broker: SecuredKafka, certificates: tuple[str, Identity]
) -> None:
    access = access_of(broker.sasl_tls, "&sasl-mechanism=plain&sasl-user=ticdc&enable-tls=true&ca=/etc/cdc/ca.pem")
    secrets = {"ssl.ca.pem": certificates[0], "sasl.username": "reader", "sasl.password": "wrong-pw"}
    with pytest.raises(AuthenticationError) as caught:
        read(settings_of(access, secrets))
    message = str(caught.value)
    assert "TiCDC itself reaches the brokers like this: security.protocol=SASL_SSL; sasl.mechanism=PLAIN" in message
    assert "wrong-pw" not in message


@pytest.mark.usefixtures("impatient")
def test_a_missing_client_certificate_is_refused(broker: SecuredKafka, certificates: tuple[str, Identity]) -> None:
    access = access_of(broker.mtls, "&enable-tls=true&ca=/etc/cdc/ca.pem")
    with pytest.raises(AuthenticationError):
        read(settings_of(access, {"ssl.ca.pem": certificates[0]}))
