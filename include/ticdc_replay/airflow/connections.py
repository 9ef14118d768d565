"""Connections out of Airflow."""

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError


def resolve(conn_ids: Sequence[str], declared: Pipeline | Store) -> Connections:
    """The connections called *conn_ids*, for a run of *declared*. Raises ConfigError for one that Airflow does not know."""
    found = {}
    for conn_id in conn_ids:
        try:
            found[conn_id] = converted(BaseHook.get_connection(conn_id))
        except AirflowNotFoundException:
            raise _missing(conn_id, declared) from None
    return Connections(found, artifacts=declared.connections.artifacts)


async def resolve_in_trigger(conn_ids: Sequence[str], declared: Pipeline | Store) -> Connections:
    """``resolve`` for the triggerer's event loop."""
    found = {}
    for conn_id in conn_ids:
        try:
            found[conn_id] = converted(await BaseHook.aget_connection(conn_id))
        except AirflowNotFoundException:
            raise _missing(conn_id, declared) from None
    return Connections(found, artifacts=declared.connections.artifacts)


def converted(connection: Any) -> Connection:
    """*connection* of Airflow as the library's own."""
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
