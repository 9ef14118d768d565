"""Tasks in processes of this machine, and the driver that runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.domain.errors import ArtifactCorruptError, PermanentError, TicdcReplayError, TransientError
from ticdc_replay.drivers import local
from ticdc_replay.drivers.local import LocalRunner, local_runner

DRIVER = """
import sys, time
from pathlib import Path
from ticdc_replay.drivers.local import local_runner

def work(task):
    (Path(sys.argv[1]) / str(os.getpid())).touch()
    time.sleep(600)

import os
with local_runner(2) as runner:
    runner.run(work, [1, 2, 3], "sleep")
"""


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalRunner]:
    with local_runner(2) as running:
        yield running


def double(number: int) -> int:
    time.sleep(0.01 * (5 - number))  # later tasks end first
    return 2 * number


def fail(error: TicdcReplayError | None) -> str:
    if error is not None:
        raise error
    return "done"


def fail_at_first(folder: Path) -> int:
    """Fails twice, and then says how often it was started."""
    (folder / str(time.monotonic_ns())).touch()
    attempts = len(list(folder.iterdir()))
    if attempts < 3:
        raise TransientError("not yet")
    return attempts


def fail_always(folder: Path) -> None:
    (folder / str(time.monotonic_ns())).touch()
    raise TransientError("never")


def no_such_file(path: Path) -> bytes:
    return path.read_bytes()


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def pid(_: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def test_results_come_in_the_order_of_the_tasks(runner: LocalRunner) -> None:
    assert runner.run(double, range(5), "double") == [0, 2, 4, 6, 8]
    assert runner.run(double, [], "double") == []


def test_tasks_run_in_as_many_processes_as_are_wanted(runner: LocalRunner) -> None:
    found = set(runner.run(pid, range(8), "pid"))
    assert len(found) == runner.parallelism == 2
    assert os.getpid() not in found


def test_an_error_of_the_library_keeps_its_type_and_the_permanent_one_wins(runner: LocalRunner) -> None:
    with pytest.raises(ArtifactCorruptError, match="broken"):
        runner.run(fail, [None, TransientError("away"), ArtifactCorruptError("broken")], "fail")


def test_a_task_that_may_succeed_is_tried_again(runner: LocalRunner, tmp_path: Path) -> None:
    assert runner.run(fail_at_first, [tmp_path], "fail") == [3]


def test_a_task_is_not_tried_for_ever(runner: LocalRunner, tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="never"):
        runner.run(fail_always, [tmp_path], "fail")
    assert len(list(tmp_path.iterdir())) == local.ATTEMPTS


def test_an_error_of_a_file_says_what_may_be_wrong(runner: LocalRunner, tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=r"read: .*gone.*is a disk full"):
        runner.run(no_such_file, [tmp_path / "gone"], "read")


def test_a_worker_that_is_killed_fails_the_job_for_now() -> None:
    with (
        local_runner(2) as own,
        pytest.raises(TransientError, match=r"die: a worker process was killed.*local\.processes"),
    ):
        own.run(die, [1], "die")


def test_an_error_that_is_none_of_the_library_s_comes_through(runner: LocalRunner) -> None:
    with pytest.raises(ZeroDivisionError):
        runner.run((1).__floordiv__, [0], "divide")
    assert runner.run(double, [4], "double") == [8], "and others still run"


def test_permanent_errors_are_not_tried_again(runner: LocalRunner) -> None:
    with pytest.raises(PermanentError, match="for good"):
        runner.run(fail, [PermanentError("for good")], "fail")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_driver_however_it_ends(tmp_path: Path, number: signal.Signals) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        wait_for("two workers", lambda: len(list(tmp_path.iterdir())) == 2)
        workers = [int(path.name) for path in tmp_path.iterdir()]
        driver.send_signal(number)
        driver.wait(PATIENCE_S)
        wait_for("the workers to end", lambda: not any(map(psutil.pid_exists, workers)))
    finally:
        driver.kill()
        driver.wait()
