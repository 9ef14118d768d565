"""Builds messages of Debezium from plain values, in the order and spelling in which TiCDC writes them."""

import json
from collections.abc import Sequence
from typing import Any

from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.history import SchemaHistory

TS = 470606801009115136
CREATED = TS - (1 << 18)
"""When tables of tests are created: before their rows."""
ABSENT = object()

Json = dict[str, Any]


def field(name: str, type_: str, semantic: str = "", *, optional: bool = True, **more: Any) -> Json:
    """A column in a schema block; *more* are ``tidb_type``, ``default`` and ``parameters``."""
    head = {"tidb_type": more.pop("tidb_type")} if "tidb_type" in more else {}
    named = {"name": semantic, "version": 1} if semantic else {}
    return {**head, "type": type_, "optional": optional, **named, "field": name, **more}


ID = field("id", "int32", optional=False)


def row(
    op: str = "c",
    *,
    before: Any = None,
    after: Any = None,
    fields: Sequence[Json] | None = (),
    key: Json | None = ABSENT,  # type: ignore[assignment]
    ts: int = TS,
    built: int = 1795222627342,
    schema: str = "s",
    table: str = "t",
    **source: Any,
) -> RawMessage:
    """A row. The key is the member id of the image, without *fields* there is no schema block."""
    images: Json = {"before": before, "after": after}
    if op == "d":
        images = {"after": after, "before": before}
    images = {side: image for side, image in images.items() if image is not ABSENT}
    payload = {
        "source": _source(ts, schema, table, source), "ts_ms": built, "transaction": None, "op": op, **images,
    }  # fmt: skip
    if key is ABSENT:
        key = {"id": (before if op == "d" else after)["id"]}
    envelope = None if fields is None else _envelope(fields)
    key_schema = None
    if fields is not None and key is not None:
        key_schema = {"type": "struct", "name": "c.s.t.Key", "optional": False,
                      "fields": [part for part in fields if part["field"] in key]}  # fmt: skip
    return message(None if key is None else _document(key, key_schema), _document(payload, envelope))


def watermark(ts: int = TS) -> RawMessage:
    """A watermark."""
    payload = {"source": _source(ts, "", "", {}), "ts_ms": 1, "transaction": None, "op": "m"}
    return message(_document({}, {"type": "struct", "fields": []}), _document(payload, _envelope(())))


def ddl(query: str, *, changes: Sequence[str] = ("ALTER",), ts: int = TS, table: str = "t") -> RawMessage:
    """A schema change with table changes of the types *changes*."""
    listed = [{"type": type_, "id": '"s"."t"', "table": None} for type_ in changes]
    payload = {
        "source": _source(ts, "s", table, {}), "ts_ms": 1, "databaseName": "s", "schemaName": None, "ddl": query,
        "tableChanges": listed,
    }  # fmt: skip
    return message(_document({"databaseName": "s"}, None), _document(payload, None))


def history(*statements: str) -> SchemaHistory:
    """What is known after *statements*, which ran before the rows of tests."""
    return SchemaHistory().with_ddls(DdlEvent(0, CREATED + at, "s", "t", sql, "") for at, sql in enumerate(statements))


def message(key: bytes | None, value: bytes | None, offset: int = 0) -> RawMessage:
    """A Kafka message."""
    return RawMessage("topic", 0, offset, 0, key, value)


def _source(ts: int, schema: str, table: str, more: Json) -> Json:
    return {
        "version": "2.4.0.Final", "connector": "TiCDC", "name": "c", "ts_ms": ts >> 18, "snapshot": "false",
        "db": schema, "table": table, "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0, "thread": 0,
        "query": None, "commit_ts": ts, **more, "cluster_id": "c",
    }  # fmt: skip


def _envelope(fields: Sequence[Json]) -> Json:
    image = {"type": "struct", "optional": True, "name": "c.s.t.Value", "fields": list(fields)}
    return {
        "type": "struct", "optional": False, "name": "c.s.t.Envelope", "version": 1,
        "fields": [
            {**image, "field": "before"}, {**image, "field": "after"},
            {"type": "struct", "fields": [{"type": "string", "optional": False, "field": "db"}], "field": "source"},
            {"type": "string", "optional": False, "field": "op"},
        ],
    }  # fmt: skip


def _document(payload: Json, schema: Json | None) -> bytes:
    document = {"payload": payload} if schema is None else {"payload": payload, "schema": schema}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogateescape")
