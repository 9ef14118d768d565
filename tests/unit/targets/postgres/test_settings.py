"""From an Airflow connection to what the drivers want."""

from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.targets.postgres.settings import PostgresSettings


def connection(**changes: Any) -> Connection:
    fields: dict[str, Any] = {
        "conn_type": "postgres",
        "host": "db.example",
        "schema": "shop",
        "login": "replay",
        **changes,
    }
    return Connection("warehouse", **fields)


def test_fields_and_extras_become_libpq_parameters() -> None:
    password = "it's a \\ 'pass' word"
    settings = PostgresSettings(connection(port=6543, password=password, extra={"sslmode": "verify-full"}))
    parameters = conninfo_to_dict(settings._conninfo)
    assert (parameters["host"], parameters["port"], parameters["dbname"]) == ("db.example", "6543", "shop")
    assert (parameters["user"], parameters["password"]) == ("replay", password)
    assert (parameters["sslmode"], parameters["client_encoding"]) == ("verify-full", "UTF8")
    assert "pass" not in repr(settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conn_type": "mysql"}, "needs type 'postgres'"),
        ({"host": None}, "host and schema"),
        ({"schema": None}, "host and schema"),
        ({"extra": {"sslmod": "require"}}, "extra sslmod not supported; allowed: .*sslmode"),
    ],
)
def test_a_connection_that_cannot_work_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"connection 'warehouse'.*{message}"):
        PostgresSettings(connection(**changes))
