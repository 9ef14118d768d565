"""The object of a claim check replaces the small message only if it is of the same event."""

import base64
import json
from typing import Any

import lz4.frame
import pytest

from tests.support.canal_json import LOCATION, TS, ddl, message, row, watermark
from tests.support.growth import assert_linear
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.canal.codec import CanalCodec
from ticdc_replay.domain.events import DdlEvent, LargeMessage, Operation, RowEvent, Undecodable
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.lookup import SchemaLookup

KEY: dict[str, str | None] = {"id": "1"}
UNIQUE: dict[str, str | None] = {"a": "1", "b": "x", "c": "2"}
NO_HISTORY = SchemaHistory()


def codec(history: SchemaHistory = NO_HISTORY, **options: Any) -> CanalCodec:
    changefeed = Changefeed(protocol="canal-json", topic="t", timezone="UTC", enable_tidb_extension=True, **options)
    return CanalCodec(changefeed, 1 << 20, SchemaLookup(history))


def small_row(reader: CanalCodec, value: bytes) -> RowEvent:
    events = reader.decode(message(row(ts=TS - 1) + value))
    event = events[1]
    assert isinstance(event, RowEvent)
    assert event.partial
    return event


def wrapped(value: bytes, key: bytes | None = None) -> bytes:
    parts = {
        name: None if part is None else base64.b64encode(part).decode()
        for name, part in (("key", key), ("value", value))
    }
    return json.dumps(parts).encode()


def test_the_whole_row_takes_the_place_of_the_small_one() -> None:
    reader = codec()
    small = small_row(reader, row("UPDATE", data=KEY, old=KEY, claimCheckLocation=LOCATION))
    whole = reader.decode_claim_check(small, wrapped(row("UPDATE", old={"id": "1", "v": "old"})))
    assert isinstance(whole, RowEvent)
    assert (whole.operation, whole.partial, whole.ordinal) == (Operation.UPDATE, False, 1)
    assert (whole.large, whole.reference) == (LargeMessage.CLAIM_CHECK, small.reference)
    assert whole.after is not None
    assert whole.before is not None
    assert (whole.after.values, whole.before.values) == (("1", "x"), ("1", "old"))


def test_a_copy_that_was_sent_inline_is_equal() -> None:
    reader = codec()
    (inline,) = reader.decode(message(row()))
    whole = reader.decode_claim_check(small_row(reader, row(data=KEY, claimCheckLocation=LOCATION)), wrapped(row()))
    assert isinstance(inline, RowEvent)
    assert isinstance(whole, RowEvent)
    assert whole.fingerprint == inline.fingerprint


def test_the_raw_value_may_be_the_object() -> None:
    reader = codec(claim_check_raw_value=True, compression="lz4")
    (small,) = reader.decode(message(lz4.frame.compress(row(data=KEY, claimCheckLocation=LOCATION))))
    assert isinstance(small, RowEvent)
    assert isinstance(reader.decode_claim_check(small, lz4.frame.compress(row())), RowEvent)
    answer = reader.decode_claim_check(small, wrapped(lz4.frame.compress(row())))
    assert isinstance(answer, Undecodable)
    assert answer.reason == "bad_compression"


def test_the_compressed_value_is_inside_the_wrapper() -> None:
    reader = codec(compression="lz4")
    (small,) = reader.decode(message(lz4.frame.compress(row(data=KEY, claimCheckLocation=LOCATION))))
    assert isinstance(small, RowEvent)
    assert isinstance(reader.decode_claim_check(small, wrapped(lz4.frame.compress(row()))), RowEvent)


