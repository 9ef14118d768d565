"""What an account that lacks ACLs in Kafka can pin."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from demo.embedded_stack.kafka import Kafka
from tests.integration.snapshot.feed import Feed
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import UnprovenWindowError
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.snapshot.pin import pin_window
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.state import StateStore
from ticdc_replay.storage import ObjectStore

pytestmark = pytest.mark.integration

READ, CONFIGS = AclOperation.READ, AclOperation.DESCRIBE_CONFIGS
Grant = Callable[..., None]
Pin = Callable[[PinRequest], Manifest]


class AuthorizingKafka(Kafka):
    """A broker that asks for ACLs of those who sign in; who does not may do all."""

    name: ClassVar[str] = "authorizing-kafka"

    def _properties(self) -> str:
        return super()._properties() + (
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\nsuper.users=User:ANONYMOUS\n"
        )


@pytest.fixture(scope="module")
def broker(servers_folder: Path) -> Iterator[AuthorizingKafka]:
    with AuthorizingKafka(servers_folder / "authorizing-kafka", heap_mb=256) as server:
        yield server


@pytest.fixture(scope="module")
def root(broker: AuthorizingKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def grant(root: AdminClient) -> Iterator[Grant]:
    """Grants the reader operations on a topic, until the end of the test."""
    user, allow = "User:replay", AclPermissionType.ALLOW

    def grant(topic: str, *operations: AclOperation) -> None:
        bindings = [
            AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, user, "*", operation, allow)
            for operation in operations
        ]
        for future in root.create_acls(bindings).values():
            future.result(30)

    yield grant
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for future in root.delete_acls([everything]).values():
        future.result(30)


@pytest.fixture
def make_feed(broker: AuthorizingKafka, root: AdminClient) -> Callable[[str], Feed]:
    def make(topic: str) -> Feed:
        root.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "-1"})])[topic].result(30)
        feed = Feed(broker.bootstrap, topic, 1)
        feed.seconds(0, 121)
        return feed

    return make


@pytest.fixture
def pin(broker: AuthorizingKafka, artifacts: ObjectStore, state: StateStore) -> Pin:
    extra = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": broker.sasl_mechanism}
    extra["bootstrap.servers"] = broker.sasl_bootstrap
    reader = Connection("kafka_reader", "kafka", login=broker.sasl_username, password=broker.sasl_password, extra=extra)

    def pin(request: PinRequest) -> Manifest:
        return pin_window(request, KafkaSettings.from_connection(reader), artifacts, None, state).manifest

    return pin


def test_reading_and_asking_for_configurations_is_enough(
    make_feed: Callable[[str], Feed], request_for: Callable[..., PinRequest], grant: Grant, pin: Pin
) -> None:
    feed = make_feed("whole")
    grant(feed.topic, READ, CONFIGS)
    assert pin(request_for(feed.topic)).grade == "proven"


def test_without_a_look_at_the_configuration_nothing_is_proven(
    make_feed: Callable[[str], Feed], request_for: Callable[..., PinRequest], grant: Grant, pin: Pin
) -> None:
    feed = make_feed("unseen")
    grant(feed.topic, READ)
    with pytest.raises(UnprovenWindowError, match=r"topic unseen: .* grant the account DescribeConfigs on the topic"):
        pin(request_for(feed.topic))
    assert pin(request_for(feed.topic, unproven="allow")).grade == "unproven"
