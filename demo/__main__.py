"""``make demo``: start the system, backfill the sample changefeed, reconcile its claim-check store, and compare the result."""

import argparse
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import get_args

from rich.console import Console

from demo import instance, pipeline, reconciliation, report
from demo.airflow_api import AirflowApi, RunState
from demo.embedded_stack.errors import StackError
from demo.progress import Watched, follow, step
from demo.report import Outcome, read_report
from demo.sample import contents
from demo.system import Runner, System
from demo.verify import verify
from ticdc_replay.domain import tso
from ticdc_replay.stages.load.publish import RunReport

DAG_ID = f"ticdc_replay_{pipeline.NAME}"
BACKFILL = Watched(
    "Backfill",
    "window (UTC)",
    ("await_watermark", "snapshot", "decode", "check", "load_warehouse", "load_iceberg", "load_lake", "publish"),
)
STORE_DAG_ID = f"ticdc_replay_store_{pipeline.STORE_NAME}"
RECONCILIATION = Watched(
    "Reconciliation",
    "for the day from (UTC)",
    ("survey", "scan", "list_objects", "reconcile", "report", "alert"),
    raises="alert",
)
RUNS_AT_A_TIME = 2
DAG_SECONDS = 120.0
LINE_IN_A_FILE = 140
LOOK_SECONDS = 1.0
BACKFILL_SECONDS = 1200.0
RECONCILIATION_SECONDS = 600.0
STOPPED = 128 + signal.SIGTERM
"""Exit code where the demo was stopped before its result was there."""


class Stopped(BaseException):
    """SIGTERM came, as from ``make demo-stop``. No Exception: nothing between may take it for a failure of its own."""


