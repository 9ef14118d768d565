"""Client settings from a connection."""

import pytest
from confluent_kafka import Consumer

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.kafka.settings import KafkaSettings


def settings(**fields: object) -> KafkaSettings:
    return KafkaSettings.from_connection(Connection(conn_id="kafka_main", conn_type="kafka", **fields))  # type: ignore[arg-type]


def test_extra_holds_librdkafka_keys_and_they_reach_both_clients() -> None:
    made = settings(extra={"bootstrap.servers": "a:1,b:2", "security.protocol": "SSL", "ssl.ca.location": "/ca.pem"})
    for rendered in (made.consumer(), made.admin()):
        assert rendered["bootstrap.servers"] == "a:1,b:2"
        assert rendered["ssl.ca.location"] == "/ca.pem"


def test_host_port_login_and_password_stand_for_their_keys() -> None:
    rendered = settings(host="broker", port=9093, login="me", password="hidden").consumer()
    assert rendered["bootstrap.servers"] == "broker:9093"
    assert (rendered["sasl.username"], rendered["sasl.password"]) == ("me", "hidden")


def test_extra_wins_over_host() -> None:
    assert settings(host="x", port=1, extra={"bootstrap.servers": "y:2"}).admin()["bootstrap.servers"] == "y:2"


def test_no_setting_of_the_connection_changes_which_messages_are_read() -> None:
    rendered = settings(
        host="x",
        extra={"auto.offset.reset": "latest", "isolation.level": "read_uncommitted", "enable.auto.commit": True},
    ).consumer()
    assert rendered["auto.offset.reset"] == "error"
    assert rendered["isolation.level"] == "read_committed"
    assert rendered["enable.auto.commit"] is False


def test_the_admin_client_gets_no_consumer_settings() -> None:
    rendered = settings(host="x", extra={"group.id": "g", "session.timeout.ms": 6000}).admin()
    assert not {"group.id", "session.timeout.ms", "isolation.level"} & set(rendered)


def test_a_connection_without_broker_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kafka_main.*bootstrap\.servers"):
        settings(password="hidden")


def test_a_value_that_is_not_plain_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'error_cb'"):
        settings(host="x", extra={"error_cb": ["module.function"]})


def test_no_secret_is_in_any_text_of_the_settings() -> None:
    made = settings(host="x", password="hidden", extra={"ssl.key.password": "buried"})
    assert "hidden" not in f"{made!r} {made} {made.where}"
    assert "buried" not in f"{made!r} {made} {made.where}"


def test_there_is_room_for_one_of_the_largest_messages() -> None:
    connection = Connection(conn_id="kafka_main", conn_type="kafka", host="x")
    usual, large = (KafkaSettings.from_connection(connection, size).consumer() for size in (10 << 20, 64 << 20))
    assert (usual["fetch.max.bytes"], usual["queued.max.messages.kbytes"]) == (16 << 20, 32 << 10)
    assert large["fetch.max.bytes"] > 64 << 20
    assert large["queued.max.messages.kbytes"] << 10 > 64 << 20
    assert large["receive.message.max.bytes"] >= 2 * (64 << 20)


def test_the_largest_messages_that_kafka_can_carry_are_within_what_librdkafka_takes() -> None:
    connection = Connection(conn_id="kafka_main", conn_type="kafka", host="x")
    rendered = KafkaSettings.from_connection(connection, (1 << 30) - 1).consumer()
    Consumer(rendered).close()
    rendered = KafkaSettings.from_connection(connection, 0).consumer()
    Consumer(rendered).close()
