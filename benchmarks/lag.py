"""Replaying a day, hour by hour, of a changefeed that is hours behind: how often the same bytes are read.

``python -m benchmarks.lag`` publishes a changefeed whose rows are recorded hours after their commit, and replays 24 windows of an
hour: one after the other, and side by side with one decode for all (``window.decode_hours``). Counted are the bytes of keys and
values that are read from Kafka: by decodes (their reports), by their pass over DDL, and by the look back for DDL before a window.
What a decode of the whole day as one window reads is 1.
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from benchmarks import jobs
from benchmarks.results import replace_part
from demo.embedded_stack.kafka import Kafka
from ticdc_replay import jobspec
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.decode.plan.schema_pass import FoundSchemas, find_schemas
from ticdc_replay.decode.plan.splits import schema_ranges
from ticdc_replay.domain import tso
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.snapshot import manifest as manifests
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.window import look_back
from ticdc_replay.stages.window.jobs import write_decode_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.stages.window.shared import decoding

GOAL = 1.3
TOPIC = "lagging"
HOUR_MS = 3_600_000
SIDE_BY_SIDE = 3
RESOLVED_MS = 10_000
ROW_BYTES = 150
PIPELINE = """\
name: bench
changefeed:
  sink_uri: kafka://broker:9092/{topic}?protocol=open-protocol
  timezone: UTC
connections: {{kafka: kafka}}
artifacts: file://{folder}/artifacts
schedule: {{start: "2020-01-01T00:00:00Z"}}
window: {{{window}}}
targets:
  - {{name: lake, type: parquet, uri: "file://{folder}/lake"}}
"""


class Way(msgspec.Struct, frozen=True):
    """One way to replay the day: the bytes read, as a part of what one decode of it reads, and seconds."""

    name: str
    ratio: float
    seconds: float | None


class Feed(msgspec.Struct, frozen=True):
    """A changefeed that lags. Rates are messages of one partition in an hour."""

    bootstrap: str
    hours: int
    partitions: int
    rate: int
    lag_hours: int

    @property
    def begin_ms(self) -> int:
        """The beginning of the day, long enough ago for all that lags behind it to lie in the past."""
        return (time.time_ns() // 1_000_000 // (self.hours * HOUR_MS) - 3) * self.hours * HOUR_MS

    def window(self, first: int, last: int) -> Window:
        """From the beginning of the hour *first* to that of *last*."""
        return Window(tso.from_ms(self.begin_ms + first * HOUR_MS), tso.from_ms(self.begin_ms + last * HOUR_MS))

    def publish(self) -> npt.NDArray[np.int64]:
        """Send the day, and as much before it as lags; the bytes below each offset, which are equal in all partitions."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(TOPIC, self.partitions, 1, config={"retention.ms": "-1"})])[TOPIC].result(60)
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
        )
        sizes = []
        step_ms, next_resolved = HOUR_MS / self.rate, 0.0
        for at in range(self.rate * (self.hours + self.lag_hours + 1)):
            elapsed_ms = at * step_ms
            commit_ms = self.begin_ms - self.lag_hours * HOUR_MS + int(elapsed_ms)
            messages = [_row(commit_ms, at)]
            if elapsed_ms >= next_resolved:
                messages.append(_resolved(commit_ms))
                next_resolved += RESOLVED_MS
            for key, value in messages:
                sizes.append(len(key) + len(value))
                for partition in range(self.partitions):
                    producer.produce(TOPIC, value, key, partition, timestamp=commit_ms + self.lag_hours * HOUR_MS)
            if at % 1_000 == 0:
                producer.poll(0)
        assert producer.flush(120) == 0
        return np.concatenate([[0], np.cumsum(sizes)])


class Replay:
    """Decodes windows of *feed* with a pipeline of its own, and counts what is read."""

    def __init__(
        self,
        spark: SparkSession,
        feed: Feed,
        sizes: npt.NDArray[np.int64],
        folder: Path,
        name: str,
        hours: int | None = None,
    ) -> None:
        (folder / name).mkdir()
        settings = "" if hours is None else f"decode_hours: {hours}"
        file = folder / name / "bench.yaml"
        file.write_text(PIPELINE.format(topic=TOPIC, folder=folder / name, window=settings))
        self.context = ReplayContext(load_pipeline(file), jobs.connections(feed.bootstrap))
        self._spark, self._feed, self._sizes = spark, feed, sizes
        self._searched: list[OffsetRange] = []
        """What was read of Kafka for DDL before windows."""
        setattr(look_back, "find_schemas", self._find_schemas)  # noqa: B010 - mypy knows no such attribute

    def decode(self, window: Window) -> ChangelogIndex:
        """Pin and decode *window* as the DAG does."""
        context = self.context
        pinned = pin(context, window)
        written = write_decode_job(context, pinned)
        job = jobspec.decode(context.artifacts.get(written.uri.removeprefix(f"{context.artifacts_uri}/")))
        assert isinstance(job, jobspec.DecodeJob)
        with decoding(context, pinned.name, written.run_hash, written.shared, poll_s=0.2):
            index = run_decode(SparkRunner(self._spark), job, context.connections)
            check(context, index.run_hash)
        return index

    def bytes_read(self) -> int:
        """What all decodes up to now have read, and what was read for DDL."""
        context = self.context
        found = 0
        for run in context.state.runs.all("bench"):
            index = read_index(context.artifacts, run.run_hash)
            manifest = manifests.decode(context.artifacts.get(f"manifests/{index.input_hash}.json"))
            found += index.report.messages.bytes
            found += self._bytes(schema_ranges(manifest.live_ranges(), carried_by(context.changefeed)))
        return found + self._looked_back()

    def bytes_pinned(self, windows: Sequence[Window]) -> int:
        """What decodes of *windows* would read, none of which knows what the others did."""
        found = 0
        for window in windows:
            manifest = pin(self.context, window).manifest
            ranges = manifest.ranges()
            found += self._bytes([*ranges, *schema_ranges(manifest.live_ranges(), carried_by(self.context.changefeed))])
        return found + self._looked_back()

    def _find_schemas(self, ranges: Sequence[OffsetRange], *others: Any) -> FoundSchemas:
        self._searched += ranges
        return find_schemas(ranges, *others)

    def _looked_back(self) -> int:
        return self._bytes(self._searched)

    def _bytes(self, ranges: Sequence[OffsetRange]) -> int:
        return sum(int(self._sizes[part.end] - self._sizes[part.start]) for part in ranges)


