"""Kafka → deduplicated changelog against plain consumption of the same bytes, for each workload and decoder.

``python -m benchmarks.replay`` runs it and writes its part of ``benchmarks/RESULTS.md``; with another number of events it only
prints. Plain consumption is that of ``benchmarks/plain.py``: as many processes as Spark has cores, each with its own partitions,
asking for many messages at a time; nothing is faster with this client. A replay is a whole job of a session that runs: looking
for schemas, decoding, writing, finding duplicates, and the index. Figures are medians; a first run of each does not count.
"""

import argparse
import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from benchmarks import plain
from benchmarks.jobs import DECODERS, connections, decode_job, native_is_there, prepare_environment, session
from benchmarks.measure import Stage, measure
from benchmarks.pinning import pin_everything
from benchmarks.results import replace_part
from benchmarks.workload import WORKLOADS, Published, Workload, publish
from demo.embedded_stack.kafka import Kafka
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.snapshot.manifest import Manifest
from ticdc_replay.spark.tasks import SparkRunner

EVENTS = 1_000_000
GOALS = {"native": 0.5, "python": 0.3}


class Measured(NamedTuple):
    """What was measured of one workload; ``replays`` by decoder."""

    published: Published
    batched: Stage
    one_by_one: Stage
    replays: dict[str, Stage]


def main() -> None:
    """Measure and, at full size, write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    arguments.add_argument("--events", type=int, default=EVENTS)
    arguments.add_argument("--runs", type=int, default=5)
    options = arguments.parse_args()
    prepare_environment()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, Kafka(Path(folder) / "kafka") as kafka:
        found = {
            name: measure_workload(WORKLOADS[name], options.events, options.runs, kafka.bootstrap, Path(folder))
            for name in options.workloads
        }
    text = table(found, options.runs)
    print(text)
    if options.events == EVENTS and set(found) == set(WORKLOADS) and native_is_there():
        replace_part("replay", text)


def measure_workload(workload: Workload, events: int, runs: int, bootstrap: str, folder: Path) -> Measured:
    """Publish *workload* and read it in every way."""
    topic = f"workload-{workload.name}"
    published = publish(bootstrap, topic, workload, events)
    print(f"{topic}: {published.rows:,} events, {published.size / 1e6:,.0f} MB", flush=True)
    artifacts = f"file://{folder}/artifacts/bench"
    manifest = pin_everything(bootstrap, topic, artifacts)
    found = Measured(published, Stage("consume(512)"), Stage("poll()"), {})
    with plain.Readers() as readers:
        for stage, consume in ((found.batched, plain.batched), (found.one_by_one, plain.one_by_one)):
            for run in range(runs + 1):
                read = partial(readers.read, consume, bootstrap, manifest.ranges())
                size = measure(stage if run else Stage("first"), read)
                assert size == published.size, f"{size} of {published.size} bytes"
            print(f"{topic}, {stage.name}: {stage.median:.2f} s", flush=True)
    for decoder, conf in DECODERS.items():
        if decoder == "native" and not native_is_there():
            continue
        stage = found.replays[decoder] = Stage(decoder)
        with session("bench", conf) as spark:
            for run in range(runs + 1):
                index = replay(spark, workload, manifest, bootstrap, artifacts, stage if run else Stage("first"))
                assert index.report.events.written == published.rows, index.report.events
        print(f"{topic}, {decoder}: {stage.median:.2f} s", flush=True)
    return found


def replay(
    spark: SparkSession, workload: Workload, manifest: Manifest, bootstrap: str, artifacts: str, stage: Stage
) -> ChangelogIndex:
    """Decode *manifest* into a changelog, which is deleted again."""
    job = decode_job(manifest, workload.changefeed, artifacts, "replay")
    index: ChangelogIndex = measure(stage, partial(run_decode, SparkRunner(spark), job, connections(bootstrap)))
    shutil.rmtree(f"{artifacts.removeprefix('file://')}/{job.changelog_root}")
    return index


def table(found: dict[str, Measured], runs: int) -> str:
    """The results as Markdown."""
    lines = [
        f"`python -m benchmarks.replay`: {runs} runs, {os.cpu_count()} cores, `local[2]`, Python {platform.python_version()}, "
        "medians, largest peaks. Consumption is that of two processes, each with partitions of its own.",
        "",
        "| workload | | s | k events/s | MB/s | µs per event | of plain consumption | goal | min – max s "
        "| peak MB of a worker | of the driver | of the JVM |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, took in found.items():
        rows = f"{name}, {took.published.rows / 1e6:.2f} M events in {took.published.messages:,} messages"
        lines += [
            _line(rows, took.batched, took, ("1", "")),
            _line("", took.one_by_one, took, (f"{took.batched.median / took.one_by_one.median:.2f}", "")),
        ]
        for decoder, stage in took.replays.items():
            share = took.batched.median / stage.median
            lines.append(
                _line("", stage, took, (f"{share:.2f}", f"≥ {GOALS[decoder]}"), f"Kafka → changelog, {decoder}")
            )
    return "\n".join(lines)


def _line(first: str, stage: Stage, took: Measured, share: Sequence[str], name: str = "") -> str:
    rows, size = took.published.rows, took.published.size
    driver, jvm = (f"{max(stage.driver_mb):,.0f}", f"{max(stage.jvm_mb):,.0f}") if name else ("", "")
    return (
        f"| {first} | {name or stage.name} | {stage.median:.2f} | {rows / stage.median / 1e3:,.0f} | "
        f"{size / stage.median / 1e6:,.0f} | {stage.median / rows * 1e6:.2f} | {share[0]} | {share[1]} | "
        f"{min(stage.seconds):.2f} – {max(stage.seconds):.2f} | {stage.peak:,.0f} | {driver} | {jvm} |"
    )


if __name__ == "__main__":
    main()
