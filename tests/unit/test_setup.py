"""Which Python ``make setup`` takes, and what it shows of the installation of hundreds of packages."""

import runpy
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from demo.embedded_stack.jars import OF_SETUP

SETUP = Path(__file__).resolve().parents[2] / "scripts" / "setup"

OTHER = (3, 12) if sys.version_info[:2] == (3, 11) else (3, 11)

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


def function(name, **globals_):
    """The function *name* of the script, to which other values are known as its globals."""
    found = runpy.run_path(str(SETUP), run_name="setup")[name]
    found.__globals__.update(globals_)
    return found


def test_it_takes_the_pythons_that_the_library_supports():
    supported = runpy.run_path(str(SETUP), run_name="setup")["SUPPORTED"]
    declared = tomllib.loads((SETUP.parents[1] / "pyproject.toml").read_text())["project"]["requires-python"]
    first, last = supported[0], supported[-1]
    assert declared == f">={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}"
    assert [minor for _, minor in supported] == list(range(first[1], last[1] + 1))


@pytest.mark.parametrize("names", [["python3.11", "python3.12"], ["python3.12"]])
def test_another_python_goes_on_with_the_first_that_is_installed(tmp_path, monkeypatch, names):
    for name in names:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    old = SimpleNamespace(version_info=(3, 9, 2), version="3.9.2", exit=sys.exit)
    taken = []
    gone_on = SimpleNamespace(execv=lambda found, arguments: taken.append((found, arguments)) or sys.exit(0))
    with pytest.raises(SystemExit):
        function("use_supported_python", sys=old, os=gone_on)()
    found = str(tmp_path / names[0])
    assert taken == [(found, [found, str(SETUP)])]


def test_without_a_python_that_fits_it_says_which_are_supported(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    old = SimpleNamespace(version_info=(3, 9, 2), version="3.9.2", exit=sys.exit)
    with pytest.raises(SystemExit, match=r"this is Python 3\.9\.2, and neither python3\.11 nor python3\.12 is on PATH"):
        function("use_supported_python", sys=old)()


@pytest.mark.slow
@pytest.mark.parametrize(("version", "kept"), [(sys.version_info[:2], True), (OTHER, False)])
def test_an_environment_is_made_again_for_another_python(tmp_path, version, kept):
    environment = tmp_path / ".venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "uv").touch()
    (environment / "bin" / "python").touch()
    (environment / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version[0]}.{version[1]}.7\n")
    make = function(
        "make_environment",
        ENVIRONMENT=environment,
        STAMP=environment / "stamp",
        PYTHON=environment / "bin" / "python",
        UV=environment / "bin" / "uv",
    )
    make()
    assert (environment / "bin" / "uv").exists() == kept


def test_jars_are_fetched_until_every_file_of_checksums_has_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TICDC_REPLAY_CACHE", str(tmp_path))
    cached = function("jars_are_cached")
    for each in OF_SETUP:
        assert not cached()
        (tmp_path / "jars" / each.name).mkdir(parents=True)
    assert cached()
