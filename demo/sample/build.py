"""Makes ``data/`` from captures: ``python -m demo.sample.build <folder>``, which holds ``classic/`` and ``expected/``.

The result is committed, the workload capture is not (5 MB); ``tests/captures/README.md`` says what captures are.

Rows and DDL are real TiCDC bytes: every event's value is untouched; in its key the commitTs is another one, in its claim-check
location the store and name. What a changefeed does around them is done again, because rows of two captures become one changefeed:
dispatching by index-value over three partitions, batching within max-message-bytes, watermarks every two minutes and one before
the first window, and three restarts that send everything since a checkpoint again. A sixth of the orders is taken, by key.
"""

import base64
import gzip
import hashlib
import json
import shutil
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from demo.sample import contents, expected, open_protocol
from demo.sample.history import LOGICAL_BITS, Change, read_changes, spread
from demo.sample.open_protocol import DDL, Event
from demo.sample.sender import Delivery, Sender, with_offsets

TOPIC = "shop-changes"
PARTITIONS = 3
MAX_BATCH_SIZE = 16
MAX_MESSAGE_BYTES = 4000
STORE = "s3://shop-changefeed/claim-check"
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
START_MS = 1_772_409_600_000
"""2026-03-02 00:00 UTC: the first window starts here."""
WINDOWS = 4
END_MS = START_MS + WINDOWS * HOUR_MS
BOUNDS_MS = tuple(range(START_MS + HOUR_MS, END_MS, HOUR_MS))
"""Between two windows."""
RUNNING_MS = START_MS - MINUTE_MS
"""The moment of the first watermark."""
RESTARTS = tuple((first * MINUTE_MS, last * MINUTE_MS) for first, last in ((54, 63), (116, 132), (212, 224)))
"""(checkpoint, crash) in ms after the start; two lie across the end of a window, one has a DDL in it."""
RESTART_MS = 1_000
"""How long a restart takes."""
ORPHANS_PER_RESTART = 3
TAKEN_ORDERS = 6
"""Every so many-th key of the orders is taken."""
LARGE_ROWS_CLEARED_TS = 470606802456412166
"""The captures' last transaction deletes the remaining large rows; without it there is something left to compare."""


def takes(event: Event) -> bool:
    """Whether the sample has this event: DDL, large rows until they are all deleted, and orders by key."""
    head = event.head
    if head["scm"] == "shop":
        return head["t"] == DDL or bool(head["rid"] % TAKEN_ORDERS == 0)
    return bool(head["ts"] < LARGE_ROWS_CLEARED_TS)


def history(captures: Path) -> list[Change]:
    """The changes of both captures in commitTs order, within the windows: schemas first, then rows of both all the time."""
    changes: list[Change] = []
    for name, creating_ms in (("workload-open", 2_000), ("open-claim-check", 30_000)):
        read = list(read_changes(captures / "classic" / name, takes))
        first_row = min(ts for ts, event, _ in read if event.head["t"] != DDL)
        creating = [ts for ts, _, _ in read if ts < first_row]
        working = [ts for ts, _, _ in read if ts >= first_row]
        moved = spread(creating, START_MS + creating_ms, START_MS + creating_ms + 20_000, ())
        moved |= spread(
            working, START_MS + MINUTE_MS, END_MS - 3 * MINUTE_MS, BOUNDS_MS if name == "workload-open" else ()
        )
        changes += [Change(moved[ts], event, copies) for ts, event, copies in read]
    return sorted(changes, key=lambda change: change.ts)


def watermarks(changes: Sequence[Change]) -> list[int]:
    """One every two minutes until two minutes past the end; in turn the last commitTs before and the moment itself.

    Also one before the first window, to show that the changefeed ran when that began, and one that equals a DDL's commitTs.
    Watermarks that equal a commitTs are what tells ``<=`` from ``<``.
    """
    found = {change.ts for change in changes if change.event.head["t"] == DDL and b"ALTER" in change.event.value}
    found.add(RUNNING_MS << LOGICAL_BITS)
    for number, at in enumerate(range(START_MS + 2 * MINUTE_MS, END_MS + 3 * MINUTE_MS, 2 * MINUTE_MS)):
        moment = at << LOGICAL_BITS
        last = max(change.ts for change in changes if change.ts <= moment)
        found.add(last if number % 2 and at < END_MS else moment)
    return sorted(found)


