"""One Spark Connect server for all tests that need one as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.embedded_stack.spark import SparkConnect
from tests.support import connect
from tests.support.connect import CATALOG_SECRETS
from tests.support.lake_spark import LAKE, UNCOMPILED
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.connections import Connection
from ticdc_replay.spark.tasks import SparkRunner


@pytest.fixture(autouse=True)
def small_windows_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a test's decode would be one task, and what several leave would never be put together."""
    monkeypatch.setattr(SparkRunner, "worth_bytes", 1)


@pytest.fixture
def others_are_classic() -> Iterator[None]:
    """PySpark takes every session of a process for a remote one once it has made one; other tests have classic ones."""
    yield
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)


@pytest.fixture(scope="session")
def server(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnect]:
    """A server whose tasks are tried twice, which writes lake tables, and logs and keeps all that Spark can log and keep."""
    folder = tmp_path_factory.mktemp("connect")
    (folder / "events").mkdir()
    catalog = {"type": "hadoop", "warehouse": (folder / "lake").as_uri(), **CATALOG_SECRETS}
    iceberg = read_section({"type": "iceberg", "name": "lake", "catalog": "lakehouse", "ledger": "file:///ledger"})
    properties = {
        "spark.connect.execute.manager.detachedTimeout": "5s",
        "spark.connect.execute.manager.maintenanceInterval": "1s",
        "spark.connect.execute.reattachable.senderMaxStreamDuration": "5s",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        **iceberg.spark_properties,
        **iceberg.secret_settings(Connection("catalog", "generic", extra=catalog)),
        **LAKE,
        **UNCOMPILED,
    }
    with connect.server(folder, properties, master="local[2,2]") as running:
        yield running


@pytest.fixture(scope="session")
def connection(server: SparkConnect) -> Connection:
    return Connection(conn_id="spark_default", conn_type="spark_connect", host=server.url)
