"""Where a driver finds its connections: the one place that reads the choice.

| the environment has | connections are in |
|---|---|
| ``CONNECTIONS_FILE_VARIABLE`` | a private file of the submitter, on the same machine |
| ``CONNECTIONS_VARIABLE=backends`` | Airflow's secrets backend, and variables ``AIRFLOW_CONN_<ID>`` |
| ``CONNECTIONS_VARIABLE=folder:<path>`` | a mounted folder: a file for each connection, named by its id |
| ``CONNECTIONS_VARIABLE=envelope:<path>`` | an envelope beside the job spec, whose key is in that file |

Of the last three a job gets the connections that its spec names, and no others.
"""

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import msgspec

from ticdc_replay.domain.connection_text import parse_connection
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import (
    ARTIFACTS_CONNECTION_VARIABLE,
    CONNECTIONS_FILE_VARIABLE,
    CONNECTIONS_VARIABLE,
    connections_of,
)
from ticdc_replay.submit import hadoop_credentials
from ticdc_replay.submit.outcome import JobFile

_OTHERS = 0o077
_BACKEND_VARIABLES = ("AIRFLOW__SECRETS__BACKEND", "AIRFLOW__WORKERS__SECRETS_BACKEND")


class JobPlace(NamedTuple):
    """A job with the connections that it can have."""

    file: JobFile
    """Its spec, and where its outcome goes: its store is open before other connections are looked for."""
    connections: Callable[[], Connections]
    """Its connections. Raises ConfigError where one is not there or not safe, and TransientError where nobody answered."""


def open_job(arguments: Sequence[str]) -> JobPlace:
    """The job that *arguments* name: the URI of its spec, and the attempt if there is one.

    Raises ConfigError where the environment names no place of connections, or an unsafe one, or where the connection of the store
    is missing; TransientError where a secrets backend did not answer.
    """
    uri, file, way = arguments[0], os.environ.get(CONNECTIONS_FILE_VARIABLE), os.environ.get(CONNECTIONS_VARIABLE, "")
    if file:
        connections = _of_private_file(Path(file))
        return JobPlace(JobFile(uri, connections), lambda: connections)
    kind, _, place = way.partition(":")
    match kind:
        case "backends":
            return _named(uri, _of_backends())
        case "folder" if place:
            return _named(uri, _of_folder(Path(place)))
        case "envelope" if place and len(arguments) > 1:
            return _of_envelope(uri, arguments[1], place)
    raise ConfigError(
        f"{CONNECTIONS_VARIABLE}={way or '(not set)'} names no place of connections. On the machine that submits, "
        f"{CONNECTIONS_FILE_VARIABLE} names a private file; elsewhere set {CONNECTIONS_VARIABLE} to backends, folder:<path> or "
        "envelope:<path>, the last with the name of an attempt as second argument"
    )


def _of_private_file(path: Path) -> Connections:
    if not path.is_file():
        raise ConfigError(f"{CONNECTIONS_FILE_VARIABLE} names {path}, which is not a file")
    if path.stat().st_mode & _OTHERS:
        raise ConfigError(f"{path} holds secrets and can be read by others: chmod 600 {path}")
    return msgspec.json.decode(path.read_bytes(), type=Connections)


def _named(uri: str, look: Callable[[str], Connection]) -> JobPlace:
    """The job at *uri*, and the connections that its spec names, each by *look*."""
    artifacts = os.environ.get(ARTIFACTS_CONNECTION_VARIABLE) or None
    first = {} if artifacts is None else {artifacts: look(artifacts)}
    file = JobFile(uri, Connections(first, artifacts))

    def connections() -> Connections:
        others = {conn_id: look(conn_id) for conn_id in connections_of(file.read()) if conn_id not in first}
        return Connections({**first, **others}, artifacts)

    return JobPlace(file, connections)


def _of_folder(folder: Path) -> Callable[[str], Connection]:
    if not folder.is_dir():
        raise ConfigError(f"{CONNECTIONS_VARIABLE}: {folder} is not a folder")

    def look(conn_id: str) -> Connection:
        file = folder / conn_id
        if file.parent != folder or not file.is_file():
            raise ConfigError(f"connection {conn_id!r} is missing: {folder} has no file of this name")
        # Kubernetes mounts secrets for one pod alone, by default with mode 0644.
        if file.stat().st_mode & _OTHERS and not (folder.is_mount() or file.is_mount()):
            raise ConfigError(f"{file} holds secrets and can be read by others: chmod 600 {file}")
        return parse_connection(conn_id, file.read_text(encoding="utf-8"), str(file))

    return look


def _of_backends() -> Callable[[str], Connection]:
    named = next(filter(os.environ.get, _BACKEND_VARIABLES), None)
    if named is None:
        return _of_variables
    try:
        # Airflow is no requirement of a driver: a module of the outer room, by name.
        of_airflow = import_module("ticdc_replay.airflow.backends").connection_of_backend
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{named} is set, and the driver's Python lacks {error.name}: install 'ticdc-replay[airflow]' with the provider of "
            "the backend there, or take connections from variables AIRFLOW_CONN_<ID>, a folder or an envelope"
        ) from None

    def look(conn_id: str) -> Connection:
        found: Connection | None = of_airflow(conn_id)
        return _of_variables(conn_id) if found is None else found

    return look


def _of_variables(conn_id: str) -> Connection:
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    text = os.environ.get(variable)
    if not text:
        raise ConfigError(
            f"connection {conn_id!r} is missing: no secrets backend of the driver has it, and {variable} is not set"
        )
    return parse_connection(conn_id, text, variable)


def _of_envelope(uri: str, attempt: str, place: str) -> JobPlace:
    from ticdc_replay.submit import envelope  # with cryptography

    if place == "hadoop":
        path = Path(os.environ.get(hadoop_credentials.FILE_VARIABLE) or os.devnull)
        content = hadoop_credentials.secret_in(path.read_bytes(), f"{hadoop_credentials.FILE_VARIABLE}={path}")
    else:
        path = Path(place)
        if not path.is_file():
            raise ConfigError(f"{CONNECTIONS_VARIABLE}: {path}, the key of the envelope, is not a file")
        content = path.read_bytes()
    key = envelope.decode_key(content, str(path))
    file = JobFile(uri, key.connections())
    return JobPlace(file, lambda: envelope.take_envelope(file, attempt, key))
