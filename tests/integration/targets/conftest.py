"""A PostgreSQL database of its own for each test, and the connections that lead there."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

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


WITH_DELTA = {
    "test_a_delete_and_later_windows",
    "test_every_type_and_name_arrives_and_is_read_by_others",
}
"""The tests of lake tables that run with Delta each time: it takes seconds for a statement."""

EACH_TIME = {(0, 1), (1, 0), (2, 1, 0)}
"""The orders of windows in which lake tables are loaded each time."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Of the cases of a lake test that differ in their kind or order alone, leave most to the night."""
    if not isinstance(item, pytest.Function) or Path(__file__).parent not in item.path.parents:
        return
    values = getattr(item, "callspec", NoParameters).params
    if "tidb" in values.values():
        item.add_marker(pytest.mark.nightly)
    if "delta" in values.values() and item.originalname not in WITH_DELTA:
        item.add_marker(pytest.mark.nightly)
    if "iceberg" in values.values() and (
        values.get("order", (0, 1)) not in EACH_TIME
        or values.get("deletes") == "soft"
        or (item.path.name == "test_follow.py" and values.get("name", "several") not in FOLLOWED_EACH_TIME)
        or ("alter" in values and not any(part in values["alter"] for part in REFUSED_EACH_TIME))
    ):
        item.add_marker(pytest.mark.nightly)


FOLLOWED_EACH_TIME = {"several", "renamed key", "dropped key", "renamed table and column"}
"""The DDL that lake tables follow each time, in a test of all DDL."""
REFUSED_EACH_TIME = {"VARCHAR(4)", "RENAME TABLE", "BIGINT UNSIGNED"}
"""Parts of the DDL that they refuse each time."""


class NoParameters:
    """The parameters of a test without any."""

    params: ClassVar[dict[str, Any]] = {}
