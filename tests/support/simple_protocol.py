"""Messages of Simple, as both generations of TiCDC write them: JSON by hand, Avro by fastavro and TiCDC's own schema document."""

import io
import json
from importlib.resources import files
from typing import Any, Literal

import fastavro

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.codecs.simple.codec import SimpleCodec
from ticdc_replay.decode.plan.schema_pass import schemas_in
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.lookup import SchemaLookup

Encoding = Literal["json", "avro"]
Json = dict[str, Any]

ZONE = "Asia/Shanghai"
VERSION = 470606800995745793
COMMIT_TS = 470606801001512960
BUILD_TS = 1795222625491

_AVSC = fastavro.parse_schema(json.loads(files("ticdc_replay.codecs.simple").joinpath("simple.avsc").read_bytes()))
_RECORD = "com.pingcap.simple.avro."
_PAYLOADS = {"WATERMARK": "Watermark", "BOOTSTRAP": "Bootstrap", "DDL": "DDL", "DML": "DML"}


def column(name: str, mysql_type: str, *, null: bool = True, default: Any = None, **data_type: Any) -> Json:
    """A column of a table schema, in the form of JSON."""
    plain = {"mysqlType": mysql_type, "charset": "binary", "collate": "binary"}
    return {"name": name, "dataType": plain | data_type, "nullable": null, "default": default}


def index(name: str, *columns: str, primary: bool = False, unique: bool = True) -> Json:
    """An index of a table schema."""
    return {"name": name, "unique": unique, "primary": primary, "nullable": False, "columns": list(columns)}


ID = column("id", "bigint", null=False, length=20)
PRIMARY_ID = index("primary", "id", primary=True)


def table_schema(
    *columns: Json, indexes: tuple[Json, ...] = (PRIMARY_ID,), table: str = "t", version: int = VERSION
) -> Json:
    """A table schema of ``shop``, in the form of JSON."""
    described = {"schema": "shop", "table": table, "tableID": 7, "version": version}
    return described | {"columns": list(columns), "indexes": list(indexes)}


def bootstrap(encoding: Encoding, schema: Json) -> bytes:
    """The bytes of a bootstrap."""
    if encoding == "json":
        return _json({"version": 1, "type": "BOOTSTRAP", "commitTs": 0, "buildTs": BUILD_TS, "tableSchema": schema})
    return avro("BOOTSTRAP", {"version": 1, "buildTs": BUILD_TS, "tableSchema": avro_schema(schema)})


def ddl(encoding: Encoding, type_: str, sql: str, schema: Json | None = None, before: Json | None = None) -> bytes:
    """The bytes of a DDL."""
    head: Json = {"version": 1, "type": type_, "sql": sql, "commitTs": COMMIT_TS, "buildTs": BUILD_TS}
    schemas = {"tableSchema": schema, "preTableSchema": before}
    if encoding == "json":
        return _json(head | {name: found for name, found in schemas.items() if found is not None})
    return avro("DDL", head | {name: found and avro_schema(found) for name, found in schemas.items()})


def watermark(encoding: Encoding, commit_ts: int = COMMIT_TS) -> bytes:
    """The bytes of a watermark."""
    members = {"version": 1, "commitTs": commit_ts, "buildTs": BUILD_TS}
    return _json(members | {"type": "WATERMARK"}) if encoding == "json" else avro("WATERMARK", members)


def row(
    encoding: Encoding,
    type_: str = "INSERT",
    *,
    data: Json | None = None,
    old: Json | None = None,
    table: str = "t",
    version: int = VERSION,
    build_ts: int = BUILD_TS,
    **members: Any,
) -> bytes:
    """The bytes of a row; cells are in the form of the encoding, those of Avro as ``(branch name, value)``."""
    head = {"version": 1, "database": "shop", "table": table, "tableID": 7, "type": type_, "commitTs": COMMIT_TS}
    head |= {"buildTs": build_ts, "schemaVersion": version}
    images = {name: image for name, image in (("data", data), ("old", old)) if image is not None}
    if encoding == "json":
        return _json(head | members | {name: dict(sorted(image.items())) for name, image in images.items()})
    absent = dict.fromkeys(("claimCheckLocation", "handleKeyOnly", "checksum", "data", "old"))
    return avro("DML", head | absent | members | images)


def avro(type_: str, payload: Json) -> bytes:
    """A message as Avro."""
    content = io.BytesIO()
    message = (f"{_RECORD}Message", {"type": type_, "payload": (f"{_RECORD}{_PAYLOADS[type_]}", payload)})
    fastavro.schemaless_writer(content, _AVSC, message)
    return content.getvalue()


def avro_schema(schema: Json) -> Json:
    """A table schema in the form of Avro."""
    columns = []
    for column_ in schema["columns"]:
        optional = dict.fromkeys(("decimal", "elements", "unsigned", "zerofill"))
        columns.append(column_ | {"dataType": optional | {"length": 0} | column_["dataType"]})
    return {"database": schema["schema"]} | {**schema, "columns": columns}


def timestamp(encoding: Encoding, text: str, location: str = ZONE) -> Any:
    """A cell of a TIMESTAMP."""
    cell = {"location": location, "value": text}
    return cell if encoding == "json" else (f"{_RECORD}Timestamp", cell)


def unsigned(value: int) -> Any:
    """A cell of a BIGINT UNSIGNED in Avro."""
    return (f"{_RECORD}UnsignedBigint", {"value": value - (1 << 64) if value >= 1 << 63 else value})


def number(encoding: Encoding, value: int | None) -> Any:
    """A cell of an integer type."""
    if value is None:
        return None
    return str(value) if encoding == "json" else ("long", value)


def text(encoding: Encoding, value: str | None) -> Any:
    """A cell of a character type."""
    return value if encoding == "json" or value is None else ("string", value)


def message(value: bytes | None) -> RawMessage:
    """The Kafka record of a message: its key is always null."""
    return RawMessage("topic", 0, 42, 1, None, value)


def codec(encoding: Encoding, *schemas: Json, **changefeed: Any) -> SimpleCodec:
    """A codec that knows the versions *schemas* from bootstraps."""
    settings = {"protocol": "simple", "topic": "topic", "timezone": ZONE, "encoding_format": encoding}
    configured = Changefeed(**(settings | changefeed))
    plain = codec_for(Changefeed(**settings), 1 << 20)
    found = schemas_in([[message(bootstrap(encoding, schema)) for schema in schemas]], plain)
    made = codec_for(configured, 1 << 20, SchemaLookup(SchemaHistory().with_versions(found.definitions)))
    assert isinstance(made, SimpleCodec)
    return made


def _json(members: Json) -> bytes:
    """As Go's encoder writes it."""
    content = json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()
    for char in b"<>&":
        content = content.replace(bytes([char]), f"\\u{char:04x}".encode())
    return content
