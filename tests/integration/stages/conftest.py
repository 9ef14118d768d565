"""A table whose mirror can't follow a DDL (``mirror_rig``), and one whose mirror is built again (``feeding``)."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from demo.embedded_stack.kafka import Kafka
from tests.integration.snapshot.feed import at
from tests.support.feeding import Feeding
from tests.support.mirror_rig import DROPPED, OBJECT, OLD, Rig
from tests.support.open_protocol import columns, ddl, row
from tests.support.target_rigs import LakeRig, MirrorRig, MysqlRig, PostgresRig

_SERVERS = {"mysql": "mysql_server", "tidb": "tidb_server"}


@pytest.fixture
def make_rig(
    producer: Producer,
    kafka: Kafka,
    make_topic: Callable[..., str],
    make_database: Callable[[], str],
    tmp_path: Path,
) -> Iterator[Callable[..., Rig]]:
    """Make a pipeline whose topic has nothing but the CREATE TABLE, at second 10. Arguments are policies."""
    with ExitStack() as opened:

        def make(**policies: str) -> Rig:
            topic = make_topic(1, {"retention.ms": "-1"})
            made = Rig(producer, kafka, topic, tmp_path, make_database(), policies)
            opened.enter_context(made.context)
            made.resolved(*range(9))
            made.send(10, ddl(at(10), "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(100), w VARCHAR(10))"))
            return made

        yield make


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    """Rows of a table with the column ``w`` at seconds 11, 12 and 16, DROP COLUMN at 25, a row without it at 26."""
    made = make_rig()
    made.send(11, row(at(11), new=columns(1, "one", **OLD)))
    large: dict[str, Any] = {"new": {"id": columns(2)["id"]}, "ccl": f"s3://bucket/{OBJECT}"}
    made.send(12, row(at(12), **large))
    made.resolved(15)
    made.send(16, row(at(16), new=columns(3, "three", **OLD)))
    made.resolved(20)
    made.send(25, ddl(DROPPED, "ALTER TABLE t DROP COLUMN w", kind=6))
    made.send(26, row(at(26), new=columns(4, "four")))
    made.resolved(30, 31)
    return made


@pytest.fixture(params=["postgres", "mysql", "tidb", "iceberg", "delta"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fed(make_rig: Callable[..., Rig], kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Feeding:
    """Three windows of a table whose CREATE TABLE is in the first one."""
    rig = make_rig()
    if kind in ("iceberg", "delta"):
        database: MirrorRig = LakeRig(kind, request.getfixturevalue("lake_spark"), tmp_path)
        assert isinstance(database, LakeRig)
        rig.use_lake(database)
    elif kind == "postgres":
        database = PostgresRig(rig.dsn)
    else:
        database = MysqlRig(request.getfixturevalue(_SERVERS[kind]))
        rig.use_mysql(database)
    rig.send(11, row(at(11), new=columns(1, "one", **OLD)))
    rig.send(12, row(at(12), new=columns(2, "two", **OLD)))
    rig.resolved(15)
    rig.send(16, row(at(16), new=columns(1, "uno", **OLD), old=columns(1, "one", **OLD)))
    rig.send(17, row(at(17), new=columns(3, "three", **OLD)))
    rig.resolved(20)
    rig.send(21, row(at(21), old=columns(2, "two", **OLD)))
    rig.send(26, row(at(26), new=columns(4, "four", **OLD)))
    rig.resolved(30, 31)
    return Feeding(rig, database)
