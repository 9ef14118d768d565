"""Pinning windows of changefeeds with many partitions.

``python -m benchmarks.pinning_scale`` publishes one changefeed for each layout: in each partition a resolved-ts every second, and
rows before it. Then it looks whether a window is complete and pins it, as each run does. Figures are medians of wall-clock time.
"""

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.results import replace_part
from demo.embedded_stack.kafka import Kafka
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.rules import Dispatch, DispatchRule
from ticdc_replay.changefeed.table_filter import TableFilter
from ticdc_replay.changefeed.topic_expression import TopicExpression
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.pin import pin_window
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.watermark import watermark_status
from ticdc_replay.state import open_state
from ticdc_replay.storage import open_store

GOAL_S = 5.0
START_MS = 1_760_000_000_000
LAG_MS = 300
ROW_BYTES = 400
BEFORE_S, WINDOW_S, BEHIND_S = 120, 60, 120
"""Seconds of the changefeed before the window, in it, and behind it."""


class Layout(msgspec.Struct, frozen=True):
    """How a changefeed's partitions are spread, and how many rows each gets a second."""

    topics: int
    partitions: int
    rows: int

    def __str__(self) -> str:
        return f"{self.partitions:,} partitions in {self.topics} topic{'s' if self.topics > 1 else ''}"


def main() -> None:
    """Measure and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--partitions", type=int, default=1_000)
    arguments.add_argument("--rows", type=int, default=2, help="rows a second in each partition")
    arguments.add_argument("--runs", type=int, default=5)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, Kafka(Path(folder) / "kafka") as kafka:
        figures = []
        for topics in (1, 20):
            layout = Layout(topics, options.partitions, options.rows)
            changefeed = publish(kafka.bootstrap, layout)
            figures.append((layout, measure(kafka.bootstrap, changefeed, Path(folder), options.runs)))
            print(layout, figures[-1][1], flush=True)
    found = text(figures, options.runs)
    print(found)
    if options == arguments.parse_args([]):
        replace_part("pinning", found)


class Figures(msgspec.Struct, frozen=True):
    """Seconds of each run, the largest of processor seconds, and how many messages were pinned."""

    status_s: Sequence[float]
    pin_s: Sequence[float]
    cpu_s: float
    messages: int


def publish(bootstrap: str, layout: Layout) -> Changefeed:
    """Make the topics of *layout* and fill them, in order of time; the changefeed that would have."""
    names = [f"feed{layout.topics}" if at == 0 else f"feed{layout.topics}_shop_t{at}" for at in range(layout.topics)]
    each = layout.partitions // layout.topics
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, each, 1, config={"retention.ms": "-1"}) for name in names])
    for future in made.values():
        future.result(120)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for second in range(BEFORE_S + WINDOW_S + BEHIND_S):
        messages = list(_second(second, layout.rows))
        for at, name in enumerate(names):
            for partition in range(each):
                for ms, key, value in messages:
                    producer.produce(name, value, key, partition, timestamp=ms + LAG_MS + at)
            producer.poll(0)
        assert producer.flush(120) == 0
    rule = DispatchRule(TableFilter(("shop.*",)), topic=TopicExpression(f"feed{layout.topics}_{{schema}}_{{table}}"))
    return Changefeed(
        protocol="open-protocol", topic=names[0], timezone="UTC", dispatch=Dispatch((rule,) if len(names) > 1 else ())
    )


def _second(second: int, rows: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Time (ms), key and value of the messages of one second."""
    start_ms = START_MS + second * 1000
    for at in range(rows):
        ms = start_ms + 1000 * at // rows
        cells = {"id": {"t": 3, "h": True, "f": 11, "v": ms}, "v": {"t": 15, "f": 64, "v": "v" * ROW_BYTES}}
        yield ms, _framed({"ts": tso.from_ms(ms), "scm": "shop", "tbl": "t", "t": 1}), _value({"u": cells})
    yield start_ms + 999, _framed({"ts": tso.from_ms(start_ms + 999), "t": 3}), (0).to_bytes(8, "big")


def _value(row: dict[str, object]) -> bytes:
    content = json.dumps(row, separators=(",", ":")).encode()
    return len(content).to_bytes(8, "big") + content


def _framed(key: dict[str, object]) -> bytes:
    return (1).to_bytes(8, "big") + _value(key)


def measure(bootstrap: str, changefeed: Changefeed, folder: Path, runs: int) -> Figures:
    """Wait for a window of *changefeed* and pin it, *runs* times after one that is not counted."""
    kafka = KafkaSettings.from_connection(Connection("kafka", "kafka", extra={"bootstrap.servers": bootstrap}))
    request = _request(changefeed)
    status_s, pin_s, cpu_s = [], [], 0.0
    for run in range(runs + 1):
        state = open_state(f"sqlite:///{folder}/{changefeed.topic}-{run}.db")
        artifacts = open_store((folder / f"{changefeed.topic}-{run}").as_uri())
        before, began = _cpu_s(), time.perf_counter()
        status = watermark_status(request, kafka)
        reached = time.perf_counter()
        pinned = pin_window(request, kafka, artifacts, None, state)
        ended = time.perf_counter()
        assert (status.reached, pinned.manifest.grade) == (True, "proven")
        state.close()
        if run:
            status_s.append(reached - began)
            pin_s.append(ended - reached)
            cpu_s = max(cpu_s, _cpu_s() - before)
    return Figures(status_s, pin_s, cpu_s, sum(part.length for part in pinned.manifest.ranges()))


def _request(changefeed: Changefeed) -> PinRequest:
    start = START_MS + BEFORE_S * 1000
    return PinRequest(
        pipeline="bench",
        changefeed=changefeed,
        window=Window(tso.from_ms(start), tso.from_ms(start + WINDOW_S * 1000)),
        tables=("*.*",),
        start_ts=None,
        pre_roll_ms=60_000,
        clock_skew_ms=30_000,
        lag_ms=600_000,
        claim_check_margin_ms=0,
        list_store=False,
        unproven="stop",
        decompressed_max_bytes=1 << 20,
        schemas=SchemaHistory(),
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def text(figures: Sequence[tuple[Layout, Figures]], runs: int) -> str:
    """The part of the results."""
    lines = [
        f"`python -m benchmarks.pinning_scale`: {runs} runs, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"medians; a resolved-ts and {figures[0][0].rows} rows of {ROW_BYTES} B a second in each partition.",
        "",
        "| changefeed | messages pinned | is it complete?, s | pin, s | min – max s | processor s of both | goal |",
        "|---|---|---|---|---|---|---|",
    ]
    for layout, found in figures:
        lines.append(
            f"| {layout} | {found.messages:,} | {median(found.status_s):.2f} | {median(found.pin_s):.2f} | "
            f"{min(found.pin_s):.2f} – {max(found.pin_s):.2f} | {found.cpu_s:.2f} | ≤ {GOAL_S:g} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
