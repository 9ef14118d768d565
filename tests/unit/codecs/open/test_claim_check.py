"""The object of a claim check replaces the small message only if it is of the same event."""

import base64
import json
from typing import Any

import pytest

from tests.support.growth import assert_linear
from tests.support.open_protocol import columns, message, row
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.open.codec import OpenCodec
from ticdc_replay.domain.events import LargeMessage, Operation, RowEvent, Undecodable
from ticdc_replay.schemas.lookup import SchemaLookup

LOCATION = "s3://bucket/04504b9f-7ddc-41ea-bd96-c0e4d82b1770.json"
TS = 470606801009115136


def codec(**options: Any) -> OpenCodec:
    return OpenCodec(
        Changefeed(protocol="open-protocol", topic="t", timezone="UTC", **options), 1 << 20, SchemaLookup()
    )


def key_only(key: int) -> Any:
    return {"id": columns(key)["id"]}


def small_row(reader: OpenCodec, **images: Any) -> RowEvent:
    events = reader.decode(message([row(1, new=columns(7)), row(TS, **images, ccl=LOCATION)], 0))
    event = events[1]
    assert isinstance(event, RowEvent)
    assert event.partial
    return event


def wrapped(key: bytes | None, value: bytes | None) -> bytes:
    encoded = [None if part is None else base64.b64encode(part).decode() for part in (key, value)]
    return json.dumps(dict(zip(("key", "value"), encoded, strict=True))).encode()


def file_of(*events: tuple[bytes, bytes]) -> bytes:
    raw = message(events, 0)
    return wrapped(raw.key, raw.value)


def test_the_whole_row_takes_the_place_of_the_small_one() -> None:
    reader = codec()
    small = small_row(reader, new=key_only(1), old=key_only(1))
    whole = reader.decode_claim_check(small, file_of(row(TS, new=columns(1, "new"), old=columns(1, "old"))))
    assert isinstance(whole, RowEvent)
    assert (whole.operation, whole.partial, whole.ordinal) == (Operation.UPDATE, False, 1)
    assert (whole.large, whole.reference) == (LargeMessage.CLAIM_CHECK, small.reference)
    assert whole.after is not None
    assert whole.before is not None
    assert (whole.after.values, whole.before.values) == ((1, "new"), (1, "old"))


def test_a_copy_that_was_sent_inline_is_equal() -> None:
    reader = codec()
    event = row(TS, new=columns(1, "new"))
    (inline,) = reader.decode(message([event], 5))
    whole = reader.decode_claim_check(small_row(reader, new=key_only(1)), file_of(event))
    assert isinstance(inline, RowEvent)
    assert isinstance(whole, RowEvent)
    assert whole.fingerprint == inline.fingerprint


def test_the_compressed_value_is_inside_the_wrapper() -> None:
    import pyarrow as pa

    reader = codec(compression="snappy")
    key, value = row(TS, new=columns(1, "new"))
    _, small_value = row(TS, new=key_only(1))
    small_key, _ = row(TS, new=None, old=None, ccl=LOCATION)
    (small,) = reader.decode(message([(small_key, pa.compress(small_value, "snappy", asbytes=True))], 0))
    assert isinstance(small, RowEvent)
    whole = reader.decode_claim_check(small, file_of((key, pa.compress(value, "snappy", asbytes=True))))
    assert isinstance(whole, RowEvent)


def test_a_small_update_may_look_like_an_insert_in_updated_columns_mode() -> None:
    reader = codec(only_output_updated_columns=True)
    small = small_row(reader, new=key_only(1))
    assert small.operation is Operation.UPSERT
    old = {"v": columns(1, "old")["v"]}
    whole = reader.decode_claim_check(small, file_of(row(TS, new=columns(1, "new"), old=old)))
    assert isinstance(whole, RowEvent)
    assert whole.operation is Operation.UPDATE


@pytest.mark.parametrize(
    ("event", "what"),
    [
        (row(TS, new=columns(1), schema="x"), "schema 'x' instead of 's'"),
        (row(TS, new=columns(1), table="x"), "table 'x' instead of 't'"),
        (row(TS + 1, new=columns(1)), f"commitTs {TS + 1} instead of {TS}"),
        (row(TS, new=columns(2)), "another new handle key"),
        (row(TS, new={"id": {**columns(1)["id"], "h": False}}), "handle key () instead of ('id',)"),
        (row(TS, new=columns(1), old=columns(1)), "operation update instead of insert"),
        (row(TS, old=columns(1)), "operation delete instead of insert"),
    ],
)
def test_the_object_of_another_event_is_refused(event: tuple[bytes, bytes], what: str) -> None:
    reader = codec()
    answer = reader.decode_claim_check(small_row(reader, new=key_only(1)), file_of(event))
    assert isinstance(answer, Undecodable)
    assert answer.reason == "claim_check_mismatch"
    assert what in answer.detail
    assert LOCATION.rpartition("/")[2] in answer.detail
    assert (answer.ordinal, answer.commit_ts, answer.schema, answer.table) == (1, TS, "s", "t")


