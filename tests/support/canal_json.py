"""Builds messages of Canal-JSON from plain values, in the order and spelling in which TiCDC writes them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ticdc_replay.domain.messages import RawMessage

TS = 470606801009115136
LOCATION = "s3://bucket/04504b9f-7ddc-41ea-bd96-c0e4d82b1770.json"

Image = Mapping[str, str | None]


def row(
    type_: str = "INSERT",
    *,
    data: Image | None = None,
    old: Image | None = None,
    types: dict[str, str] | None = None,
    pk: Sequence[str] | None = ("id",),
    ts: int | None = TS,
    es: int | None = None,
    schema: str = "s",
    table: str = "t",
    **extension: Any,
) -> bytes:
    """One row; without *ts* as without the TiDB extension. Columns without a type are ``int`` where they are called id."""
    data = {"id": "1", "v": "x"} if data is None else data
    types = types or {}
    return _document(
        {"id": 0, "database": schema, "table": table, "pkNames": None if pk is None else list(pk), "isDdl": False},
        {
            "type": type_,
            "es": _physical(ts) if es is None else es,
            "ts": 1795222626091,
            "sql": "",
            "sqlType": dict.fromkeys(data, 12),
            "mysqlType": {name: types.get(name, "int" if name == "id" else "varchar") for name in data},
            "old": None if old is None else [old],
            "data": [data],
        },
        ts,
        extension,
    )


def ddl(query: str, *, type_: str = "CREATE", ts: int | None = TS, schema: str = "s", table: str = "t") -> bytes:
    """One DDL."""
    return _document(
        {"id": 0, "database": schema, "table": table, "pkNames": None, "isDdl": True},
        {"type": type_, "es": _physical(ts), "ts": 1795222626091, "sql": query, "data": None, "old": None},
        ts,
        {},
    )


def watermark(ts: int) -> bytes:
    """One watermark."""
    head = {"id": 0, "database": "", "table": "", "pkNames": None, "isDdl": False, "type": "TIDB_WATERMARK"}
    return _json({**head, "es": _physical(ts), "ts": 1, "sql": "", "data": None, "_tidb": {"watermarkTs": ts}})


def message(value: bytes | None, offset: int = 0) -> RawMessage:
    """The Kafka message with *value*."""
    return RawMessage("topic", 0, offset, 0, None, value)


def _document(head: dict[str, Any], body: dict[str, Any], ts: int | None, extension: dict[str, Any]) -> bytes:
    return _json(head | body | ({} if ts is None else {"_tidb": {"commitTs": ts, **extension}}))


def _physical(ts: int | None) -> int:
    return (TS if ts is None else ts) >> 18


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
