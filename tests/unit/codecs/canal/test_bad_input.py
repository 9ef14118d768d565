"""Whatever the bytes, the codec answers: with events, or with what could not be read and where. It never raises."""

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.canal_json import LOCATION, TS, ddl, message, row, watermark
from tests.support.capture_sets import CaptureSets
from tests.support.examples import examples
from ticdc_replay.captures import Capture
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.canal.codec import CanalCodec
from ticdc_replay.codecs.canonical import line
from ticdc_replay.domain.events import Event, RowEvent, Undecodable
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.lookup import SchemaLookup

CAP = 1 << 16


def codec(**options: Any) -> CanalCodec:
    options = {"enable_tidb_extension": True, **options}
    return CanalCodec(Changefeed(protocol="canal-json", topic="t", timezone="UTC", **options), CAP, SchemaLookup())


def only_bad(events: list[Event]) -> Undecodable:
    (event,) = events
    assert isinstance(event, Undecodable), event
    return event


class TestMessages:
    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (None, "empty_message"), (b"", "empty_message"), (b" \n", "bad_json"), (b"x", "bad_json"), (b"[]", "bad_json"),
            (b"1", "bad_json"), (b'"x"', "bad_json"), (b"null", "bad_json"), (row()[:-1], "bad_json"), (row()[1:], "bad_json"),
            (b"\xef\xbb\xbf" + row(), "bad_json"), (b"\xff" + row(), "bad_json"), (b"[" * 10_000, "bad_json"),
            (b'{"a":' * 10_000, "bad_json"), (row().replace(b'"id":0', b'"id":NaN'), "bad_json"),
            (row().replace(b'"id":0', b'"id":01'), "bad_json"), (row().replace(b'"id":0', b'"id":' + b"9" * 5000), "bad_json"),
            (row().replace(b'"x"', b'"\n"'), "bad_json"), (row().replace(b'"x"', b'"\\x"'), "bad_json"),
        ],
    )  # fmt: skip
    def test_a_value_that_is_no_document_is_bad_as_a_whole(self, value: bytes | None, reason: str) -> None:
        reader = codec()
        for _ in range(3):
            reader.decode(message(row()))
        event = only_bad(reader.decode(message(value)))
        assert (event.ordinal, event.reason) == (None, reason)

    def test_every_truncation_is_bad(self) -> None:
        reader = codec()
        for value in (row("UPDATE", old={"id": "1", "v": "y"}), ddl("DROP TABLE t"), watermark(TS)):
            for end in range(1, len(value)):
                assert only_bad(reader.decode(message(value[:end]))).ordinal is None

    def test_bad_json_after_good_documents_sets_aside_all_of_them(self) -> None:
        bad = only_bad(codec().decode(message(row() + b"\n" + row()[:-1] + row())))
        assert (bad.ordinal, bad.reason) == (None, "bad_json")
        assert "after event 0" in bad.detail

    @pytest.mark.parametrize(("compression", "start"), [("snappy", b"\x29"), ("lz4", b"\x04\x22\x4d\x18")])
    def test_values_that_are_not_compressed_as_configured(self, compression: str, start: bytes) -> None:
        reader = codec(compression=compression)
        for value in (row(), start + row()):
            event = only_bad(reader.decode(message(value)))
            assert (event.ordinal, event.reason) == (None, "bad_compression")
            assert f"configured with {compression}" in event.detail
            assert not reader.is_schema_change(message(value))

    def test_a_decompression_bomb(self) -> None:
        bomb = message(pa.compress(b" " * (CAP + 1), "snappy", asbytes=True))
        reader = codec(compression="snappy")
        assert only_bad(reader.decode(bomb)).reason == "too_large"
        assert not reader.is_schema_change(bomb)


UPDATE = row("UPDATE", old={"id": "1", "v": "y"})


