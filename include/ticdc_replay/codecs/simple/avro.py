"""Simple in Avro."""

import re
from typing import Any

from ticdc_replay.codecs.avro.binary import AvroError
from ticdc_replay.codecs.claim_checks import may_name_object
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.codecs.simple.avro_schema import BRANCHES, NAMESPACE, read_message
from ticdc_replay.codecs.simple.forms import RowForm
from ticdc_replay.codecs.simple.messages import (
    OPERATIONS,
    Checksum,
    RowMessage,
    bootstrap_event,
    ddl_event,
)
from ticdc_replay.codecs.simple.schema import ColumnSchema, DataType, IndexSchema, SentTableSchema
from ticdc_replay.codecs.simple.values import TIMESTAMP, SimpleCellKind
from ticdc_replay.domain.events import Event, WatermarkEvent, WireColumn
from ticdc_replay.domain.tso import MAX_TSO
from ticdc_replay.domain.withheld import withheld

_TYPES = {b"\x16\x00\x00": "WATERMARK", b"\x16\x02\x02": "BOOTSTRAP", b"\x16\x04\x04": "DDL", b"\x16\x06\x06": "DML"}
"""How messages begin: the record ``Message``, its type, and the record of its payload, which agree."""
_VERSION = b"\x02"
"""The version that is known, 1, as Avro writes it."""
_PAYLOADS = {NAMESPACE + name: name.upper() for name in ("Watermark", "Bootstrap", "DDL", "DML")}
_MAX_SUM = (1 << 32) - 1
_NO_LOCATION = re.compile(rb"(?:[\x80-\xff]{0,9}[\x00-\x7f]){5}\x00").match
"""What follows a row's names where it has no claim-check location: table id, type, three times, and the branch of null."""


class AvroEncoding:
    """Reads messages that are Avro."""

    def type_of(self, content: bytes) -> str | None:
        """The type of a message, None if it is unknown."""
        return _TYPES.get(content[:3])

    def may_refer(self, content: bytes) -> bool:
        """Whether a message may hold a claim-check reference; also yes if that is unknown. About 1 µs for a row."""
        type_ = _TYPES.get(content[:3])
        if type_ != "DML":
            return type_ is None
        if content[3:4] != _VERSION:  # another version, or damage: what follows may begin at another byte
            return True
        at = 4
        for _ in range(2):  # the names of database and table; a length of more than one byte is not looked into
            size = content[at : at + 1]
            if not size or size[0] & 0x81:
                return True
            at += 1 + (size[0] >> 1)
        return _NO_LOCATION(content, at) is None or may_name_object(content)

    def read(self, content: bytes) -> RowMessage | Event:
        """The row in *content*, or the event of any other message. Raises MessageError."""
        try:
            message = read_message(content)
        except AvroError as error:
            raise MessageError("bad_message", f"not Avro of Simple: {error}") from None
        type_, (name, payload) = message["type"], message["payload"]
        if type_ != _PAYLOADS[name]:
            raise MessageError("bad_message", f"type {type_} with the payload {name}")
        commit_ts = payload.get("commitTs", 0)
        if not 0 <= commit_ts <= MAX_TSO:
            raise MessageError("bad_message", f"{commit_ts} is not a commitTs")
        if payload["version"] != 1:
            raise MessageError("unknown_version", f"version {payload['version']}; 1 is known", commit_ts)
        if type_ == "WATERMARK":
            return WatermarkEvent(0, commit_ts)
        if type_ == "BOOTSTRAP":
            return bootstrap_event(_table_schema(payload["tableSchema"]))
        if type_ == "DML":
            return _row(payload)
        schemas = [
            _table_schema(pair[1]) if pair else None for pair in (payload["tableSchema"], payload["preTableSchema"])
        ]
        return ddl_event(payload["type"], _text(payload["sql"]), commit_ts, *schemas)

    def cells(self, image: dict[str, Any], form: RowForm) -> tuple[Any, ...]:
        """The cells of *image*, as ``read`` gave it, in the order of the form. Raises MessageError."""
        columns = zip(form.shape.columns, form.kinds, strict=True)
        return tuple(_cell(image[column.name], column, kind) for column, kind in columns)


def _row(payload: dict[str, Any]) -> RowMessage:
    schema, table, version = _text(payload["database"]), _text(payload["table"]), payload["schemaVersion"]
    about = (payload["commitTs"], schema, table)
    sums, data, old = (pair and pair[1] for pair in (payload["checksum"], payload["data"], payload["old"]))
    if not schema or not table or not 0 <= version <= MAX_TSO:
        raise MessageError("bad_message", f"a row without database or table, or of schema version {version}", *about)
    if sums is not None and not (0 <= sums["current"] <= _MAX_SUM and 0 <= sums["previous"] <= _MAX_SUM):
        raise MessageError("bad_message", f"checksums {sums['current']}, {sums['previous']} beyond 32 bits", *about)
    locations = {
        cell[1]["location"]
        for image in (data, old)
        for cell in (image or {}).values()
        if cell is not None and BRANCHES[cell[0]] == TIMESTAMP
    }
    if len(locations) > 1:
        raise MessageError(
            "bad_cell", f"timestamps of several locations in one row: {sorted(locations)!r:.200}", *about
        )
    return RowMessage(
        schema=schema,
        table=table,
        table_id=payload["tableID"],
        operation=OPERATIONS[payload["type"]],
        commit_ts=payload["commitTs"],
        version=version,
        claim_check=None if payload["claimCheckLocation"] is None else _text(payload["claimCheckLocation"]),
        handle_key_only=bool(payload["handleKeyOnly"]),
        checksum=None if sums is None else Checksum(**sums),
        data=data,
        old=old,
        location=_text(locations.pop()) if locations else None,
    )


def _cell(cell: tuple[str, Any] | None, column: WireColumn, kind: SimpleCellKind) -> Any:
    if cell is None:
        return None
    name, value = cell
    if BRANCHES[name] not in kind.branches:
        raise MessageError("bad_cell", f"column {column.name!r}, a {column.type.base}: branch {name} of the union")
    return value["value"] if type(value) is dict else value


def _table_schema(payload: dict[str, Any]) -> SentTableSchema:
    if not 0 <= payload["version"] <= MAX_TSO:
        raise MessageError("bad_message", f"{payload['version']} is not a version of a table schema")
    return SentTableSchema(
        schema=_text(payload["database"]),
        table=_text(payload["table"]),
        version=payload["version"],
        columns=tuple(_column(column) for column in payload["columns"]),
        indexes=tuple(
            IndexSchema(_text(index["name"]), index["unique"], index["primary"], tuple(map(_text, index["columns"])))
            for index in payload["indexes"]
        ),
    )


def _column(payload: dict[str, Any]) -> ColumnSchema:
    type_ = payload["dataType"]
    elements = type_["elements"]
    mysql_type = _text(type_["mysqlType"])
    data_type = DataType(
        mysql_type=mysql_type,
        length=type_["length"],
        decimal=type_["decimal"],
        elements=None if elements is None else tuple(map(_text, elements)),
        unsigned=type_["unsigned"],
    )
    return ColumnSchema(
        _text(payload["name"]), data_type, payload["nullable"], _default(payload["default"], mysql_type)
    )


def _default(value: bytes | None, mysql_type: str) -> str | int | None:
    """A default is text, that of BIT the bytes of the number."""
    if value is None:
        return None
    return int.from_bytes(value, "big") if mysql_type == "bit" else value.decode(errors="replace")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MessageError("bad_message", f"{withheld(value)} is not UTF-8") from None
