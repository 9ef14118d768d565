"""Connections out of Airflow, for the engine in this process and, by a private file, for the driver of a Spark job."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import CONNECTIONS_FILE_VARIABLE
from ticdc_replay.stages.connections_file import private_file


def resolve(conn_ids: Sequence[str], declared: Pipeline | Store) -> Connections:
    """The connections called *conn_ids*, for a run of *declared*. Raises ConfigError for one that Airflow does not know."""
    found = {}
    for conn_id in conn_ids:
        try:
            found[conn_id] = _converted(BaseHook.get_connection(conn_id))
        except AirflowNotFoundException:
            raise _missing(conn_id, declared) from None
    return Connections(found, artifacts=declared.connections.artifacts)


async def resolve_in_trigger(conn_ids: Sequence[str], declared: Pipeline | Store) -> Connections:
    """``resolve`` for the triggerer's event loop."""
    found = {}
    for conn_id in conn_ids:
        try:
            found[conn_id] = _converted(await BaseHook.aget_connection(conn_id))
        except AirflowNotFoundException:
            raise _missing(conn_id, declared) from None
    return Connections(found, artifacts=declared.connections.artifacts)


@contextmanager
def connections_for_driver(connections: Connections) -> Iterator[None]:
    """Within it, the processes that this one starts find *connections* in the private file that their environment names."""
    with private_file(connections) as path:
        os.environ[CONNECTIONS_FILE_VARIABLE] = str(path)
        try:
            yield
        finally:
            del os.environ[CONNECTIONS_FILE_VARIABLE]


def _converted(connection: Any) -> Connection:
    return Connection(
        conn_id=connection.conn_id,
        conn_type=connection.conn_type,
        host=connection.host,
        port=connection.port,
        login=connection.login,
        password=connection.password,
        schema=connection.schema,
        extra=connection.extra_dejson,
    )


def _missing(conn_id: str, declared: Pipeline | Store) -> ConfigError:
    return ConfigError(
        f"{type(declared).__name__.lower()} {declared.name}: connection {conn_id!r} is not defined in Airflow; "
        "add it under Admin > Connections or with `airflow connections add`"
    )
