"""The environment of a Spark driver: what Spark and the library read, and no secret of whoever submits."""

from collections.abc import Mapping

from ticdc_replay.domain.connections import Connections

_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "PWD", "TERM", "LANG", "LANGUAGE", "TZ", "TZDIR"),
        *("TMPDIR", "TMP", "TEMP", "LD_LIBRARY_PATH", "LD_PRELOAD", "CLASSPATH", "VIRTUAL_ENV"),
        *("JAVA_HOME", "JAVA_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    }
)
_PREFIXES = (
    *("LC_", "XDG_", "SPARK_", "PYSPARK_", "PYTHON", "HADOOP_", "YARN_", "HDFS_", "KRB5", "KUBERNETES_"),
    *("ARROW_", "MALLOC_", "OMP_", "AWS_", "TICDC_REPLAY_"),
)
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
_AWS_SECRETS = frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"})


def driver_environment(environ: Mapping[str, str], connections: Connections) -> dict[str, str]:
    """What of *environ* the driver of a job with *connections* gets.

    A list of what is allowed: the submitter's environment has secrets under any name, such as all of Airflow's connections, its
    Fernet key and its database. AWS keys are among them unless a connection of type ``aws`` has none of its own.
    """
    own_keys = all(each.login for each in connections.by_id.values() if each.conn_type == "aws")
    refused = _AWS_SECRETS if own_keys else frozenset[str]()
    return {
        name: value
        for name, value in environ.items()
        if (name in _NAMES or name.startswith(_PREFIXES) or name.lower() in _PROXIES) and name not in refused
    }
