"""What people do to mirrors from the command line, by jobs at a Spark Connect server and in cluster mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from demo.embedded_stack.kafka import Kafka
from demo.embedded_stack.spark import SparkConnect
from tests.integration.snapshot.feed import at
from tests.support.feeding import dumped
from tests.support.mirror_rig import OLD, Rig
from tests.support.open_protocol import columns, ddl, row
from tests.support.spark_versions import lake_jars
from tests.support.target_rigs import LakeRig, MirrorRig, PostgresRig
from ticdc_replay.cli.main import app
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.spark.session import open_session

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.usefixtures("others_are_classic")]

FIELDS = ("conn_type", "host", "port", "login", "password", "schema", "extra")
DROPPED = at(25)
WHOLE = [(1, "uno"), (2, "two"), (3, "three"), (4, "four")]


class Commands:
    """A pipeline whose jobs run where *spark* says, with *conf* as its ``spark.conf``: ``ticdc-replay`` for it."""

    def __init__(self, rig: Rig, spark: Connection, conf: dict[str, str]) -> None:
        rig._declared["spark"] = {"conf": conf}
        self._file, self._connections = rig.folder / "shop.yaml", rig.folder / "connections.yaml"
        self._file.write_text(yaml.safe_dump(rig._declared))
        known = {each.conn_id: each for each in (*rig.connections.by_id.values(), spark)}
        self._connections.touch(mode=0o600)
        self._connections.write_text(yaml.safe_dump({conn_id: _written(each) for conn_id, each in known.items()}))

    def __call__(self, verb: str, *options: str) -> Result:
        command = [*verb.split(), str(self._file), *options, "--connections", str(self._connections)]
        return CliRunner(env={"COLUMNS": "300"}).invoke(app, command)

    def done(self, verb: str, *options: str) -> str:
        """What it says of work that it did."""
        result = self(verb, *options)
        assert result.exit_code == 0, result.output
        return result.stdout


def _written(connection: Connection) -> dict[str, Any]:
    fields = {name: getattr(connection, name) for name in FIELDS if getattr(connection, name)}
    return {**fields, "extra": dict(connection.extra)}


@pytest.fixture(params=["connect", pytest.param("yarn", marks=pytest.mark.nightly)])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def spark_connection(
    way: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[Connection, dict[str, str]]:
    """How jobs reach Spark, and what the pipeline says of it."""
    if way == "connect":
        connection: Connection = request.getfixturevalue("connection")
        monkeypatch.delenv("JAVA_HOME")
        return connection, {}
    yarn = request.getfixturevalue("yarn")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration))
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.address}
    conf = {**yarn.properties, "spark.jars": ",".join(map(str, lake_jars()))}
    return Connection("spark_default", "spark", "yarn", extra=extra), conf


@contextmanager
def _mirror(kind: str, way: str, rig: Rig, request: pytest.FixtureRequest) -> Iterator[MirrorRig]:
    """Where the mirror lies: a database, or a lake, whose catalog a Spark Connect server has itself, with its secrets."""
    if kind == "postgres":
        yield PostgresRig(rig.dsn)
    elif way == "yarn":
        yield LakeRig(kind, request.getfixturevalue("lake_spark"), rig.folder)
    else:
        server: SparkConnect = request.getfixturevalue("server")
        with open_session("rig", server=request.getfixturevalue("connection")) as session:
            lake = LakeRig(kind, session, rig.folder)
            if kind == "iceberg":
                lake.use_catalog_of(server)
            yield lake


@pytest.mark.parametrize("kind", ["postgres", "iceberg", pytest.param("delta", marks=pytest.mark.nightly)])
def test_a_mirror_is_filled_follows_a_ddl_is_compared_and_built_again(
    kind: str,
    way: str,
    spark_connection: tuple[Connection, dict[str, str]],
    producer: Producer,
    kafka: Kafka,
    make_topic: Callable[..., str],
    make_database: Callable[[], str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    rig = Rig(producer, kafka, make_topic(1, {"retention.ms": "-1"}), tmp_path, make_database())
    rig.resolved(*range(13))
    rig.send(16, row(at(16), new=columns(1, "uno", **OLD)))
    rig.send(24, row(DROPPED, new=columns(3, "three", **OLD)))
    rig.send(25, ddl(DROPPED, "ALTER TABLE t DROP COLUMN w", kind=6))
    rig.send(26, row(at(26), new=columns(4, "four")))
    rig.resolved(30, 31)
    dump = dumped(tmp_path / "dump", at(11), (b"1", b"one", b"x"), (b"2", b"two", b"x"))
    with _mirror(kind, way, rig, request) as mirror:
        if isinstance(mirror, LakeRig):
            rig.connections = Connections({**rig.connections.by_id, **mirror.connections.by_id})
            mirror.know_catalog()
            rig.use_lake(mirror)
        rig.context.__exit__()
        command = Commands(rig, *spark_connection)

        def rows() -> list[tuple[Any, ...]]:
            return mirror.rows("SELECT id, v FROM s.t ORDER BY id")

        command.done("mirror seed", "--dump", str(dump), "--consistency", "snapshot", "--timezone", "+00:00")
        assert rows() == [(1, "one"), (2, "two")]
        until = ("--from", str(at(11) + 1), "--to", str(DROPPED + 1))
        stopped = command("run", *until)
        assert stopped.exit_code == 2, stopped.output
        assert "PolicyStopError" in stopped.output
        assert "DROP COLUMN w" in command.done("mirror follow", "s.t")
        command.done("run", *until)
        command.done("run", "--from", str(DROPPED + 1), "--to", str(at(30)))
        assert rows() == WHOLE
        mirror.execute("UPDATE s.t SET v = 'x' WHERE id = 2")
        differs = command("verify", "--against", "changelogs", "--share", "1")
        assert differs.exit_code == 1, differs.output
        assert "changed" in differs.stdout
        command.done("mirror rebuild", "s.t")
        assert rows() == WHOLE
