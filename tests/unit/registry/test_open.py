"""Which registry a connection leads to, and which fields of it make no sense."""

import pytest

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.registry import open_registry
from ticdc_replay.registry.confluent import ConfluentRegistry
from ticdc_replay.registry.glue import GlueRegistry


def connection(conn_type="http", **fields):
    return Connection("registry", conn_type, **fields)


def test_the_type_of_the_connection_tells_the_registry():
    assert isinstance(open_registry(connection(host="sr", port=8081)), ConfluentRegistry)
    assert isinstance(open_registry(connection("aws", extra={"region_name": "eu-west-1"})), GlueRegistry)


def test_another_type_is_refused_with_those_that_are_allowed():
    with pytest.raises(ConfigError, match=r"'registry' of type 'kafka'.*http.*aws"):
        open_registry(connection("kafka"))


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"host": "sr"}, "http://sr/"),
        ({"host": "sr", "port": 8081, "schema": "https"}, "https://sr:8081/"),
        ({"host": "https://sr:8081/apis/ccompat/v7/"}, "https://sr:8081/apis/ccompat/v7/"),
        ({"host": "https://sr/base", "port": 8443}, "https://sr:8443/base/"),
    ],
)
def test_the_address_may_be_a_name_or_a_url(fields, url):
    assert str(ConfluentRegistry.from_connection(connection(**fields))._client.base_url) == url


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "host must be a name"),
        ({"host": "ftp://sr"}, "host must be a name"),
        ({"host": "http://sr?x=1"}, "host must be a name"),
        ({"host": "http://u:geheim@sr"}, "put them into login and password"),
        ({"host": "sr", "extra": {"token": "geheim"}}, "extra token not supported; allowed: bearer.auth.token"),
        ({"host": "sr", "extra": {"bearer.auth.token": 1}}, "must be a text"),
        ({"host": "sr", "login": "u", "password": "p", "extra": {"bearer.auth.token": "geheim"}}, "exclude"),
        ({"host": "sr", "extra": {"ssl.ca.pem": "x"}}, "no TLS: set schema to https"),
        ({"host": "sr", "schema": "https", "extra": {"ssl.ca.pem": "x"}}, r"extra ssl\.ca"),
        ({"host": "sr", "schema": "https", "extra": {"ssl.ca.location": "/nowhere"}}, r"extra ssl\.ca"),
        ({"host": "sr", "schema": "https", "extra": {"ssl.key.pem": "x"}}, "a key without"),
    ],
)
def test_fields_that_make_no_sense_are_refused_without_showing_secrets(fields, told):
    with pytest.raises(ConfigError, match=told) as error:
        open_registry(connection(**fields))
    assert "geheim" not in str(error.value)


def test_glue_refuses_fields_that_it_does_not_know():
    with pytest.raises(ConfigError, match="extra verify not supported"):
        open_registry(connection("aws", extra={"verify": "x"}))
    with pytest.raises(ConfigError, match="region"):
        open_registry(connection("aws", login="a", password="b", extra={"endpoint_url": "no-url"}))
