"""Whatever the bytes, the codec answers: with events, or with what could not be read and where. It never raises."""

import random
import re
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.open_protocol import columns, message, resolved, row
from ticdc_replay.captures import Capture
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.canonical import line
from ticdc_replay.codecs.open.codec import OpenCodec
from ticdc_replay.domain.events import Event, RowEvent, Undecodable
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.lookup import SchemaLookup

CAP = 1 << 16
KEY = b'{"ts":5,"scm":"s","tbl":"t","t":1}'
VALUE = b'{"u":{"id":{"t":3,"h":true,"f":11,"v":1}}}'
VERSION = (1).to_bytes(8, "big")
GOOD = message([(KEY, VALUE), (KEY, VALUE), resolved(9)], 0)


def codec(**options: Any) -> OpenCodec:
    return OpenCodec(Changefeed(protocol="open-protocol", topic="t", timezone="UTC", **options), CAP, SchemaLookup())


def length(number: int) -> bytes:
    return number.to_bytes(8, "big")


def decode(key: bytes | None, value: bytes | None, **options: Any) -> list[Event]:
    return codec(**options).decode(RawMessage("t", 0, 0, 0, key, value))


def only_bad(events: list[Event]) -> Undecodable:
    (event,) = events
    assert isinstance(event, Undecodable)
    return event


class TestFrames:
    """A wrong length leaves nothing of a message to trust: it is one bad thing as a whole."""

    @pytest.mark.parametrize(
        ("key", "value", "reason", "detail"),
        [
            (None, b"", "foreign_message", "no key"),
            (None, None, "foreign_message", "no key"),
            (b"", b"", "foreign_message", "a key of 0 bytes"),
            (VERSION[:7], b"", "foreign_message", "a key of 7 bytes"),
            (length(2), b"", "unknown_version", "version 2"),
            (b"\xff" * 8, b"", "unknown_version", "version 18446744073709551615"),
            (b'{"ts":5}', b"", "unknown_version", "version"),
            (VERSION, b"\0" * 8, "bad_framing", "value bytes 0..8 belong to no event"),
            (VERSION + b"\0" * 7, b"\0" * 8, "bad_framing", "key bytes 8..15 are too few"),
            (VERSION + length(4) + b"abc", b"\0" * 8, "bad_framing", "length 4 in key bytes 8..16, but 3 bytes follow"),
            (VERSION + length(1 << 63), b"\0" * 8, "bad_framing", "length 9223372036854775808 in key"),
            (VERSION + length((1 << 64) - 1), b"\0" * 8, "bad_framing", "length 18446744073709551615 in key"),
            (VERSION + length(2) + b"{}", b"\0" * 7, "bad_framing", "value bytes 0..7 are too few"),
            (VERSION + length(2) + b"{}", length(9) + b"{}", "bad_framing", "length 9 in value bytes 0..8, but 2 bytes"),
            (VERSION + length(2) + b"{}", length(2) + b"{}x", "bad_framing", "value bytes 10..11 belong to no event"),
            (VERSION + (length(2) + b"{}") * 2, length(2) + b"{}", "bad_framing", "value bytes 10..10 are too few"),
            (VERSION + (length(2) + b"{}") * 2, b"", "bad_framing", "no value"),
            (VERSION + (length(2) + b"{}") * 2, None, "bad_framing", "no value"),
        ],
    )  # fmt: skip
    def test_frames_that_do_not_fit(self, key: bytes | None, value: bytes | None, reason: str, detail: str) -> None:
        event = only_bad(decode(key, value))
        assert (event.ordinal, event.reason) == (None, reason)
        assert detail in event.detail

    def test_every_truncation_of_a_message_is_bad_as_a_whole(self) -> None:
        assert GOOD.key is not None
        assert GOOD.value is not None
        for end in range(len(GOOD.key)):
            if end != 8:
                assert only_bad(decode(GOOD.key[:end], GOOD.value)).ordinal is None
        for end in range(len(GOOD.value)):
            assert only_bad(decode(GOOD.key, GOOD.value[:end])).ordinal is None


