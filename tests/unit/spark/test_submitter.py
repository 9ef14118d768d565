"""A driver notices that the process which submitted it has ended, with other programs between the two."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.jobspec import EXIT_TRANSIENT

SUBMITTER = """
import os, subprocess, sys, time
from ticdc_replay.domain.connections import Connections
from ticdc_replay.jobspec import CONNECTIONS_FILE_VARIABLE
from ticdc_replay.submit.private_file import private_file

with private_file(Connections()) as path:
    environment = {**os.environ, CONNECTIONS_FILE_VARIABLE: str(path)}
    # A shell stands for spark-submit and its JVM: it passes on no open file but the first three.
    subprocess.run(["sh", "-c", f"{sys.executable} -c '{sys.argv[1]}'; echo $? > {sys.argv[2]}/code"], env=environment)
"""
DRIVER = """
import os, sys, time
from pathlib import Path
from ticdc_replay.drivers.submitter import end_with_submitter

end_with_submitter()
Path("{folder}/driver").write_text(str(os.getpid()))
{work}
"""
WORKS = "while True: time.sleep(1)"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    (tmp_path / "private").mkdir()
    return tmp_path / "private"


def start(folder: Path, private: Path, work: str) -> Iterator["subprocess.Popen[bytes]"]:
    submitter = subprocess.Popen(
        [sys.executable, "-c", SUBMITTER, DRIVER.format(folder=folder, work=work), folder],
        env={**os.environ, "TMPDIR": str(private)},
    )
    yield submitter
    submitter.kill()
    submitter.wait()


def content(path: Path) -> str:
    """The content of *path*, once it has some."""
    wait_for(f"content of {path}", lambda: path.exists() and path.read_text(), pause_s=0.05)
    return path.read_text().strip()


def test_a_driver_ends_when_its_submitter_is_killed_and_removes_the_private_file(tmp_path: Path, private: Path) -> None:
    for submitter in start(tmp_path, private, WORKS):
        content(tmp_path / "driver")
        assert list(private.glob("ticdc-replay-*/connections.json"))
        submitter.send_signal(signal.SIGKILL)
        assert content(tmp_path / "code") == str(EXIT_TRANSIENT)
        assert list(private.iterdir()) == []


def test_a_driver_whose_submitter_lives_goes_on(tmp_path: Path, private: Path) -> None:
    for submitter in start(tmp_path, private, "time.sleep(2); sys.exit(7)"):
        assert submitter.wait(PATIENCE_S) == 0
        assert content(tmp_path / "code") == "7"


def test_what_else_lies_beside_the_private_file_stays(tmp_path: Path, private: Path) -> None:
    for submitter in start(tmp_path, private, WORKS):
        content(tmp_path / "driver")
        (folder,) = private.glob("ticdc-replay-*")
        (folder / "notes.txt").write_text("a person's")
        submitter.send_signal(signal.SIGKILL)
        assert content(tmp_path / "code") == str(EXIT_TRANSIENT)
        assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_a_driver_that_a_person_started_is_not_watched(tmp_path: Path) -> None:
    (tmp_path / "connections.json").write_text("{}")
    (tmp_path / "submitter").write_text("a person's")
    environment = {**os.environ, "TICDC_REPLAY_CONNECTIONS_FILE": str(tmp_path / "connections.json")}
    driver = DRIVER.format(folder=tmp_path, work="time.sleep(1); sys.exit(7)")
    assert (
        subprocess.run([sys.executable, "-c", driver], env=environment, timeout=PATIENCE_S, check=False).returncode == 7
    )
