"""Connections out of Airflow's secrets backends, for a driver outside of Airflow: neither its database nor its API is asked."""

from airflow.sdk.configuration import initialize_secrets_backends
from airflow.sdk.exceptions import AirflowConfigException

from ticdc_replay.airflow.connections import converted
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError, TransientError


def connection_of_backend(conn_id: str) -> Connection | None:
    """The connection called *conn_id* in the backend that ``AIRFLOW__SECRETS__BACKEND`` names, with its ``…_KWARGS``; None
    where it does not have it.

    Raises ConfigError where there is no such backend, and TransientError where it fails. Most backends of Airflow's providers
    only log that they could not ask.
    """
    try:
        backends = initialize_secrets_backends([])
    except AirflowConfigException as error:
        raise ConfigError(f"Airflow's secrets backend can't be used: {error}") from None
    for backend in backends:
        try:
            found = backend.get_connection(conn_id=conn_id)
        except Exception as error:
            # Its text may have what the backend answered.
            raise TransientError(
                f"connection {conn_id!r}: secrets backend {type(backend).__name__} failed with {type(error).__name__}"
            ) from None
        if found is not None:
            return converted(found)
    return None
