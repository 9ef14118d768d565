"""What ``make setup`` shows of the installation of hundreds of packages."""

import runpy
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "scripts" / "setup"

UV = """#!/bin/sh
cat >&2 <<'END'
Resolved 242 packages in 1.2s
Downloading pyspark (414.0MiB)
 Downloaded pyspark
Prepared 242 packages in 40s
Uninstalled 1 package in 1ms
Installed 242 packages in 2s
 - msgspec==0.18.0
 + msgspec==0.19.0
 ~ ticdc-replay==0.1.0 (from file:///checkout)
END
echo "$@"
exit {code}
"""


@pytest.fixture
def run_uv(tmp_path):
    """Runs a uv that tells what uv tells, and ends with *code*."""

    def run(code, *arguments):
        (tmp_path / "uv").write_text(UV.format(code=code))
        (tmp_path / "uv").chmod(0o755)
        function = runpy.run_path(str(SETUP), run_name="setup")["run_uv"]
        function.__globals__["UV"] = tmp_path / "uv"
        function(*arguments)

    return run


def test_packages_are_counted_and_not_listed(run_uv, capfd):
    run_uv(0, "sync", SETUP)
    shown = capfd.readouterr()
    assert shown.out == f"pip sync {SETUP}\n"
    assert shown.err.splitlines() == [
        "Resolved 242 packages in 1.2s",
        "Downloading pyspark (414.0MiB)",
        "Prepared 242 packages in 40s",
        "Uninstalled 1 package in 1ms",
        "Installed 242 packages in 2s",
    ]


def test_a_failure_ends_the_setup_with_the_command(run_uv):
    with pytest.raises(SystemExit, match=r"setup: failed: .*uv pip sync"):
        run_uv(2, "sync")
