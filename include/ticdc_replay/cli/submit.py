"""Submits a Spark job from the command line, its connections in a private file."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from rich.text import Text

from ticdc_replay.cli.terminal import terminal
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError, PermanentError, TransientError
from ticdc_replay.domain.progress import PROGRESS_PROPERTY
from ticdc_replay.jobspec import CONNECTIONS_FILE_VARIABLE, EXIT_PERMANENT, EXIT_TRANSIENT
from ticdc_replay.stages.connections_file import private_file
from ticdc_replay.stages.spark_environment import driver_environment

if TYPE_CHECKING:  # they bring all of SQLAlchemy and sqlglot
    from ticdc_replay.stages.context import ReplayContext
    from ticdc_replay.stages.store_context import StoreContext

JOBS = ("decode", "load", "scan", "reconcile")

_GRACE_S = 15.0
_PROGRESS = re.compile(r" INFO ticdc_replay\.spark\.progress: (.*)")


def submit(job: str, uri: str, context: ReplayContext | StoreContext, master: str) -> None:
    """Run the Spark job *job* (one of ``JOBS``) on the spec at *uri* and wait for its end; its log goes to stderr.

    The job gets the Spark properties of the pipeline's or the store's file, as it does from Airflow.

    Raises PermanentError or TransientError as the job's exit code says, ConfigError where Spark is not installed.
    """
    binary = shutil.which("spark-submit", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if binary is None or find_spec("pyspark") is None:
        raise ConfigError("spark-submit is not installed here: pip install 'ticdc-replay[spark]'")
    from ticdc_replay.stages.spark_properties import job_properties
    from ticdc_replay.stages.store_context import StoreContext

    declared = context.store if isinstance(context, StoreContext) else context.pipeline
    with private_file(context.connections) as private, tempfile.NamedTemporaryFile("w", suffix=f"_{job}.py") as script:
        # The entry scripts live beside the DAGs of a deployment, not in the wheel: this is all that they do.
        script.write(f"from ticdc_replay.spark.main import run_{job}_job\n\nrun_{job}_job()\n")
        script.flush()
        properties = _properties(job_properties(declared, job))
        options = [f"--conf={name}={value}" for name, value in properties.items()]
        command = [binary, "--master", master, *options, script.name, uri]
        environment = {**_environment(master, context.connections), CONNECTIONS_FILE_VARIABLE: str(private)}
        code = _run(command, environment)
    if code == EXIT_PERMANENT:
        raise PermanentError(f"the {job} job failed for good; its last lines above say why")
    if code == EXIT_TRANSIENT:
        raise TransientError(
            f"the {job} job failed but may succeed when it is tried again; its last lines above say why"
        )
    if code != 0:
        raise TransientError(f"the {job} job ended with exit code {code}; its log is above")


def _properties(properties: Mapping[str, str]) -> dict[str, str]:
    """*properties*, with progress told every second where a person looks on."""
    watched = {PROGRESS_PROPERTY: "1"} if sys.stderr.isatty() else {}
    return {**watched, **properties}


def _environment(master: str, connections: Connections) -> dict[str, str]:
    """What spark-submit runs in: the driver in this Python. Executors of a cluster reach the driver at a real address."""
    environment = {**driver_environment(os.environ, connections), "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        environment["PYSPARK_PYTHON"] = sys.executable
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environment


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit code of *command*, whose output goes to stderr.

    Whatever ends this process while it waits, but SIGKILL, ends all processes of *command* first: Ctrl-C does so without the
    tracebacks that they would print if they got the signal themselves.
    """
    watched = sys.stderr.isatty()
    process = None
    with _ended_by(signal.SIGTERM, signal.SIGHUP):
        try:
            # What is started but not named yet could not be ended.
            with _held_back(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if watched else sys.stderr,
                    stderr=subprocess.STDOUT if watched else None,
                    text=watched,
                    errors="replace" if watched else None,
                    process_group=0,
                )
            if process.stdout is not None:
                _show(process.stdout)
            return process.wait()
        except BaseException:
            if process is not None:
                _end(process)
            raise


def _show(output: Iterator[str]) -> None:
    """*output* as it comes, with what it tells of progress in one line that is always the last and changes in place."""
    console = terminal(stderr=True, soft_wrap=True)
    with console.status("") as status:
        for line in output:
            progress = _PROGRESS.search(line)
            if progress is not None:
                status.update(Text(progress[1]))
            else:
                console.print(line.rstrip("\n"))


@contextmanager
def _ended_by(*signals: signal.Signals) -> Iterator[None]:
    """Inside, each of *signals* ends this process by an exception, as SIGINT does, so that nothing is left behind."""
    with _handled(_leave, signals):
        yield


@contextmanager
def _held_back(*signals: signal.Signals) -> Iterator[None]:
    """Inside, *signals* have no effect; those that came have it at the end."""
    came: list[int] = []
    try:
        with _handled(lambda number, frame: came.append(number), signals):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Inside, *handler* is called for each of *signals* but those that are ignored, as SIGHUP is below nohup."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may say what a signal does
        yield
        return
    before = {number: signal.getsignal(number) for number in signals}
    before = {number: earlier for number, earlier in before.items() if earlier != signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """End *process* and all of its group: kindly, so that Spark removes its files; by force when that takes too long.

    Another Ctrl-C says that it takes too long. Python workers make a group of their own, and end when the JVM is gone.
    """
    until = time.monotonic() + _GRACE_S
    with suppress(KeyboardInterrupt, ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < until:
            process.poll()
            os.killpg(process.pid, 0)  # raises when nobody is left
            time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
