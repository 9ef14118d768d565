"""The built wheel in a new environment that holds nothing but what its metadata asks for."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import PATIENCE_S

CHECKOUT = Path(__file__).resolve().parents[2]
LOCK = CHECKOUT / os.environ.get("TICDC_REPLAY_TEST_LOCK", "requirements/runtime.txt")
"""The versions for the environment with the wheel; a cell of ``make test-matrix`` names its own."""
UV = Path(sys.executable).with_name("uv")


def run(*command: object) -> subprocess.CompletedProcess[str]:
    """Run *command* without what the tests' own environment would lend it."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, env=kept, timeout=PATIENCE_S)


def environment_with_wheel(folder: Path, *extras: str) -> Path:
    """The folder of programs of a new environment in *folder*, with the wheel and its *extras*, all in the locked versions."""
    package = runpy.run_path(str(CHECKOUT / "scripts" / "package-executors"), run_name="package")
    wheel = package["build_library"](folder, folder / "wheels")
    made = run(UV, "venv", "--quiet", "--python", sys.executable, folder / "environment")
    assert made.returncode == 0, made.stderr
    constraints = folder / "constraints.txt"
    constraints.write_text(package["constraints_of"](LOCK.read_text(encoding="utf-8")), encoding="utf-8")
    locked = ("--constraint", constraints)
    wanted = f"{wheel}[{','.join(extras)}]" if extras else wheel
    install = (UV, "pip", "install", "--quiet", "--python", folder / "environment", *locked, wanted)
    # `make setup` has left all of it in uv's cache; whoever cleared that has the package index.
    if run(*install, "--offline").returncode != 0:
        done = run(*install)
        assert done.returncode == 0, done.stderr
    return folder / "environment" / "bin"
