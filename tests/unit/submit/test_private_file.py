"""The private file with connections ends with its process, or is removed by the next start."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.submit.private_file import private_file

CONNECTIONS = Connections({"kafka": Connection("kafka", "kafka", password="hunter2")})
HOLDER = """
import sys
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.submit.private_file import private_file

with private_file(Connections({"kafka": Connection("kafka", "kafka", password="hunter2")})) as path:
    print(path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def start() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)


def test_only_this_user_can_read_it_and_it_is_gone_afterwards(temporary: Path) -> None:
    with private_file(CONNECTIONS) as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert b"hunter2" in path.read_bytes()
    assert list(temporary.iterdir()) == []


def test_the_next_start_removes_the_file_of_a_process_that_was_killed_and_no_other(temporary: Path) -> None:
    killed, left = start()
    living, used = start()
    try:
        end(killed, signal.SIGKILL)
        assert left.exists(), "nobody was there to remove it"
        with private_file(CONNECTIONS) as own:
            assert not left.parent.exists()
            assert used.exists()
            with private_file(CONNECTIONS):
                assert own.exists(), "a process may have several"
    finally:
        living.communicate(input="", timeout=PATIENCE_S)
    assert list(temporary.iterdir()) == []


def test_folders_of_others_stay(temporary: Path) -> None:
    folder = temporary / "ticdc-replay-notes"
    folder.mkdir()
    (temporary / "ticdc-replay-link").symlink_to(folder)
    with private_file(CONNECTIONS):
        pass
    assert sorted(entry.name for entry in temporary.iterdir()) == ["ticdc-replay-link", "ticdc-replay-notes"]
