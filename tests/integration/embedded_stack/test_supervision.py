"""Nothing of an embedded server survives, however its end comes."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from demo.embedded_stack.errors import StackError
from demo.embedded_stack.process import ManagedProcess
from demo.embedded_stack.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

# A server that starts a helper in a session of its own, as Airflow and PostgreSQL do, and does not heed TERM.
STUBBORN = textwrap.dedent(
    """
    import os, pathlib, signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()} {helper.pid}")
    time.sleep(600)
    """
)

# As above, and its main thread ends before the others. What remains looks like a zombie that has a child.
HEADLESS = STUBBORN.replace(
    "time.sleep(600)\n",
    """import ctypes, platform, threading
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # exit, of this thread alone
""",
)


def start(folder: Path, code: str = STUBBORN) -> ManagedProcess:
    return ManagedProcess(
        [sys.executable, "-c", code, str(folder / "pids")],
        log=folder / "log",
        env=os.environ,
        cwd=folder,
        grace=0.5,
    )


def pids(folder: Path) -> list[int]:
    file = folder / "pids"
    wait_for("the ids of server and helper", lambda: file.exists() and len(file.read_text().split()) == 2)
    return [int(text) for text in (folder / "pids").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_stop_ends_helpers_that_left_the_session_and_servers_that_ignore_term(tmp_path):
    process = start(tmp_path)
    running = pids(tmp_path)
    process.stop()
    assert [pid for pid in running if alive(pid)] == []


def test_stop_ends_what_runs_below_a_server_whose_main_thread_has_ended(tmp_path):
    process = start(tmp_path, HEADLESS)
    server, helper = pids(tmp_path)
    wait_for("the end of the server", lambda: not alive(server))
    assert alive(helper)
    process.stop()
    assert not alive(helper)


def test_a_parent_killed_without_notice_takes_its_servers_with_it(tmp_path):
    script = f"""
import sys, time
from pathlib import Path
sys.path[:0] = {sys.path!r}
from tests.integration.embedded_stack.test_supervision import start
start(Path({str(tmp_path)!r}))
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[3])
    running = pids(tmp_path)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_for("the end of all processes", lambda: not any(alive(pid) for pid in running))


def test_a_killed_supervisor_takes_its_server_with_it(tmp_path):
    process = start(tmp_path)
    server, helper = pids(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    wait_for("the end of the server", lambda: not alive(server))
    process.stop()
    os.kill(helper, signal.SIGKILL)  # the one case that leaves a helper behind


class Failing(Server):
    name = "failing"
    start_seconds = 1.0
    code = "print('the reason', flush=True); raise SystemExit(3)"

    def _launch(self):
        return ManagedProcess([sys.executable, "-c", self.code], log=self.log, env=os.environ, cwd=self.folder)

    def _is_ready(self):
        return False


def test_a_server_that_ends_while_starting_is_reported_with_its_output(tmp_path):
    with pytest.raises(StackError, match=r"(?s)ended with exit code 3 while starting.*the reason"):
        Failing(tmp_path).start()


def test_a_server_that_never_answers_is_stopped_at_its_deadline(tmp_path):
    server = Failing(tmp_path)
    server.code = "import time; print('still busy', flush=True); time.sleep(600)"
    with pytest.raises(StackError, match=r"(?s)not ready in 1 s.*still busy"):
        server.start()
    assert server._process is None


def test_a_start_that_lost_its_port_is_tried_with_another(tmp_path):
    class Unlucky(Failing):
        launches = 0

        def _launch(self):
            self.launches += 1
            self.code = (
                "raise OSError('Address already in use')" if self.launches == 1 else "import time; time.sleep(600)"
            )
            return super()._launch()

        def _is_ready(self):
            return self.launches == 2

    server = Unlucky(tmp_path)
    with server:
        assert server.launches == 2
