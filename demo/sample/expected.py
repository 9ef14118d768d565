"""The right answer of the sample, made from what the captures expect, never from a decoder of the wire's values.

``rows.jsonl.gz``: every row of every table at the end: schema, table, key, commit_ts (of the version), columns in the form of the
captures' expected events. ``expected.json``: row versions per window and table by operation, DDL per window, and what is sent.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from demo.sample import open_protocol
from demo.sample.history import LOGICAL_BITS, Change, read_changes, read_lines
from demo.sample.open_protocol import DDL, RESOLVED, Event
from demo.sample.sender import Message

ORDERS_TYPES = {
    "o_id": "bigint",
    "cust_id": "int unsigned",
    "status": "enum('new','paid','shipped','done','cancelled')",
    "amount": "decimal(12,2)",
    "discount": "double",
    "created_at": "datetime(3)",
    "updated_at": "timestamp(6)",
    "note": "varchar(120)",
    "payload": "varbinary(48)",
    "attrs": "json",
}
TIMEZONE = ZoneInfo("Asia/Shanghai")

Row = dict[str, Any]


def write(
    data: Path,
    captures: Path,
    changes: Sequence[Change],
    messages: Sequence[Message],
    windows: Sequence[tuple[int, int]],
) -> None:
    """Write both files into *data*."""
    _check_operations(captures)
    large_events, cleared = _large_events(captures, changes)
    orders = [change for change in changes if _is_order(change.event)]
    rows = sorted(
        [*_orders_rows(captures, orders), *_large_rows(large_events, cleared)],
        key=lambda row: (row["schema"], row["table"], json.dumps(row["key"])),
    )
    content = b"".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for row in rows)
    (data / "rows.jsonl.gz").write_bytes(gzip.compress(content, 9, mtime=0))
    versions = [(change.ts, "shop.orders", operation(change.event)) for change in orders]
    versions += [(event["commit_ts"], f"devlarge.{event['table']}", event["type"]) for event in large_events]
    summary = {
        "windows": [_window(window, versions, changes) for window in windows],
        "sent": _sent(messages),
        "rows": dict(sorted(Counter(f"{row['schema']}.{row['table']}" for row in rows).items())),
    }
    (data / "expected.json").write_text(json.dumps(summary, indent=1) + "\n")


def operation(event: Event) -> str:
    """insert, update or delete: by which images a row event has (Open Protocol, section 3)."""
    images = json.loads(event.value)
    return "delete" if "d" in images else "update" if "p" in images else "insert"


def _window(window: tuple[int, int], versions: Iterable[tuple[int, str, str]], changes: Sequence[Change]) -> Row:
    start, end = window
    counts: dict[str, Counter[str]] = {}
    for ts, table, kind in versions:
        if start <= ts < end:
            counts.setdefault(table, Counter())[kind] += 1
    inside = [change for change in changes if start <= change.ts < end]
    return {
        "from": _iso(start),
        "to": _iso(end),
        "from_ts": start,
        "to_ts": end,
        "tables": {table: dict(sorted(kinds.items())) for table, kinds in sorted(counts.items())},
        "ddl": sum(change.event.head["t"] == DDL for change in inside),
        "claim_checked": sum("ccl" in change.event.head for change in inside),
    }


def _sent(messages: Sequence[Message]) -> Row:
    partitions: Counter[str] = Counter(str(message.partition) for message in messages)
    kinds: Counter[int] = Counter()
    unique_rows, references = set(), 0
    for message in messages:
        for event in open_protocol.split(message.key, message.value):
            head = event.head
            kinds[head["t"]] += 1
            references += "ccl" in head
            if head["t"] == open_protocol.ROW:
                key = tuple(sorted(open_protocol.row_key(event).items()))
                unique_rows.add((head["scm"], head["tbl"], key, head["ts"], operation(event) == "delete"))
    return {
        "messages": dict(sorted(partitions.items())),
        "row_events": kinds[open_protocol.ROW],
        "row_versions": len(unique_rows),
        "ddl_events": kinds[DDL],
        "watermarks": kinds[RESOLVED],
        "claim_check_references": references,
    }


def _orders_rows(captures: Path, orders: Sequence[Change]) -> Iterator[Row]:
    last = {change.event.head["rid"]: change for change in orders}
    alive = {key for key, change in last.items() if operation(change.event) != "delete"}
    found = set()
    for state in read_lines(captures / "expected" / "orders.final_state.jsonl.gz"):
        key = int(state["o_id"])
        if key not in last:
            continue
        found.add(key)
        columns = {name: _orders_cell(name, state[name]) for name in ORDERS_TYPES}
        yield {
            "schema": "shop",
            "table": "orders",
            "key": {"o_id": state["o_id"]},
            "commit_ts": last[key].ts,
            "columns": columns,
        }
    if found != alive:
        raise ValueError(f"the final state and the last operations differ for keys {sorted(found ^ alive)[:5]}")


def _orders_cell(name: str, value: Any) -> Row:
    cell: Row = {"mysql_type": ORDERS_TYPES[name]}
    cell |= value if isinstance(value, dict) else {"value": value}
    if ORDERS_TYPES[name].startswith("varbinary"):
        cell["is_binary"] = True
    if ORDERS_TYPES[name].startswith("timestamp") and value is not None:
        moment = datetime.fromisoformat(value).replace(tzinfo=TIMEZONE).astimezone(UTC)
        cell["value_utc"] = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    return cell


def _large_events(captures: Path, changes: Sequence[Change]) -> tuple[list[Row], list[Row]]:
    """Row events of the sample, with their new commitTs, and those of the capture after the sample's end."""
    moved = {change.event.head["ts"]: change.ts for change in changes if not _is_order(change.event)}
    rows = [event for event in read_lines(captures / "expected" / "large.jsonl.gz") if event["type"] != "ddl"]
    taken = [event | {"commit_ts": moved[event["commit_ts"]]} for event in rows if event["commit_ts"] in moved]
    return taken, [event for event in rows if event["commit_ts"] not in moved]


