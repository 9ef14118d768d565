"""Which versions of Spark run jobs, and what differs between their PySpark."""

import logging
import re
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ticdc_replay.domain.errors import ConfigError

SUPPORTED = ("3.5", "4.0", "4.1")
"""``make test-matrix`` runs jobs with each."""


def require_supported(spark: SparkSession, place: str = "") -> None:
    """Raise ConfigError unless *spark* and this PySpark are of one supported minor version. *place* names a server."""
    refuse_others(pyspark.__version__, spark.version, place)


def refuse_others(client_version: str, server_version: str, place: str = "") -> None:
    """See ``require_supported``."""
    client, server = minor_of(client_version), minor_of(server_version)
    for name, minor, version in (("PySpark here", client, client_version), (f"Spark{place}", server, server_version)):
        if minor not in SUPPORTED:
            raise ConfigError(
                f"{name} is {version}, and ticdc-replay runs with {', '.join(SUPPORTED)}: install one of these versions"
            )
    if client != server:
        raise ConfigError(
            f"Spark{place} is {server_version}, and PySpark here is {client_version}: jobs send functions to "
            f"executors, so both must be of one minor version; install PySpark {server} here"
        )


def minor_of(version: str) -> str:
    """Major and minor of *version*, such as ``4.1`` of ``4.1.3``."""
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else version


_CLIENT = minor_of(pyspark.__version__)


def condition_of(error: PySparkException) -> str:
    """The error condition of Spark's documentation, such as TABLE_OR_VIEW_NOT_FOUND; empty if it has none."""
    known: Any = error
    return str((known.getErrorClass() if _CLIENT == "3.5" else known.getCondition()) or "")


def silence_errors() -> None:
    """Keep PySpark from logging each error with its stack before it raises it, also that of a table that is only looked for."""
    if _CLIENT != "3.5":  # which has no such log
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


def limit_retries(remote: Any, retries: int) -> None:
    """Let the client of the session *remote* repeat a call that the server did not answer at most *retries* times."""
    if _CLIENT == "3.5":
        remote.client._retry_policy["max_retries"] = retries
        return
    from pyspark.sql.connect.client.retries import DefaultPolicy

    remote.client.set_retry_policies([DefaultPolicy(max_retries=retries)])


def lost_server_errors() -> tuple[type[Exception], ...]:
    """What PySpark's client raises where the server failed or is lost; other errors of Spark are among them."""
    from pyspark import errors
    from pyspark.errors.exceptions.connect import SparkConnectException

    if _CLIENT == "4.0":
        return SparkConnectException, errors.RetriesExceeded
    return (SparkConnectException,)


def end_session(remote: Any) -> None:
    """End the session *remote* at its server, and whatever runs in it.

    A server of Spark 3.5 can't release a session: it ends what runs, and drops the session an hour later.
    """
    if _CLIENT == "3.5":
        from pyspark.errors.exceptions.connect import SparkConnectException

        try:
            remote.interruptAll()
        except SparkConnectException as error:  # as ``stop`` of later versions does
            logging.getLogger(__name__).warning("what runs at the Spark Connect server can't be interrupted: %s", error)
    remote.stop()
    # A session closes its client again when it is collected, with a lock of all sessions (SparkSession.__del__). The thread
    # that collects it may be one that another session starts, and waits for, while it holds that lock: both would wait forever.
    remote.client.close = _do_nothing


def _do_nothing() -> None:
    pass
