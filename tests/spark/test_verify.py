"""A lake table that a job of Spark compares with its upstream, from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.support import mariadb, tidb
from tests.support.changelogs import put
from tests.support.spark_versions import lake_jars
from tests.support.target_rigs import LakeRig
from tests.support.verified import SAFE_POINT, Verified
from ticdc_replay.cli.main import app
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.window import Window

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.nightly]


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """A TiDB: only it has snapshots, which a job in a process of its own reads."""
    with tidb.running(tmp_path_factory.mktemp("tidb"), tidb.required()) as connection:
        mariadb.execute(connection, SAFE_POINT)
        yield connection


def test_the_command_compares_lake_tables_by_a_job(
    source: Connection, lake_spark: SparkSession, java_home: Path, tmp_path: Path
) -> None:
    with Verified(source, LakeRig("iceberg", lake_spark, tmp_path), tmp_path) as made:
        schema = made.create("id bigint PRIMARY KEY, v varchar(20)")
        made.upstream("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        at = tidb.tso(source)
        made.load_rows(schema, [put(at, id=1, v="a"), put(at, id=2, v="x")], Window(1, at + 1))
        declared = yaml.safe_load(made.file.read_text())
        declared["spark"] = {"conf": {"spark.jars": ",".join(map(str, lake_jars()))}}
        made.file.write_text(yaml.safe_dump(declared))
        connections = tmp_path / "connections.yaml"
        connections.touch(mode=0o600)
        fields = ("conn_type", "host", "port", "login", "password")
        upstream = {field: getattr(source, field) for field in fields if getattr(source, field) is not None}
        connections.write_text(yaml.safe_dump({"kafka": {"conn_type": "kafka"}, source.conn_id: upstream}))

        def run(*options: str) -> Any:
            command = ["verify", str(made.file), "--connections", str(connections), "--master", "local[2]", *options]
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
