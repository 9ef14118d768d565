"""The workloads that the figures come from: real messages of ``shop.orders``, repeated with other keys and later times.

60 % inserts, 30 % updates, 10 % deletes; Open in batches of up to 16 events, about 870 bytes per event with its key; Canal-JSON
one event a message, about 1,020 bytes. Repeats share neither a row key nor a commitTs, so that all rows differ.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ticdc_replay.captures import Capture
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.open.framing import VERSION, split
from ticdc_replay.domain import tso
from ticdc_replay.domain.messages import RawMessage

CAPTURES = Path(__file__).parent / "captures"
FIRST_KEY = 9_000_000
"""Added to the captured keys, which then have eight digits, and keep them in 5,000 repeats: 50 M events."""
KEY_SPAN = 16_000
BATCH_EVENTS = 16
PARTITIONS = 4

Kind = Literal["insert", "update", "delete"]
Part = tuple[bytes, bytes]
"""Key and value of one message or event."""


class Workload(NamedTuple):
    """One protocol's stream. ``times``, ``keys`` and ``clocks`` match numbers that are TSOs, row keys and milliseconds."""

    name: str
    times: bytes
    keys: bytes
    clocks: bytes
    kind_of: Callable[[Part], Kind | None]
    """None of what is no row."""
    framed: bool

    @property
    def capture(self) -> Capture:
        """Where the messages come from."""
        return Capture(CAPTURES / self.name)

    @property
    def changefeed(self) -> Changefeed:
        """The changefeed that wrote them."""
        return self.capture.changefeed()


def _open_kind(part: Part) -> Kind | None:
    key, value = part
    if not key.endswith(b'"t":1}'):
        return None
    if value.startswith(b'{"d":'):
        return "delete"
    return "update" if b'},"p":{' in value else "insert"


def _canal_kind(part: Part) -> Kind | None:
    found = re.search(rb'"isDdl":false,"type":"(INSERT|UPDATE|DELETE)"', part[1])
    return None if found is None else found[1].decode().lower()  # type: ignore[return-value]


OPEN = Workload(
    "open",
    times=rb'(?<="ts":)\d{18}',
    keys=rb'(?<="rid":)\d{7}|(?<="o_id":\{"t":8,"h":true,"f":11,"v":)\d{7}',
    clocks=rb"(?!)",
    kind_of=_open_kind,
    framed=True,
)
CANAL = Workload(
    "canal-json",
    times=rb'(?<="commitTs":)\d{18}',
    keys=rb'(?<="o_id":")\d{7}',
    clocks=rb'(?<="es":)\d{13}',
    kind_of=_canal_kind,
    framed=False,
)
WORKLOADS = {workload.name: workload for workload in (OPEN, CANAL)}


class Template(NamedTuple):
    """A message of which repeats are made: formats, and each number in them with what a repeat adds to it."""

    rows: int
    timestamp_ms: int
    key: bytes
    key_numbers: tuple[tuple[int, int], ...]
    value: bytes
    value_numbers: tuple[tuple[int, int], ...]

    def repeat(self, at: int) -> Part:
        """Key and value of repeat *at*."""
        return (
            self.key % tuple([number + at * step for number, step in self.key_numbers]),
            self.value % tuple([number + at * step for number, step in self.value_numbers]),
        )


class Published(NamedTuple):
    """What a topic holds: row events, messages and their bytes."""

    topic: str
    rows: int
    messages: int
    size: int


def templates(workload: Workload, only: Kind | None = None) -> tuple[list[Template], int]:
    """The messages of *workload*, of rows *only* those of one kind, and the milliseconds from one repeat to the next."""
    messages = list(workload.capture.messages())
    clocks = [message.timestamp_ms for message in messages]
    span_ms = max(clocks) - min(clocks) + 1000
    found = []
    for rows, timestamp_ms, (key, value) in _selected(workload, messages, only):
        key_format, key_numbers = _format(workload, key, span_ms)
        value_format, value_numbers = _format(workload, value, span_ms)
        found.append(Template(rows, timestamp_ms, key_format, key_numbers, value_format, value_numbers))
    return found, span_ms


def _selected(workload: Workload, messages: Iterable[RawMessage], only: Kind | None) -> Iterator[tuple[int, int, Part]]:
    """Rows, time, key and value of each message that is sent, with keys of eight digits."""
    waiting: list[Part] = []
    for message in messages:
        whole = (message.key or b"", message.value or b"")
        parts = split(*whole) if workload.framed else [whole]
        kinds = [workload.kind_of(part) for part in parts]
        if None in kinds:
            yield 0, message.timestamp_ms, whole
            continue
        waiting += [
            _widened(workload, part) for part, kind in zip(parts, kinds, strict=True) if only is None or kind == only
        ]
        least = 1 if only is None else BATCH_EVENTS
        while workload.framed and len(waiting) >= least:
            batch, waiting = waiting[:BATCH_EVENTS], waiting[BATCH_EVENTS:]
            framed = [
                b"".join(len(each).to_bytes(8, "big") + each for each in side) for side in zip(*batch, strict=True)
            ]
            yield len(batch), message.timestamp_ms, (VERSION + framed[0], framed[1])
        if not workload.framed:
            yield from ((1, message.timestamp_ms, part) for part in waiting)
            waiting = []


def _widened(workload: Workload, part: Part) -> Part:
    key, value = (re.sub(workload.keys, lambda found: b"%d" % (int(found[0]) + FIRST_KEY), side) for side in part)
    return key, value


def _format(workload: Workload, text: bytes, span_ms: int) -> tuple[bytes, tuple[tuple[int, int], ...]]:
    keys = workload.keys.replace(rb"\d{7}", rb"\d{8}")
    steps = {"time": tso.from_ms(span_ms), "key": KEY_SPAN, "clock": span_ms}
    pattern = re.compile(rb"(?P<time>%s)|(?P<key>%s)|(?P<clock>%s)" % (workload.times, keys, workload.clocks))
    numbers = []
    pieces = []
    end = 0
    for match in pattern.finditer(text):
        assert match.lastgroup is not None
        numbers.append((int(match[0]), steps[match.lastgroup]))
        pieces.append(text[end : match.start()].replace(b"%", b"%%"))
        end = match.end()
    pieces.append(text[end:].replace(b"%", b"%%"))
    return b"%d".join(pieces), tuple(numbers)


def publish(
    bootstrap: str,
    topic: str,
    workload: Workload,
    events: int,
    *,
    only: Kind | None = None,
    compression: Literal["none", "lz4"] = "none",
) -> Published:
    """Send about *events* row events to a new *topic*: rows in turn to each partition, all else to all, as TiCDC does.

    DDL is sent once. Raises RuntimeError where Kafka does not take them.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.kbytes": 128 * 1024,
            "compression.type": compression,
        }
    )
    parts, span_ms = templates(workload, only)
    rows = messages = size = 0
    for repeat in range(max(1, round(events / sum(part.rows for part in parts)))):
        for at, part in enumerate(parts):
            if repeat and not part.rows:
                continue
            key, value = part.repeat(repeat)
            sent_to = [at % PARTITIONS] if part.rows else range(PARTITIONS)
            for partition in sent_to:
                while True:
                    try:
                        producer.produce(
                            topic, value, key or None, partition, timestamp=part.timestamp_ms + repeat * span_ms
                        )
                        break
                    except BufferError:
                        producer.poll(0.1)
            rows += part.rows
            messages += len(sent_to)
            size += len(sent_to) * (len(key) + len(value))
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("Kafka did not take all messages within 120 s")
    return Published(topic, rows, messages, size)
