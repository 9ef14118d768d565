"""The Spark session of a job: of the application that was submitted, or at a Spark Connect server."""

import logging
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

from pyspark.sql import SparkSession

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError, TransientError
from ticdc_replay.spark.versions import end_session, limit_retries, lost_server_errors, require_supported

log = logging.getLogger(__name__)

_ANY_PORT = 9
_DEFAULT_PORT = 15002
_REACH_S = 10.0
_SHOWN = 300
"""Characters of an error of the server."""
_RETRIES = 8
"""Of a call that the server did not answer: some three minutes."""
_TOUCHED_EVERY_S = 300.0
"""A server drops a session that asks for nothing for an hour, by default."""
_TOUCHES_WITHIN_S = 5.0


@contextmanager
def open_session(name: str, secrets: Iterable[str] = (), server: Connection | None = None) -> Iterator[SparkSession]:
    """The session of the submitted application *name*; master, resources and log level come from spark-submit.

    With *server*, the connection of a Spark Connect server, it is a session of its own there; when it ends, nothing of it runs
    there any more. Raises TransientError where the server can't be reached, or is lost, or refuses the token.

    *secrets* are settings that the job makes later. Of a session's settings Spark's event log hides those alone that it
    began with (``EventLoggingListener.redactProperties``).
    """
    if server is not None:
        with _remote_session(server, name) as spark:
            yield spark
        return
    builder = SparkSession.builder.appName(name).config("spark.ui.showConsoleProgress", "false")
    spark = builder.config(map=dict.fromkeys(secrets, "not known yet")).getOrCreate()
    try:
        require_supported(spark)
        yield spark
    finally:
        spark.stop()


@contextmanager
def _remote_session(server: Connection, name: str) -> Iterator[Any]:
    from pyspark.errors import AnalysisException, IllegalArgumentException, PythonException

    url = remote_url(server, name)
    _reach(server, url)
    spark: Any = None
    try:
        spark = SparkSession.builder.remote(url).create()
        limit_retries(spark, _RETRIES)
        require_supported(spark, f" at the server of connection {server.conn_id!r}")
        with _touched(spark):
            yield spark
    except (AnalysisException, IllegalArgumentException, PythonException):
        raise  # of what was asked for, or of a task
    except lost_server_errors() as error:
        said = next(iter(str(error).strip().splitlines()), "")[:_SHOWN]
        raise TransientError(
            f"connection {server.conn_id!r}: the Spark Connect server failed, was lost, or refused the token: "
            f"{type(error).__name__}: {said}"
        ) from error
    finally:
        if spark is not None:
            end_session(spark)


@contextmanager
def _touched(spark: Any) -> Iterator[None]:
    """Keep the session *spark* while the driver does other work: it merges in a database, or waits for the upstream."""
    ended = threading.Event()

    def touch() -> None:
        while not ended.wait(_TOUCHED_EVERY_S):
            try:
                spark.conf.get("spark.sql.session.timeZone")
            except lost_server_errors() as error:  # what the job asks next finds out
                log.warning("the Spark Connect server does not answer: %s", error)
                return

    thread = threading.Thread(target=touch, name="keep session", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_TOUCHES_WITHIN_S)  # not for as long as a lost server is asked again


def _reach(server: Connection, url: str) -> None:
    """Raise TransientError where nobody listens: the client itself would try for minutes."""
    place = urlsplit(url)
    try:
        socket.create_connection((place.hostname, place.port or _DEFAULT_PORT), _REACH_S).close()
    except OSError as error:
        raise TransientError(
            f"connection {server.conn_id!r}: no Spark Connect server answers at {place.hostname}:"
            f"{place.port or _DEFAULT_PORT}: {error}"
        ) from error


def remote_url(connection: Connection, name: str) -> str:
    """The URL of the Spark Connect server of *connection*, with its token: never for a log. *name* says who connects.

    Raises ConfigError where the connection has no host, or a path.
    """
    if not connection.host:
        raise ConfigError(f"connection {connection.conn_id!r}: host of the Spark Connect server is missing")
    host, _, given = connection.host.removeprefix("sc://").partition("/;")
    host = host.rstrip("/")
    if "/" in host:
        raise ConfigError(
            f"connection {connection.conn_id!r}: host {connection.host!r} is not sc://<host>, or a host alone"
        )
    place = f"{host}:{connection.port}" if connection.port else host
    parts = {"user_agent": name, "user_id": connection.login, "token": connection.password}
    use_ssl = connection.extra.get("use_ssl")
    parts["use_ssl"] = None if use_ssl is None else str(use_ssl).lower()
    written = [f"{key}={quote(value, safe='')}" for key, value in parts.items() if value]
    return f"sc://{place}/;{';'.join([*filter(None, [given]), *written])}"


def is_remote(spark: SparkSession) -> bool:
    """Whether *spark* is a session at a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def address_of(spark: SparkSession) -> tuple[str, str]:
    """The host that executors reach this process at, and the one to listen at."""
    if is_remote(spark):
        client: Any = spark.client
        family, kind, _, _, server = socket.getaddrinfo(client.host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as towards:
            towards.connect(server)  # sends nothing: the system chooses the address that it would send from
            own = str(towards.getsockname()[0])
        return own, own
    host = spark.conf.get("spark.driver.host", None) or ""
    return host, spark.conf.get("spark.driver.bindAddress", None) or host
