"""Where the command line finds connections."""

from pathlib import Path

import pytest

from ticdc_replay.cli.connections import load_connections
from ticdc_replay.domain.errors import ConfigError


@pytest.mark.parametrize("value", [None, ""])
def test_spark_s_connection_may_be_missing(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    if value is not None:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", value)
    assert load_connections(None, [], spark="spark_default").by_id == {}


def test_spark_s_connection_is_read_where_it_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark_connect", "host": "sc://a"}')
    assert load_connections(None, [], spark="spark_default")["spark_default"].host == "sc://a"
    file = tmp_path / "connections.yaml"
    file.touch(mode=0o600)
    file.write_text("spark_default: {conn_type: spark_connect, host: sc://b}")
    assert load_connections(file, [], spark="spark_default")["spark_default"].host == "sc://b"
    file.write_text("spark_default: {conn_type: spark_connect, hosts: sc://b}")
    with pytest.raises(ConfigError, match="spark_default: unknown field hosts"):
        load_connections(file, [], spark="spark_default")


def test_a_variable_may_have_airflow_s_uri_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA", "kafka://replay:secret@broker:9092")
    found = load_connections(None, ["kafka"])["kafka"]
    assert (found.host, found.port, found.login, found.password) == ("broker", 9092, "replay", "secret")