class TestEvents:
    """An event that can't be read takes no other with it."""

    @pytest.mark.parametrize(
        ("value", "reason", "detail"),
        [
            (b"{}", "bad_value", "database"),
            (row().replace(b'"database":"s"', b'"database":null'), "bad_value", "database"),
            (row(schema=""), "bad_value", "without database or table"),
            (row(table=""), "bad_value", "without database or table"),
            (row().replace(b'"s"', b'"\xff"'), "bad_value", "database must be text in UTF-8"),
            (row().replace(b'"s"', b'"\\ud800"'), "bad_value", "database must be text in UTF-8"),
            (row().replace(b'"isDdl":false,', b""), "bad_value", "isDdl"),
            (row().replace(b"false", b"0"), "bad_value", "isDdl"),
            (row().replace(b'"type"', b'"kind"'), "bad_value", "type"),
            (row("UPSERT"), "unknown_event_type", "'UPSERT'"),
            (row("insert"), "unknown_event_type", "'insert'"),
            (row(es=-1), "bad_value", "es"),
            (row(es=(TS >> 18) + 1), "bad_value", f"commitTs {TS} is not of the time"),
            (row(ts=1 << 63, es=TS >> 18), "bad_value", "commitTs"),
            (row(ts=None), "bad_value", "no _tidb.commitTs"),
            (row().replace(str(TS).encode(), f'"{TS}"'.encode()), "bad_value", "commitTs must be a number"),
            (row().replace(str(TS).encode(), b"1.5"), "bad_value", "commitTs must be a number"),
            (row().replace(b'"_tidb":{', b'"_tidb":[],"x":{'), "bad_value", "_tidb is not an object"),
            (row(onlyHandleKey=1), "bad_value", "onlyHandleKey"),
            (row(claimCheckLocation=5), "bad_value", "claimCheckLocation"),
            (row().replace(b'["id"]', b'"id"'), "bad_value", "pkNames"),
            (row().replace(b'["id"]', b"[1]"), "bad_value", "pkNames"),
            (row().replace(b'"data":[{', b'"data":null,"x":[{'), "bad_value", "data is null"),
            (row().replace(b'"data":[{', b'"data":[{},{'), "bad_value", "data must be an array of one row"),
            (row().replace(b'"data":[{"id":"1","v":"x"}]', b'"data":[]'), "bad_value", "data must be an array of one row"),
            (row().replace(b'"data":[{"id":"1","v":"x"}]', b'"data":{"id":"1"}'), "bad_value", "data must be an array"),
            (row().replace(b'"data":[{"id":"1","v":"x"}]', b'"data":[["1"]]'), "bad_value", "data is not an object"),
            (row().replace(b'"id":"1"', b'"id":1'), "bad_cell", "column 'id' of data is neither text nor null"),
            (row().replace(b'"id":"1"', b'"id":true'), "bad_cell", "column 'id' of data is neither text nor null"),
            (row().replace(b'"id":"1"', b'"id":{}'), "bad_cell", "column 'id' of data is neither text nor null"),
            (row().replace(b'"v":"x"', b'"v":"\xff"'), "bad_cell", "column 'v' of data is not UTF-8"),
            (row().replace(b'"v":"x"', b'"v":"\\udc80"'), "bad_cell", "lone surrogate"),
            (row().replace(b'"v":"x"', b'"v":"x","v":"y"'), "bad_value", "data has the column 'v' more than once"),
            (row().replace(b'"v":"x"', b'"v":null,"v":"y"'), "bad_value", "data has the column 'v' more than once"),
            (row().replace(b'"v":"x"', b'"v":"x","\\u0076":"y"'), "bad_value", "data has the column 'v' more than once"),
            (UPDATE.replace(b'"v":"y"', b'"v":"y","v":"y"'), "bad_value", "old has the column 'v' more than once"),
            (row().replace(b',"v":"x"', b""), "bad_value", "mysqlType and data have other columns: 'v'"),
            (row().replace(b'"v":"x"', b'"v":"x","w":"x"'), "bad_value", "mysqlType and data have other columns: 'w'"),
            (row().replace(b'"varchar"', b"null"), "bad_value", "mysqlType of 'v' is not a text"),
            (row().replace(b'"mysqlType":{', b'"mysqlType":null,"x":{'), "bad_value", "mysqlType and data"),
            (row(types={"v": "geometry"}), "unknown_column_type", "column 'v' has the mysqlType 'geometry'"),
            (row(data={}), "bad_value", "data has no column"),
            (row(old={"id": "1", "v": "y"}), "bad_value", "old is not null for INSERT"),
            (row("DELETE", old={"id": "1", "v": "y"}), "bad_value", "old is not null for DELETE"),
            (row("UPDATE"), "bad_value", "old is null for UPDATE"),
            (row("UPDATE", old={"id": "1", "v": "y", "w": "z"}), "bad_value", "old has columns that data lacks: 'w'"),
            (ddl("x").replace(b'"sql":"x"', b'"sql":null'), "bad_value", "sql"),
            (ddl("x", ts=None), "bad_value", "no _tidb.commitTs"),
            (watermark(TS).replace(b"watermarkTs", b"commitTs"), "bad_value", "watermarkTs"),
        ],
    )  # fmt: skip
    def test_bad_documents(self, value: bytes, reason: str, detail: str) -> None:
        reader = codec()
        for _ in range(3):  # also when the form of the good ones is known
            first, bad, last = reader.decode(message(row() + value + UPDATE))
            assert isinstance(first, RowEvent)
            assert isinstance(last, RowEvent)
            assert isinstance(bad, Undecodable)
            assert (bad.ordinal, bad.reason) == (1, reason), bad.detail
            assert detail in bad.detail
            alone = only_bad(reader.decode(message(value)))
            assert (alone.ordinal, alone.reason) == (0, reason)
            assert isinstance(reader.decode(message(row()))[0], RowEvent)

    def test_what_could_be_read_of_it_is_told(self) -> None:
        event = only_bad(codec().decode(message(row(data={"id": "1", "v": None}, types={"v": "geometry"}))))
        assert (event.commit_ts, event.schema, event.table) == (TS, "s", "t")

    def test_a_cell_that_is_not_of_its_type_is_found_when_its_column_is_converted(self) -> None:
        (event,) = codec().decode(message(row(data={"id": "1 ", "v": "x"})))
        assert isinstance(event, RowEvent)
        with pytest.raises(ValueError, match="column 'id': a text of 2 characters is not an integer"):
            line(message(b""), event)


