"""The connection that a command can do without."""

from pathlib import Path

import pytest

from ticdc_replay.cli.connections import load_connections
from ticdc_replay.domain.errors import ConfigError


@pytest.mark.parametrize("value", [None, "", "spark://spark.example:7077"])
def test_spark_s_connection_may_be_missing_or_of_no_use(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
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
