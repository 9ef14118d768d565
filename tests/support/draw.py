"""Which tests wait for another run, as `make test` has no time for all each time: the run's seed draws them.

So each has its turn, and a run is repeated with its seed (``--randomly-seed``). At night all run, and also without
pytest-randomly (``-p no:randomly``).
"""

import zlib
from typing import ClassVar

import pytest

_OF_LAKES = {"iceberg": 8, "delta": 80}
"""Of how many tests of lake tables in tests/integration one runs: Spark takes a second for a statement."""
_FILES = {
    "tests/spark/test_cluster.py": 4,
    "tests/spark/test_connect_lakes.py": 3,
    "tests/spark/test_replay_beside_deletion.py": 3,
    "tests/spark/test_reread.py": 2,
}
"""Of how many runs one has the file."""


def is_drawn(item: pytest.Item, seed: int | None) -> bool:
    """Whether the test runs."""
    file = item.nodeid.partition("::")[0]
    name, one_in = file, _FILES.get(file, 1)
    if file.startswith("tests/integration/"):
        name, one_in = item.nodeid, max((_OF_LAKES.get(kind, 1) for kind in kinds(item)), default=1)
    return seed is None or zlib.crc32(f"{seed} {name}".encode()) % one_in == 0


def kinds(item: pytest.Item) -> set[str]:
    """The kinds of targets that the test is for, by its file and parameters; and other parameters that are texts."""
    found = {value for value in getattr(item, "callspec", _NoParameters).params.values() if isinstance(value, str)}
    return found | ({"iceberg"} if "targets/test_lake_" in item.nodeid and "delta" not in found else set())


class _NoParameters:
    params: ClassVar[dict[str, object]] = {}