def main() -> int:
    """0 when every window was replayed, the tables are as expected and so is the store, also where it was stopped after that."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--exit", action="store_true", help="stop after the report, instead of waiting for Ctrl-C")
    parser.add_argument(
        "--folder", type=Path, default=instance.FOLDER, help="folder of data and logs; emptied at the start"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=1.0,
        metavar="FACTOR",
        help="for slow machines: wait FACTOR times as long for Airflow",
    )
    parser.add_argument(
        "--runner",
        choices=get_args(Runner),
        default="spark",
        help="spark: a spark-submit for each job; connect: all jobs at one Spark Connect server",
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    console = Console()
    if not console.is_terminal:
        console = Console(width=LINE_IN_A_FILE)
    succeeded: bool | None = None
    try:
        with instance.only_one(options.folder), System(options.folder.resolve(), options.runner) as system:
            try:
                succeeded = run(console, system, options.patience)
            except TimeoutError as error:
                succeeded = False
                tell_late(console, error, options.patience)
            show_addresses(console, system)
            if not options.exit:
                console.print("\nStop with Ctrl-C here, or `make demo-stop` elsewhere.")
                wait_for_a_signal()
        console.print(f"\nThe servers are stopped. Files and logs stay in {options.folder} until the next demo.")
        return 0 if succeeded else 1
    except Stopped:
        console.print("\nStopped by `make demo-stop`.")
        return STOPPED if succeeded is None else int(not succeeded)
    except KeyboardInterrupt:
        console.print("\nStopped.")
        return 130
    except (StackError, instance.AlreadyRunningError) as error:
        console.print(str(error), style="red", markup=False)
        return 1


def _stop(*_: object) -> None:
    raise Stopped


def wait_for_a_signal() -> None:
    """Wait until a handler raises. Not by ``signal.pause`` alone: a signal that comes just before it would be seen by nobody."""
    while True:
        time.sleep(LOOK_SECONDS)


def tell_late(console: Console, error: TimeoutError, patience: float) -> None:
    """Say that Airflow was slower than was waited for, and what to do."""
    console.print(f"\n{error}.", style="bold red", markup=False)
    console.print(
        "This machine may be busy or slow: what Airflow began goes on as long as the servers run. To wait longer, start again "
        f"with `make demo PATIENCE={2 * patience:g}`.",
        markup=False,
        soft_wrap=True,
    )


def run(console: Console, system: System, patience: float) -> bool:
    """Start, publish, replay, compare, reconcile. True when all went well. Raises TimeoutError where Airflow needs more than
    *patience* times the usual."""
    with step(console, "Start Kafka, S3 and PostgreSQL"):
        system.start_data()
    starting = system.begin_airflow()
    if system.runner == "connect":
        with step(console, "Start the Spark Connect server"):
            system.start_spark()
    with step(console, "Publish the sample changefeed"):
        published = system.publish_sample()
    console.print(f"  {published.messages:,} messages in {published.topic}, {published.objects} claim-check objects")
    with step(console, "Start Airflow"):
        airflow = starting.result()
    console.print(f"  {airflow.url} [dim](no password)[/dim]")
    api = AirflowApi(airflow.url)
    with step(console, f"Let Airflow find the pipeline {pipeline.NAME}"):
        system.add_connections(api)
        await_dag(api, DAG_ID, patience)
    windows = contents.windows()
    first, last = (tso.to_datetime(window.from_ts) for window in (windows[0], windows[-1]))
    api.unpause(DAG_ID)
    api.backfill(DAG_ID, first, last, RUNS_AT_A_TIME)
    deadline = time.monotonic() + BACKFILL_SECONDS * patience
    runs = follow(console, BACKFILL, len(windows), lambda: api.runs(DAG_ID, "backfill"), deadline)
    if any(run.state != "success" for run in runs):
        console.print("A run failed: its task logs in the Airflow UI say why.", style="bold red")
        return False
    outcome = Outcome(read_reports(system, api, runs), verify(system.warehouse, system.lakehouse))
    report.show(console, outcome)
    reconciled = reconcile(console, system, api, patience)
    return outcome.right and reconciled


def reconcile(console: Console, system: System, api: AirflowApi, patience: float) -> bool:
    """Do to the store what months do, reconcile it, compare. True when every object has its class."""
    console.print()
    await_dag(api, STORE_DAG_ID, patience)
    console.print(
        "Now the demo damages its claim checks on purpose. The reconciliation must find the damage and raise an alert."
    )
    with step(console, "Expire messages in Kafka, remove an object, replace another"):
        aged = system.age_store()
    api.unpause(STORE_DAG_ID)  # the last run that was due begins at once
    deadline = time.monotonic() + RECONCILIATION_SECONDS * patience
    (run,) = follow(console, RECONCILIATION, 1, lambda: api.runs(STORE_DAG_ID, "scheduled")[:1], deadline)
    if run.tasks["report"].state != "success":
        console.print("The reconciliation failed: its task logs in the Airflow UI say why.", style="bold red")
        return False
    told = api.xcom(STORE_DAG_ID, run.run_id, "report")
    folder = f"{pipeline.REPLAY_BUCKET}/stores/{pipeline.STORE_NAME}/reconciliations/{told['reconciliation']}"
    reconciled = reconciliation.read(system.arrow_filesystem(), folder, aged, told["first_alerts"])
    reconciliation.show(console, reconciled)
    return reconciled.right


def await_dag(api: AirflowApi, dag_id: str, patience: float) -> None:
    """Return when the DAG was parsed. Raises TimeoutError."""
    deadline = time.monotonic() + DAG_SECONDS * patience
    while not api.dag_is_known(dag_id):
        if time.monotonic() > deadline:
            raise TimeoutError(f"Airflow did not find the DAG {dag_id} in {DAG_SECONDS * patience:.0f} s")
        time.sleep(0.5)


def read_reports(system: System, api: AirflowApi, runs: list[RunState]) -> list[RunReport]:
    """The report that each run left among the artefacts."""
    hashes = [api.xcom(DAG_ID, run.run_id, "check")["run_hash"] for run in runs]
    names = [f"artifacts/{pipeline.NAME}/reports/{run_hash}.json" for run_hash in hashes]
    return [read_report(system.stored(name)) for name in names]


def show_addresses(console: Console, system: System) -> None:
    """Where to look around."""
    assert system.airflow is not None
    places = {
        "Airflow": f"{system.airflow.url}/dags/{DAG_ID}",
        "Store": f"{system.airflow.url}/dags/{STORE_DAG_ID}",
        "PostgreSQL": system.warehouse,
        "Iceberg": f"sqlite:///{pipeline.catalog_database(system.lakehouse)}",
        **({} if system.spark is None else {"Spark": system.spark.url}),
        "S3": f"{system.data.s3.endpoint}/{pipeline.REPLAY_BUCKET}",
        "Lineage": str(system.airflow.lineage_file),
        "Pipeline": str(pipeline.PIPELINE),
        "Store file": str(pipeline.STORE),
        "CLI": str(system.connections_file),
    }
    console.print()
    for name, place in places.items():
        console.print(f"{name:<11}{place}", highlight=False, soft_wrap=True)
    console.print("\nThe command line knows the same servers:", highlight=False)
    command = shlex.join(example(system))
    console.print(command, highlight=False, soft_wrap=True, markup=False)


def example(system: System) -> list[str]:
    """A command that reads what the demo has made."""
    program = Path(sys.executable).with_name("ticdc-replay")
    files = ["--pipelines", pipeline.PIPELINE.parent, "--connections", system.connections_file]
    master = ["--master", "local[2]"] if system.runner == "spark" else []
    return [str(word) for word in (program, "reconcile", pipeline.STORE, *files, *master)]


if __name__ == "__main__":
    sys.exit(main())
