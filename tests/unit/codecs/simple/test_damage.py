"""Rows of Simple that can't be what the upstream has: their checksum, or their schema, says so."""

import struct
from zlib import crc32

import pytest

from tests.support.simple_protocol import (
    ID,
    Encoding,
    Json,
    codec,
    column,
    message,
    number,
    row,
    table_schema,
    text,
    timestamp,
)
from ticdc_replay.domain.events import RowEvent

NAME = column("name", "varchar", charset="utf8mb4", length=20)
REQUIRED = column("ts", "timestamp", null=False, length=19)

pytestmark = pytest.mark.parametrize("encoding", ["json", "avro"])


def decoded(encoding: Encoding, value: bytes, *schemas: Json) -> list[RowEvent]:
    """The row, as the general reader and as the one made for its form read it."""
    reader = codec(encoding, *(schemas or (table_schema(ID, NAME),)))
    found = [event for _ in range(4) for event in reader.decode(message(value))]
    rows = [event for event in found if isinstance(event, RowEvent)]
    assert len(rows) == 4
    assert len({row_.damage for row_ in rows}) == 1
    return rows


def damage(encoding: Encoding, value: bytes, *schemas: Json) -> str:
    return decoded(encoding, value, *schemas)[0].damage


def sum_of(key: int, name: str) -> int:
    return crc32(struct.pack("<qI", key, len(name)) + name.encode())


def checksum(current: int, previous: int = 0, *, corrupted: bool = False) -> Json:
    return {"version": 1, "corrupted": corrupted, "current": current, "previous": previous}


def cells(encoding: Encoding, key: int, name: str) -> Json:
    return {"id": number(encoding, key), "name": text(encoding, name)}


def test_each_image_is_held_against_its_own_sum(encoding: Encoding) -> None:
    images = {"data": cells(encoding, 1, "new"), "old": cells(encoding, 1, "old")}
    new, old = sum_of(1, "new"), sum_of(1, "old")
    assert damage(encoding, row(encoding, "UPDATE", checksum=checksum(new, old), **images)) == ""
    assert "after" in damage(encoding, row(encoding, "UPDATE", checksum=checksum(old, old), **images))
    assert "before" in damage(encoding, row(encoding, "UPDATE", checksum=checksum(new, new), **images))


def test_a_sum_of_zero_says_nothing(encoding: Encoding) -> None:
    assert damage(encoding, row(encoding, data=cells(encoding, 1, "a"), checksum=checksum(0))) == ""


def test_what_ticdc_itself_found_wrong_is_damaged_whatever_the_sum(encoding: Encoding) -> None:
    marked = checksum(sum_of(1, "a"), corrupted=True)
    assert "corrupted" in damage(encoding, row(encoding, data=cells(encoding, 1, "a"), checksum=marked))


def test_columns_count_in_the_order_of_the_schema_and_virtual_ones_not_at_all(encoding: Encoding) -> None:
    schema = table_schema(NAME, column("v", "int", length=11), ID)
    content = struct.pack("<I", 1) + b"a" + struct.pack("<q", 1)
    value = row(encoding, data=cells(encoding, 1, "a"), checksum=checksum(crc32(content)))
    assert damage(encoding, value, schema) == ""


def test_timestamps_count_in_utc_whatever_their_location(encoding: Encoding) -> None:
    schema = table_schema(ID, REQUIRED)
    content = struct.pack("<qI", 1, 19) + b"2024-07-01 10:00:00"
    for local, location in (("2024-07-01 12:00:00", "Europe/Berlin"), ("2024-07-01 18:00:00", "Local")):
        data = {"id": number(encoding, 1), "ts": timestamp(encoding, local, location)}
        assert damage(encoding, row(encoding, data=data, checksum=checksum(crc32(content))), schema) == ""


def test_handle_keys_alone_can_not_be_held_against_the_sum_of_the_row(encoding: Encoding) -> None:
    reduced = row(encoding, data={"id": number(encoding, 1)}, checksum=checksum(sum_of(1, "a")), handleKeyOnly=True)
    assert damage(encoding, reduced) == ""


def test_a_null_that_the_schema_does_not_allow_is_damage(encoding: Encoding) -> None:
    # Old TiCDC may send values under the names of other columns.
    value = row(encoding, data={"id": number(encoding, 1), "ts": None})
    (event, *_) = decoded(encoding, value, table_schema(ID, REQUIRED))
    assert event.damage == "after: NULL in ts, which is NOT NULL"
    assert event.after is not None
    assert event.after.values[1] is None


def test_text_that_lost_bytes_on_the_way_is_lossy_and_not_damaged(encoding: Encoding) -> None:
    if encoding == "avro":
        value = row("avro", data=cells("avro", 1, "a?"), checksum=checksum(crc32(struct.pack("<qI", 1, 2) + b"a\xff")))
        assert damage("avro", value.replace(b"a?", b"a\xff")) == ""
        return
    value = row("json", data=cells("json", 1, "a?"), checksum=checksum(crc32(struct.pack("<qI", 1, 2) + b"a\xff")))
    (event, *_) = decoded("json", value.replace(b"a?", b"a\\ufffd"))
    assert (event.damage, event.lossy) == ("", ("after.name",))
