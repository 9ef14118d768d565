"""Cost per event and peak memory of Kafka → changelog for one million events and for sixteen times as many.

``python -m benchmarks.flat`` runs it and writes its part of ``benchmarks/RESULTS.md``; with other numbers it only prints. Topics
are compressed (lz4), so that both fit into the page cache and the disk counts for neither; all rows differ. Each size has workers
of its own. The first job of a session, of a few thousand events, does not count.
"""

import argparse
import os
import platform
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.jobs import DECODERS, native_is_there, prepare_environment, session
from benchmarks.measure import Stage
from benchmarks.pinning import pin_everything
from benchmarks.replay import replay
from benchmarks.results import replace_part
from benchmarks.workload import WORKLOADS, Workload, publish
from demo.embedded_stack.kafka import Kafka

EVENTS = 1_000_000
TIMES = 16
GOAL = 1.10
WARM_UP_EVENTS = 20_000


class Measured(NamedTuple):
    """Runs of one size, and the bytes that its changelog takes."""

    rows: int
    stage: Stage
    written: int


def main() -> None:
    """Measure and, at full size, write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--workload", default="open", choices=list(WORKLOADS))
    arguments.add_argument("--decoder", default="native" if native_is_there() else "python", choices=list(DECODERS))
    arguments.add_argument("--events", type=int, default=EVENTS)
    arguments.add_argument("--times", type=int, default=TIMES)
    options = arguments.parse_args()
    prepare_environment()
    workload = WORKLOADS[options.workload]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, Kafka(Path(folder) / "kafka") as kafka:
        artifacts = f"file://{folder}/artifacts/bench"
        publish(kafka.bootstrap, "warm-up", workload, WARM_UP_EVENTS)
        found = [
            measure_size(workload, events, runs, kafka.bootstrap, artifacts, options.decoder)
            for events, runs in ((options.events, 5), (options.events * options.times, 1))
        ]
    text = table(options.workload, options.decoder, *found)
    print(text)
    if (options.workload, options.decoder, options.events, options.times) == ("open", "native", EVENTS, TIMES):
        replace_part("flat", text)


def measure_size(workload: Workload, events: int, runs: int, bootstrap: str, artifacts: str, decoder: str) -> Measured:
    """Publish *events* and decode them *runs* times in a session of their own."""
    topic = f"flat-{events}"
    published = publish(bootstrap, topic, workload, events, compression="lz4")
    print(f"{topic}: {published.rows:,} events, {published.size / 1e6:,.0f} MB", flush=True)
    manifest = pin_everything(bootstrap, topic, artifacts)
    stage = Stage(topic)
    with session("bench", DECODERS[decoder]) as spark:
        replay(spark, workload, pin_everything(bootstrap, "warm-up", artifacts), bootstrap, artifacts, Stage("first"))
        for _ in range(runs):
            index = replay(spark, workload, manifest, bootstrap, artifacts, stage)
            assert index.report.events.written == published.rows, index.report.events
    print(f"{topic}: {stage.median:.2f} s", flush=True)
    return Measured(published.rows, stage, sum(file.bytes for version in index.tables for file in version.files))


def table(workload: str, decoder: str, small: Measured, large: Measured) -> str:
    """The results as Markdown."""
    head = f"{small.rows / 1e6:.2f} M events", f"{large.rows / 1e6:.2f} M events"
    per_event = [each.stage.median / each.rows * 1e6 for each in (small, large)]
    lines = [
        f"`python -m benchmarks.flat`: {workload} workload, {decoder} decoder, `local[2]`, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}; median of {len(small.stage.seconds)} runs and one run.",
        "",
        f"| | {head[0]} | {head[1]} | ratio | goal |",
        "|---|---|---|---|---|",
        f"| s | {small.stage.median:.1f} | {large.stage.median:.1f} | | |",
        f"| µs per event | {per_event[0]:.2f} | {per_event[1]:.2f} | {per_event[1] / per_event[0]:.2f} | ≤ {GOAL:.2f} |",
    ]
    for name, one, other, goal in (
        ("peak MB of a worker", small.stage.peak, large.stage.peak, "≤ 512 + bytes in flight"),
        ("peak MB of the driver's Python", max(small.stage.driver_mb), max(large.stage.driver_mb), "≤ 1,000"),
        ("peak MB of the JVM", max(small.stage.jvm_mb), max(large.stage.jvm_mb), "≤ 1,000"),
        ("MB of files", small.written / 1e6, large.written / 1e6, ""),
    ):
        lines.append(f"| {name} | {one:,.0f} | {other:,.0f} | {other / one:.2f} | {goal} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
