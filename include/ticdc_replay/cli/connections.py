"""Where the command line finds connections: a private YAML file, and ``AIRFLOW_CONN_<ID>`` variables."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from ticdc_replay.domain.connection_text import connection_of, parse_connection
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError


def load_connections(
    file: Path | None, ids: Iterable[str], artifacts: str | None = None, spark: str | None = None
) -> Connections:
    """The connections called *ids*; the file wins over variables. *artifacts* names that of the artefact store, *spark* one
    that need not be there.

    The file maps ids to the fields of an Airflow connection. Raises ConfigError where one is missing or malformed, or where the
    file can be read by others.
    """
    listed = _read(file) if file is not None else {}
    found = {}
    for conn_id in [*ids, *filter(None, [spark])]:
        if conn_id in listed:
            found[conn_id] = connection_of(conn_id, listed[conn_id], f"{file}: {conn_id}")
            continue
        variable = f"AIRFLOW_CONN_{conn_id.upper()}"
        text = os.environ.get(variable)
        if not text and conn_id == spark:
            continue
        if not text:
            raise ConfigError(
                f"connection {conn_id!r} is missing: put it into the file of --connections, or set {variable}"
            )
        found[conn_id] = parse_connection(conn_id, text, variable)
    return Connections(found, artifacts)


def _read(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_mode & 0o077:
            raise ConfigError(f"{file} holds secrets and can be read by others: chmod 600 {file}")
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{file}{place}: not YAML") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: a mapping of connection ids to their fields is expected")
    return content