def test_the_old_key_counts_too() -> None:
    reader = codec()
    small = small_row(reader, new=key_only(1), old=key_only(2))
    assert isinstance(reader.decode_claim_check(small, file_of(row(TS, new=columns(1), old=columns(2)))), RowEvent)
    answer = reader.decode_claim_check(small, file_of(row(TS, new=columns(1), old=columns(1))))
    assert isinstance(answer, Undecodable)
    assert "another old handle key" in answer.detail


WHOLE = row(TS, new=columns(1, "x"))
GOOD = file_of(WHOLE)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "claim_check_unreadable"), (b"{}", "claim_check_unreadable"), (b"\xff\xfe", "claim_check_unreadable"),
        (GOOD[:-1], "claim_check_unreadable"), (GOOD + b"x", "claim_check_unreadable"), (GOOD[:40], "claim_check_unreadable"),
        (b'{"key":"!","value":""}', "claim_check_unreadable"), (wrapped(None, b"x"), "claim_check_unreadable"),
        (wrapped(b"", b""), "claim_check_unreadable"), (wrapped((2).to_bytes(8, "big"), b""), "claim_check_unreadable"),
        (wrapped((1).to_bytes(8, "big"), b""), "claim_check_unreadable"), (file_of(WHOLE, WHOLE), "claim_check_unreadable"),
        (file_of((b'{"ts":1,"t":3}', b"")), "claim_check_unreadable"), (WHOLE[1], "claim_check_unreadable"),
        (file_of(row(TS, new=columns(1), ccl=LOCATION)), "claim_check_unreadable"),
        (file_of(row(TS, new=columns(1), ohk=True)), "claim_check_unreadable"),
        (file_of((WHOLE[0], b"{}")), "bad_value"), (file_of((b"{", WHOLE[1])), "bad_key"),
        (b"[" * 200_000, "claim_check_unreadable"),
    ],
)  # fmt: skip
def test_an_object_that_is_no_row_is_refused(content: bytes, reason: str) -> None:
    reader = codec()
    answer = reader.decode_claim_check(small_row(reader, new=key_only(1)), content)
    assert isinstance(answer, Undecodable)
    assert answer.reason == reason


def test_a_key_that_can_not_be_read_is_bad_and_no_crash() -> None:
    reader = codec()
    image = {"k": {"t": 15, "h": True, "f": 3, "v": "\\q"}}
    small = small_row(reader, new=image)
    answer = reader.decode_claim_check(small, file_of(row(TS, new=image)))
    assert isinstance(answer, Undecodable)
    assert answer.reason == "bad_cell"


def key_of(value: Any, **type: int) -> Any:
    return {"id": {"t": 15, "h": True, "f": 64, **type, "v": value}}


def wide(columns: int) -> Any:
    """An image whose columns are all of the handle key."""
    return {f"{'x' * 50}{number}": key_of("a")["id"] for number in range(columns)}


@pytest.mark.parametrize(
    ("key", "large"),
    [
        ("a", lambda text: row(TS, new=key_of(text))),
        ("a", lambda text: row(TS, new=key_of("\\x00" + text, f=1))),
        ("a", lambda text: row(TS, new=key_of(text, t=246))),
        ("a", lambda text: row(TS, new=key_of("a"), schema=text)),
        ("a", lambda text: row(TS, new=key_of("a"), table=text)),
        ("a", lambda text: row(TS, new=wide(len(text) // 2_000))),
        ("a", lambda text: row(TS, new={"id": {"t": 15, "f": 64, "v": text, "h": text}})),
    ],
    ids=["text", "bytes", "no decimal", "schema", "table", "columns", "no row"],
)  # fmt: skip
def test_rows_of_other_keys_than_the_object_s_cost_what_they_are_themselves(key: str, large: Any) -> None:
    changefeed = Changefeed(protocol="open-protocol", topic="t", timezone="UTC")
    reader = OpenCodec(changefeed, 1 << 26, SchemaLookup())
    small = small_row(reader, new=key_of(key))

    def work(size: int) -> None:
        found = reader.read_object(objects[size])
        for _ in range(size):
            answer = reader.made_whole(small, found)
            assert isinstance(answer, Undecodable)
            assert len(answer.detail) < 2_200

    objects = {size: file_of(large("x" * 40_000 * size)) for size in (25, 100)}
    assert_linear(work, 25)


def test_a_key_of_an_object_is_not_shown() -> None:
    reader = codec()
    answer = reader.decode_claim_check(small_row(reader, new=key_of("a")), file_of(row(TS, new=key_of("b" * 9_000))))
    assert isinstance(answer, Undecodable)
    assert answer.detail.endswith("another new handle key")