class ClaimChecks:
    """The objects of the sample: each delivery of a large row has its own."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self.contents: dict[str, bytes] = {}
        self.written_ms: dict[str, int] = {}
        self.orphans: set[str] = set()

    def deliver(self, change: Change, event: Event, at_ms: int, occasion: str) -> Delivery:
        """*event*, one delivery of *change*, restamped, and its object stored under a new name."""
        location = event.head.get("ccl")
        if location is None:
            return Delivery(change, open_protocol.restamped(event, change.ts, None))
        content = open_protocol.restamped_object((self._source / Path(location).name).read_bytes(), change.ts)
        name = self._store(content, occasion, at_ms)
        return Delivery(change, open_protocol.restamped(event, change.ts, f"{STORE}/{name}"))

    def orphan(self, delivery: Delivery, at_ms: int) -> None:
        """An object that was written for *delivery* by a process that died before it sent the message."""
        name = Path(delivery.event.head["ccl"]).name
        self.orphans.add(self._store(self.contents[name], "orphan", at_ms))

    def _store(self, content: bytes, occasion: str, at_ms: int) -> str:
        digest = hashlib.sha256(occasion.encode() + content).digest()
        name = f"{uuid.UUID(bytes=digest[:16], version=4)}.json"
        if name in self.contents:
            raise ValueError(f"{name} twice")
        self.contents[name], self.written_ms[name] = content, at_ms
        return name


def send(changes: Sequence[Change], objects: ClaimChecks) -> Sender:
    """Everything that a changefeed with restarts sends."""
    sender = Sender(PARTITIONS, MAX_BATCH_SIZE, MAX_MESSAGE_BYTES)
    marks = watermarks(changes)
    resumed, repeated_until, restarted_ms = 0, 0, 0
    for checkpoint_ms, crash_ms in (*RESTARTS, (None, END_MS + HOUR_MS - START_MS)):
        crashed = (START_MS + crash_ms) << LOGICAL_BITS
        deliveries = []
        for change in changes:
            if change.ts <= repeated_until and resumed < change.ts:
                again = change.copies[0] if change.copies else change.event
                deliveries.append(objects.deliver(change, again, restarted_ms, "again"))
            elif repeated_until < change.ts <= crashed:
                deliveries.append(objects.deliver(change, change.event, change.ts >> LOGICAL_BITS, "first"))
        # catching up, a restarted changefeed sends fewer watermarks, and so larger batches
        again_marks = [mark for mark in marks if resumed < mark <= repeated_until][1::2]
        new_marks = [mark for mark in marks if repeated_until < mark <= crashed - (30_000 << LOGICAL_BITS)]
        sender.send(deliveries, again_marks + new_marks)
        if checkpoint_ms is None:
            break
        for each in [each for each in deliveries if "ccl" in each.event.head][-ORPHANS_PER_RESTART:]:
            objects.orphan(each, crashed >> LOGICAL_BITS)
        resumed = max(mark for mark in marks if mark <= (START_MS + checkpoint_ms) << LOGICAL_BITS)
        repeated_until, restarted_ms = crashed, START_MS + crash_ms + RESTART_MS
        sender.restart(restarted_ms)
    return sender


def write(data: Path, sender: Sender, objects: ClaimChecks, captures: Path) -> None:
    """Write the capture: messages, objects and their list, settings."""
    shutil.rmtree(data, ignore_errors=True)
    (data / "objects").mkdir(parents=True)
    for name, content in objects.contents.items():
        (data / "objects" / name).write_bytes(content)
    _write_lines(
        data / "objects.jsonl",
        (
            {"name": name, "written_ms": objects.written_ms[name], "orphan": name in objects.orphans}
            for name in sorted(objects.contents)
        ),
    )
    _write_lines(
        data / "messages.jsonl.gz",
        (
            {
                "topic": TOPIC,
                "partition": message.partition,
                "offset": offset,
                "timestamp_ms": message.timestamp_ms,
                "key_b64": base64.b64encode(message.key).decode(),
                "value_b64": base64.b64encode(message.value).decode(),
                "headers": {},
            }
            for offset, message in with_offsets(sender.messages)
        ),
    )
    meta = json.loads((captures / "classic" / "open-claim-check" / "meta.json").read_text())
    settings = meta["replica_config"]
    settings["large-message-handle"]["claim-check-storage-uri"] = STORE
    settings["partition-rule"] = "index-value"
    wanted = {
        "variant": "sample",
        "repository": meta["repository"],
        "commit": meta["commit"],
        "sink_uri": f"kafka://<broker>/{TOPIC}?protocol=open-protocol&partition-num={PARTITIONS}"
        f"&max-message-bytes={MAX_MESSAGE_BYTES}&max-batch-size={MAX_BATCH_SIZE}",
        "replica_config": settings,
        "ticdc_timezone": meta["ticdc_timezone"],
        "partitions": PARTITIONS,
        "messages": len(sender.messages),
        "claim_check_objects": len(objects.contents),
        "not_emitted": [],
    }
    (data / "meta.json").write_text(json.dumps(wanted, indent=1) + "\n")


def _write_lines(path: Path, values: Iterable[dict[str, Any]]) -> None:
    def lines() -> Iterator[bytes]:
        for value in values:
            yield json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    content = b"".join(lines())
    path.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)


def build(captures: Path, data: Path) -> None:
    """Make the sample of *captures* in the folder *data*, which is emptied first."""
    changes = history(captures)
    objects = ClaimChecks(captures / "classic" / "open-claim-check" / "objects")
    sender = send(changes, objects)
    write(data, sender, objects, captures)
    expected.write(data, captures, changes, sender.messages, windows())


def windows() -> list[tuple[int, int]]:
    """(from_ts, to_ts) of each window."""
    bounds = [(START_MS + number * HOUR_MS) << LOGICAL_BITS for number in range(WINDOWS + 1)]
    return list(pairwise(bounds))


if __name__ == "__main__":
    build(Path(sys.argv[1]), contents.DATA)
