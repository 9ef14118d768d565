"""A PostgreSQL database of its own for each test, and the connections that lead there."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.examples import NIGHTLY
from tests.support.target_rigs import LakeRig, MirrorRig, PostgresRig

TARGET: dict[str, object] = {"type": "postgres", "name": "mirror", "connection": "target"}


Mirror = PostgresRig
"""One target database."""


@pytest.fixture
def mirror(make_database: Callable[[], str]) -> Mirror:
    return Mirror(make_database())


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


KINDS = ["postgres", "iceberg", "delta"]


@pytest.fixture(params=KINDS)
def any_mirror(request: pytest.FixtureRequest, tmp_path: Path) -> MirrorRig:
    """An empty mirror of each kind."""
    return _maker(request, tmp_path)()


@pytest.fixture(params=KINDS)
def make_mirror(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], MirrorRig]:
    """Makes empty mirrors of one kind, as many as a property test needs."""
    return _maker(request, tmp_path)


def _maker(request: pytest.FixtureRequest, folder: Path) -> Callable[[], MirrorRig]:
    if request.param == "postgres":
        make_database: Callable[[], str] = request.getfixturevalue("make_database")
        return lambda: PostgresRig(make_database())
    return partial(LakeRig, request.param, request.getfixturevalue("lake_spark"), folder)


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
    "test_the_last_version_of_each_row_is_mirrored",
    "test_applying_a_window_twice_changes_nothing",
    "test_a_delete_and_later_windows",
    "test_a_statement_with_several_changes_is_followed_as_a_whole",
    "test_a_load_that_dies_at_any_write_leaves_nothing_half_applied",
    "test_a_commit_whose_answer_was_lost_is_found_by_its_mark_and_counts",
    "test_every_type_and_name_arrives_and_is_read_by_others",
    "test_windows_of_any_grid_in_any_order",
    "test_a_database_that_was_dropped_before_its_history_began",
}
"""The tests of lake tables that run with Delta each time. It takes seconds for each statement, so the others do at night."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave Delta out of all but ``WITH_DELTA``, unless ``HYPOTHESIS_PROFILE`` is nightly."""
    if NIGHTLY:
        return
    here = Path(__file__).parent
    left_out = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and here in item.path.parents
        and "delta" in getattr(item, "callspec", NoParameters).params.values()
        and item.originalname not in WITH_DELTA
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


class NoParameters:
    """The parameters of a test without any."""

    params: ClassVar[dict[str, object]] = {}
