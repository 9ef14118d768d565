"""What an account that lacks ACLs in Kafka can pin."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from demo.embedded_stack.kafka import Kafka
from tests.integration.snapshot.feed import Feed
from tests.support.topics import create_topic
from tests.support.waiting import PATIENCE_S
from ticdc_replay.changefeed.rules import Dispatch, DispatchRule
from ticdc_replay.changefeed.table_filter import TableFilter
from ticdc_replay.changefeed.topic_expression import TopicExpression
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, UnprovenWindowError
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.reconcile.look.coverage import find_retained
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
            future.result(PATIENCE_S)

    yield grant
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for future in root.delete_acls([everything]).values():
        future.result(PATIENCE_S)


@pytest.fixture
def make_feed(broker: AuthorizingKafka, root: AdminClient) -> Callable[[str], Feed]:
    def make(topic: str) -> Feed:
        create_topic(root, topic, 1, {"retention.ms": "-1"})
        feed = Feed(Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True}), topic, 1)
        feed.seconds(0, 121)
        return feed

    return make


@pytest.fixture
def reader(broker: AuthorizingKafka) -> KafkaSettings:
    extra = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": broker.sasl_mechanism}
    extra["bootstrap.servers"] = broker.sasl_bootstrap
    connection = Connection(
        "kafka_reader", "kafka", login=broker.sasl_username, password=broker.sasl_password, extra=extra
    )
    return KafkaSettings.from_connection(connection)


@pytest.fixture
def pin(reader: KafkaSettings, artifacts: ObjectStore, state: StateStore) -> Pin:
    def pin(request: PinRequest) -> Manifest:
        return pin_window(request, reader, artifacts, None, state).manifest

    return pin


def with_topic_rule(request: PinRequest, expression: str) -> PinRequest:
    dispatch = Dispatch((DispatchRule(TableFilter(("shop.*",)), topic=TopicExpression(expression)),))
    return msgspec.structs.replace(request, changefeed=msgspec.structs.replace(request.changefeed, dispatch=dispatch))


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


@pytest.mark.parametrize(
    ("rule", "tables", "missed"),
    [
        ("{main}_fixed", ("*.*",), "{main}_fixed"),
        ("{main}_{{schema}}_{{table}}", ("shop.orders",), "{main}_shop_orders"),
    ],
    ids=["named by the rule", "of a table named in full"],
)
def test_a_topic_of_a_wanted_table_that_the_account_may_not_describe_is_missed(
    make_feed: Callable[[str], Feed],
    request_for: Callable[..., PinRequest],
    grant: Grant,
    pin: Pin,
    rule: str,
    tables: tuple[str, ...],
    missed: str,
) -> None:
    main = make_feed(f"main-{len(rule)}").topic
    grant(main, READ, CONFIGS)
    request = with_topic_rule(request_for(main, tables=tables), rule.format(main=main))
    missed = missed.format(main=main)
    make_feed(missed)
    with pytest.raises(AuthenticationError, match=f"topic {missed} .*ACL"):
        pin(request)
    grant(missed, READ, CONFIGS)
    assert [topic.topic for topic in pin(request).topics] == [main, missed]


def test_a_survey_stops_at_the_topic_of_a_known_table_that_the_account_may_not_describe(
    make_feed: Callable[[str], Feed], request_for: Callable[..., PinRequest], grant: Grant, reader: KafkaSettings
) -> None:
    main = make_feed("surveyed").topic
    grant(main, READ)
    changefeed = with_topic_rule(request_for(main), "surveyed_{schema}_{table}").changefeed
    missed = make_feed("surveyed_shop_orders").topic

    def topics(*tables: tuple[str, str]) -> set[str]:
        with Offsets(reader) as offsets:
            return set(find_retained(changefeed, {}, (), offsets, reader, tables=tables).topic_ids)

    assert topics() == {main}, "Kafka does not list it"
    with pytest.raises(AuthenticationError, match=f"topic {missed} .*ACL"):
        topics(("shop", "orders"))
    grant(missed, READ)
    assert topics(("shop", "orders")) == {main, missed}


def test_a_topic_that_does_not_exist_yet_is_none_that_is_missed(
    make_feed: Callable[[str], Feed], request_for: Callable[..., PinRequest], grant: Grant, pin: Pin
) -> None:
    main = make_feed("main-alone").topic
    for topic in (main, "main-alone_shop_orders"):
        grant(topic, READ, CONFIGS)
    request = with_topic_rule(request_for(main, tables=("shop.orders",)), "main-alone_{schema}_{table}")
    assert [topic.topic for topic in pin(request).topics] == [main]


def test_a_table_pattern_in_another_letter_case_asks_for_no_other_topic(
    make_feed: Callable[[str], Feed], request_for: Callable[..., PinRequest], grant: Grant, pin: Pin
) -> None:
    main, orders = make_feed("main-case").topic, make_feed("main-case_shop_orders").topic
    for topic in (main, orders):
        grant(topic, READ, CONFIGS)
    request = with_topic_rule(request_for(main, tables=("SHOP.ORDERS",)), "main-case_{schema}_{table}")
    assert [topic.topic for topic in pin(request).topics] == [main, orders]
