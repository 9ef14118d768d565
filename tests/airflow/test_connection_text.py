"""Connections as text are read as Airflow reads them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.domain.connection_text import parse_connection
from ticdc_replay.domain.errors import ConfigError

pytestmark = pytest.mark.airflow

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=12)
HOSTS = st.sampled_from(["db", "DB.example", "10.0.0.1", "https://vault.example", "a,b", ""])
EXTRAS = st.dictionaries(TEXT, TEXT | st.integers() | st.booleans() | st.dictionaries(TEXT, TEXT), max_size=3)


def as_airflow_reads(connection):
    from ticdc_replay.airflow.connections import converted

    return converted(connection)


@given(HOSTS, st.none() | TEXT, st.none() | TEXT, TEXT, st.none() | st.integers(1, 65535), EXTRAS)
def test_what_airflow_writes(host, login, password, schema, port, extra):
    from airflow.sdk import Connection

    written = Connection(
        conn_id="c",
        conn_type="spark_connect",
        host=host,
        login=login,
        password=password,
        schema=schema,
        port=port,
        extra=json.dumps(extra),
    )
    uri = written.get_uri()
    assert parse_connection("c", uri, "V") == as_airflow_reads(Connection.from_uri(uri, "c")), uri
    text = written.as_json()
    assert parse_connection("c", text, "V") == as_airflow_reads(Connection.from_json(text, "c")), text


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://replay:p%40ss@db.Example:5432/shop?sslmode=require",
        "aws://AKIA:sec%2Fret@/?region_name=eu-west-1",
        "aws://",
        "spark://spark%3A%2F%2Fmaster:7077",
        "spark://yarn?deploy-mode=cluster",
        "google-cloud-platform://?__extra__=%7B%22a%22%3A+%7B%22b%22%3A+1%7D%7D",
        "http://https://host:443/path",
        "kafka://a,b:9092",
    ],
)
def test_uris_that_people_write(uri):
    from airflow.sdk import Connection

    assert parse_connection("c", uri, "V") == as_airflow_reads(Connection.from_uri(uri, "c"))


@pytest.mark.parametrize(
    "text",
    [
        "planted",
        "",
        '{"conn_type": "planted"',
        "a://b://c://planted",
        "http://user:planted@b://c",
        "kafka://u:planted@host:port",
        "kafka://u:planted@[host",
        '{"conn_type": "kafka", "extra": "planted"}',
        '{"conn_type": "kafka", "port": "planted"}',
        '{"conn_type": "kafka", "password": ["planted"]}',
    ],
)
def test_other_texts_are_refused_and_not_shown(text):
    with pytest.raises(ConfigError) as refused:
        parse_connection("c", text, "AIRFLOW_CONN_C")
    assert str(refused.value).startswith("AIRFLOW_CONN_C")
    assert "planted" not in str(refused.value)
