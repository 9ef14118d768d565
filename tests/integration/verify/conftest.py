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


WITH_ICEBERG = {
    "test_a_comparison_that_was_killed_goes_on_from_what_it_kept",
    "test_a_comparison_that_broke_goes_on_where_it_was",
    "test_a_key_of_several_columns_in_another_order_than_the_mirror_has",
    "test_days_that_no_calendar_has_are_missing_rows",
    "test_many_random_values_give_no_false_alarm_in_a_lake",
    "test_many_differences_are_listed_up_to_a_limit",
    "test_no_type_gives_a_false_alarm_and_each_change_is_found",
    "test_odd_names",
    "test_one_version_of_a_lake_table_is_compared",
    "test_rows_that_differ_from_those_beside_are_found",
    "test_rows_that_repeat_a_key_are_extra",
    "test_rows_with_null_in_their_key_are_extra",
    "test_rows_at_the_borders_of_ranges_are_found",
    "test_versions_and_windows_are_named_and_newer_rows_do_not_count",
}
"""The tests that run with Iceberg each time: it takes a second for a statement."""
WITH_DELTA = {"test_rows_at_the_borders_of_ranges_are_found"}
"""The same of Delta."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """TiDB's server takes minutes to build: it has its turn at night. So have most tests of lake tables."""
    if not isinstance(item, pytest.Function) or Path(__file__).parent not in item.path.parents:
        return
    callspec = getattr(item, "callspec", None)
    values = [] if callspec is None else callspec.params.values()
    by_night = (
        any(value in ("tidb", "from tidb") for value in values)
        or ("iceberg" in values and item.originalname not in WITH_ICEBERG)
        or ("delta" in values and item.originalname not in WITH_DELTA)
    )
    if by_night:
        item.add_marker(pytest.mark.nightly)
