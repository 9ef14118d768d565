"""A PostgreSQL database of its own for each test, and the connections that lead there."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.target_rigs import LakeRig, MirrorRig, MysqlRig, PostgresRig

TARGET: dict[str, object] = {"type": "postgres", "name": "mirror", "connection": "target"}


Mirror = PostgresRig
"""One target database."""


@pytest.fixture
def mirror(make_database: Callable[[], str]) -> Mirror:
    return Mirror(make_database())


SERVERS = {"mysql": "mysql_server", "tidb": "tidb_server"}
"""The fixture of each kind's server."""


@pytest.fixture(params=list(SERVERS))
def mysql_mirror(request: pytest.FixtureRequest) -> MysqlRig:
    """An empty mirror in MariaDB, and in TiDB."""
    return MysqlRig(request.getfixturevalue(SERVERS[request.param]))


@pytest.fixture(params=list(SERVERS))
def make_mysql_mirror(request: pytest.FixtureRequest) -> Callable[[], MysqlRig]:
    """Makes empty mirrors in MariaDB, and in TiDB."""
    return partial(MysqlRig, request.getfixturevalue(SERVERS[request.param]))


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


KINDS = ["postgres", "mysql", "tidb", "iceberg", "delta"]
"""``mysql`` is MariaDB: its server comes from Maven Central."""


@pytest.fixture(params=KINDS)
def any_mirror(request: pytest.FixtureRequest, tmp_path: Path) -> MirrorRig:
    """An empty mirror of each kind."""
    return _maker(request, tmp_path)()


@pytest.fixture(params=KINDS)
def make_mirror(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], MirrorRig]:
    """Makes empty mirrors of one kind, as many as a property test needs."""
    return _maker(request, tmp_path)


def _maker(request: pytest.FixtureRequest, folder: Path) -> Callable[[], MirrorRig]:
    if request.param in SERVERS:
        return partial(MysqlRig, request.getfixturevalue(SERVERS[request.param]))
    if request.param == "postgres":
        make_database: Callable[[], str] = request.getfixturevalue("make_database")
        return lambda: PostgresRig(make_database())
    return partial(LakeRig, request.param, request.getfixturevalue("lake_spark"), folder)


@pytest.fixture(params=KINDS)
def make_history(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., MirrorRig]:
    """Makes empty targets of one kind in a mode, ``history`` if none is given; more arguments are those of its section. One with
    ``scd2`` is in a catalog that holds views."""
    make = _maker(request, tmp_path)

    def history(mode: str = "history", **section: object) -> MirrorRig:
        rig = make()
        rig.section |= {"mode": mode, **section}
        if mode == "scd2" and isinstance(rig, LakeRig):
            rig.use_catalog_with_views()
        return rig

    return history


@pytest.fixture
def history(make_history: Callable[..., MirrorRig]) -> MirrorRig:
    """An empty target of each kind in mode ``history``."""
    return make_history()


@pytest.fixture
def drop_by_hand(any_mirror: MirrorRig) -> Callable[[str], None]:
    """Drops a table as a person would."""

    def drop(table: str) -> None:
        if isinstance(any_mirror, LakeRig) and any_mirror.kind == "delta":
            shutil.rmtree(any_mirror.folder / "tables" / table.replace(".", "/"))
        else:
            any_mirror.execute(f"DROP TABLE {table}")

    return drop
