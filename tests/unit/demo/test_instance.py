"""One demo at a time in one folder."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo import instance
from tests.support.waiting import PATIENCE_S

HOLDER = """
import sys, time
from pathlib import Path
from demo import instance
with instance.only_one(Path(sys.argv[1])):
    print("holding", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        cwd=Path(__file__).resolve().parents[3],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "holding\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_one_is_refused_with_the_first_ones_process(tmp_path, holder):
    with pytest.raises(instance.AlreadyRunningError, match=f"process {holder.pid}"), instance.only_one(tmp_path):
        pass


def test_stopping_asks_the_holder_and_waits_for_its_end(tmp_path, holder):
    assert instance.stop(tmp_path) is True
    assert holder.wait(PATIENCE_S) == -signal.SIGTERM
    assert instance.stop(tmp_path) is False


def test_a_killed_holder_blocks_nobody(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert not instance.is_running(tmp_path)
    with instance.only_one(tmp_path):
        assert instance.is_running(tmp_path)


def test_an_unused_folder_runs_nothing(tmp_path):
    assert not instance.is_running(tmp_path / "never")
    assert instance.stop(tmp_path / "never") is False
