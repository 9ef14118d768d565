"""Lake tables that are written over Spark Connect: by a session that knows no secret of their catalog."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from demo.embedded_stack.spark import SparkConnect
from tests.support.changelogs import Changelog, delete, put, table
from tests.support.connect import CATALOG_SECRETS
from tests.support.target_rigs import LakeRig
from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain import canonical
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.spark.session import open_session
from ticdc_replay.spark.settings import require_settings, set_up
from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.targets.sql import SqlError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("others_are_classic")]

INT = ColumnType("int", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
WIDER = table("shop.orders", {"id": INT, "v": TEXT, "n": INT}, valid_from=100)


@pytest.fixture(params=["iceberg", pytest.param("delta", marks=pytest.mark.nightly)])
def rig(request: pytest.FixtureRequest, connection: Connection, tmp_path: Path) -> Iterator[LakeRig]:
    with open_session("lake", server=connection) as spark:
        yield LakeRig(request.param, spark, tmp_path)


def test_a_mirror_follows_rows_and_columns(rig: LakeRig, tmp_path: Path) -> None:
    rig.load(Changelog(tmp_path / "a", 0, 100).rows(ORDERS, [put(10, id=1, v="a"), put(10, id=2, v="b")]))
    later = [put(150, id=1, v="c", n=5), delete(160, id=2)]
    report = rig.load_table(Changelog(tmp_path / "a", 100, 200).rows(WIDER, later))
    assert (report.upserted, report.deleted) == (1, 1)
    assert rig.rows("SELECT id, v, n FROM shop.orders") == [(1, "c", 5)]


def test_a_history_has_every_version_once(rig: LakeRig, tmp_path: Path) -> None:
    changelog = Changelog(tmp_path / "a", 0, 100).rows(
        ORDERS, [put(10, id=1, v="a"), put(20, id=1, v="b", op="update")]
    )
    for reload in (False, True):
        rig.load(changelog, target={"mode": "history"}, reload=reload)
    assert rig.rows("SELECT v, _commit_ts FROM shop.orders ORDER BY _commit_ts") == [("a", 10), ("b", 20)]


def test_an_error_of_a_statement_has_its_condition(connection: Connection) -> None:
    with open_session("errors", server=connection) as spark, pytest.raises(SqlError) as caught:
        SparkSql(spark).run("SELECT * FROM nothing")
    assert caught.value.condition == "TABLE_OR_VIEW_NOT_FOUND"


def test_what_the_server_lacks_is_named_without_its_value(connection: Connection) -> None:
    name = "spark.sql.catalog.other.token"
    with open_session("lacking", server=connection) as spark:
        with pytest.raises(ConfigError, match=name) as caught:
            SparkSql(spark).set({name: "planted-token"}, [name])
        assert "planted-token" not in str(caught.value)
        assert spark.conf.get(name, None) is None, "it was not sent"
        require_settings(spark, {"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension"})
        with pytest.raises(ConfigError, match=r"spark.sql.extensions"):
            require_settings(spark, {"spark.sql.extensions": "io.delta.sql.Delta"})


def test_a_session_gets_what_it_may_have_and_a_warning_of_the_rest(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with open_session("conf", server=connection) as spark:
        set_up(spark, {"spark.sql.shuffle.partitions": "7", "spark.executor.memory": "9g"})
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    (warning,) = caplog.messages
    assert "spark.executor.memory" in warning
    assert "shuffle" not in warning


SUBMIT = """
import json, sys
from pathlib import Path

from ticdc_replay.cli.submit import submit
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.stages.context import ReplayContext

catalog = Connection("catalog", "generic", extra=json.load(sys.stdin))
with ReplayContext(load_pipeline(Path(sys.argv[1])), Connections({"catalog": catalog})) as context:
    submit(sys.argv[2], context, sys.argv[3])
"""


def test_no_secret_of_a_catalog_is_in_what_a_load_says_or_leaves(server: SparkConnect, tmp_path: Path) -> None:
    target = {
        "name": "lake",
        "type": "iceberg",
        "catalog": "lakehouse",
        "connection": "catalog",
        "ledger": (tmp_path / "ledger").as_uri(),
    }
    declared = {
        "name": "shop",
        "changefeed": {"sink_uri": "kafka://broker:9092/shop?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "kafka"},
        "artifacts": (tmp_path / "artifacts").as_uri(),
        "schedule": {"start": "2026-03-01T00:00:00Z"},
        "targets": [target],
    }
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(declared), encoding="utf-8")
    job = tmp_path / "job.json"
    job.write_bytes(
        canonical.encode(Changelog(tmp_path / "changelog", 0, 100).rows(ORDERS, [put(10, id=1)]).job(target))
    )
    settings = {"type": "hadoop", "warehouse": (server.folder / "lake").as_uri(), **CATALOG_SECRETS}
    done = subprocess.run(
        [sys.executable, "-c", SUBMIT, tmp_path / "shop.yaml", job.as_uri(), server.url],
        env={name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        input=json.dumps(settings),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert list((server.folder / "lake" / "shop" / "orders" / "data").glob("*.parquet"))
    kept = [path for folder in (tmp_path, server.folder) for path in folder.rglob("*") if path.is_file()]
    of_server = server.folder / "conf" / "spark-defaults.conf"
    for secret in CATALOG_SECRETS.values():
        assert secret not in said
        assert [path for path in kept if path != of_server and secret.encode() in path.read_bytes()] == []