class TestEvents:
    """An event that can't be read takes no other with it."""

    @pytest.mark.parametrize(
        ("key", "reason"),
        [
            (b"", "bad_key"), (b"{", "bad_key"), (b"[]", "bad_key"), (b"null", "bad_key"), (b"{}", "bad_key"),
            (b'{"ts":5}', "bad_key"), (b'{"t":1}', "bad_key"), (b'{"ts":"5","t":1}', "bad_key"),
            (b'{"ts":5.0,"t":1}', "bad_key"), (b'{"ts":-1,"t":1}', "bad_key"),
            (b'{"ts":9223372036854775808,"scm":"s","tbl":"t","t":1}', "bad_key"),
            (b'{"ts":5,"scm":"s\xff","tbl":"t","t":1}', "bad_key"), (b'{"ts":5,"scm":null,"tbl":"t","t":1}', "bad_key"),
            (b'{"ts":5,"t":1}', "bad_key"), (b'{"ts":5,"scm":"s","t":1}', "bad_key"), (b'{"ts":5,"tbl":"t","t":1}', "bad_key"),
            (b'{"ts":5,"scm":"s","tbl":"t","t":1,"ohk":"x"}', "bad_key"), (b'{"ts":5,"scm":"s","tbl":"t","t":1}}', "bad_key"),
            (b'{"ts":5,"t":0}', "unknown_event_type"), (b'{"ts":5,"t":4}', "unknown_event_type"),
            (b"[" * 50_000, "bad_key"),
        ],
    )  # fmt: skip
    def test_bad_keys(self, key: bytes, reason: str) -> None:
        first, bad, last = codec().decode(message([(KEY, VALUE), (key, VALUE), (KEY, VALUE)], 0))
        assert isinstance(first, RowEvent)
        assert isinstance(last, RowEvent)
        assert isinstance(bad, Undecodable)
        assert (bad.ordinal, bad.reason) == (1, reason)
        assert f"event 1 at key bytes {8 + 8 + len(KEY) + 8}..{8 + 8 + len(KEY) + 8 + len(key)}" in bad.detail

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (b"", "bad_value"), (b"{", "bad_value"), (b"[]", "bad_value"), (b"1", "bad_value"), (b"{}", "bad_value"),
            (b'{"u":{}}', "bad_value"), (b'{"d":{}}', "bad_value"), (b'{"p":{}}', "bad_value"), (b'{"u":null}', "bad_value"),
            (b'{"u":[]}', "bad_value"), (b'{"u":{"a":1}}', "bad_value"), (b'{"u":{"a":{}}}', "bad_value"),
            (VALUE + b"x", "bad_value"), (VALUE[:-1], "bad_value"), (b"\xff" + VALUE, "bad_value"),
            (VALUE.replace(b'"t":3,', b""), "bad_value"), (VALUE.replace(b'"f":11,', b""), "bad_value"),
            (VALUE.replace(b',"v":1', b""), "bad_value"), (VALUE.replace(b'"t":3', b'"t":"3"'), "bad_value"),
            (VALUE.replace(b"true", b"1"), "bad_value"), (VALUE.replace(b'"f":11', b'"f":null'), "bad_value"),
            (VALUE.replace(b'"t":3', b'"t":6'), "unknown_column_type"),
            (VALUE.replace(b'"t":3', b'"t":255'), "unknown_column_type"),
            (VALUE.replace(b'"t":3', b'"t":-1'), "unknown_column_type"),
            (VALUE.replace(b'"v":1', b'"v":NaN'), "bad_value"), (VALUE.replace(b'"v":1', b'"v":1e999'), "bad_value"),
            (VALUE.replace(b'"v":1', b'"v":' + b"9" * 5000), "bad_value"),
            (VALUE.replace(b'"v":1', b'"v":"\\ud800"'), "bad_cell"),
            (VALUE.replace(b'"v":1', b'"v":"\xff"'), "bad_cell"), (b'{"u":' * 5_000, "bad_value"),
            (VALUE.replace(b'"id"', b'"i\xff"'), "bad_value"), (VALUE.replace(b'"v":1', b'"v":"\xff\\udc80"'), "bad_value"),
            (VALUE[:-1] + b',"d":' + VALUE[5:], "bad_value"), (VALUE[:-1] + b',"p":1}', "bad_value"),
            (VALUE[:-1] + b',"p":{"x":{"t":3,"f":65,"v":1}}}', "bad_value"),
        ],
    )  # fmt: skip
    def test_bad_values(self, value: bytes, reason: str) -> None:
        reader = codec()
        for _ in range(3):  # also when the form of the good ones is known
            first, bad, last = reader.decode(message([(KEY, VALUE), (KEY, value), (KEY, VALUE)], 0))
            assert isinstance(first, RowEvent)
            assert isinstance(last, RowEvent)
            assert isinstance(bad, Undecodable)
            assert (bad.ordinal, bad.reason) == (1, reason), bad.detail
            assert (bad.commit_ts, bad.schema, bad.table) == (5, "s", "t")

    @pytest.mark.parametrize(
        "value", [b"", b"{}", b'{"q":"x"}', b'{"t":3}', b'{"q":"\xff","t":3}', b'{"q":1,"t":3}', b"x"]
    )
    def test_bad_ddl(self, value: bytes) -> None:
        bad = only_bad(codec().decode(message([(b'{"ts":5,"scm":"s","t":2}', value)], 0)))
        assert (bad.reason, bad.commit_ts, bad.schema, bad.table) == ("bad_value", 5, "s", None)

    @pytest.mark.parametrize(("compression", "start"), [("snappy", b"\x29"), ("lz4", b"\x04\x22\x4d\x18")])
    def test_values_that_are_not_compressed_as_configured(self, compression: str, start: bytes) -> None:
        for value in (VALUE, start + VALUE):
            bad = only_bad(codec(compression=compression).decode(message([(KEY, value)], 0)))
            assert bad.reason == "bad_compression"
            assert f"configured with {compression}" in bad.detail

    def test_a_decompression_bomb(self) -> None:
        import pyarrow as pa

        bomb = pa.compress(b" " * (CAP + 1), "snappy", asbytes=True)
        good = pa.compress(VALUE, "snappy", asbytes=True)
        bad, row = codec(compression="snappy").decode(message([(KEY, bomb), (KEY, good)], 0))
        assert isinstance(row, RowEvent)
        assert isinstance(bad, Undecodable)
        assert bad.reason == "too_large"

    def test_events_of_one_message_share_the_cap(self) -> None:
        parts = [row(1, new=columns(at, "x" * 25_000)) for at in range(4)]
        packed = [(key, lz4.frame.compress(value)) for key, value in parts]
        small = row(1, new=columns(9, "x"))
        reader = codec(compression="lz4")
        for _ in range(2):  # each message has the whole cap
            events = reader.decode(message([*packed, (small[0], lz4.frame.compress(small[1]))], 0))
            assert [getattr(event, "reason", "") for event in events] == ["", "", "too_large", "too_large", ""]
            assert isinstance(events[2], Undecodable)
            assert re.search(r"more than \d+ bytes; events before it take \d+ of 65536$", events[2].detail)
            assert (events[2].commit_ts, events[2].schema, events[2].table) == (1, "s", "t")


