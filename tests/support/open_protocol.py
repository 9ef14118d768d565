"""Builds messages of the Open Protocol from plain values, for tests that need histories no capture has."""

import json
from collections.abc import Sequence
from typing import Any

from ticdc_replay.domain.messages import RawMessage

Columns = dict[str, dict[str, Any]]


def columns(key: int, value: str | None = None, **more: dict[str, Any]) -> Columns:
    """An image with the BIGINT key ``id`` and the VARCHAR ``v``."""
    return {"id": {"t": 8, "h": True, "f": 11, "v": key}, "v": {"t": 15, "f": 64, "v": value}, **more}


def row(
    commit_ts: int,
    *,
    new: Columns | None = None,
    old: Columns | None = None,
    table: str = "t",
    schema: str = "s",
    **key: Any,
) -> tuple[bytes, bytes]:
    """One row event as (key JSON, value JSON)."""
    value = {"d": old} if new is None else {"u": new} if old is None else {"u": new, "p": old}
    return _json({"ts": commit_ts, "scm": schema, "tbl": table, "t": 1, **key}), _json(value)


def ddl(commit_ts: int, query: str, *, table: str = "t", schema: str = "s", kind: int = 3) -> tuple[bytes, bytes]:
    """One DDL event."""
    return _json({"ts": commit_ts, "scm": schema, "tbl": table, "t": 2}), _json({"q": query, "t": kind})


def resolved(ts: int) -> tuple[bytes, bytes]:
    """One resolved event."""
    return _json({"ts": ts, "t": 3}), b""


def message(
    events: Sequence[tuple[bytes, bytes]],
    offset: int,
    *,
    topic: str = "topic",
    partition: int = 0,
    timestamp_ms: int = 0,
) -> RawMessage:
    """A Kafka message with *events* in one batch."""
    key = (1).to_bytes(8, "big") + b"".join(_framed(event_key) for event_key, _ in events)
    value = b"".join(_framed(event_value) for _, event_value in events)
    return RawMessage(topic, partition, offset, timestamp_ms, key, value)


def _framed(part: bytes) -> bytes:
    return len(part).to_bytes(8, "big") + part


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
