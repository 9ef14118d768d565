"""Which tests wait for another run, as `make test` has no time for all each time: the run's seed draws them.

So each has its turn, and a run is repeated with its seed (``--randomly-seed``). At night all run, and also without
pytest-randomly (``-p no:randomly``).
"""

import re
import zlib
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import pytest

_OF_LAKES = {"iceberg": 20, "delta": 80}
"""Of how many tests of lake tables in tests/integration one runs: Spark takes a second for a statement."""
_OF_LAKES_IN_STAGES = 60
"""Of how many in tests/integration/stages: each runs a whole pipeline."""
_TURNS = (
    ("tests/airflow/test_replay.py",),
    ("tests/spark/test_mirror_jobs.py",),
    ("tests/airflow/test_new_protocol.py", "tests/spark/test_exchange.py"),
    ("tests/spark/test_reread.py", "tests/spark/test_seed.py"),
    ("tests/airflow/test_store_page.py", "tests/spark/test_secrets.py"),
    ("tests/spark/test_connect.py",),
    ("tests/airflow/test_spark_job.py", "tests/spark/test_connect_lakes.py"),
    ("tests/spark/test_reconcile.py",),
    ("tests/spark/test_cluster.py",),
    ("tests/airflow/test_verify.py", "tests/spark/test_replay_beside_deletion.py"),
    (
        "tests/airflow/test_page_access.py",
        "tests/spark/test_offset_windows.py",
        "tests/spark/test_reconciliation_run.py",
        "tests/spark/test_submit.py",
    ),
    ("versitygw",),
)
"""Dear files, and tests of a server that a new machine first has to build: a run has those of one line, which take about two
minutes of processor time."""
_DATABASE = re.compile(r"(?<=[\[-])(?:mysql|postgres)(?=[]-])")
"""Of two tests that differ in the kind of database alone, one runs. Of what is left of a file in tests/integration, and of a
file's tests that are ``slow``, a third runs."""


def drawn(items: Sequence[pytest.Item], seed: int | None) -> list[pytest.Item]:
    """Those of *items* that run."""
    if seed is None:
        return list(items)
    twins: dict[str, list[str]] = defaultdict(list)
    for item in items:
        twins[_DATABASE.sub("*", item.nodeid)].append(item.nodeid)
    chosen = {sorted(ids)[_number(seed, name) % len(ids)] for name, ids in twins.items()}
    having_turn = [item for item in items if item.nodeid in chosen and _has_turn(item, seed)]
    dear: dict[str, list[str]] = defaultdict(list)
    for item in having_turn:
        if item.nodeid.startswith("tests/integration/") or item.get_closest_marker("slow"):
            dear[item.nodeid.partition("::")[0]].append(item.nodeid)
    waiting = {name for ids in dear.values() for name in sorted(ids, key=partial(_number, seed))[: len(ids) * 2 // 3]}
    return [item for item in having_turn if item.nodeid not in waiting]


def _has_turn(item: pytest.Item, seed: int) -> bool:
    file = item.nodeid.partition("::")[0]
    names = {file, *kinds(item)}
    if any(turn != seed % len(_TURNS) and not names.isdisjoint(dear) for turn, dear in enumerate(_TURNS)):
        return False
    if file.startswith("tests/integration/"):
        one_of = max((_OF_LAKES.get(kind, 1) for kind in kinds(item)), default=1)
        if one_of > 1 and file.startswith("tests/integration/stages/"):
            one_of = max(one_of, _OF_LAKES_IN_STAGES)
        return _number(seed, item.nodeid) % one_of == 0
    return True


def _number(seed: int, name: str) -> int:
    return zlib.crc32(f"{seed} {name}".encode())


def kinds(item: pytest.Item) -> set[str]:
    """The kinds of targets and servers that the test is for, by its fixtures and parameters; and other texts among these."""
    found = {value for value in getattr(item, "callspec", _NoParameters).params.values() if isinstance(value, str)}
    fixtures = getattr(item, "fixturenames", ())
    found |= {"versitygw"}.intersection(fixtures)
    return found | ({"iceberg"} if "lake_spark" in fixtures and "delta" not in found else set())


class _NoParameters:
    params: ClassVar[dict[str, object]] = {}
