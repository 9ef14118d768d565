"""The whole demo, as ``make demo`` runs it."""

import re
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.demo

CHECKOUT = Path(__file__).resolve().parents[2]
RUN_SECONDS = 3600


def start(folder, *options):
    command = [sys.executable, "-m", "demo", "--folder", str(folder), *options]
    return subprocess.Popen(
        command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def processes():
    """(parent, start time) of every running process by its id. Ids are used again, so only both together name a process."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if fields[0] != "Z":
            found[int(stat.parent.name)] = (int(fields[1]), int(fields[19]))
    return found


def processes_below(root):
    """(id, start time) of *root*'s descendants."""
    children = defaultdict(list)
    for pid, (parent, started) in processes().items():
        children[parent].append((pid, started))
    found, waiting = set(), [root]
    while waiting:
        below = children[waiting.pop()]
        found.update(below)
        waiting += [pid for pid, _ in below]
    return found


def running(seen):
    """Command lines of those of *seen* that still run."""
    found = []
    for pid, (_, started) in processes().items():
        if (pid, started) in seen:
            try:
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
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
@pytest.mark.parametrize("runner", ["connect", pytest.param("spark", marks=pytest.mark.nightly)])
def test_it_replays_every_window_and_leaves_the_tables_as_expected_and_nothing_running(tmp_path, runner):
    demo = start(tmp_path, "--exit", "--patience", "3", "--runner", runner)
    output, seen = read_until(demo, "no such line")
    assert demo.wait(PATIENCE_S) == 0, output
    assert "The tables equal the expected state, cell for cell." in output
    assert "Every object has the class that it must have, and the damage was found." in output
    assert re.search(r"Alert raised, as it must be: .*shop-changes", output)
    for system in ("PostgreSQL", "Iceberg"):
        assert re.search(rf"{system} +│ +shop\.orders +│ +3,002 +│ +yes", output)
    assert re.search(r"http://127\.0\.0\.1:\d+/dags/ticdc_replay_shop", output)
    # The warehouse gets fewer rows of a window when the next one was loaded first; the lake gets all of them.
    assert re.search(r"00:00-01:00 (?:.*\n){2}.*│ +lake: 878 │\n", output), output
    assert (tmp_path / "airflow" / "openlineage.jsonl").read_text().count("ticdcReplay_topicRanges") >= 4
    assert len(seen) > 10
    assert running(seen) == []


def wait_for_the_end_of(seen):
    """Processes may take a moment to end."""
    wait_for(f"the end of {len(seen)} processes", lambda: not running(seen), pause_s=0.5)


def end_by_signal(number):
    def end(demo, folder):
        demo.send_signal(number)
        demo.wait(PATIENCE_S)

    return end


def stop_from_elsewhere(demo, folder):
    stop = f"from pathlib import Path; from demo import instance; assert instance.stop(Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", stop], cwd=CHECKOUT, check=True, timeout=PATIENCE_S)
    output, _ = demo.communicate(timeout=PATIENCE_S)
    assert output.splitlines()[-1] == "Stopped by `make demo-stop`."
    assert demo.returncode == 128 + signal.SIGTERM


ENDS = {
    "by SIGINT": end_by_signal(signal.SIGINT),
    "by SIGKILL": end_by_signal(signal.SIGKILL),
    "from elsewhere": stop_from_elsewhere,
}


@pytest.mark.parametrize(
    "end", [end if end == "from elsewhere" else pytest.param(end, marks=pytest.mark.nightly) for end in ENDS]
)
def test_a_second_one_in_the_same_folder_is_refused_and_however_the_first_ends_nothing_of_it_runs_on(tmp_path, end):
    first = start(tmp_path)
    try:
        _, seen = read_until(first, "Publish the sample")  # Airflow is starting at this moment
        assert len(seen) >= 8
        second = start(tmp_path)
        output, _ = second.communicate(timeout=PATIENCE_S)
        assert second.returncode == 1
        assert "make demo-stop" in output
        assert first.poll() is None
        ENDS[end](first, tmp_path)
        wait_for_the_end_of(seen)
    finally:
        first.kill()
        first.wait(PATIENCE_S)
