"""The environment of a Spark driver: what Spark and the library read, and no secret of whoever submits."""

import re
from collections.abc import Mapping

from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.kafka import msk

_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "PWD", "TERM", "LANG", "LANGUAGE", "TZ", "TZDIR"),
        *("TMPDIR", "TMP", "TEMP", "LD_LIBRARY_PATH", "LD_PRELOAD", "CLASSPATH", "VIRTUAL_ENV"),
        *("JAVA_HOME", "JAVA_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"),
        *("GOOGLE_CLOUD_PROJECT", "AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_AUTHORITY_HOST"),
        "AZURE_FEDERATED_TOKEN_FILE",
    }
)
_PREFIXES = (
    *("LC_", "XDG_", "SPARK_", "PYSPARK_", "PYTHON", "HADOOP_", "YARN_", "HDFS_", "KRB5", "KUBERNETES_"),
    *("ARROW_", "MALLOC_", "OMP_", "TICDC_REPLAY_", "AWS_"),
)
_CLOUDS = {
    "aws": frozenset(
        {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"}
        | {"AWS_CONTAINER_AUTHORIZATION_TOKEN"}
    ),
    "google_cloud_platform": frozenset({"GOOGLE_APPLICATION_CREDENTIALS"}),
    "wasb": frozenset({"AZURE_CLIENT_SECRET"}),
}
"""Type of a connection, and the variables of its cloud that are, or lead to, an identity's secret."""
_OWN_CREDENTIALS = ("keyfile_dict", "key_path", "sas_token", "shared_access_key")
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
_SECRET = re.compile(
    r"(TOKEN|SECRET|PASSW|CREDENTIAL|ACCESS_KEY|PRIVATE_KEY|API_?KEY|ACCOUNT_KEY|CONNECTION_STRING)(?!.*_(FILE|URI|DIR|PATH)$)",
    re.IGNORECASE,
)
"""Names of values that are secrets; a file or an address is none."""


def driver_environment(environ: Mapping[str, str], connections: Connections) -> dict[str, str]:
    """What of *environ* the driver of a job with *connections* gets.

    A list of what is allowed: the submitter's environment has secrets under any name, such as all of Airflow's connections, its
    Fernet key and its database. No name that says it is a secret passes, but for those that a cloud's identity needs where a
    connection to it has no credentials of its own.
    """
    kinds = {_kind_of(each) for each in connections.by_id.values()}
    ambient = {name for kind, names in _CLOUDS.items() if kind in kinds for name in names}

    def passes(name: str) -> bool:
        if name in _NAMES or name in ambient or name.lower() in _PROXIES:
            return True
        return name.startswith(_PREFIXES) and not _SECRET.search(name)

    return {name: value for name, value in environ.items() if passes(name)}


def _kind_of(connection: Connection) -> str | None:
    """The type of *connection* if the machine's own identity counts for it."""
    extra, kind = connection.extra, connection.conn_type
    own = connection.login or any(extra.get(name) for name in _OWN_CREDENTIALS)
    return None if own else "aws" if kind == "kafka" and msk.is_selected(extra) else kind
