"""Which of the tests that differ in their database or lake alone run each time."""

import re
import zlib

import pytest

_ONE_IN = {"iceberg": 6, "lake": 6, "delta": 60}
"""Of how many tests of lake tables one runs: Spark takes a second for a statement."""


@pytest.hookimpl(tryfirst=True)  # the marks are read by the hook of tests/conftest.py
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests of TiDB, whose server takes minutes to build, to the night, and those of lake tables but for a few.

    The seed of pytest-randomly draws them, so that each has its turn. Without that plugin (``-p no:randomly``) all run.
    """
    seed = config.getoption("randomly_seed", None)
    for item in items:
        if "tests/integration/" not in item.nodeid:
            continue
        words = {*item.path.stem.split("_"), *re.split(r"[^a-z_]+", item.name.partition("[")[2])}
        one_in = max((_ONE_IN[word] for word in words if word in _ONE_IN), default=1)
        is_drawn = seed is None or zlib.crc32(f"{seed} {item.nodeid}".encode()) % one_in == 0
        if "tidb" in words or not is_drawn:
            item.add_marker(pytest.mark.nightly)
