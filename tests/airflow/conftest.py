"""An Airflow home of its own for these tests: set before anything imports airflow."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).parents[2]

if "airflow" in sys.modules:
    raise RuntimeError("airflow was imported before its home was set; only tests/airflow may import it")
_HOME = tempfile.mkdtemp(prefix="ticdc-replay-airflow-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
os.environ |= {
    "AIRFLOW_HOME": _HOME,
    "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": f"{_HOME}/bundles",
    "AIRFLOW__LOGGING__BASE_LOG_FOLDER": f"{_HOME}/logs",
}

PIPELINE = """
name: shop
description: Orders of the shop
changefeed:
  sink_uri: kafka://broker:9092/shop?protocol=open-protocol&mistyped=1
  timezone: Asia/Shanghai
connections: {kafka: shop_kafka}
artifacts: file:///var/replay
tables: ["shop.*"]
schedule: {cron: "0 * * * *", start: "2026-03-01T00:00:00Z"}
targets:
  - {name: warehouse, type: postgres, connection: warehouse}
  - {name: lake, type: parquet, uri: "file:///var/lake"}
"""


@pytest.fixture
def pipelines(tmp_path):
    """A folder with the pipeline ``shop``; ``add`` writes another file, from changes to it or as text."""

    class Folder:
        path = tmp_path / "pipelines"

        def add(self, name, content):
            file = self.path / f"{name}.yaml"
            if not isinstance(content, str):
                content = yaml.safe_dump(yaml.safe_load(PIPELINE) | {"name": name} | content)
            file.write_text(content)
            return file

    folder = Folder()
    folder.path.mkdir()
    folder.add("shop", PIPELINE)
    return folder


@pytest.fixture(scope="session")
def airflow_database():
    """The metadata database of the tests' own home."""
    from airflow.utils.db import initdb

    initdb()
