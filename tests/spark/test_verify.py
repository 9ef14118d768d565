"""A lake table that a job of Spark compares with its upstream, from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from demo.embedded_stack.spark import SparkConnect
from tests.support import mariadb, tidb
from tests.support.changelogs import put
from tests.support.spark_versions import lake_jars
from tests.support.target_rigs import LakeRig
from tests.support.verified import SAFE_POINT, Verified
from ticdc_replay.cli.main import app
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.window import Window
from ticdc_replay.spark.session import open_session

pytestmark = [
    *(pytest.mark.spark, pytest.mark.integration, pytest.mark.nightly),
    pytest.mark.usefixtures("others_are_classic"),
]
FIELDS = ("conn_type", "host", "port", "login", "password")


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """A TiDB: only it has snapshots, which a job in a process of its own reads."""
    with tidb.running(tmp_path_factory.mktemp("tidb"), tidb.required()) as connection:
        mariadb.execute(connection, SAFE_POINT)
        yield connection


@pytest.fixture(params=["spark-submit", "Spark Connect"])
def lake(request: pytest.FixtureRequest, java_home: Path, tmp_path: Path) -> Iterator[LakeRig]:
    """Tables that jobs of spark-submit see, or in a catalog that a Spark Connect server has itself."""
    if request.param == "spark-submit":
        yield LakeRig("iceberg", request.getfixturevalue("lake_spark"), tmp_path)
        return
    server: SparkConnect = request.getfixturevalue("server")
    with open_session("rig", server=request.getfixturevalue("connection")) as session:
        rig = LakeRig("iceberg", session, tmp_path)
        rig.use_catalog_of(server)
        yield rig


@pytest.fixture
def master(lake: LakeRig, request: pytest.FixtureRequest) -> str:
    return "local[2]" if lake.section.get("connection") is None else request.getfixturevalue("server").url


def test_the_command_compares_lake_tables_by_a_job(
    source: Connection, lake: LakeRig, master: str, tmp_path: Path
) -> None:
    with Verified(source, lake, tmp_path) as made:
        schema = made.create("id bigint PRIMARY KEY, v varchar(20)")
        made.upstream("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        at = tidb.tso(source)
        made.load_rows(schema, [put(at, id=1, v="a"), put(at, id=2, v="x")], Window(1, at + 1))
        declared = yaml.safe_load(made.file.read_text())
        if master.startswith("local"):
            declared["spark"] = {"conf": {"spark.jars": ",".join(map(str, lake_jars()))}}
        made.file.write_text(yaml.safe_dump(declared))
        connections = tmp_path / "connections.yaml"
        connections.touch(mode=0o600)
        known: dict[str, dict[str, Any]] = {"kafka": {"conn_type": "kafka"}}
        for conn_id, each in made.connections.by_id.items():
            known[conn_id] = {field: getattr(each, field) for field in FIELDS if getattr(each, field) is not None}
            known[conn_id]["extra"] = dict(each.extra)
        connections.write_text(yaml.safe_dump(known))

        def run(*options: str) -> Any:
            command = ["verify", str(made.file), "--connections", str(connections), "--master", master, *options]
            return CliRunner().invoke(app, command)

        differs = run("--json", "--share", "1")
        assert differs.exit_code == 1, differs.output
        (found,) = json.loads(differs.stdout)["tables"]
        assert (found["at"], found["findings"]["source_rows"], found["findings"]["mirror_rows"]) == (at, 3, 2)
        kinds = [(each["kind"], each["key"]) for each in found["findings"]["differences"]]
        assert kinds == [("changed", ["2"]), ("missing", ["3"])]
        made.load_rows(schema, [put(at + 1, id=2, v="b"), put(at + 1, id=3, v="c")], Window(at + 1, at + 2))
        equal = run("--at", str(at + 1))
        assert equal.exit_code == 0, equal.output
        assert "equal" in equal.stdout
