"""Every protocol's decode on one core: from the bytes of messages to the Arrow columns of the changelog.

``python -m benchmarks.protocols`` runs it and writes its part of ``benchmarks/RESULTS.md``. One process, processor time, medians
of the runs; *parse* is the codec alone, *Arrow* the typed columns. The Go figures are those of PingCAP's own decoder for streams
of the same kind (200,000 events, one goroutine, a machine like the one that the streams were made on): it parses and makes no
columns.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.results import replace_part
from ticdc_replay.captures import Capture
from ticdc_replay.changelog.cells.convert import rows_to_batch
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import lookup_in
from ticdc_replay.decode.read.collector import no_cycle_search
from ticdc_replay.decode.read.split import BATCH_ROWS
from ticdc_replay.domain.events import RowEvent
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.resolve import ResolvedSchema, SchemaResolver

CAPTURES = Path(__file__).parent / "captures"
MAX_BYTES = 1 << 28
EVENTS = 100_000


class Peer(NamedTuple):
    """PingCAP's decoder: k events/s, and how many times as fast a decoder here should be."""

    rate: float
    goal: float


PEERS = {
    "open": Peer(41, 3),
    "canal-json": Peer(53, 2),
    "simple-json": Peer(111, 1.5),
    "simple-avro": Peer(108, 1),
    "avro": Peer(4, 10),
}


class Measured(NamedTuple):
    """Medians: processor seconds of both halves, for *events* in *size* bytes of messages."""

    events: int
    size: int
    parse_s: float
    arrow_s: float


def main() -> None:
    """Measure and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("protocols", nargs="*", default=list(PEERS))
    arguments.add_argument("--runs", type=int, default=5)
    options = arguments.parse_args()
    found = {name: measure(CAPTURES / name, options.runs) for name in options.protocols}
    text = table(found, options.runs)
    print(text)
    if set(found) == set(PEERS):
        replace_part("protocols", text)


def measure(folder: Path, runs: int) -> Measured:
    """Decode the capture in *folder* again and again; the first run, in which parsers are made, does not count."""
    capture = Capture(folder)
    changefeed = capture.changefeed()
    lookup = lookup_in(capture, MAX_BYTES)
    messages = list(capture.messages())
    codec = codec_for(changefeed, MAX_BYTES, lookup)
    rows = sum(isinstance(event, RowEvent) for message in messages for event in codec.decode(message))
    messages *= max(1, EVENTS // rows)
    size = sum(len(message.key or b"") + len(message.value or b"") for message in messages)
    events = rows * max(1, EVENTS // rows)
    resolver = SchemaResolver(lookup.history)
    parse: list[float] = []
    arrow: list[float] = []

    def convert(waiting: list[RowEvent]) -> float:
        groups: dict[ResolvedSchema, list[RowEvent]] = {}
        for row in waiting:
            groups.setdefault(resolver.resolve(row), []).append(row)
        return _seconds(lambda: [rows_to_batch(group, key, changefeed.timezone) for key, group in groups.items()])

    with no_cycle_search():
        for _ in range(runs + 1):
            parse_s = arrow_s = 0.0
            waiting: list[RowEvent] = []
            for at in range(0, len(messages), 1000):
                some = messages[at : at + 1000]
                parse_s += _seconds(partial(_decode, codec, some, waiting))
                if len(waiting) >= BATCH_ROWS:
                    arrow_s += convert(waiting)
                    waiting = []
            if waiting:
                arrow_s += convert(waiting)
            parse.append(parse_s)
            arrow.append(arrow_s)
    return Measured(events, size, statistics.median(parse[1:]), statistics.median(arrow[1:]))


def _decode(codec: Codec, messages: Sequence[RawMessage], into: list[RowEvent]) -> None:
    into.extend(event for message in messages for event in codec.decode(message) if isinstance(event, RowEvent))


def table(found: dict[str, Measured], runs: int) -> str:
    """The results as Markdown."""
    lines = [
        f"`python -m benchmarks.protocols`: one core, processor time, {runs} runs, Python {platform.python_version()}, medians.",
        "",
        "| protocol | k events/s | MB/s | µs per event | of it parse | of it Arrow | Go, k events/s | ratio | goal |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, took in found.items():
        seconds = took.parse_s + took.arrow_s
        each = 1e6 / took.events
        peer = PEERS[name]
        lines.append(
            f"| {name} | {took.events / seconds / 1e3:.0f} | {took.size / seconds / 1e6:.0f} | {seconds * each:.1f} | "
            f"{took.parse_s * each:.1f} | {took.arrow_s * each:.1f} | {peer.rate:g} | "
            f"{took.events / seconds / 1e3 / peer.rate:.1f} | ≥ {peer.goal:g} |"
        )
    return "\n".join(lines)


def _seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


if __name__ == "__main__":
    main()
