"""A scan for claim-check references against the full decode of the same messages, on one core.

``python -m benchmarks.scan`` runs it and writes its part of ``benchmarks/RESULTS.md``. One process, processor time, medians of
the runs. The messages are those of the workload capture of each protocol, with every hundredth followed by one that refers to an
object; once as they are and once compressed. *Decode* is the codec and the Arrow columns of whole rows, as in
``benchmarks.protocols``: fetching objects, which a scan never does, is not in it. Neither is Kafka.
"""

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import lz4.frame
import msgspec

from benchmarks.results import replace_part
from tests.support.capture_sets import unpack
from ticdc_replay.captures import Capture
from ticdc_replay.changefeed.config import Changefeed, Compression
from ticdc_replay.changelog.cells.convert import rows_to_batch
from ticdc_replay.codecs.open.framing import VERSION, split
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import schemas_in
from ticdc_replay.decode.read.collector import no_cycle_search
from ticdc_replay.decode.read.split import BATCH_ROWS
from ticdc_replay.domain.events import RowEvent
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.reconcile.look.scan import ReferenceScan
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.schemas.resolve import ResolvedSchema, SchemaResolver

WORKLOADS = Path(__file__).parent / "captures"
ARCHIVES = Path(__file__).parents[1] / "tests" / "captures"
PROTOCOLS = ("open", "canal-json", "simple-json", "simple-avro")
COMPRESSIONS: tuple[Compression, ...] = ("none", "lz4")
MAX_BYTES = 1 << 28
EVENTS = 50_000
EVERY = 100
GOAL = 2


class Measured(NamedTuple):
    """Medians of processor seconds, for *events* in *messages*; *references* were found."""

    events: int
    messages: int
    references: int
    decode_s: float
    scan_s: float


def main() -> None:
    """Measure and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=5)
    runs = arguments.parse_args().runs
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for protocol in PROTOCOLS:
            unpack(ARCHIVES / f"{protocol}.tar.xz", Path(folder))
            large = Capture(Path(folder) / "classic" / f"{protocol}-claim-check")
            for compression in COMPRESSIONS:
                found[protocol, compression] = measure(Capture(WORKLOADS / protocol), large, compression, runs)
    text = table(found, runs)
    print(text)
    replace_part("scan", text)


def measure(workload: Capture, large: Capture, compression: Compression, runs: int) -> Measured:
    """Decode and scan the same messages again and again; the first run, in which parsers are made, does not count."""
    changefeed = workload.changefeed()
    schemas = [
        schemas_in([list(each.messages())], codec_for(each.changefeed(), MAX_BYTES)) for each in (workload, large)
    ]
    history = SchemaHistory()
    for part in schemas:
        history = history.with_ddls(part.ddl).with_versions(part.definitions)
    lookup = SchemaLookup(history)
    messages = list(_mixed(list(workload.messages()), _referring(large, lookup)))
    codec = codec_for(changefeed, MAX_BYTES, lookup)
    rows = sum(isinstance(event, RowEvent) for message in messages for event in codec.decode(message))
    messages *= max(1, EVENTS // rows)
    events = rows * max(1, EVENTS // rows)
    if compression == "lz4":
        changefeed = msgspec.structs.replace(changefeed, compression="lz4")
        messages = [_compressed(message, changefeed) for message in messages]
    codec = codec_for(changefeed, MAX_BYTES, lookup)
    decode_s: list[float] = []
    scan_s: list[float] = []
    references = 0
    with no_cycle_search():
        for _ in range(runs + 1):
            decode_s.append(_decode(messages, changefeed, lookup, codec.decode))
            scan = ReferenceScan(codec_for(changefeed, MAX_BYTES, lookup), "p", "id")
            scan_s.append(_seconds(partial(_scan, scan, messages)))
            references = scan.counts.references
    return Measured(events, len(messages), references, statistics.median(decode_s[1:]), statistics.median(scan_s[1:]))


def _scan(scan: ReferenceScan, messages: Sequence[RawMessage]) -> None:
    scan.add(messages)
    scan.table()


def _decode(
    messages: Sequence[RawMessage],
    changefeed: Changefeed,
    lookup: SchemaLookup,
    decode: Callable[[RawMessage], Sequence[object]],
) -> float:
    """Processor seconds of decoding *messages* to Arrow."""
    resolver = SchemaResolver(lookup.history)

    def run() -> None:
        waiting: dict[ResolvedSchema, list[RowEvent]] = {}
        count = 0
        for message in messages:
            for event in decode(message):
                if isinstance(event, RowEvent) and not event.partial:
                    waiting.setdefault(resolver.resolve(event), []).append(event)
                    count += 1
            if count >= BATCH_ROWS:
                for resolved, rows in waiting.items():
                    rows_to_batch(rows, resolved, changefeed.timezone)
                waiting, count = {}, 0
        for resolved, rows in waiting.items():
            rows_to_batch(rows, resolved, changefeed.timezone)

    return _seconds(run)


def _referring(large: Capture, lookup: SchemaLookup) -> list[RawMessage]:
    """The messages of *large* with references."""
    codec = codec_for(large.changefeed(), MAX_BYTES, lookup)
    return [
        message
        for message in large.messages()
        if any(isinstance(event, RowEvent) and event.reference is not None for event in codec.decode(message))
    ]


def _mixed(messages: Sequence[RawMessage], referring: Sequence[RawMessage]) -> Iterator[RawMessage]:
    """*messages*, every hundredth followed by the next of *referring*."""
    for at, message in enumerate(messages):
        yield message
        if at % EVERY == 0:
            yield referring[at // EVERY % len(referring)]


def _compressed(message: RawMessage, changefeed: Changefeed) -> RawMessage:
    """*message* as TiCDC would have sent it with lz4: Open compresses the value of each event, others the whole value."""
    if changefeed.protocol not in ("open-protocol", "default"):
        return message._replace(value=_lz4(message.value or b""))
    parts = [(key, _lz4(value) if value else value) for key, value in split(message.key, message.value)]
    return message._replace(
        key=VERSION + b"".join(_framed(key) for key, _ in parts), value=b"".join(_framed(value) for _, value in parts)
    )


def _lz4(content: bytes) -> bytes:
    """A frame as TiCDC writes it (protocols: large messages, section 3)."""
    compressed: bytes = lz4.frame.compress(
        content,
        store_size=False,
        content_checksum=True,
        block_linked=False,
        block_size=lz4.frame.BLOCKSIZE_MAX4MB,
    )
    return compressed


def _framed(part: bytes) -> bytes:
    return len(part).to_bytes(8, "big") + part


def table(found: dict[tuple[str, Compression], Measured], runs: int) -> str:
    """The results as Markdown."""
    lines = [
        f"`python -m benchmarks.scan`: one core, processor time, {runs} runs, Python {platform.python_version()}, medians; "
        f"every {EVERY}th message is followed by one with a reference.",
        "",
        "| protocol | compression | events a message | decode, k events/s | scan, k events/s | µs a message | ratio | goal |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (protocol, compression), took in found.items():
        lines.append(
            f"| {protocol} | {compression} | {took.events / took.messages:.1f} | {took.events / took.decode_s / 1e3:.0f} | "
            f"{took.events / took.scan_s / 1e3:,.0f} | {took.scan_s / took.messages * 1e6:.2f} | "
            f"{took.decode_s / took.scan_s:.1f} | ≥ {GOAL} |"
        )
    return "\n".join(lines)


def _seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


if __name__ == "__main__":
    main()
