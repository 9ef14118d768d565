"""What the demo's own terminal shows when it is stopped from another one."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

# The demo itself, without its servers: what runs in their place says what the test is about.
DEMO = """
import contextlib, sys, time
from demo import __main__ as demo

def run(console, system, patience):
    console.print("running")
    return {run}

demo.System = lambda folder, runner: contextlib.nullcontext()
demo.show_addresses = lambda console, system: None
demo.run = run
sys.exit(demo.main())
"""


@pytest.mark.parametrize(
    ("run", "until", "code"),
    [("time.sleep(600)", "running", 143), ("True", "Stop with", 0), ("False", "Stop with", 1)],
    ids=["before its result", "after a good result", "after a bad result"],
)
def test_it_says_that_it_was_stopped_and_ends_with_its_result_where_there_is_one(tmp_path, run, until, code):
    demo = subprocess.Popen(
        [sys.executable, "-c", DEMO.format(run=run), "--folder", str(tmp_path)],
        cwd=Path(__file__).resolve().parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while until not in demo.stdout.readline():
        assert demo.poll() is None
    demo.send_signal(signal.SIGTERM)
    output, _ = demo.communicate(timeout=PATIENCE_S)
    assert output.splitlines()[-1] == "Stopped by `make demo-stop`."
    assert demo.returncode == code
