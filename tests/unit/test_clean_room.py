"""What a command in ``scripts/clean-room`` can reach: what the README names, and no more."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S, wait_for

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = CHECKOUT / "scripts" / "clean-room"
FOREIGN = (
    *("mariadbd", "mysqld", "mysql", "postgres", "initdb", "pg_ctl", "psql", "kafka-server-start.sh", "kafka-topics"),
    *("redis-server", "versitygw", "minio", "docker", "spark-submit", "airflow", "uv", "pip", "node"),
)
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine where much is installed: programs come first on PATH; returns the folder with them."""
    programs = tmp_path / "installed"
    programs.mkdir()
    for name in (*FOREIGN, "cargo", "go", "java"):
        (programs / name).write_text(f"#!/bin/sh\necho {name} of the machine\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return programs


def run(*arguments, script="", **environment):
    """The exit code and the output of *script*, run by sh in a clean room."""
    command = [SCRIPT, *arguments, "sh", "-c", script]
    done = subprocess.run(
        command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_no_server_of_the_machine_can_be_reached(machine):
    assert run(script=f"for name in {' '.join(FOREIGN)}; do command -v $name; done; true") == (0, "")


def test_what_the_readme_names_can_be_reached(machine):
    names = ("python3", "make", "git", "cargo", "go", "java")
    code, output = run(script=f"for name in {' '.join(names)}; do command -v $name; done; cargo; java")
    assert code == 0
    assert [Path(line).name for line in output.splitlines()[: len(names)]] == list(names)
    assert output.endswith("cargo of the machine\njava of the machine\n")


def test_optional_programs_can_be_left_out(machine):
    options = [word for name in ("java", "cargo", "go", "cc") for word in ("--without", name)]
    script = "for name in java cargo rustc go cc ld; do command -v $name; done; true"
    assert run(*options, script=script, JAVA_HOME=str(machine)) == (0, "")


def test_of_settings_only_those_of_package_clients_are_passed_on():
    given = {
        "PIP_INDEX_URL": "https://index.example",
        "UV_DEFAULT_INDEX": "https://index.example",
        "CARGO_HTTP_CAINFO": "ca.pem",
        "HTTPS_PROXY": "http://proxy.example",
        "SSL_CERT_FILE": "ca.pem",
        "GOFLAGS": "-x",
        "JAVA_TOOL_OPTIONS": "-Dx=y",
    }
    private = {
        "PIP_CACHE_DIR": "x",
        "UV_CACHE_DIR": "x",
        "UV_PYTHON": "3.13",
        "CARGO_HOME": "x",
        "CARGO_TARGET_DIR": "x",
        "GOPATH": "x",
        "JAVA_HOME": "x",
        "PYTHONPATH": "x",
        "TICDC_REPLAY_CACHE": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "MAKEFLAGS": "-n",
    }
    code, output = run(script="env", **given, **private)
    seen = dict(line.split("=", 1) for line in output.splitlines())
    assert code == 0
    assert {name: seen.get(name) for name in given} == given
    assert private.keys() & seen.keys() == set()


def test_home_is_private_and_has_the_settings_of_package_clients(tmp_path):
    (tmp_path / ".config" / "uv").mkdir(parents=True)
    (tmp_path / ".config" / "uv" / "uv.toml").write_text("offline = true\n")
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo" / "config.toml").write_text("[net]\n")
    (tmp_path / ".cache").mkdir()
    script = (
        'cat "$HOME/.config/uv/uv.toml" "$HOME/.cargo/config.toml"; test ! -e "$HOME/.cache"; echo $?; echo "$HOME"'
    )
    code, output = run(script=script, HOME=str(tmp_path), CARGO_HOME=str(tmp_path / ".cargo"))
    *lines, home = output.splitlines()
    assert (code, lines) == (0, ["offline = true", "[net]", "0"])
    assert home != str(tmp_path)
    assert not Path(home).exists(), "the room is gone with its caches"


def test_it_exits_as_the_command_does():
    assert run(script="exit 7")[0] == 7
    assert run(script="kill -KILL $$")[0] == 128 + signal.SIGKILL


def test_read_only_folders_of_a_cache_are_removed_with_the_room():
    _, home = run(
        script='mkdir -p "$HOME/go/pkg" && touch "$HOME/go/pkg/x" && chmod 555 "$HOME/go/pkg" && echo "$HOME"'
    )
    assert not Path(home.strip()).exists()


def test_a_process_that_writes_on_after_the_command_changes_no_result():
    writer = "for number in 1 2 3 4 5 6 7 8 9; do mkdir $HOME/$number; touch $HOME/$number/x; sleep 0.1; done"
    code, home = run(script=f"({writer}) >/dev/null 2>&1 & echo $HOME; sleep 0.2")
    assert code == 0
    assert not Path(home.strip()).exists()


def test_an_environment_outlives_the_room(machine, tmp_path):
    made = tmp_path / "environment"
    code, _ = run("--python", VERSION, script=f"python3 -m venv --without-pip {made}")
    assert code == 0
    shown = subprocess.run([made / "bin" / "python", "-V"], capture_output=True, text=True, check=True).stdout
    assert shown.startswith(f"Python {VERSION}.")


def test_a_signal_ends_the_command_and_removes_the_room(tmp_path):
    place = tmp_path / "place"
    command = [SCRIPT, "sh", "-c", f'echo "$HOME" > {place}; exec sleep 1000']
    with subprocess.Popen(command) as room:
        home = Path(wait_for("the command to start", lambda: place.exists() and place.read_text().strip()))
        assert home.exists()
        room.terminate()
        assert room.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert not home.exists()


def test_a_signal_before_the_command_has_started_leaves_neither(tmp_path):
    programs, asked, proceed = tmp_path / "programs", tmp_path / "asked", tmp_path / "proceed"
    programs.mkdir()
    slow = f'#!/bin/sh\ntouch {asked}\nwhile ! test -e {proceed}; do sleep 0.1; done\nexec {sys.executable} "$@"\n'
    (programs / f"python{VERSION}").write_text(slow)
    (programs / f"python{VERSION}").chmod(0o755)
    rooms = set((CHECKOUT / ".cache").glob("clean-room-*"))
    command = [sys.executable, SCRIPT, "--python", VERSION, "sleep", "1000"]
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(command, env={**os.environ, "PATH": path}) as room:
        wait_for("clean-room to look for Python", asked.exists)
        (made,) = set((CHECKOUT / ".cache").glob("clean-room-*")) - rooms
        room.terminate()
        proceed.touch()
        assert room.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert not made.exists()


def test_python_is_found_by_either_name_and_must_be_of_a_version_that_is_asked_for(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "make", "git", "env"):
        (programs / name).symlink_to(shutil.which(name))
    (programs / "python3").symlink_to(sys.executable)
    command = [sys.executable, SCRIPT, "--python", VERSION, "python3", "-V"]
    shown = subprocess.run(command, env={"PATH": str(programs)}, capture_output=True, text=True)
    assert shown.stdout.startswith(f"Python {VERSION}."), shown.stderr
    command[3] = "3.12" if VERSION == "3.11" else "3.11"
    refused = subprocess.run(command, env={"PATH": str(programs)}, capture_output=True, text=True)
    assert (refused.returncode, refused.stderr) == (1, f"clean-room: not on PATH: Python {command[3]}\n")


def test_what_a_change_must_pass_runs_in_a_clean_room():
    assert (CHECKOUT / ".ci" / "run").read_text().endswith("exec scripts/clean-room make lint test\n")
