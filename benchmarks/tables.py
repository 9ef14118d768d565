"""Kafka → changelog of windows with many tables of one row each, which is a file for each table.

``python -m benchmarks.tables`` runs it and writes its part of ``benchmarks/RESULTS.md``; with other numbers it only prints.
A first job of a few tables does not count. Open files are the most that one worker process had.
"""

import argparse
import json
import os
import platform
import tempfile
import threading
from functools import partial
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.jobs import connections, decode_job, prepare_environment, session
from benchmarks.measure import WATCH_S, Stage, measure
from benchmarks.pinning import pin_everything
from benchmarks.results import replace_part
from benchmarks.workload import PARTITIONS
from demo.embedded_stack.kafka import Kafka
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.spark.tasks import SparkRunner

TABLES = (2_000, 20_000)
GOAL_S = 20.0
RUNS = 3
CHANGEFEED = Changefeed(protocol="open-protocol", topic="tables", timezone="UTC")


class OpenFiles:
    """The most files that one Python process below this one has open, while it is entered."""

    def __init__(self) -> None:
        self.most = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "OpenFiles":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(WATCH_S):
            for process in psutil.Process().children(recursive=True):
                try:
                    if process.name().startswith("python"):
                        self.most = max(self.most, process.num_fds())
                except psutil.Error:
                    continue


def main() -> None:
    """Measure and, at full size, write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tables", type=int, nargs="+", default=list(TABLES))
    arguments.add_argument("--runs", type=int, default=RUNS)
    options = arguments.parse_args()
    prepare_environment()
    lines = [
        f"`python -m benchmarks.tables`: {options.runs} runs, `local[2]`, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, medians, largest peaks. Each table has one row.",
        "",
        "| tables | s | min – max s | ms per table | goal | peak MB of a worker | of the driver | most open files of a worker |",
        "|---|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, Kafka(Path(folder) / "kafka") as kafka:
        warm_up = publish(kafka.bootstrap, "warm-up", 20)
        for tables in options.tables:
            topic = publish(kafka.bootstrap, f"tables-{tables}", tables)
            stage = Stage(topic)
            with session("bench") as spark, OpenFiles() as files:
                for run, name in enumerate([warm_up] + [topic] * options.runs):
                    # Files stay until the end: ext4 looks through inodes that were just deleted whenever it makes one.
                    artifacts = f"file://{folder}/artifacts-{tables}-{run}/bench"
                    job = decode_job(pin_everything(kafka.bootstrap, name, artifacts), CHANGEFEED, artifacts, "tables")
                    work = partial(run_decode, SparkRunner(spark), job, connections(kafka.bootstrap))
                    index = measure(stage if run else Stage("first"), work)
                    assert len(index.tables) == (tables if run else 20), index.report.events
            lines.append(
                f"| {tables:,} | {stage.median:.1f} | {min(stage.seconds):.1f} – {max(stage.seconds):.1f} | "
                f"{stage.median / tables * 1e3:.2f} | {f'≤ {GOAL_S:.0f} s' if tables == TABLES[-1] else ''} | "
                f"{stage.peak:,.0f} | {max(stage.driver_mb):,.0f} | {files.most} |"
            )
            print(lines[-1], flush=True)
    text = "\n".join(lines)
    if tuple(options.tables) == TABLES and options.runs == RUNS:
        replace_part("tables", text)


def publish(bootstrap: str, topic: str, tables: int) -> str:
    """Send one row of each of *tables* to a new *topic*, in turn to its partitions; its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for at in range(tables):
        key = {"ts": (1_772_323_200_000 + at) << 18, "scm": "many", "tbl": f"t{at:06d}", "t": 1}
        value = {"u": {"id": {"t": 8, "h": True, "f": 11, "v": at}, "v": {"t": 15, "f": 64, "v": "value"}}}
        parts = [json.dumps(part).encode() for part in (key, value)]
        framed = [len(part).to_bytes(8, "big") + part for part in parts]
        producer.produce(topic, framed[1], (1).to_bytes(8, "big") + framed[0], partition=at % PARTITIONS)
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError(f"Kafka did not take all messages of {topic}")
    return topic


if __name__ == "__main__":
    main()
