"""A small window in an Airflow that runs already: from ``snapshot`` queued to ``publish`` done, and where the time goes.

``python -m benchmarks.warm_airflow`` publishes hours of 10,000 events, and triggers a run of the DAG for each, one after the
other, into PostgreSQL and Parquet: without Spark, over a Spark Connect server that runs already, and by spark-submit. The first
run of each way does not count. Then it backfills a day without Spark, as ``airflow backfill create`` does.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks import jobs
from benchmarks.results import replace_part
from benchmarks.small import EVENTS, GOALS, WAYS, Feed, pipeline
from demo.airflow_api import AirflowApi
from demo.embedded_stack.airflow import Airflow
from demo.embedded_stack.cache import CHECKOUT
from demo.embedded_stack.kafka import Kafka
from demo.embedded_stack.postgres import Postgres

TASKS = ("snapshot", "decode", "check", "load_lake", "load_mirror", "publish")
DAY = 24
POLL_S = 0.5
LIMIT_S = 1_800.0


class Run(NamedTuple):
    """One run of the DAG: seconds from ``snapshot`` queued to ``publish`` done, and of each task while it ran."""

    seconds: float
    tasks: Mapping[str, float]


def replay(api: AirflowApi, dag_id: str, from_: datetime, to: datetime) -> Run:
    """Run the DAG for a window."""
    run_id = api.trigger(dag_id, {"from": from_.isoformat(), "to": to.isoformat()})
    _wait(lambda: api.state(dag_id, run_id) in ("success", "failed"), run_id)
    assert api.state(dag_id, run_id) == "success", run_id
    found = api.tasks(dag_id, run_id)
    took = _moment(found["publish"]["end_date"]) - _moment(found["snapshot"]["queued_when"])
    return Run(took.total_seconds(), {task: found[task]["duration"] for task in TASKS})


def backfill(api: AirflowApi, dag_id: str, first: datetime, last: datetime) -> float:
    """Seconds that a backfill of the intervals that begin from *first* to *last* took."""
    began = time.monotonic()
    api.backfill(dag_id, first, last, max_active_runs=4)

    def ended() -> bool:
        states = [run.state for run in api.runs(dag_id, "backfill")]
        assert "failed" not in states
        return states.count("success") == DAY

    _wait(ended, "the backfill")
    return time.monotonic() - began


def main() -> None:
    """Measure and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    options = arguments.parse_args()
    jobs.prepare_environment()
    measured: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name, ExitStack() as running:
        folder = Path(name)
        kafka = running.enter_context(Kafka(folder / "kafka"))
        postgres = running.enter_context(Postgres(folder / "postgres"))
        feed = Feed(kafka.bootstrap, DAY + len(options.ways) * (options.runs + 1))
        begin = datetime.fromtimestamp(feed.begin_ms / 1000, UTC)
        (folder / "pipelines").mkdir()
        environment: dict[str, str] = {"TICDC_REPLAY_PIPELINES": str(folder / "pipelines")}
        for way in options.ways:
            ends = begin + timedelta(hours=DAY)  # else a run of the present hour begins at once
            schedule = {"cron": "@hourly", "start": begin.isoformat(), "end": ends.isoformat(), "catchup": False}
            file, environ = running.enter_context(pipeline(folder, way, kafka, postgres, schedule=schedule))
            shutil.copy(file, folder / "pipelines" / f"{way.replace('-', '_')}.yaml")
            environment |= {name: text for name, text in environ.items() if name.startswith("AIRFLOW_CONN_")}
        airflow = Airflow(
            folder / "airflow",
            dags_folder=CHECKOUT / "dags",
            plugins_folder=CHECKOUT / "plugins",
            database_dsn=postgres.create_database("airflow"),
            environment=environment,
        )
        api = AirflowApi(running.enter_context(airflow).url)
        hour = DAY
        for way in options.ways:
            dag_id = f"ticdc_replay_{way.replace('-', '_')}"
            _wait(partial(api.dag_is_known, dag_id), dag_id)
            api.unpause(dag_id)
            runs = []
            for _ in range(options.runs + 1):
                runs.append(replay(api, dag_id, begin + timedelta(hours=hour), begin + timedelta(hours=hour + 1)))
                hour += 1
            measured[way] = runs[1:]
        day = backfill(api, "ticdc_replay_local", begin, begin + timedelta(hours=DAY - 1))
    found = _text(measured, options.runs, day)
    print(found)
    if options == arguments.parse_args([]):
        replace_part("warm_airflow", found)


def _wait(is_so: Callable[[], bool], what: str) -> None:
    """Return when *is_so* says True."""
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(POLL_S)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _text(measured: Mapping[str, list[Run]], runs: int, day: float) -> str:
    lines = [
        f"`python -m benchmarks.warm_airflow`: windows of {EVENTS:,} events into PostgreSQL and Parquet by runs of the DAG, from "
        f"`snapshot` queued to `publish` done, {runs} runs a way, {psutil.cpu_count()} cores, medians, s.",
        "",
        f"| jobs run | s | min – max | goal | {' | '.join(TASKS)} | between tasks |",
        f"|{'---|' * (len(TASKS) + 5)}",
    ]
    for way, found in measured.items():
        seconds = [run.seconds for run in found]
        tasks = {task: statistics.median(run.tasks[task] for run in found) for task in TASKS}
        in_a_row = sum(tasks.values()) - min(tasks["load_lake"], tasks["load_mirror"])
        total = statistics.median(seconds)
        span = f"{min(seconds):.1f} – {max(seconds):.1f}"
        cells = " | ".join(f"{tasks[task]:.1f}" for task in TASKS)
        lines.append(f"| {way} | {total:.1f} | {span} | {GOALS[way]} | {cells} | {total - in_a_row:.1f} |")
    lines += [
        "",
        f"A backfill of {DAY} hours by `airflow backfill create`, local, 4 runs at a time: {day:.0f} s (goal ≤ 180).",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
