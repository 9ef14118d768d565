"""The built wheel in an environment that holds nothing but what its metadata asks for."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture_sets import CaptureSets
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.slow]

CHECKOUT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")


def run(*command: object) -> subprocess.CompletedProcess[str]:
    """Run *command* without what the tests' own environment would lend it."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, env=kept, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and its core dependencies, in the locked versions."""
    folder = tmp_path_factory.mktemp("wheel")
    package = runpy.run_path(str(CHECKOUT / "scripts" / "package-executors"), run_name="package")
    wheel = package["build_library"](folder, folder / "wheels")
    made = run(UV, "venv", "--quiet", "--python", sys.executable, folder / "environment")
    assert made.returncode == 0, made.stderr
    locked = ("--constraint", CHECKOUT / "requirements" / "runtime.txt", "--no-build")
    install = (UV, "pip", "install", "--quiet", "--python", folder / "environment", *locked, wheel)
    # `make setup` has left all of it in uv's cache; whoever cleared that has the package index.
    if run(*install, "--offline").returncode != 0:
        done = run(*install)
        assert done.returncode == 0, done.stderr
    return folder / "environment" / "bin"


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
