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

# Python takes a cached file for its source's by size and second. Tests write DAG files of one name and size within a second.
sys.dont_write_bytecode = True

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

# Folders that nobody can make, root neither: a test that writes has one of its own.
PIPELINE = """
name: shop
description: Orders of the shop
changefeed:
  sink_uri: kafka://broker:9092/shop?protocol=open-protocol&mistyped=1
  timezone: Asia/Shanghai
connections: {kafka: shop_kafka}
artifacts: file:///dev/null/replay
tables: ["shop.*"]
schedule: {cron: "0 * * * *", start: "2026-03-01T00:00:00Z"}
targets:
  - {name: warehouse, type: postgres, connection: warehouse}
  - {name: lake, type: parquet, uri: "file:///dev/null/lake"}
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


CLAIMS = "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'\n"
STORE = """
name: claims
uri: file:///dev/null/claims
pipelines: [large]
owners_complete: true
artifacts: file:///dev/null/reconciliation
schedule: {cron: "0 3 * * *", start: "2026-03-01T00:00:00Z"}
deletion: {policy: approval}
"""


@pytest.fixture
def stores(tmp_path, pipelines):
    """A folder with the store ``claims``, and the pipeline ``large`` that writes to it; ``add`` as of ``pipelines``."""

    class Folder:
        path = tmp_path / "stores"
        uri = "file:///dev/null/claims"

        def add(self, name, content):
            file = self.path / f"{name}.yaml"
            if not isinstance(content, str):
                content = yaml.safe_dump(yaml.safe_load(STORE) | {"name": name} | content)
            file.write_text(content)
            return file

        def pipeline(self, name, uri=uri):
            config = f"{CLAIMS}claim-check-storage-uri = '{uri}'\n"
            changefeed = {"sink_uri": f"kafka://b/{name}?protocol=open-protocol", "timezone": "UTC", "config": config}
            connections = {"kafka": "shop_kafka"} | ({"claim_check": "objects"} if uri.startswith("s3:") else {})
            return pipelines.add(name, {"changefeed": changefeed, "connections": connections})

    folder = Folder()
    folder.path.mkdir()
    folder.pipeline("large")
    folder.add("claims", STORE)
    return folder


@pytest.fixture(scope="session")
def airflow_database():
    """The metadata database of the tests' own home."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture
def parse(pipelines, monkeypatch):
    """Parses the DAG file as the DAG processor does: the pipelines, and the stores where the test has some."""
    monkeypatch.setenv("TICDC_REPLAY_PIPELINES", str(pipelines.path))
    monkeypatch.setenv("TICDC_REPLAY_STORES", str(pipelines.path.parent / "stores"))

    def parse():
        from airflow.dag_processing.dagbag import DagBag

        bag = DagBag(PROJECT / "dags", bundle_path=PROJECT / "dags", bundle_name="dags-folder")
        assert bag.import_errors == {}
        return bag

    return parse


@pytest.fixture
def process(parse, airflow_database):
    """Brings the DAGs of the test's folders into Airflow's database, as the DAG processor does. It begins without any."""
    from airflow.api.common.delete_dag import delete_dag
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import sync_bag_to_db
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    DagBundlesManager().sync_bundles_to_db()
    with create_session() as session:
        for dag_id in session.scalars(select(DagModel.dag_id)).all():
            delete_dag(dag_id, session=session)
    return lambda: sync_bag_to_db(parse(), "dags-folder", None)


@pytest.fixture
def client(stores, process, monkeypatch):
    """Airflow's API server. The DAG processor has always just run: each request sees the pipelines and stores of now, unless
    ``parses`` is False: then those of the last request before."""
    from airflow.api_fastapi.app import create_app, purge_cached_app
    from fastapi.testclient import TestClient

    class Client(TestClient):
        parses = True

        def request(self, *arguments, **named):
            if self.parses:
                process()
            return super().request(*arguments, **named)

    monkeypatch.setenv(
        "AIRFLOW__API_AUTH__JWT_SECRET", "a secret of these tests, long enough for SHA-512 to be content with"
    )
    purge_cached_app()
    with Client(create_app(apps="core")) as client:
        yield client
    purge_cached_app()


@pytest.fixture
def sign_in(client):
    """Makes ``client`` that of a user with this name and role."""

    def sign_in(name, role):
        from airflow.api_fastapi.app import get_auth_manager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

        token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=name, role=role))
        client.headers["Authorization"] = f"Bearer {token}"
        return client

    return sign_in


@pytest.fixture
def signed_in(sign_in):
    return sign_in("somebody", "viewer")
