"""Messages that grow: of each form one of any size, made to cost more than its bytes. No TiCDC sends them."""

import json
import struct
from collections.abc import Callable

import lz4.frame

from tests.support import avro_messages, canal_json, debezium_messages, open_protocol, simple_protocol
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.lookup import FixedWriterSchemas, SchemaLookup

MAX_BYTES = 64 << 20
_TS = canal_json.TS


def codec(name: str) -> Codec:
    """A codec that has read nothing, for messages of the form *name*, whose first word is its protocol."""
    protocol = name.split(" ")[0]
    if protocol == "simple-avro":
        return simple_protocol.codec("avro", _wide_schema(4))
    if protocol == "simple-json":
        return simple_protocol.codec("json", _wide_schema(4))
    options: dict[str, object] = {"compression": "lz4"} if "lz4" in name else {}
    if "updated" in name:
        options["only_output_updated_columns"] = True
    if protocol in ("canal-json", "avro", "debezium"):
        options["enable_tidb_extension"] = True
    changefeed = Changefeed(protocol=protocol, topic="t", timezone="UTC", **options)  # type: ignore[arg-type]
    writers = {
        "1": json.dumps(avro_messages.record(_STRING)),
        "2": json.dumps(_nested(200)),
        "3": json.dumps(_CHECKSUMMED),
    }
    return codec_for(changefeed, MAX_BYTES, SchemaLookup(writer_schemas=FixedWriterSchemas(writers)))


_STRING = avro_messages.column("v", "string", "TEXT")

_CHECKSUMMED = avro_messages.record(_STRING, *avro_messages.EXTENSION, *avro_messages.CHECKSUM)


def _checksummed(text: str) -> bytes:
    sums = {"_tidb_row_level_checksum": text, "_tidb_corrupted": False, "_tidb_checksum_version": 1}
    return avro_messages.encoded(_CHECKSUMMED, {"v": "x"} | avro_messages.extension("c", _TS) | sums)


def _wide_schema(count: int) -> simple_protocol.Json:
    return simple_protocol.table_schema(
        simple_protocol.ID, *(simple_protocol.column(f"c{at}", "int") for at in range(count))
    )


def _nested(depth: int) -> object:
    type_: object = "string"
    for _ in range(depth):
        type_ = {"type": "array", "items": type_}
    return {"type": "record", "name": "t", "namespace": "default.s", "fields": [{"name": "v", "type": type_}]}


def _open(count: int, value: bytes, key: bytes | None = None) -> RawMessage:
    return open_protocol.message([(key or open_protocol.row(_TS, new={})[0], value)] * count, 0)


def _canal(value: bytes) -> RawMessage:
    return canal_json.message(value)


def _with(document: bytes, old: bytes, new: bytes) -> bytes:
    assert document.count(old) == 1, document
    return document.replace(old, new)


def _deep(count: int) -> bytes:
    return b"[" * count + b"]" * count


_OPEN_ROW = open_protocol.row(_TS, new=open_protocol.columns(1, "a"))
_CANAL_ROW = canal_json.row()
_DEBEZIUM = debezium_messages.row(after={"id": 1}, fields=[debezium_messages.ID])
_SIMPLE = simple_protocol.row("json", data={"id": "1"})
assert _DEBEZIUM.value is not None
_DEBEZIUM_VALUE: bytes = _DEBEZIUM.value


def _debezium(old: bytes, new: bytes) -> RawMessage:
    return _DEBEZIUM._replace(value=_DEBEZIUM_VALUE.replace(old, new))


def _image(count: int, value: str = '{"t":3,"f":0,"v":1}') -> bytes:
    return b'{"u":{' + ",".join(f'"c{at}":{value}' for at in range(count)).encode() + b"}}"


def _loose(count: int) -> bytes:
    """Columns that turned to NULL, whose members new TiCDC writes straight into ``p``."""
    columns = ",".join(f'"c{at}":{{"t":3,"f":{at},"v":null}}' for at in range(count))
    members = ",".join(f'"t":3,"f":{at},"v":1' for at in range(count))
    return b'{"u":{' + columns.encode() + b'},"p":{' + members.encode() + b"}}"


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _avro(schema: int, body: bytes) -> RawMessage:
    return RawMessage("t", 0, 0, 0, None, avro_messages.confluent(schema, body))


def _simple_avro(count: int) -> bytes:
    return simple_protocol.row("avro", data={f"c{at}": ("long", at) for at in range(count)})


