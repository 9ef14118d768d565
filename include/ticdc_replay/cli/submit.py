"""Submits a Spark job from the command line."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ticdc_replay.cli.terminal import terminal
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.progress import PROGRESS_PROPERTY
from ticdc_replay.submit.signals import ended_by
from ticdc_replay.submit.spark_submit import SparkSubmit
from ticdc_replay.submit.submitter import LogLine, Submission, Submitter

if TYPE_CHECKING:  # they bring all of SQLAlchemy and sqlglot
    from ticdc_replay.stages.context import ReplayContext
    from ticdc_replay.store_stages.context import StoreContext

Master = Annotated[str, typer.Option(help="Spark master URL")]


def submit(uri: str, context: ReplayContext | StoreContext, master: str) -> None:
    """Run the Spark job whose spec is at *uri* and wait for its end; its log goes to stderr.

    The job gets the Spark properties of the pipeline's or the store's file, as it does from Airflow.

    Raises PermanentError or TransientError with the driver's own message, ConfigError where Spark is not installed.
    """
    binary = shutil.which("spark-submit", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if binary is None or find_spec("pyspark") is None:
        raise ConfigError("spark-submit is not installed here: pip install 'ticdc-replay[spark]'")
    submission = Submission(uri, context.connections, context.declared)
    watched = {PROGRESS_PROPERTY: "1"} if sys.stderr.isatty() else {}  # every second where a person looks on
    properties = [f"--conf={name}={value}" for name, value in {**watched, **submission.properties}.items()]
    command = [binary, "--master", master, *properties, submission.script, *submission.arguments]
    run(SparkSubmit(submission, command, _environ(master)))


def run(submitter: Submitter) -> None:
    """Run *submitter*'s job to its end. Whatever ends this process meanwhile, except SIGKILL, ends the job first."""
    with ended_by(signal.SIGTERM, signal.SIGHUP), submitter:
        submitter.start()
        if sys.stderr.isatty():
            _watch(submitter)
        else:
            submitter.wait(lambda line: sys.stderr.write(f"{line.text}\n"))


def _watch(submitter: Submitter) -> None:
    """Wait for the end of the job on a terminal: its progress is one line, which is always the last and changes in place."""
    console = terminal(stderr=True, soft_wrap=True)
    with console.status("") as status:

        def show(line: LogLine) -> None:
            if line.progress is None:
                console.print(line.text)
            else:
                status.update(Text(line.progress))

        submitter.wait(show)


def _environ(master: str) -> dict[str, str]:
    """What a driver is given of this environment, in this Python. Executors of a cluster reach it at a real address."""
    environ = {**os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        environ["PYSPARK_PYTHON"] = sys.executable
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environ
