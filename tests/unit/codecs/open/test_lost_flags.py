"""Columns whose flags new TiCDC lost: it keeps them by the id of a partition, and forgets them by that of the table."""

from typing import Any

import pytest

from tests.support.open_protocol import message, row
from tests.unit.codecs.open.test_codec import neutral
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.cells.convert import rows_to_batches
from ticdc_replay.codecs.open.codec import OpenCodec
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.events import DdlEvent, RowEvent, Undecodable
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.layout_check import LayoutCheck
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.schemas.resolve import SchemaResolver

CREATE = "CREATE TABLE t (id bigint PRIMARY KEY, v varchar(20) NOT NULL) PARTITION BY HASH(id) PARTITIONS 3"
ADD = (
    "ALTER TABLE t ADD COLUMN u bigint unsigned, ADD COLUMN i int unsigned, ADD COLUMN n varbinary(20), "
    "ADD COLUMN o blob, ADD COLUMN x text NOT NULL, ADD COLUMN d datetime"
)
HISTORY = SchemaHistory().with_ddls([DdlEvent(0, 10, "s", "t", CREATE, 3), DdlEvent(0, 20, "s", "t", ADD, 5)])
BEFORE = {"id": {"t": 8, "h": True, "f": 11, "v": 1}, "v": {"t": 15, "f": 0, "v": "a\\b"}}
ADDED = {
    "u": (8, (1 << 64) - 1, (1 << 64) - 1),
    "i": (3, 4_294_967_295, 4_294_967_295),
    "n": (15, '\\x89P\\"\\\\', b'\x89P"\\'),
    "o": (252, "YQ==", b"a"),
    "x": (252, "YVxi", "a\\b"),
    "d": (12, "2024-01-02 03:04:05", "2024-01-02 03:04:05"),
}
"""By column: its type code, the cell on the wire, and what it is."""
AFTER = BEFORE | {name: {"t": code, "f": 0, "v": cell} for name, (code, cell, _) in ADDED.items()}
MEANT = {"id": 1, "v": "a\\b"} | {name: cell for name, (_, _, cell) in ADDED.items()}


def codec(history: SchemaHistory = HISTORY, **options: Any) -> OpenCodec:
    return OpenCodec(
        Changefeed(protocol="open-protocol", topic="t", timezone="UTC", **options), 1 << 20, SchemaLookup(history)
    )


def decode(reader: OpenCodec, commit_ts: int, new: Any, old: Any = None) -> RowEvent:
    (event,) = reader.decode(message([row(commit_ts, new=new, old=old, ptn=180)], 0))
    assert isinstance(event, RowEvent), event
    return event


def test_a_column_without_flags_is_read_as_its_definition_says() -> None:
    reader = codec()
    for _ in range(4):  # the third time takes the fast way, where there is one
        assert neutral(decode(reader, 15, BEFORE).after) == {"id": 1, "v": "a\\b"}
        found = decode(reader, 21, AFTER)
        assert neutral(found.after) == MEANT
        resolved = SchemaResolver(HISTORY, LayoutCheck(complete=True)).resolve(found)
        assert not resolved.unlike
        assert next(column.type for column in resolved.schema.columns if column.name == "n") == ColumnType(
            "varbinary", length=20, declared=True
        )


def test_a_partition_that_has_its_flags_is_read_alike() -> None:
    flags = {"u": 193, "i": 193, "n": 65, "o": 65, "x": 0, "d": 65}
    right = {name: cell | {"f": flags.get(name, cell["f"])} for name, cell in AFTER.items()}
    reader = codec()
    for _ in range(3):
        lost, whole = decode(reader, 21, AFTER), decode(reader, 21, right)
        assert neutral(lost.after) == neutral(whole.after) == MEANT
        assert lost.after is not None
        assert whole.after is not None
        assert [column.type for column in lost.after.shape.columns] == [
            column.type for column in whole.after.shape.columns
        ]


def test_a_name_that_was_another_column_is_read_by_the_time_of_the_row() -> None:
    again = "ALTER TABLE t DROP COLUMN v, ADD COLUMN v varbinary(20) NOT NULL"
    history = HISTORY.with_ddls([DdlEvent(0, 30, "s", "t", again, 61)])
    reader = codec(history)
    for _ in range(3):
        assert neutral(decode(reader, 15, BEFORE).after) == {"id": 1, "v": "a\\b"}
        assert neutral(decode(reader, 31, BEFORE).after) == {"id": 1, "v": b"a\b"}


def test_other_tables_with_such_a_form_are_read_by_their_own_definitions() -> None:
    other = "CREATE TABLE other (id bigint PRIMARY KEY, v varbinary(20))"
    history = HISTORY.with_ddls([DdlEvent(0, 10, "s", "other", other, 3)])
    reader = codec(history)
    for _ in range(3):
        for table, meant in (("other", b"a\b"), ("t", "a\\b"), ("unknown", "a\\b")):
            (event,) = reader.decode(message([row(15, new=BEFORE, table=table)], 0))
            assert isinstance(event, RowEvent)
            assert neutral(event.after) == {"id": 1, "v": meant}


def test_null_was_the_old_value_of_a_column_that_may_be_null() -> None:
    reader = codec(only_output_updated_columns=True)
    for _ in range(3):
        found = decode(reader, 21, AFTER, {"o": {"t": 252, "f": 0, "v": None}})
        assert found.before_unknown == ()
        assert neutral(found.before) == MEANT | {"o": None}


def test_an_old_value_without_its_name_is_still_matched_by_what_is_on_the_wire() -> None:
    new = AFTER | {"n": {"t": 15, "f": 0, "v": None}}
    found = decode(codec(only_output_updated_columns=True), 21, new, {"t": 15, "f": 0, "v": "\\x89"})
    assert found.before_unknown == ("n",)


@pytest.mark.parametrize("history", [SchemaHistory(), HISTORY])
def test_without_definition_a_number_may_have_either_sign(history: SchemaHistory) -> None:
    reader = codec(history)
    for _ in range(3):
        for new in (AFTER, AFTER | {"u": AFTER["u"] | {"v": -(1 << 63)}, "i": AFTER["i"] | {"v": -(1 << 31)}}):
            after = decode(reader, 10, new).after
            assert after is not None
            assert neutral(after) == {name: cell["v"] for name, cell in new.items()} | {"o": "a", "x": "a\\b"}


@pytest.mark.parametrize(("column", "number"), [("u", -(1 << 63) - 1), ("i", 1 << 32)])
def test_a_number_beyond_both_signs_is_bad(column: str, number: int) -> None:
    new = AFTER | {column: AFTER[column] | {"v": number}}
    (event,) = codec(SchemaHistory()).decode(message([row(15, new=new)], 0))
    assert isinstance(event, Undecodable)
    assert event.reason == "bad_cell"


def test_without_definition_a_number_beyond_its_type_is_exact() -> None:
    found = decode(codec(SchemaHistory()), 15, AFTER)
    resolved = SchemaResolver(SchemaHistory()).resolve(found)
    (converted,) = rows_to_batches([found], resolved, "UTC")
    assert not converted.bad
    assert dict(converted.exact[0].as_py()) == {"after.u": b"18446744073709551615", "after.i": b"4294967295"}
