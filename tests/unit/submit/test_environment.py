"""What a Spark driver gets of the environment that it is submitted in."""

import pytest

from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.submit.environment import driver_environment

NEEDED = {
    "PATH": "/bin",
    "JAVA_HOME": "/java",
    "SPARK_CONF_DIR": "/conf",
    "PYSPARK_PYTHON": "python",
    "HADOOP_CONF_DIR": "/hadoop",
    "https_proxy": "http://proxy",
    "NO_PROXY": "localhost",
    "LC_ALL": "C.UTF-8",
    "AWS_CA_BUNDLE": "/ca.pem",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/token",
    "TICDC_REPLAY_NATIVE": "off",
}
SECRETS = {
    "AIRFLOW_CONN_WAREHOUSE": "x",
    "AIRFLOW_VAR_KEY": "x",
    "AIRFLOW__CORE__FERNET_KEY": "x",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "x",
    "DATABASE_URL": "x",
    "SOME_TOKEN": "x",
    "SPARK_AUTH_SECRET": "x",
    "HADOOP_CREDSTORE_PASSWORD": "x",
    "TICDC_REPLAY_PASSWORD": "x",
}
AWS_KEYS = dict.fromkeys(
    ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN"), "x"
)
KEYED = Connection("keyed", "aws", login="key", password="secret")
AMBIENT = Connection("ambient", "aws")


def of(*connections: Connection) -> dict[str, str]:
    return driver_environment(NEEDED | SECRETS | AWS_KEYS, Connections({each.conn_id: each for each in connections}))


@pytest.mark.parametrize("connections", [(), (KEYED,), (KEYED, Connection("kafka", "kafka"))])
def test_what_spark_and_the_library_read_is_kept_and_no_secret_of_others(connections: tuple[Connection, ...]) -> None:
    assert of(*connections) == NEEDED


def test_keys_of_the_environment_are_kept_for_a_store_whose_connection_has_none() -> None:
    assert of(KEYED, AMBIENT) == NEEDED | AWS_KEYS
