"""An upstream in MariaDB or TiDB, and a mirror in PostgreSQL, MariaDB or TiDB, which a real load has filled."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import mariadb, tidb
from tests.support.target_rigs import LakeRig, MirrorRig, MysqlRig, PostgresRig
from tests.support.verified import SAFE_POINT, Verified, show_the_present, upstream
from ticdc_replay.domain.connections import Connection

LAKES = ("iceberg", "delta")


@pytest.fixture(scope="session", params=["from mariadb", "from tidb"])
def source(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, mariadb_programs: mariadb.Programs
) -> Iterator[Connection]:
    """A server that plays the changefeed's upstream. Its GC safe point is before all that tests read."""
    if request.param == "from tidb":
        with tidb.running(tmp_path_factory.mktemp("tidb"), tidb.required()) as connection:
            mariadb.execute(connection, SAFE_POINT)
            yield connection
        return
    with upstream(tmp_path_factory.mktemp("mariadb"), mariadb_programs) as connection:
        yield connection


@pytest.fixture(autouse=True)
def snapshot_of_the_present(monkeypatch: pytest.MonkeyPatch) -> None:
    """The windows of these tests have TSO that no server has seen."""
    show_the_present(monkeypatch)


@pytest.fixture(params=["postgres", "mysql", "tidb", *LAKES])
def mirror(request: pytest.FixtureRequest, tmp_path: Path) -> MirrorRig:
    """An empty mirror; ``mysql`` is MariaDB."""
    if request.param in LAKES:
        return LakeRig(request.param, request.getfixturevalue("lake_spark"), tmp_path)
    if request.param == "postgres":
        return PostgresRig(request.getfixturevalue("make_database")())
    return MysqlRig(request.getfixturevalue(f"{request.param}_server"))


@pytest.fixture
def verified(source: Connection, mirror: MirrorRig, tmp_path: Path) -> Iterator[Verified]:
    """A pipeline with that upstream and an empty mirror."""
    with Verified(source, mirror, tmp_path) as made:
        yield made
