"""What a run of the tests leaves out, another run has."""

from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.draw import drawn

TWINS = "tests/integration/targets/test_a.py::test_b[{}-x]"
DEAR = tuple(f"tests/integration/test_a.py::test_{name}" for name in ("c[1]", "c[2]", "d"))
SLOW = tuple(f"tests/unit/test_slow.py::test_{name}" for name in "cd")
IDS = (
    "tests/unit/test_a.py::test_b",
    "tests/integration/targets/test_alone.py::test_alone[mysql]",
    TWINS.format("mysql"),
    TWINS.format("postgres"),
    "tests/integration/targets/test_lakes.py::test_b",
    "tests/integration/stages/test_lakes.py::test_b",
    "tests/airflow/test_replay.py::test_a",
    "tests/airflow/test_replay.py::test_b",
    "tests/spark/test_seed.py::test_a",
    "tests/spark/test_secrets.py::test_a",
    "tests/spark/test_cluster.py::test_a",
    "tests/spark/test_reconcile.py::test_a",
    "tests/spark/test_mirror_jobs.py::test_a",
    "tests/integration/storage/test_versitygw.py::test_a",
    *DEAR,
    *SLOW,
)
FIXTURES = {name: ["lake_spark"] if "lakes" in name else ["versitygw"] if "versitygw" in name else [] for name in IDS}


def marker(test: str, name: str) -> bool:
    return name == "slow" and test in SLOW


def ids(seed: int | None) -> list[str]:
    items = [
        SimpleNamespace(nodeid=name, fixturenames=FIXTURES[name], get_closest_marker=partial(marker, name))
        for name in IDS
    ]
    return [item.nodeid for item in drawn(cast(list[pytest.Item], items), seed)]


def test_without_a_seed_all_tests_run() -> None:
    assert ids(None) == list(IDS)


@pytest.mark.parametrize("seed", range(24))
def test_a_run_has_one_of_two_twins_a_third_of_dear_tests_one_group_of_dear_files_and_all_other_tests(
    seed: int,
) -> None:
    found = ids(seed)
    assert found == ids(seed)
    assert set(IDS[:2]) <= set(found)
    assert sum("[mysql-x]" in name or "[postgres-x]" in name for name in found) == 1
    assert sum(name in DEAR for name in found) == 1
    assert sum(name in SLOW for name in found) == 1
    dear = [name for name in found if name in IDS[6:] and name not in (*DEAR, *SLOW)]
    assert dear in ([], list(IDS[6:8]), *[[name] for name in IDS[8:]])


def test_some_run_has_each_test() -> None:
    assert {name for seed in range(400) for name in ids(seed)} == set(IDS)