def main() -> None:
    """Measure and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--hours", type=int, default=24, help="of the day; fewer for a try")
    arguments.add_argument("--partitions", type=int, default=4)
    arguments.add_argument("--rate", type=int, default=4_000, help="messages an hour in each partition")
    arguments.add_argument("--lag-hours", type=int, default=8)
    options = arguments.parse_args()
    jobs.prepare_environment()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, Kafka(Path(folder) / "kafka") as kafka:
        feed = Feed(kafka.bootstrap, options.hours, options.partitions, options.rate, options.lag_hours)
        sizes = feed.publish()
        with jobs.session("lag") as spark:
            ways, total = measure(spark, feed, sizes, Path(folder))
    found = text(feed, ways, total)
    print(found)
    if options == arguments.parse_args([]):
        replace_part("lag", found)


def measure(spark: SparkSession, feed: Feed, sizes: npt.NDArray[np.int64], folder: Path) -> tuple[list[Way], int]:
    """Every way, and what one decode of the day reads (bytes)."""
    hours = [feed.window(hour, hour + 1) for hour in range(feed.hours)]
    mixed = random.Random(0).sample(hours, len(hours))

    def replay(name: str, hours: int | None = None) -> Replay:
        return Replay(spark, feed, sizes, folder, name, hours)

    whole = replay("whole")
    began = time.perf_counter()
    rows = whole.decode(feed.window(0, feed.hours)).report.events.written
    seconds = time.perf_counter() - began
    total = whole.bytes_read()
    ways = [Way("the day as one window", 1.0, seconds)]

    def add(name: str, made: Replay, run: Callable[[Replay], list[ChangelogIndex]]) -> None:
        began = time.perf_counter()
        found = run(made)
        assert sum(index.report.events.written for index in found) == rows
        ways.append(Way(name, made.bytes_read() / total, time.perf_counter() - began))

    def beside(made: Replay) -> list[ChangelogIndex]:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            return list(pool.map(made.decode, mixed))

    add(
        "hour by hour, one after the other",
        replay("sequential"),
        lambda made: [made.decode(window) for window in hours],
    )
    name = f"hour by hour, {SIDE_BY_SIDE} at a time in mixed order, `decode_hours: {feed.hours}`"
    add(name, replay("shared", feed.hours), beside)
    alone = replay("alone").bytes_pinned(mixed) / total
    ways.append(Way("hour by hour, each as if it were the first (pinned only)", alone, None))
    return ways, total


def text(feed: Feed, ways: Sequence[Way], total: int) -> str:
    """The part of the results."""
    lines = [
        f"`python -m benchmarks.lag`: a changefeed {feed.lag_hours} h behind, {feed.partitions} partitions, {feed.rate:,} "
        f"messages an hour in each, {os.cpu_count()} cores; {total / 1e6:,.0f} MB are read for the day as one window.",
        "",
        "| how the day is replayed | bytes read, as a part of that | s | goal |",
        "|---|---|---|---|",
    ]
    for way in ways:
        seconds = "" if way.seconds is None else f"{way.seconds:.1f}"
        goal = f"≤ {GOAL}" if way.seconds is not None and way is not ways[0] else ""
        lines.append(f"| {way.name} | {way.ratio:.2f} | {seconds} | {goal} |")
    return "\n".join(lines)


def _row(commit_ms: int, at: int) -> tuple[bytes, bytes]:
    cells = {"id": {"t": 3, "h": True, "f": 11, "v": at}, "v": {"t": 15, "f": 64, "v": "v" * ROW_BYTES}}
    return _framed({"ts": tso.from_ms(commit_ms), "scm": "shop", "tbl": "t", "t": 1}), _value({"u": cells})


def _resolved(ms: int) -> tuple[bytes, bytes]:
    return _framed({"ts": tso.from_ms(ms), "t": 3}), (0).to_bytes(8, "big")


def _value(row: dict[str, object]) -> bytes:
    content = json.dumps(row, separators=(",", ":")).encode()
    return len(content).to_bytes(8, "big") + content


def _framed(key: dict[str, object]) -> bytes:
    return (1).to_bytes(8, "big") + _value(key)


if __name__ == "__main__":
    main()
