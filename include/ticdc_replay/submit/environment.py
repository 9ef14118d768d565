"""The environment of a Spark driver: what Spark and the library read, and no secret of whoever submits."""

import re
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
_SECRET = re.compile(
    r"(TOKEN|SECRET|PASSW|CREDENTIAL|ACCESS_KEY|PRIVATE_KEY)(?!.*_(FILE|URI|DIR|PATH)$)", re.IGNORECASE
)
"""Names of values that are secrets; a file or an address is none."""


def driver_environment(environ: Mapping[str, str], connections: Connections) -> dict[str, str]:
    """What of *environ* the driver of a job with *connections* gets.

    A list of what is allowed: the submitter's environment has secrets under any name, such as all of Airflow's connections, its
    Fernet key and its database. No name that says it is a secret passes, but for those of AWS where a connection of type ``aws``
    has no key of its own.
    """
    ambient = any(not each.login for each in connections.by_id.values() if each.conn_type == "aws")

    def passes(name: str) -> bool:
        if name in _NAMES or name.lower() in _PROXIES:
            return True
        secret = _SECRET.search(name) and not (ambient and name.startswith("AWS_"))
        return name.startswith(_PREFIXES) and not secret

    return {name: value for name, value in environ.items() if passes(name)}
