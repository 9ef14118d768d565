"""Runs a job whose driver is a process of this machine: by spark-submit in client mode, over Spark Connect, or without Spark."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.jobspec import CONNECTIONS_FILE_VARIABLE
from ticdc_replay.submit.environment import driver_environment
from ticdc_replay.submit.outcome import JobOutcome, settle
from ticdc_replay.submit.private_file import private_file
from ticdc_replay.submit.signals import held_back
from ticdc_replay.submit.submitter import LogLine, Submission, Submitter

_GRACE_S = 15.0
_POLL_S = 0.05
_PROGRESS = re.compile(r" INFO ticdc_replay\.drivers\.progress: (.*)")


class DriverProcess(Submitter):
    """Runs *submission* by *command*, in what a driver gets of *environ* (``driver_environment``)."""

    def __init__(
        self, submission: Submission, command: Sequence[str], environ: Mapping[str, str], grace_s: float = _GRACE_S
    ) -> None:
        """*grace_s* seconds are left to a job that is cancelled, before it is killed."""
        self._grace_s = grace_s
        self._submission = submission
        self._command = command
        self._environ = environ
        self._files = ExitStack()
        self._process: subprocess.Popen[str] | None = None
        self._cancelled = False

    def __exit__(self, *_: object) -> None:
        with self._files:
            if self._process is not None and self._process.returncode is None:
                self.cancel()
                self._process.wait()

    def start(self) -> None:
        connections = self._submission.connections
        private = self._files.enter_context(private_file(connections))
        environment = driver_environment(self._environ, connections) | {CONNECTIONS_FILE_VARIABLE: str(private)}
        # A process that is started but not known yet could not be ended.
        with held_back(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._refuse_cancelled()
            self._process = subprocess.Popen(
                self._command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                process_group=0,
            )

    def wait(self, show: Callable[[LogLine], object]) -> JobOutcome:
        assert self._process is not None, "start comes first"
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.rstrip("\n")
            progress = _PROGRESS.search(text)
            show(LogLine(text, progress[1] if progress else None))
        # Not Popen.wait: it holds a lock that ``cancel`` in a signal's handler would wait for.
        while (code := self._process.poll()) is None:
            time.sleep(_POLL_S)
        self._refuse_cancelled()
        return settle(self._submission.file, self._submission.attempt, self._submission.name, code)

    def cancel(self) -> None:
        """First kindly, so that Spark removes its files; by force when that takes too long.

        Ctrl-C while it takes its time says that it takes too long. Python workers make a group of their own, and end when the JVM
        is gone.
        """
        self._cancelled = True
        if self._process is None or self._process.returncode is not None:
            return
        until = time.monotonic() + self._grace_s
        with suppress(KeyboardInterrupt, ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
            while time.monotonic() < until:
                self._process.poll()
                os.killpg(self._process.pid, 0)  # raises when nobody is left
                time.sleep(_POLL_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _refuse_cancelled(self) -> None:
        if self._cancelled:
            raise TransientError(f"{self._submission.name}: the job was cancelled")
