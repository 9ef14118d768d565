"""Runs a job from the command line."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from ticdc_replay.cli.terminal import terminal
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.progress import SECONDS_VARIABLE
from ticdc_replay.submit.cluster import ClusterDriver, prepare
from ticdc_replay.submit.clusters import cluster_of, master_of
from ticdc_replay.submit.commands import (
    SPARK_CONNECT,
    connect_command,
    connect_environment,
    local_command,
    local_environment,
    spark_submit_command,
)
from ticdc_replay.submit.driver_process import DriverProcess
from ticdc_replay.submit.signals import ended_by
from ticdc_replay.submit.submitter import LogLine, Submission, Submitter

if TYPE_CHECKING:  # they bring all of SQLAlchemy and sqlglot
    from ticdc_replay.stages.context import ReplayContext
    from ticdc_replay.store_stages.context import StoreContext

Master = Annotated[
    str | None,
    typer.Option(
        help="Spark master URL, or sc://host:port of a Spark Connect server; by default what runner and the connection of "
        "Spark say, else local[*]"
    ),
]


def submit(uri: str, context: ReplayContext | StoreContext, master: str | None) -> None:
    """Run the job whose spec is at *uri* and wait for its end; its log goes to stderr. One that is done already starts no
    process.

    The job gets the Spark properties of the pipeline's or the store's file, as it does from Airflow.

    Raises the driver's own error (``submit.outcome.judge``), ConfigError where Spark is not installed.
    """
    from ticdc_replay.drivers.done import done_before  # with pyarrow

    with ended_by(signal.SIGTERM, signal.SIGHUP):
        if done_before(uri, context.connections) is not None:
            return
    declared = context.declared
    environ = dict(os.environ)
    if sys.stderr.isatty():  # every second where a person looks on
        environ.setdefault(SECONDS_VARIABLE, "1")
    if master is None and _submit_to_cluster(uri, context, environ):
        return
    spark = _spark_connect(context, master)
    submission = Submission(uri, context.connections, declared, spark=spark)
    if spark is not None:
        command, environ = connect_command(submission), connect_environment(environ, spark, declared)
    elif master is None and isinstance(declared, Pipeline) and declared.runner == "local":
        command, environ = local_command(submission, declared), local_environment(environ, declared)
    else:
        master = master or "local[*]"
        command, environ = spark_submit_command(submission, master), _environ(environ, master)
    run(DriverProcess(submission, command, environ))


def _submit_to_cluster(uri: str, context: ReplayContext | StoreContext, environ: dict[str, str]) -> bool:
    """Run the job as an application of a cluster, if the connection of Spark says so; whether it did."""
    declared = context.declared
    spark = context.connections.by_id.get(declared.connections.spark)
    is_local = isinstance(declared, Pipeline) and declared.runner == "local"
    cluster = None if spark is None or is_local else cluster_of(spark)
    if spark is None or cluster is None:
        return False
    submission = Submission(uri, context.connections, declared)
    prepare(submission, cluster, declared)
    queue = spark.extra.get("queue")
    options = ["--deploy-mode", "cluster", *(["--queue", str(queue)] if queue else [])]
    command = spark_submit_command(submission, master_of(spark), options)
    run(ClusterDriver(submission, cluster, command, environ, declared))
    return True


def _spark_connect(context: ReplayContext | StoreContext, master: str | None) -> Connection | None:
    """The connection of the Spark Connect server that is to be used, None for another way."""
    conn_id = context.declared.connections.spark
    known = context.connections.by_id.get(conn_id, Connection(conn_id=conn_id, conn_type=""))
    is_server = known.conn_type == SPARK_CONNECT
    if master is None and isinstance(context.declared, Pipeline) and context.declared.runner == "local":
        return None
    if master is None:
        return known if is_server else None
    if not master.startswith("sc://"):
        return None
    if "token=" in master:
        raise ConfigError(
            f"--master: a token in a command line can be read by others: give it as the password of connection "
            f"{conn_id!r}, of type {SPARK_CONNECT}"
        )
    if is_server:  # with its token
        return msgspec.structs.replace(known, host=master, port=None)
    return Connection(conn_id=conn_id, conn_type=SPARK_CONNECT, host=master)


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


def _environ(environ: dict[str, str], master: str) -> dict[str, str]:
    """What a driver is given of *environ*, in this Python. Executors of a cluster reach it at a real address."""
    environ = {**environ, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        environ["PYSPARK_PYTHON"] = sys.executable
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environ
