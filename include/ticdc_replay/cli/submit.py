"""Submits a Spark job from the command line, its connections in a private file."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from ticdc_replay.domain.errors import ConfigError, PermanentError, TransientError
from ticdc_replay.jobspec import CONNECTIONS_FILE_VARIABLE, EXIT_PERMANENT, EXIT_TRANSIENT
from ticdc_replay.stages.connections_file import private_file
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.spark_properties import spark_properties
from ticdc_replay.stages.store_context import StoreContext

JOBS = ("decode", "load", "scan", "reconcile")


def submit(job: str, uri: str, context: ReplayContext | StoreContext, master: str) -> None:
    """Run the Spark job *job* (one of ``JOBS``) on the spec at *uri* and wait for its end; its log goes to stderr.

    The job gets the Spark properties of the pipeline's or the store's file, as it does from Airflow.

    Raises PermanentError or TransientError as the job's exit code says, ConfigError where Spark is not installed.
    """
    binary = shutil.which("spark-submit", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if binary is None or find_spec("pyspark") is None:
        raise ConfigError("spark-submit is not installed here: pip install 'ticdc-replay[spark]'")
    declared = context.store if isinstance(context, StoreContext) else context.pipeline
    with private_file(context.connections) as private, tempfile.NamedTemporaryFile("w", suffix=f"_{job}.py") as script:
        # The entry scripts live beside the DAGs of a deployment, not in the wheel: this is all that they do.
        script.write(f"from ticdc_replay.spark.main import run_{job}_job\n\nrun_{job}_job()\n")
        script.flush()
        environment = {
            **os.environ,
            CONNECTIONS_FILE_VARIABLE: str(private),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
        }
        properties = [f"--conf={name}={value}" for name, value in spark_properties(declared).items()]
        command = [binary, "--master", master, *properties, script.name, uri]
        code = _run(command, environment)
    if code == EXIT_PERMANENT:
        raise PermanentError(f"the {job} job failed for good; its last lines above say why")
    if code == EXIT_TRANSIENT:
        raise TransientError(
            f"the {job} job failed but may succeed when it is tried again; its last lines above say why"
        )
    if code != 0:
        raise TransientError(f"the {job} job ended with exit code {code}; its log is above")


def _run(command: list[str], environment: dict[str, str]) -> int:
    """The exit code of *command*. Ctrl-C ends it without the tracebacks that it would print if it got the signal itself."""
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, process_group=0)
    try:
        return process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
