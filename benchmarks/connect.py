"""A decode of a million events at a Spark Connect server against the same in classic Spark.

``python -m benchmarks.connect`` runs both in turn, each in a session on two cores that runs already, and writes its part of
``benchmarks/RESULTS.md``; with another number of events it only prints. A classic session and a remote one can't be in one
process, so each has a process of its own. Figures are medians; a first run of each does not count.
"""

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median

from benchmarks.jobs import connections, decode_job, native_is_there, prepare_environment, session
from benchmarks.pinning import pin_everything
from benchmarks.results import replace_part
from benchmarks.workload import WORKLOADS, publish
from demo.embedded_stack.kafka import Kafka
from demo.embedded_stack.spark import SparkConnect
from ticdc_replay.domain.connections import Connection
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.spark.session import open_session
from ticdc_replay.spark.settings import set_where_allowed
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.submit.properties import UNCOMPILED

EVENTS = 1_000_000
WORKLOAD = WORKLOADS["open"]
GOAL = "≤ 1.1"


def main() -> None:
    """Measure and, at full size, write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=EVENTS)
    arguments.add_argument("--runs", type=int, default=9)
    options = arguments.parse_args()
    prepare_environment()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name, Kafka(Path(name) / "kafka") as kafka:
        published = publish(kafka.bootstrap, "workload-open", WORKLOAD, options.events)
        artifacts = f"file://{name}/artifacts/bench"
        manifest = pin_everything(kafka.bootstrap, "workload-open", artifacts)
        took = measure(options.runs, Path(name), partial(_decode, manifest, kafka.bootstrap, artifacts))
    classic, connect = (median(took[way]) for way in ("classic", "connect"))
    text = (
        f"`python -m benchmarks.connect`: decode of {published.rows:,} events (Open Protocol), {options.runs} runs each in turn, "
        f"{os.cpu_count()} cores, medians.\n\n"
        "| | s | min – max s |\n|---|---|---|\n"
        + "".join(
            f"| {way} | {median(seconds):.2f} | {min(seconds):.2f} – {max(seconds):.2f} |\n"
            for way, seconds in took.items()
        )
        + f"\nSpark Connect takes {connect / classic:.2f} of classic Spark (goal {GOAL})."
    )
    print(text)
    if options.events == EVENTS and native_is_there():
        replace_part("connect", text)


def measure(runs: int, folder: Path, decode: "partial[float]") -> dict[str, list[float]]:
    """Seconds of each decode, by way."""
    forks = multiprocessing.get_context("fork")
    took: dict[str, list[float]] = {"classic": [], "connect": []}
    with SparkConnect(
        folder / "server", environment={"PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": ""}
    ) as server:
        pipes = {}
        for way in took:
            here, there = forks.Pipe()
            forks.Process(target=_serve, args=(way, server.url, there, decode), daemon=True).start()
            pipes[way] = here
        for run in range(runs + 1):
            for way, pipe in pipes.items():
                pipe.send(run)
                seconds = pipe.recv()
                if run:
                    took[way].append(seconds)
        for pipe in pipes.values():
            pipe.send(None)
    return took


def _serve(way: str, url: str, asked: Pipe, decode: "partial[float]") -> None:
    """Decode whenever a number comes, in one session, until None comes."""
    server = Connection("spark", "spark_connect", url)
    with session("bench") if way == "classic" else open_session("bench", server=server) as spark:
        if way == "connect":
            set_where_allowed(spark, UNCOMPILED)  # as drivers do; a classic session has it by its properties
        while (run := asked.recv()) is not None:
            asked.send(decode(SparkRunner(spark), f"{way}-{run}"))


def _decode(manifest: Manifest, bootstrap: str, artifacts: str, runner: SparkRunner, run: str) -> float:
    """Seconds that a decode took. Its changelog is deleted again."""
    job = decode_job(manifest, WORKLOAD.changefeed, artifacts, run)
    began = time.perf_counter()
    run_decode(runner, job, connections(bootstrap))
    seconds = time.perf_counter() - began
    shutil.rmtree(f"{artifacts.removeprefix('file://')}/{job.changelog_root}")
    return seconds


if __name__ == "__main__":
    main()
