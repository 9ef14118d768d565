"""Avro messages as TiCDC writes them, made by fastavro from schemas in TiCDC's form."""

import io
import json
from typing import Any
from uuid import UUID

import fastavro

Json = dict[str, Any]

EXTENSION: list[Json] = [
    {"default": "", "name": "_tidb_op", "type": "string"},
    {"default": 0, "name": "_tidb_commit_ts", "type": "long"},
    {"default": 0, "name": "_tidb_commit_physical_time", "type": "long"},
]
CHECKSUM: list[Json] = [
    {"default": "", "name": "_tidb_row_level_checksum", "type": "string"},
    {"default": False, "name": "_tidb_corrupted", "type": "boolean"},
    {"default": 0, "name": "_tidb_checksum_version", "type": "int"},
]


def column(name: str, avro: str, tidb: str, *, null: int | None = None, **more: Any) -> Json:
    """A field of a column; *null* is the branch of NULL. *more* are parameters, but for those of a decimal."""
    decimal = {key: more.pop(key) for key in ("logicalType", "precision", "scale") if key in more}
    type_ = {"type": avro, "connect.parameters": {"tidb_type": tidb, **more}, **decimal}
    if null is None:
        return {"name": name, "type": type_}
    return {"name": name, "type": ["null", type_] if null == 0 else [type_, "null"]}


def decimal(name: str, precision: int, scale: int, **more: Any) -> Json:
    """A field of a decimal in precise mode."""
    return column(name, "bytes", "DECIMAL", logicalType="decimal", precision=precision, scale=scale, **more)


def record(*fields: Json, table: str = "t", namespace: str = "default.s") -> Json:
    """A schema document."""
    return {"type": "record", "name": table, "namespace": namespace, "fields": list(fields)}


def before(*fields: Json, table: str = "t", namespace: str = "default.s") -> Json:
    """The field ``_ticdc_before`` of a record with the columns *fields*."""
    old = record(*fields, table=f"{table}_before", namespace=namespace)
    return {"default": None, "name": "_ticdc_before", "type": ["null", old]}


def encoded(schema: Json, values: Json) -> bytes:
    """The Avro binary of *values*. Decimals are given as their unscaled bytes."""
    plain = fastavro.parse_schema(_without(json.loads(json.dumps(schema)), ("default", "logicalType")))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, plain, values, strict=True)
    return out.getvalue()


def confluent(schema_id: int, body: bytes) -> bytes:
    """*body* in Confluent's frame."""
    return b"\x00" + schema_id.to_bytes(4, "big") + body


def glue(schema_id: str, body: bytes) -> bytes:
    """*body* in AWS Glue's frame."""
    return b"\x03\x00" + UUID(schema_id).bytes + body


def extension(operation: str, commit_ts: int) -> Json:
    """The values of ``EXTENSION``."""
    return {"_tidb_op": operation, "_tidb_commit_ts": commit_ts, "_tidb_commit_physical_time": commit_ts >> 18}


def _without(document: Any, names: tuple[str, ...]) -> Any:
    if isinstance(document, dict):
        return {name: _without(value, names) for name, value in document.items() if name not in names}
    return [_without(value, names) for value in document] if isinstance(document, list) else document
