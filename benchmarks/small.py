"""Small windows: from the command to two targets, by each way to run the jobs, and the repeat of a window that is done.

``python -m benchmarks.small`` publishes windows of 10,000 events, and replays them with ``ticdc-replay run`` into PostgreSQL and
Parquet: without Spark (``runner: local``), over a Spark Connect server that runs already, and by spark-submit. Each run is a
window of its own; the first of each way warms up what is warm in production, such as a server's workers, and does not count.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import jobs
from benchmarks.lag import _framed, _resolved, _value
from benchmarks.results import replace_part
from demo.embedded_stack.kafka import Kafka
from demo.embedded_stack.postgres import Postgres
from demo.embedded_stack.spark import SparkConnect
from ticdc_replay.domain import tso

TOPIC = "small"
EVENTS = 10_000
WINDOW_MS = 3_600_000
DAY_MS = 24 * WINDOW_MS
WAYS = ("local", "connect", "spark-submit")
GOALS = {"local": "≤ 20", "connect": "≤ 20", "spark-submit": "≤ 45", "repeat": "≤ 3"}


class Measured(NamedTuple):
    """Seconds of the runs of one way."""

    name: str
    seconds: list[float]


class Feed:
    """Hours of ``EVENTS`` upserts of 1,000 rows each, all complete. They begin at midnight (UTC)."""

    def __init__(self, bootstrap: str, windows: int) -> None:
        self.begin_ms = (time.time_ns() // 1_000_000 - (windows + 2) * WINDOW_MS) // DAY_MS * DAY_MS
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1, config={"retention.ms": "-1"})])[TOPIC].result(60)
        producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
        for window in range(windows + 1):
            begin = self.begin_ms + window * WINDOW_MS
            self._say_resolved(producer, begin - 1)
            self._say_resolved(producer, begin)
            for at in range(EVENTS if window < windows else 0):
                commit_ms = begin + 1 + at * (WINDOW_MS - 2) // EVENTS
                key, value = _row(commit_ms, at % 1_000, at)
                producer.produce(TOPIC, value, key, at % 1_000 % 2, timestamp=commit_ms)
            producer.flush(120)

    def _say_resolved(self, producer: Producer, ms: int) -> None:
        key, value = _resolved(ms)
        for partition in range(2):
            producer.produce(TOPIC, value, key, partition, timestamp=ms)

    def windows(self, first: int, count: int = 1) -> list[str]:
        """The options that name *count* windows."""
        begin, end = (tso.from_ms(self.begin_ms + at * WINDOW_MS) for at in (first, first + count))
        return ["--from", str(begin), "--to", str(end), *(["--every", "1h"] if count > 1 else [])]


def main() -> None:
    """Measure and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    options = arguments.parse_args()
    jobs.prepare_environment()
    windows = len(options.ways) * (options.runs + 1)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        with Kafka(folder / "kafka") as kafka, Postgres(folder / "postgres") as postgres:
            feed = Feed(kafka.bootstrap, windows)
            measured, repeats, number = [], Measured("repeat", []), 0
            for way in options.ways:
                seconds = []
                with pipeline(folder, way, kafka, postgres) as (file, environ):
                    for run in range(options.runs + 1):
                        took = replay(file, feed.windows(number), environ)
                        number += 1
                        if run:
                            seconds.append(took)
                    repeats.seconds.append(replay(file, feed.windows(number - 1), environ))
                measured.append(Measured(way, seconds))
    found = _text([*measured, repeats], options.runs)
    print(found)
    if options == arguments.parse_args([]):
        replace_part("small", found)


@contextmanager
def pipeline(
    folder: Path, way: str, kafka: Kafka, postgres: Postgres, **sections: object
) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """The file of a pipeline that runs its jobs in that *way*, and the environment with its connections; other *sections* of
    the file by name."""
    root = folder / way
    root.mkdir()
    name = str(sections.get("name", way.replace("-", "_")))
    postgres.create_database(name)
    declared = {
        "name": name,
        "changefeed": {"sink_uri": f"kafka://b:9092/{TOPIC}?protocol=open-protocol", "timezone": "UTC"},
        "connections": {"kafka": "small_kafka", "spark": f"{name}_spark"},
        "artifacts": (root / "artifacts").as_uri(),
        "schedule": {"start": "2020-01-01T00:00:00Z"},
        "runner": "local" if way == "local" else "spark",
        "targets": [
            {"name": "lake", "type": "parquet", "uri": (root / "lake").as_uri()},
            {"name": "mirror", "type": "postgres", "connection": f"{name}_mirror", "schema": "shop"},
        ],
        **sections,
    }
    file = root / "pipeline.yaml"
    file.write_text(yaml.safe_dump(declared))
    mirror = {
        "conn_type": "postgres",
        "host": postgres.host,
        "port": postgres.port,
        "login": postgres.user,
        "password": postgres.password,
        "schema": name,
    }
    kafka_fields = {"conn_type": "kafka", "extra": {"bootstrap.servers": kafka.bootstrap}}
    connections = {"small_kafka": kafka_fields, f"{name}_mirror": mirror}
    if way == "connect":
        with SparkConnect(
            root / "server", environment={"PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": ""}
        ) as server:
            spark = {"conn_type": "spark_connect", "host": server.url}
            yield file, _environ(connections | {f"{name}_spark": spark})
    else:
        yield file, _environ(connections | {f"{name}_spark": {"conn_type": "spark", "host": "local[2]"}})


def _environ(connections: Mapping[str, object]) -> Mapping[str, str]:
    return {
        **os.environ,
        **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(fields) for name, fields in connections.items()},
    }


def replay(file: Path, window: list[str], environ: Mapping[str, str]) -> float:
    """Seconds that a replay of *window* took."""
    began = time.perf_counter()
    command = [str(Path(sys.executable).with_name("ticdc-replay")), "run", str(file), *window]
    done = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{file}: {done.stdout}{done.stderr}")
    return took


def _text(measured: list[Measured], runs: int) -> str:
    lines = [
        f"`python -m benchmarks.small`: `ticdc-replay run` of windows of {EVENTS:,} events into PostgreSQL and Parquet, "
        f"{runs} windows a way, {psutil.cpu_count()} cores, medians.",
        "",
        "| jobs run | s | min – max s | goal |",
        "|---|---|---|---|",
    ]
    for each in measured:
        span = f"{min(each.seconds):.1f} – {max(each.seconds):.1f}"
        name = "nowhere: the window is done" if each.name == "repeat" else each.name
        lines.append(f"| {name} | {statistics.median(each.seconds):.1f} | {span} | {GOALS[each.name]} |")
    return "\n".join(lines)


def _row(commit_ms: int, row: int, at: int) -> tuple[bytes, bytes]:
    cells = {"id": {"t": 3, "h": True, "f": 11, "v": row}, "v": {"t": 15, "f": 64, "v": f"value {at}" * 10}}
    return _framed({"ts": tso.from_ms(commit_ms), "scm": "shop", "tbl": "t", "t": 1}), _value({"u": cells})


if __name__ == "__main__":
    main()
