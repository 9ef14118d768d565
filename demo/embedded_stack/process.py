"""One supervised process with its log file."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from demo.embedded_stack import supervisor
from demo.embedded_stack.errors import StackError

LOG_TAIL_BYTES = 4000


class ManagedProcess:
    """A process that ends when told, or when this Python process is gone, together with all it started.

    *log* gets its output. *stop_signal* goes to the main process, or with *whole_group* to its process group; what still runs
    after *grace* seconds is killed. *account* is the (uid, gid) to run as, for servers that refuse root.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        log: Path,
        env: Mapping[str, str],
        cwd: Path,
        stop_signal: signal.Signals = signal.SIGTERM,
        whole_group: bool = False,
        grace: float = 10.0,
        account: tuple[int, int] | None = None,
    ) -> None:
        if not sys.platform.startswith("linux"):
            raise StackError(
                f"the embedded stack needs Linux (prctl, /proc), this is {sys.platform}: use docker-compose.yaml"
            )
        self.log = log
        self._grace = grace
        reach = "group" if whole_group else "main"
        owner = "-" if account is None else f"{account[0]}:{account[1]}"
        script = [sys.executable, "-I", "-S", supervisor.__file__]
        options = [str(os.getpid()), str(int(stop_signal)), str(grace), reach, owner]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*script, *options, *(os.fspath(part) for part in command)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,  # Ctrl-C is for us; we stop the servers in order
            )

    @property
    def pid(self) -> int:
        """The supervisor's process id: TERM to it stops everything."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """End the process and all that it started; returns when nothing is left. May be called again."""
        self._process.terminate()
        try:
            self._process.wait(self._grace + 15)
        except subprocess.TimeoutExpired:
            raise StackError(f"process {self.pid} did not stop; see {self.log}") from None

    def log_tail(self) -> str:
        """The end of the log, for error messages."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace").strip()
