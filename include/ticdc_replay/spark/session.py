"""The Spark session of a job, and the private file that brings it its connections."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.jobspec import CONNECTIONS_FILE_VARIABLE


def open_session(name: str, secrets: Iterable[str] = ()) -> SparkSession:
    """The session of the submitted application *name*; master, resources and log level come from spark-submit.

    *secrets* are settings that the job makes later. Of a session's settings Spark's event log hides those alone that it
    began with (``EventLoggingListener.redactProperties``).
    """
    builder = SparkSession.builder.appName(name).config("spark.ui.showConsoleProgress", "false")
    return builder.config(map=dict.fromkeys(secrets, "not known yet")).getOrCreate()


def read_connections() -> Connections:
    """The connections in the private file that ``CONNECTIONS_FILE_VARIABLE`` names.

    Raises ConfigError when the variable is not set, or the file is missing or can be read by others.
    """
    name = os.environ.get(CONNECTIONS_FILE_VARIABLE)
    if not name:
        raise ConfigError(f"{CONNECTIONS_FILE_VARIABLE} is not set: it names the private file with the connections")
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"{CONNECTIONS_FILE_VARIABLE} names {path}, which is not a file")
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path} holds secrets and can be read by others: chmod 600 {path}")
    return msgspec.json.decode(path.read_bytes(), type=Connections)