GROWING: dict[str, Callable[[int], RawMessage]] = {
    "open-protocol events": lambda n: _open(n // 8, _OPEN_ROW[1], _OPEN_ROW[0]),
    "open-protocol bad events": lambda n: _open(n, b"{"),
    "open-protocol bad keys": lambda n: _open(n, b"{}", b"{"),
    "open-protocol columns": lambda n: _open(1, _image(n // 4)),
    "open-protocol repeated column": lambda n: _open(
        1, b'{"u":{' + b",".join([b'"c":{"t":3,"f":0,"v":1}'] * n) + b"}}"
    ),
    "open-protocol loose members": lambda n: _open(1, _loose(n // 4)),
    "open-protocol loose members of updated columns": lambda n: _open(1, _loose(n // 4)),
    "open-protocol digits": lambda n: _open(1, _with(_OPEN_ROW[1], b'"v":1}', b'"v":' + b"1" * n + b"}")),
    "open-protocol flags": lambda n: _open(1, _with(_OPEN_ROW[1], b'"f":11', b'"f":' + b"1" * n)),
    "open-protocol time": lambda n: _open(1, b"{}", _with(_OPEN_ROW[0], str(_TS).encode(), b"1" * n)),
    "open-protocol nesting": lambda n: _open(1, b'{"u":' + _deep(n) + b"}"),
    "open-protocol nested key": lambda n: _open(1, b"{}", b'{"ts":' + _deep(n) + b"}"),
    "open-protocol backslashes": lambda n: _open(1, _with(_OPEN_ROW[1], b'"a"', b'"' + b"\\\\" * n + b'\xff"')),
    "open-protocol ddl nesting": lambda n: open_protocol.message([open_protocol.ddl(_TS, "(" * n)], 0),
    "open-protocol lz4 bombs": lambda n: _open(n // 64, lz4.frame.compress(b" " * 100_000)),
    "canal-json documents": lambda n: _canal(_CANAL_ROW * (n // 8)),
    "canal-json bad documents": lambda n: _canal(b"{}" * n),
    "canal-json columns": lambda n: _canal(canal_json.row(data={f"c{at}": "1" for at in range(n // 4)})),
    "canal-json repeated column": lambda n: _canal(
        _with(_CANAL_ROW, b'"data":[{', b'"data":[{' + b"".join(b'"c%d":"1",' % at for at in range(n)) + b'"id":"1",')
    ),
    "canal-json keys": lambda n: _canal(
        canal_json.row(data={f"c{at}": "1" for at in range(n // 4)}, pk=[f"c{at}" for at in range(n // 4)])
    ),
    "canal-json elements": lambda n: _canal(
        canal_json.row(types={"v": f"enum({chr(39) * 2},{chr(39) * (2 * n + 1)}x)"})
    ),
    "canal-json digits": lambda n: _canal(_with(_CANAL_ROW, b'"id":0', b'"id":' + b"1" * n)),
    "canal-json time": lambda n: _canal(_with(_CANAL_ROW, b'"es":%d' % (_TS >> 18), b'"es":' + b"1" * n)),
    "canal-json nesting": lambda n: _canal(_with(_CANAL_ROW, b'"old":null', b'"old":' + _deep(n))),
    "canal-json blanks": lambda n: _canal(_CANAL_ROW + b" " * n),
    "canal-json replaced text": lambda n: _canal(_with(_CANAL_ROW, b'"x"', b'"' + "\ufffd".encode() * n + b'"')),
    "canal-json ddl flags": lambda n: _canal(b'"isDdl":' * n),
    "debezium digits": lambda n: _debezium(b'"commit_ts":%d' % _TS, b'"commit_ts":' + b"1" * n),
    "debezium digits of a cell": lambda n: _debezium(b'"after":{"id":1}', b'"after":{"id":' + b"1" * n + b"}"),
    "debezium digits of a schema": lambda n: _debezium(b'"version":1', b'"version":' + b"1" * n),
    "debezium bits": lambda n: debezium_messages.row(
        after={"id": 1, "b": "AQ=="},
        fields=[
            debezium_messages.ID,
            debezium_messages.field("b", "bytes", "io.debezium.data.Bits", parameters={"length": "1" * n}),
        ],
    ),
    "debezium nesting": lambda n: _debezium(b'"before":null', b'"before":' + _deep(n)),
    "debezium columns": lambda n: debezium_messages.row(
        after={"id": 1} | {f"c{at}": 1 for at in range(n // 8)},
        fields=[debezium_messages.ID, *(debezium_messages.field(f"c{at}", "int32") for at in range(n // 8))],
    ),
    "debezium repeated column": lambda n: _debezium(b'"after":{', b'"after":{' + b'"c":1,' * n),
    "debezium table changes": lambda n: debezium_messages.ddl("ALTER TABLE t ADD x INT", changes=["ALTER"] * (n // 4)),
    "avro text": lambda n: _avro(1, _varint(n) + b"x" * n),
    "avro checksum": lambda n: _avro(3, _checksummed("1" * n)),
    "avro length": lambda n: _avro(1, _varint((1 << 62) - 1) + b"x" * n),
    "avro negative length": lambda n: _avro(1, _varint(-n) + b"x" * n),
    "avro varint": lambda n: _avro(1, b"\xff" * n),
    "avro arrays": lambda n: _avro(2, b"\x02" * n),
    "simple-avro columns": lambda n: simple_protocol.message(_simple_avro(n // 4)),
    "simple-avro counts": lambda n: simple_protocol.message(_simple_avro(1)[:-8] + struct.pack(">q", -1) * n),
    "simple-json columns": lambda n: simple_protocol.message(
        simple_protocol.row("json", data={f"c{at}": "1" for at in range(n)})
    ),
    "simple-json digits": lambda n: simple_protocol.message(_with(_SIMPLE, b'"tableID":7', b'"tableID":' + b"1" * n)),
    "simple-json nesting": lambda n: simple_protocol.message(
        _with(_SIMPLE, b'"data":', b'"old":' + _deep(n) + b',"data":')
    ),
    "simple-json bootstrap": lambda n: simple_protocol.message(
        simple_protocol.bootstrap("json", _wide_schema(n // 16))
    ),
    "simple-json ddl": lambda n: simple_protocol.message(
        simple_protocol.ddl("json", "ALTER", "ALTER TABLE t " + "/*T![ */" * n)
    ),
}
