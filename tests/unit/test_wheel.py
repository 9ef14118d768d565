"""The built wheel in an environment that holds nothing but what its metadata asks for."""

import sys
from pathlib import Path

import pytest

from tests.support.capture_sets import CaptureSets
from tests.support.wheels import environment_with_wheel, run

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and its core dependencies."""
    return environment_with_wheel(tmp_path_factory.mktemp("wheel"))


def test_a_capture_is_decoded_as_here(environment: Path, captures: CaptureSets) -> None:
    capture = captures("open") / "classic" / "open-claim-check"
    decode = ("decode", "--capture", capture)
    there = run(environment / "ticdc-replay", *decode)
    assert there.returncode == 0, there.stderr
    assert there.stdout == run(Path(sys.executable).with_name("ticdc-replay"), *decode).stdout
    assert len(there.stdout.splitlines()) > 10


def test_every_module_but_those_of_an_extra_is_imported(environment: Path) -> None:
    code = """
import importlib, pkgutil, ticdc_replay
skipped = ("ticdc_replay.spark", "ticdc_replay.airflow", "ticdc_replay.state.migrations")
names = [each.name for each in pkgutil.walk_packages(ticdc_replay.__path__, "ticdc_replay.", lambda name: None)]
core = [name for name in names if not name.startswith(skipped)]
for name in core:
    importlib.import_module(name)
print(len(core))
"""
    done = run(environment / "python", "-c", code)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200