class TestMutations:
    """Real messages with bytes changed, cut, doubled and swapped."""

    @pytest.mark.parametrize(
        "variant",
        [
            "new/canal-json-updated-columns",
            "classic/canal-json-claim-check",
            "new/canal-json-lz4",
            "classic/canal-json",
        ],
    )
    def test_changed_messages_never_raise_and_never_hang(self, captures: CaptureSets, variant: str) -> None:
        capture = Capture(captures("canal-json") / variant)
        reader = CanalCodec(capture.changefeed(), 1 << 24, SchemaLookup())
        chance = random.Random(2024)
        messages = list(capture.messages())
        outcomes = {"good": 0, "bad": 0}
        for _ in range(2000):
            original = chance.choice(messages)
            changed = original._replace(value=mutate(chance, original.value))
            for event in reader.decode(changed):
                outcomes["bad" if show(changed, event) is None else "good"] += 1
            reader.is_schema_change(changed)
            reader.is_watermark(changed)
        assert min(outcomes.values()) > 100

    @pytest.mark.parametrize("variant", ["new/canal-json-updated-columns", "classic/canal-json-ext"])
    def test_what_was_read_before_changes_nothing(self, captures: CaptureSets, variant: str) -> None:
        """A codec that knows many forms reads a changed message as one that knows none."""
        capture = Capture(captures("canal-json") / variant)
        knowing = CanalCodec(capture.changefeed(), 1 << 24, SchemaLookup())
        messages = list(capture.messages())
        for raw in messages * 2:
            knowing.decode(raw)
        chance = random.Random(77)
        for _ in range(1500):
            raw = chance.choice(messages)
            changed = raw._replace(value=mutate(chance, raw.value, structure=chance.random() < 0.5))
            fresh = CanalCodec(capture.changefeed(), 1 << 24, SchemaLookup())
            assert [show(changed, event) for event in knowing.decode(changed)] == [
                show(changed, event) for event in fresh.decode(changed)
            ]

    @given(value=st.binary())
    @settings(max_examples=examples())
    def test_any_bytes(self, value: bytes) -> None:
        assert all(isinstance(event, Undecodable) for event in codec().decode(message(value)))

    @given(
        data=st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=80),
            st.none() | st.text(),
            min_size=1,
            max_size=5,
        ),
        old=st.dictionaries(st.text(), st.none() | st.text(), max_size=5),
    )
    @settings(max_examples=examples())
    def test_any_text_comes_back(self, data: dict[str, str | None], old: dict[str, str | None]) -> None:
        types = dict.fromkeys(data, "longtext")
        old = {name: old.get(name, cell) for name, cell in data.items()}
        reader = codec()
        value = row("UPDATE", data=data, old=old, types=types, pk=[])
        for _ in range(3):
            (event,) = reader.decode(message(value))
            assert isinstance(event, RowEvent), event
            assert event.after is not None
            assert event.before is not None
            assert dict(zip(event.after.shape.names, event.after.values, strict=True)) == data
            assert dict(zip(event.before.shape.names, event.before.values, strict=True)) == old


def show(raw: RawMessage, event: Event) -> tuple[bytes, bytes] | None:
    """The line of *event*, with its fingerprint; None where it is bad."""
    if isinstance(event, Undecodable):
        return None
    try:
        return line(raw, event), event.fingerprint if isinstance(event, RowEvent) else b""
    except ValueError:
        return None


SNIPPETS = [
    b'"type":"DELETE"', b'"isDdl":true', b":null", b'"":"', b"\\u0000", b"\xff", b"\\ud800", b"{", b"}", b",", b'"', b" ", b"\n",
    b'"id":"1",', b'"data":[{}],', b'"old":null,', b'"_tidb":{},', b'"commitTs":1,', LOCATION.encode(), b"1e9",
]  # fmt: skip


def mutate(chance: random.Random, part: bytes | None, structure: bool = True) -> bytes | None:
    """*part* with one to three changes; with *structure*, also ones that shift what follows."""
    if not part or chance.random() < 0.2:
        return part
    changed = bytearray(part)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed))
        kind = chance.randrange(6 if structure else 2)
        if kind == 0:
            changed[at] = chance.randrange(256)
        elif kind == 1:
            snippet = chance.choice(SNIPPETS)
            changed[at : at + len(snippet)] = snippet
        elif kind == 2:
            del changed[at : at + chance.randint(1, 9)]
        elif kind == 3:  # a member more, where one begins
            at = max(changed.find(b',"', at) + 1, 0)
            changed[at:at] = chance.choice(SNIPPETS)
        elif kind == 4:  # a member twice
            start = changed.find(b'"', at)
            end = changed.find(b",", start) + 1
            changed[start:start] = changed[start:end]
        else:
            end = min(len(changed), at + chance.randint(1, 40))
            changed[at:at] = changed[at:end]
        if not changed:
            return b""
    return bytes(changed)
