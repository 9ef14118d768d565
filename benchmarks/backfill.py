"""A backfill of many small windows from the command line: ``ticdc-replay run --every 1h``.

``python -m benchmarks.backfill`` publishes hours of 10,000 events, and replays them into PostgreSQL and Parquet: a day by each
way to run the jobs, each hour decoded by itself, then 30 days without Spark with one decode a day (``window.decode_hours: 24``).
"""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks import jobs
from benchmarks.results import replace_part
from benchmarks.small import EVENTS, WAYS, Feed, pipeline, replay
from demo.embedded_stack.kafka import Kafka
from demo.embedded_stack.postgres import Postgres

DAY = 24


class Measured(NamedTuple):
    """Seconds that the backfill of so many windows took."""

    name: str
    windows: int
    seconds: float
    goal: str


def main() -> None:
    """Measure and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--days", type=int, default=30, help="of the long backfill")
    arguments.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    options = arguments.parse_args()
    jobs.prepare_environment()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        with Kafka(folder / "kafka") as kafka, Postgres(folder / "postgres") as postgres:
            feed = Feed(kafka.bootstrap, options.days * DAY)
            measured = []
            for way in options.ways:
                with pipeline(folder, way, kafka, postgres) as (file, environ):
                    measured.append(_day(way, file, environ, feed))
            shared: dict[str, object] = {"window": {"decode_hours": DAY}, "name": "shared"}
            (folder / "shared").mkdir()
            with pipeline(folder / "shared", "local", kafka, postgres, **shared) as (file, environ):
                hours = options.days * DAY
                took = replay(file, feed.windows(0, hours), environ)
                measured.append(Measured("local, `decode_hours: 24`", hours, took, "≤ 1,800"))
    found = _text(measured)
    print(found)
    if options == arguments.parse_args([]):
        replace_part("backfill", found)


def _day(way: str, file: Path, environ: Mapping[str, str], feed: Feed) -> Measured:
    measured = Measured(way, DAY, replay(file, feed.windows(0, DAY), environ), "≤ 180")
    print(measured, flush=True)
    return measured


def _text(measured: list[Measured]) -> str:
    lines = [
        f"`python -m benchmarks.backfill`: `ticdc-replay run --every 1h` over hours of {EVENTS:,} events into PostgreSQL and "
        f"Parquet, {psutil.cpu_count()} cores, one run each.",
        "",
        "| jobs run | windows | s | s a window | goal, s |",
        "|---|---|---|---|---|",
    ]
    for each in measured:
        a_window = each.seconds / each.windows
        lines.append(f"| {each.name} | {each.windows} | {each.seconds:.0f} | {a_window:.2f} | {each.goal} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
