"""What the demo does where Airflow is slower than it waits for."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

# The demo itself, without its servers: the system in their place says when it is left.
DEMO = """
import contextlib, sys
from demo import __main__ as demo

@contextlib.contextmanager
def system(folder, runner):
    try:
        yield
    finally:
        print("servers stopped", flush=True)

def run(console, system, patience):
    raise TimeoutError(f"Backfill: not done in time, patience {patience}")

demo.System = system
demo.show_addresses = lambda console, system: console.print("addresses")
demo.run = run
sys.exit(demo.main())
"""

# A signal that interrupts no call of the main thread: one that comes just before a call is no different.
UNINTERRUPTED = """
import signal, threading, time

def run(console, system, patience):
    def send():
        time.sleep(1)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    threading.Thread(target=send, daemon=True).start()
    return True
"""


def start(folder, *options, program=DEMO):
    return subprocess.Popen(
        [sys.executable, "-c", program, "--folder", str(folder), *options],
        cwd=Path(__file__).resolve().parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_it_says_what_to_do_and_ends_as_failed(tmp_path):
    demo = start(tmp_path, "--exit", "--patience", "2.5")
    output, _ = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 1
    assert "Traceback" not in output
    assert "Backfill: not done in time, patience 2.5." in output
    assert "make demo PATIENCE=5" in output
    assert output.index("addresses") < output.index("servers stopped")


def test_the_servers_stay_up_until_somebody_stops_it(tmp_path):
    demo = start(tmp_path)
    lines = [demo.stdout.readline()]
    while "Stop with Ctrl-C" not in lines[-1]:
        assert demo.poll() is None
        lines.append(demo.stdout.readline())
    assert "servers stopped\n" not in lines
    demo.send_signal(signal.SIGTERM)
    output, _ = demo.communicate(timeout=PATIENCE_S)
    assert "servers stopped" in output
    assert demo.returncode == 1


def test_a_signal_that_interrupts_nothing_ends_it(tmp_path):
    start_of_main = "sys.exit(demo.main())"
    demo = start(tmp_path, program=DEMO.replace(start_of_main, f"{UNINTERRUPTED}\ndemo.run = run\n{start_of_main}"))
    output, _ = demo.communicate(timeout=PATIENCE_S)
    assert "Stopped by `make demo-stop`" in output
    assert demo.returncode == 0
