"""A Spark Connect server of this Spark, whose Python workers import what this process does."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from demo.embedded_stack.spark import SparkConnect
from tests.support.spark_versions import connect_jars, lake_jars
from ticdc_replay.domain.connections import Connection
from ticdc_replay.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG_SECRETS = {"token": "catalog-token-Kq8w", "credential": "id:catalog-credential-Wn3v"}
"""Settings of the catalog ``lakehouse`` of the server that tests share."""


def server(folder: Path, properties: Mapping[str, str] | None = None, master: str = "local[2]") -> SparkConnect:
    """A server that is not started yet; *properties* are of Spark. It has the jars of lake tables."""
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "SPARK_DIST_CLASSPATH": ":".join(map(str, lake_jars())),
    }
    return SparkConnect(
        folder, master=master, environment=environment, properties=connect_jars() | dict(properties or {})
    )


@contextmanager
def session_at_a_server(folder: Path) -> "Iterator[SparkSession]":
    """A session at a server of its own, where a failed task is tried twice."""
    with server(folder, master="local[2,2]") as running:
        connection = Connection("spark_default", "spark_connect", running.url)
        with open_session("tests", server=connection) as session:
            yield session
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