class TestUniqueKeys:
    """A reduced row shows the unique key that identifies it; a whole one of the same table does not."""

    SMALL = row(data={"b": "x", "c": "2"}, pk=[], claimCheckLocation=LOCATION)

    def test_they_are_compared_by_what_the_small_row_shows(self) -> None:
        reader = codec()
        small = small_row(reader, self.SMALL)
        assert isinstance(reader.decode_claim_check(small, wrapped(row(data=UNIQUE, pk=[]))), RowEvent)
        answer = reader.decode_claim_check(small, wrapped(row(data=UNIQUE | {"c": "3"}, pk=[])))
        assert isinstance(answer, Undecodable)
        assert "another new handle key" in answer.detail

    def test_the_whole_row_has_the_identity_that_its_inline_copies_have(self) -> None:
        created = DdlEvent(
            0, TS - 5, "s", "t", "CREATE TABLE t (a INT, b INT NOT NULL, c INT NOT NULL, UNIQUE(c, b))", "CREATE"
        )
        for history, key in ((NO_HISTORY, ()), (NO_HISTORY.with_ddls([created]), ("b", "c"))):
            reader = codec(history)
            (inline,) = reader.decode(message(row(data=UNIQUE, pk=[])))
            whole = reader.decode_claim_check(small_row(reader, self.SMALL), wrapped(row(data=UNIQUE, pk=[])))
            assert isinstance(inline, RowEvent)
            assert isinstance(whole, RowEvent)
            assert inline.after is not None
            assert whole.after is not None
            assert inline.after.shape is whole.after.shape
            assert whole.after.shape.handle_key == key

    def test_a_history_that_says_otherwise_is_noticed(self) -> None:
        created = DdlEvent(0, TS - 5, "s", "t", "CREATE TABLE t (a INT NOT NULL, b INT, c INT, UNIQUE(a))", "CREATE")
        reader = codec(NO_HISTORY.with_ddls([created]))
        answer = reader.decode_claim_check(small_row(reader, self.SMALL), wrapped(row(data=UNIQUE, pk=[])))
        assert isinstance(answer, Undecodable)
        assert "handle key ('a',) instead of ('b', 'c')" in answer.detail


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (row(schema="x"), "schema 'x' instead of 's'"),
        (row(table="x"), "table 'x' instead of 't'"),
        (row(ts=TS + 1), f"commitTs {TS + 1} instead of {TS}"),
        (row(data={"id": "2", "v": "x"}), "another new handle key"),
        (row(pk=["v"]), "handle key ('v',) instead of ('id',)"),
        (row("UPDATE", old={"id": "1", "v": "y"}), "operation update instead of insert"),
        (row("DELETE"), "operation delete instead of insert"),
    ],
)
def test_the_object_of_another_event_is_refused(value: bytes, what: str) -> None:
    reader = codec()
    answer = reader.decode_claim_check(small_row(reader, row(data=KEY, claimCheckLocation=LOCATION)), wrapped(value))
    assert isinstance(answer, Undecodable)
    assert answer.reason == "claim_check_mismatch"
    assert what in answer.detail
    assert LOCATION.rpartition("/")[2] in answer.detail
    assert (answer.ordinal, answer.commit_ts, answer.schema, answer.table) == (1, TS, "s", "t")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "claim_check_unreadable"), (b"{}", "claim_check_unreadable"), (row(), "claim_check_unreadable"),
        (wrapped(row())[:-1], "claim_check_unreadable"), (wrapped(row(), key=b"k"), "claim_check_unreadable"),
        (b'{"key":null,"value":"!"}', "claim_check_unreadable"), (b"[" * 200_000, "claim_check_unreadable"),
        (wrapped(row() + row()), "claim_check_unreadable"), (wrapped(watermark(TS)), "claim_check_unreadable"),
        (wrapped(ddl("DROP TABLE t")), "claim_check_unreadable"),
        (wrapped(row(data=KEY, claimCheckLocation=LOCATION)), "claim_check_unreadable"),
        (wrapped(row(data=KEY, onlyHandleKey=True)), "claim_check_unreadable"), (wrapped(b""), "bad_json"),
        (wrapped(b"{"), "bad_json"), (wrapped(b"{}"), "bad_value"), (wrapped(row(types={"v": "x"})), "unknown_column_type"),
        (wrapped(row(data={"id": "x", "v": "x"})), "bad_cell"),
    ],
)  # fmt: skip
def test_an_object_that_is_no_whole_row_is_refused(content: bytes, reason: str) -> None:
    reader = codec()
    answer = reader.decode_claim_check(small_row(reader, row(data=KEY, claimCheckLocation=LOCATION)), content)
    assert isinstance(answer, Undecodable)
    assert answer.reason == reason, answer.detail


@pytest.mark.parametrize("columns", [0, 2_000], ids=["long", "wide"])
def test_rows_of_other_keys_than_the_object_s_cost_what_they_are_themselves(columns: int) -> None:
    """Also where no primary key is known, and each row shows by itself what the object's key would be."""
    changefeed = Changefeed(protocol="canal-json", topic="t", timezone="UTC", enable_tidb_extension=True)
    reader = CanalCodec(changefeed, 1 << 26, SchemaLookup(NO_HISTORY))
    small = small_row(reader, row(data={"b": "x"}, pk=[], claimCheckLocation=LOCATION))

    def work(size: int) -> None:
        found = reader.read_object(objects[size])
        for _ in range(size):
            answer = reader.made_whole(small, found)
            assert isinstance(answer, Undecodable)
            assert len(answer.detail) < 2_200

    objects = {}
    for size in (25, 100):
        whole: dict[str, str | None] = {"b": "y" * 40_000 * size}
        if columns:
            whole = {"b": "y", **{f"c{number}": "1" for number in range(columns * size // 100)}}
        objects[size] = wrapped(row(data=whole, pk=[]))
    assert_linear(work, 25)