def _large_rows(events: Iterable[Row], cleared: Iterable[Row]) -> Iterator[Row]:
    rows: dict[tuple[str, str], Row] = {}
    # In one commit a delete comes first: a changed key is a delete and an insert.
    for event in sorted(events, key=lambda event: (event["commit_ts"], event["type"] != "delete", event["seq"])):
        image = event["pre"] if event["type"] == "delete" else event["columns"]
        place = _place(event, image)
        if event["type"] == "delete":
            del rows[place]
        else:
            rows[place] = {
                "schema": event["schema"],
                "table": event["table"],
                "key": _key(event, image),
                "commit_ts": event["commit_ts"],
                "columns": image,
            }
    # What the capture deletes after the sample's end was selected just before: the row with the columns added since.
    for event in cleared:
        rows[_place(event, event["pre"])]["columns"] = event["pre"]
    yield from rows.values()


def _place(event: Row, image: Row) -> tuple[str, str]:
    return event["table"], json.dumps(_key(event, image))


def _key(event: Row, image: Row) -> dict[str, str]:
    return {name: image[name]["value"] for name in event["handle_key"]}


def _check_operations(captures: Path) -> None:
    """Telling operations by the images must give, for the whole capture, the counts that its makers give."""
    summary = json.loads((captures / "expected" / "orders.summary.json").read_text())
    counts: Counter[str] = Counter(
        operation(event) for _, event, _ in read_changes(captures / "classic" / "workload-open", _is_order)
    )
    if counts != summary["counts"]:
        raise ValueError(f"{dict(counts)} is not {summary['counts']}")


def _is_order(event: Event) -> bool:
    return event.head.get("tbl") == "orders" and event.head["t"] == open_protocol.ROW


def _iso(ts: int) -> str:
    return datetime.fromtimestamp((ts >> LOGICAL_BITS) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
