"""How the command line runs spark-submit, with other programs in its place."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S, wait_for

LOADED = """
import os, signal, subprocess, sys

if "IGNORED" in os.environ:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
else:  # whatever the tests were started by
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

from types import SimpleNamespace

from ticdc_replay.cli import submit
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.submit import driver_process

driver_process._GRACE_S = 1.0

class NoOutcome:
    def outcome(self, attempt):
        raise ArtifactNotFoundError("nothing is there")
"""
RUN = """
submission = SimpleNamespace(name="decode", attempt="a", connections=Connections(), file=NoOutcome())
submit.run(driver_process.DriverProcess(submission, ["sh", "-c", sys.argv[1]], os.environ))
"""


# Between the two: the signal comes when the job runs but is not known yet to those who started it.
SIGNALLED_EARLY = """
start = subprocess.Popen

def start_and_signal(*arguments, **named):
    process = start(*arguments, **named)
    with open(os.environ["JOB_PID"], "w") as file:
        print(process.pid, file=file)
    os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    return process

subprocess.Popen = start_and_signal
"""


def started(script: str, stderr: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", LOADED + RUN, script], stdin=subprocess.DEVNULL, stderr=stderr)


def ends(pid: int) -> bool:
    """Wait until the process *pid* has ended."""

    def has_ended() -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        return state == "Z"  # nobody has asked for its exit code yet

    return wait_for(f"the end of process {pid}", has_ended, pause_s=0.02)


def first_line(path: Path) -> str:
    wait_for(f"a line in {path.name}", lambda: path.exists() and path.read_text().endswith("\n"), pause_s=0.02)
    return path.read_text().strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_job_and_all_that_it_started(number, tmp_path):
    command = started(f"sleep 1000 & echo $! > {tmp_path}/child; wait")
    child = int(first_line(tmp_path / "child"))
    command.send_signal(number)
    assert command.wait(PATIENCE_S) == (-signal.SIGINT if number == signal.SIGINT else 128 + number)
    assert ends(child)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_while_the_job_starts_ends_it_too(number, tmp_path):
    environment = {**os.environ, "JOB_PID": str(tmp_path / "job"), "SIGNAL": str(int(number))}
    command = subprocess.run(
        [sys.executable, "-c", LOADED + SIGNALLED_EARLY + RUN, "sleep 1000"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=PATIENCE_S,
    )
    assert command.returncode == (-signal.SIGINT if number == signal.SIGINT else 128 + number)
    assert ends(int(first_line(tmp_path / "job")))


def test_what_was_ignored_before_stays_so(tmp_path, monkeypatch):
    monkeypatch.setenv("IGNORED", "yes")
    command = started(f"echo $$ > {tmp_path}/shell; sleep 3")
    first_line(tmp_path / "shell")
    command.send_signal(signal.SIGHUP)
    assert command.wait(PATIENCE_S) == 0


def test_a_signal_is_not_forgotten_where_the_job_can_not_be_started(monkeypatch):
    monkeypatch.setenv("SIGNAL", str(int(signal.SIGTERM)))
    failing = """
def fail(*arguments, **named):
    os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    raise FileNotFoundError("no such program")

subprocess.Popen = fail
"""
    command = subprocess.run(
        [sys.executable, "-c", LOADED + failing + RUN, "true"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    assert command.returncode == 128 + signal.SIGTERM


@pytest.mark.slow
def test_a_job_that_does_not_listen_is_killed(tmp_path):
    command = started(f"trap '' TERM; echo $$ > {tmp_path}/shell; while :; do sleep 0.1; done")
    shell = int(first_line(tmp_path / "shell"))
    command.terminate()
    assert command.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert ends(shell)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (3, "PermanentError: decode: the job ended with exit code 3, and its driver left no outcome"),
        (4, "TransientError: decode: the job ended with exit code 4"),
        (137, "TransientError: decode: the job was killed by SIGKILL"),
    ],
)
def test_a_job_whose_driver_left_no_outcome_fails_as_its_exit_code_says(code, error, tmp_path):
    with (tmp_path / "log").open("wb") as log:
        assert started(f"exit {code}", log.fileno()).wait(PATIENCE_S) == 1
    assert error in (tmp_path / "log").read_text()


def test_a_terminal_shows_progress_in_a_line_of_its_own():
    progress = "15:00:00 INFO ticdc_replay.drivers.progress: decode: 42 % of 1.2 M messages"
    screen, terminal = pty.openpty()
    command = started(f"echo before >&2; echo '{progress}'; sleep 0.5; echo after", terminal)
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(screen, 4096)
        except OSError:  # the command has closed its end
            break
    os.close(screen)
    assert command.wait(PATIENCE_S) == 0, shown
    text = shown.decode()
    assert "decode: 42 % of 1.2 M messages" in text
    assert "INFO" not in text
    assert text.index("before") < text.index("decode: 42 %") < text.rindex("after")


def test_without_a_terminal_every_line_stays_as_it_is(tmp_path):
    progress = "15:00:00 INFO ticdc_replay.drivers.progress: decode: 42 % of 1.2 M messages"
    with (tmp_path / "log").open("wb") as log:
        assert started(f"echo '{progress}'", log.fileno()).wait(PATIENCE_S) == 0
    assert (tmp_path / "log").read_text() == f"{progress}\n"
