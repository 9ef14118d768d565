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
    "AWS_BEARER_TOKEN_BEDROCK": "x",
    "AZURE_STORAGE_ACCOUNT_KEY": "x",
    "AZURE_STORAGE_KEY": "x",
    "AZURE_STORAGE_CONNECTION_STRING": "x",
    "AZURE_STORAGE_SAS_TOKEN": "x",
    "AZURE_OPENAI_API_KEY": "x",
    "GOOGLE_SERVICE_ACCOUNT_KEY": "x",
    "GOOGLE_API_KEY": "x",
    "SPARK_SOME_API_KEY": "x",
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


@pytest.mark.parametrize(
    ("own", "ambient", "name"),
    [
        (
            Connection("own", "google_cloud_platform", extra={"keyfile_dict": "{}"}),
            Connection("ambient", "google_cloud_platform"),
            "GOOGLE_APPLICATION_CREDENTIALS",
        ),
        (
            Connection("own", "wasb", host="account", extra={"sas_token": "x"}),
            Connection("ambient", "wasb", host="account"),
            "AZURE_CLIENT_SECRET",
        ),
        (
            Connection("own", "kafka", login="key", extra={"sasl.mechanisms": "AWS_MSK_IAM"}),
            Connection("ambient", "kafka", extra={"sasl.mechanisms": "AWS_MSK_IAM"}),
            "AWS_SECRET_ACCESS_KEY",
        ),
    ],
)
def test_credentials_of_a_cloud_are_kept_for_a_connection_without_any(
    own: Connection, ambient: Connection, name: str
) -> None:
    environ = {name: "x", "AZURE_TENANT_ID": "t", "AZURE_FEDERATED_TOKEN_FILE": "/token"}
    kept = driver_environment(environ, Connections({"own": own}))
    assert kept == {"AZURE_TENANT_ID": "t", "AZURE_FEDERATED_TOKEN_FILE": "/token"}
    assert driver_environment(environ, Connections({"own": own, "ambient": ambient})) == environ


def test_keys_of_the_environment_are_kept_for_a_store_whose_connection_has_none() -> None:
    assert of(KEYED, AMBIENT) == NEEDED | AWS_KEYS
    assert of(Connection("gcs", "google_cloud_platform"), Connection("azure", "wasb", host="account")) == NEEDED