class TestMutations:
    """Real messages with bytes changed, cut, doubled and swapped."""

    @pytest.mark.parametrize("variant", ["new/open-updated-columns", "classic/open-claim-check", "classic/open-lz4"])
    def test_changed_messages_never_raise_and_never_hang(self, open_captures: Path, variant: str) -> None:
        capture = Capture(open_captures / variant)
        reader = OpenCodec(capture.changefeed(), 1 << 24, SchemaLookup())
        chance = random.Random(2024)
        messages = list(capture.messages())
        outcomes = {"good": 0, "bad": 0}
        for _ in range(3000):
            original = chance.choice(messages)
            changed = original._replace(key=mutate(chance, original.key), value=mutate(chance, original.value))
            for event in reader.decode(changed):
                outcomes["bad" if show(changed, event) is None else "good"] += 1
            reader.is_schema_change(changed)
        assert min(outcomes.values()) > 100

    @pytest.mark.parametrize("variant", ["new/open-updated-columns", "classic/open-default"])
    def test_what_was_read_before_changes_nothing(self, open_captures: Path, variant: str) -> None:
        """A codec that knows many forms reads a changed message as one that knows none."""
        capture = Capture(open_captures / variant)
        knowing = OpenCodec(capture.changefeed(), 1 << 24, SchemaLookup())
        messages = list(capture.messages())
        for raw in messages * 2:
            knowing.decode(raw)
        chance = random.Random(77)
        for _ in range(400):
            raw = chance.choice(messages)
            changed = raw._replace(value=mutate(chance, raw.value, structure=False))
            fresh = OpenCodec(capture.changefeed(), 1 << 24, SchemaLookup())
            assert [show(changed, event) for event in knowing.decode(changed)] == [
                show(changed, event) for event in fresh.decode(changed)
            ]

    @given(key=st.binary(), value=st.binary())
    @settings(max_examples=examples())
    def test_any_bytes(self, key: bytes, value: bytes) -> None:
        for event in decode(VERSION + length(len(key)) + key, length(len(value)) + value):
            assert isinstance(event, Undecodable)
        decode(key, value)


def show(raw: RawMessage, event: Event) -> bytes | None:
    """The line of *event*; None where it is bad."""
    if isinstance(event, Undecodable):
        return None
    try:
        return line(raw, event)
    except ValueError:
        return None


SNIPPETS = [
    b'"t":',
    b'"v":null',
    b'"h":true',
    b"-0",
    b"\\u0000",
    b"\xff",
    b"{",
    b"}",
    b",",
    b'"',
    b"18446744073709551616",
    b"1e999",
]


def mutate(chance: random.Random, part: bytes | None, structure: bool = True) -> bytes | None:
    """*part* with one to three changes; with *structure*, also ones that shift what follows."""
    if not part or chance.random() < 0.3:
        return part
    changed = bytearray(part)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed))
        kind = chance.randrange(5 if structure else 2)
        if kind == 0:
            changed[at] = chance.randrange(256)
        elif kind == 1:
            snippet = chance.choice(SNIPPETS)
            changed[at : at + len(snippet)] = snippet
        elif kind == 2:
            del changed[at : at + chance.randint(1, 9)]
        elif kind == 3:
            changed[at:at] = chance.choice(SNIPPETS)
        else:
            end = min(len(changed), at + chance.randint(1, 40))
            changed[at:at] = changed[at:end]
        if not changed:
            return b""
    return bytes(changed)
