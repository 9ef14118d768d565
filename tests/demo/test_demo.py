"""The whole demo, as ``make demo`` runs it."""

import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

pytestmark = pytest.mark.demo

CHECKOUT = Path(__file__).resolve().parents[2]
RUN_SECONDS = 1500


def start(folder, *options):
    command = [sys.executable, "-m", "demo", "--folder", str(folder), *options]
    return subprocess.Popen(
        command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def processes_below(root):
    """Process ids of *root*'s descendants."""
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it ended meanwhile
            continue
        children[int(parent)].append(int(stat.parent.name))
    found, waiting = set(), [root]
    while waiting:
        below = children[waiting.pop()]
        found.update(below)
        waiting += below
    return found


def running(pids):
    """Command lines of those of *pids* that still run."""
    found = []
    for pid in pids:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if command:  # a zombie has none
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def read_until(demo, text):
    """The output up to the first line with *text*, or all of it, and every process seen meanwhile."""
    lines, seen = [], set()
    for line in demo.stdout:
        lines.append(line)
        seen |= processes_below(demo.pid)
        if text in line:
            break
    return "".join(lines), seen


@pytest.mark.timeout(RUN_SECONDS + 60)
def test_it_replays_every_window_and_leaves_the_tables_as_expected_and_nothing_running(tmp_path):
    demo = start(tmp_path, "--exit")
    output, seen = read_until(demo, "no such line")
    assert demo.wait(120) == 0, output
    assert "The tables equal the expected state, cell for cell." in output
    assert "Every object has the class that it must have." in output
    assert re.search(r"Alert: .*shop-changes", output)
    assert re.search(r"shop\.orders +│ +3,002 +│ +yes", output)
    assert re.search(r"http://127\.0\.0\.1:\d+/dags/ticdc_replay_shop", output)
    assert list((tmp_path / "lake").rglob("*.parquet"))
    assert (tmp_path / "airflow" / "openlineage.jsonl").read_text().count("ticdcReplay_topicRanges") >= 4
    assert len(seen) > 10
    assert running(seen) == []


def all_ended(pids):
    """Whether none of *pids* runs any more, which may take a moment."""
    deadline = time.monotonic() + 60
    while running(pids) and time.monotonic() < deadline:
        time.sleep(0.5)
    return running(pids) == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_however_it_is_stopped_nothing_of_it_runs_on(tmp_path, number):
    demo = start(tmp_path)
    _, seen = read_until(demo, "Publish the sample")  # Airflow is starting at this moment
    assert len(seen) >= 8
    demo.send_signal(number)
    demo.wait(120)
    assert all_ended(seen)


@pytest.mark.timeout(900)
def test_a_second_one_in_the_same_folder_is_refused_and_the_first_can_be_stopped_from_elsewhere(tmp_path):
    first = start(tmp_path)
    try:
        _, seen = read_until(first, "Publish the sample")
        second = start(tmp_path)
        output, _ = second.communicate(timeout=240)
        assert second.returncode == 1
        assert "make demo-stop" in output
        assert first.poll() is None
        stop = f"from pathlib import Path; from demo import instance; assert instance.stop(Path({str(tmp_path)!r}))"
        subprocess.run([sys.executable, "-c", stop], cwd=CHECKOUT, check=True, timeout=240)
        output, _ = first.communicate(timeout=240)
        assert output.splitlines()[-1] == "Stopped by `make demo-stop`."
        assert first.returncode == 128 + signal.SIGTERM
        assert all_ended(seen)
    finally:
        first.kill()
        first.wait(120)
