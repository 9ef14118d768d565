"""What each form of an Open Protocol event means. The captures show the ordinary ones; these are the rest."""

import json
from typing import Any

import pytest

from tests.support.open_protocol import message, resolved
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.open.codec import OpenCodec
from ticdc_replay.domain.events import (
    DdlEvent,
    Event,
    LargeMessage,
    Operation,
    Reference,
    RowEvent,
    Undecodable,
    WatermarkEvent,
)
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.lookup import SchemaLookup

NAME = "04504b9f-7ddc-41ea-bd96-c0e4d82b1770.json"
TS = 470606801009115136
KEY = b'{"ts":470606801009115136,"scm":"s","tbl":"t","t":1}'


def codec(**options: Any) -> OpenCodec:
    return OpenCodec(
        Changefeed(protocol="open-protocol", topic="t", timezone="UTC", **options), 1 << 20, SchemaLookup()
    )


def decode_one(value: str | bytes, key: bytes = KEY, **options: Any) -> Event:
    """The event of a message with one event; decoded twice, as the second time takes the fast way."""
    raw = value if isinstance(value, bytes) else value.encode()
    reader = codec(**options)
    once, twice, thrice = (reader.decode(message([(key, raw)], 0)) for _ in range(3))
    assert [event._replace(after=None, before=None) if isinstance(event, RowEvent) else event for event in once] == [
        event._replace(after=None, before=None) if isinstance(event, RowEvent) else event for event in thrice
    ]
    assert neutral_rows(once) == neutral_rows(twice) == neutral_rows(thrice)
    (event,) = once
    return event


def neutral(image: Any) -> dict[str, Any] | None:
    if image is None:
        return None
    return {
        column.name: column.neutral([value])[0] for column, value in zip(image.shape.columns, image.values, strict=True)
    }


def neutral_rows(events: list[Event]) -> list[Any]:
    """New and old cells, told apart as exactly as text can (-0.0 is not 0.0)."""
    return [
        (repr(neutral(event.after)), repr(neutral(event.before))) for event in events if isinstance(event, RowEvent)
    ]


def row(value: str | bytes, key: bytes = KEY, **options: Any) -> RowEvent:
    event = decode_one(value, key, **options)
    assert isinstance(event, RowEvent), event
    return event


def bad(value: str | bytes, key: bytes = KEY, **options: Any) -> Undecodable:
    event = decode_one(value, key, **options)
    assert isinstance(event, Undecodable), event
    return event


def cell(code: int, flags: int, value: str) -> Any:
    """The neutral value of one cell with the JSON *value*."""
    after = row(f'{{"u":{{"c":{{"t":{code},"f":{flags},"v":{value}}}}}}}').after
    assert after is not None
    return after.shape.columns[0].neutral(after.values)[0]


ID = '"id":{"t":3,"h":true,"f":11,"v":1}'


class TestOperations:
    def test_u_alone_is_an_insert(self) -> None:
        event = row(f'{{"u":{{{ID}}}}}')
        assert (event.operation, neutral(event.after), event.before) == (Operation.INSERT, {"id": 1}, None)
        assert (event.schema, event.table, event.commit_ts, event.ordinal) == ("s", "t", TS, 0)
        assert not event.partial
        assert event.after is not None
        assert event.after.shape.handle_key == ("id",)

    def test_u_alone_may_be_an_update_when_old_values_are_off(self) -> None:
        assert row(f'{{"u":{{{ID}}}}}', output_old_value=False).operation is Operation.UPSERT

    def test_u_alone_may_be_an_update_when_only_updated_columns_are_sent(self) -> None:
        assert row(f'{{"u":{{{ID}}}}}', only_output_updated_columns=True).operation is Operation.UPSERT

    def test_u_and_p_are_an_update(self) -> None:
        event = row('{"u":{"id":{"t":3,"h":true,"f":11,"v":2}},"p":{"id":{"t":3,"h":true,"f":11,"v":1}}}')
        assert (event.operation, neutral(event.after), neutral(event.before)) == (
            Operation.UPDATE,
            {"id": 2},
            {"id": 1},
        )

    def test_d_is_a_delete(self) -> None:
        event = row(f'{{"d":{{{ID}}}}}')
        assert (event.operation, event.after, neutral(event.before), event.partial) == (
            Operation.DELETE,
            None,
            {"id": 1},
            False,
        )

    def test_a_delete_of_keys_alone_is_partial_when_the_changefeed_sends_such(self) -> None:
        v = '"v":{"t":15,"f":64,"v":"x"}'
        assert row(f'{{"d":{{{ID}}}}}', delete_only_output_handle_key_columns=True).partial
        assert not row(f'{{"d":{{{ID},{v}}}}}', delete_only_output_handle_key_columns=True).partial
        assert not row(f'{{"u":{{{ID}}}}}', delete_only_output_handle_key_columns=True).partial

    def test_a_table_partition_is_told(self) -> None:
        assert row(f'{{"u":{{{ID}}}}}', b'{"ts":1,"scm":"s","tbl":"t","ptn":77,"t":1}').physical_table_id == 77

    def test_a_table_without_key_has_an_empty_key(self) -> None:
        after = row('{"u":{"a":{"t":3,"f":65,"v":1}}}').after
        assert after is not None
        assert after.key() == ()


class TestOldImageOfUpdatedColumns:
    A = '"a":{"t":3,"f":65,"v":1}'
    OLD_A = '"a":{"t":3,"f":65,"v":0}'
    NULL_B = '"b":{"t":3,"f":65,"v":null}'
    NULL_C = '"c":{"t":15,"f":64,"v":null}'

    def test_missing_columns_are_as_they_are_now(self) -> None:
        event = row(f'{{"u":{{{ID},{self.A}}},"p":{{{self.OLD_A}}}}}', only_output_updated_columns=True)
        assert neutral(event.before) == {"id": 1, "a": 0}
        assert event.before_unknown == ()

    def test_an_empty_p_is_an_update_that_changed_nothing(self) -> None:
        event = row(f'{{"u":{{{ID},{self.A}}},"p":{{}}}}', only_output_updated_columns=True)
        assert (event.operation, neutral(event.before)) == (Operation.UPDATE, {"id": 1, "a": 1})

    def test_members_without_name_make_the_old_value_unknown(self) -> None:
        event = row(
            f'{{"u":{{{ID},{self.A},{self.NULL_B}}},"p":{{{self.OLD_A},"t":3,"f":65,"v":7}}}}',
            only_output_updated_columns=True,
        )
        assert event.before_unknown == ("b",)
        assert neutral(event.before) == {"id": 1, "a": 0}

    def test_only_columns_of_the_same_type_and_flags_can_be_meant(self) -> None:
        event = row(
            f'{{"u":{{{ID},{self.NULL_B},{self.NULL_C}}},"p":{{"t":15,"f":64,"v":"x"}}}}',
            only_output_updated_columns=True,
        )
        assert event.before_unknown == ("c",)
        assert neutral(event.before) == {"id": 1, "b": None}

    def test_repeated_members_are_of_several_columns(self) -> None:
        event = row(
            f'{{"u":{{{ID},{self.NULL_B},{self.NULL_C}}},"p":{{"t":3,"f":65,"v":7,"t":15,"f":64,"v":"x"}}}}',
            only_output_updated_columns=True,
        )
        assert event.before_unknown == ("b", "c")

    def test_columns_that_are_called_like_the_members_are_told_apart(self) -> None:
        t = '"t":{"t":3,"f":65,"v":5}'
        event = row(
            f'{{"u":{{{ID},{t},"v":{{"t":3,"f":65,"v":null}}}},"p":{{"t":{{"t":3,"f":65,"v":4}},"t":3,"f":65,"v":7}}}}',
            only_output_updated_columns=True,
        )
        assert event.before_unknown == ("v",)
        assert neutral(event.before) == {"id": 1, "t": 4}

    @pytest.mark.parametrize("flags", [0, 1, 64])
    @pytest.mark.parametrize("before", [0, 3])
    def test_a_null_of_a_column_that_is_not_null_is_an_old_value_that_got_lost(self, flags: int, before: int) -> None:
        """Also once the form of the rows is known."""
        new, old = (f'"s":{{"t":15,"f":{flags},"v":{value}}}' for value in ('"x"', "null"))
        reader = codec(only_output_updated_columns=True)
        for _ in range(before):
            reader.decode(message([(KEY, f'{{"u":{{{ID},{new}}},"p":{{{new}}}}}'.encode())], 0))
        (event,) = reader.decode(message([(KEY, f'{{"u":{{{ID},{new}}},"p":{{{old}}}}}'.encode())], 0))
        assert isinstance(event, RowEvent)
        assert event.before_unknown == (() if flags & 64 else ("s",))
        assert neutral(event.before) == ({"id": 1, "s": None} if flags & 64 else {"id": 1})

    def test_an_incomplete_p_is_not_filled_when_the_changefeed_sends_whole_ones(self) -> None:
        event = bad(f'{{"u":{{{ID},{self.A}}},"p":{{{self.OLD_A}}}}}')
        assert event.reason == "incomplete_old_image"
        assert "only-output-updated-columns" in event.detail

    @pytest.mark.parametrize("p", ['"x":{"t":3,"f":65,"v":1}', '"t":3,"f":65,"v":7', '"t":3,"v":7', '"y":3', '"t":"3"'])
    def test_a_p_that_fits_no_column_is_bad(self, p: str) -> None:
        event = bad(f'{{"u":{{{ID}}},"p":{{{p}}}}}', only_output_updated_columns=True)
        assert event.reason == "bad_value"


class TestLargeMessages:
    def test_handle_keys_only(self) -> None:
        event = row(f'{{"u":{{{ID}}}}}', b'{"ts":1,"scm":"s","tbl":"t","t":1,"ohk":true}')
        assert (event.partial, event.large, event.reference) == (True, LargeMessage.HANDLE_KEY_ONLY, None)

    @pytest.mark.parametrize("ohk", ["", '"ohk":true,"ohk":false,', '"ohk":true,'], ids=["classic", "new", "odd"])
    def test_a_claim_check_whatever_ohk_says(self, ohk: str) -> None:
        location = f"s3:/bucket/{NAME}"
        event = row(f'{{"u":{{{ID}}}}}', f'{{"ts":1,"scm":"s","tbl":"t","t":1,{ohk}"ccl":"{location}"}}'.encode())
        assert (event.partial, event.large) == (True, LargeMessage.CLAIM_CHECK)
        assert event.reference is not None
        assert (event.reference.location, event.reference.object_name) == (location, NAME)

    def test_an_empty_location_is_one_that_names_no_object(self) -> None:
        """TiCDC writes the member only for rows whose columns it put into an object."""
        event = row(f'{{"u":{{{ID}}}}}', b'{"ts":1,"scm":"s","tbl":"t","t":1,"ccl":""}')
        assert (event.large, event.partial, event.reference) == (LargeMessage.CLAIM_CHECK, True, Reference("", ""))


class TestOtherEvents:
    @pytest.mark.parametrize("value", [None, b"", b"\0" * 8])
    def test_a_watermark_with_any_kind_of_empty_value(self, value: bytes | None) -> None:
        raw = message([resolved(TS)], 0)._replace(value=value)
        assert codec().decode(raw) == [WatermarkEvent(0, TS)]

    @pytest.mark.parametrize("compression", ["snappy", "lz4"])
    def test_a_watermark_is_not_compressed(self, compression: str) -> None:
        assert codec(compression=compression).decode(message([resolved(TS)], 0)) == [WatermarkEvent(0, TS)]

    @pytest.mark.parametrize(
        ("names", "table"), [('"scm":"s"', ""), ('"scm":"s","tbl":""', ""), ('"scm":"s","tbl":"t"', "t")]
    )
    @pytest.mark.parametrize("code", [1, 62, 231, 9999])
    def test_a_ddl_of_any_kind(self, names: str, table: str, code: int) -> None:
        event = decode_one(f'{{"q":"DROP …","t":{code}}}', f'{{"ts":5,{names},"t":2}}'.encode())
        assert event == DdlEvent(0, 5, "s", table, "DROP …", code)

    def test_a_key_of_the_version_alone_holds_no_event(self) -> None:
        for value in (b"", None):
            assert codec().decode(RawMessage("t", 0, 0, 0, (1).to_bytes(8, "big"), value)) == []

    def test_a_batch_mixes_tables_times_and_kinds(self) -> None:
        other = b'{"ts":3,"scm":"x","tbl":"y","t":1}'
        batch = [(KEY, f'{{"u":{{{ID}}}}}'.encode()), (other, f'{{"d":{{{ID}}}}}'.encode()), resolved(9)]
        events = codec().decode(message(batch, 0))
        assert [event.ordinal for event in events] == [0, 1, 2]
        first, second, third = events
        assert isinstance(first, RowEvent)
        assert isinstance(second, RowEvent)
        assert (first.table, second.table, second.commit_ts, third) == ("t", "y", 3, WatermarkEvent(2, 9))


class TestCells:
    @pytest.mark.parametrize(
        ("code", "flags", "value", "expected"),
        [
            (1, 65, "-128", -128), (1, 193, "255", 255), (2, 65, "-32768", -32768), (9, 193, "16777215", 16777215),
            (3, 193, "4294967295", 4294967295), (8, 65, "-9223372036854775808", -(1 << 63)),
            (8, 193, "18446744073709551615", (1 << 64) - 1), (8, 65, "9007199254740993", 9007199254740993),
            (16, 193, "18446744073709551615", (1 << 64) - 1), (13, 193, "0", 0), (13, 193, "2155", 2155),
            (4, 65, "3", 3.0), (4, 65, "1e-07", 1e-07), (4, 65, "3.4028235e+38", 3.4028235e38), (5, 65, "1e+21", 1e21),
            (5, 65, "100000000000000000000", 1e20), (5, 65, "2.2250738585072014e-308", 2.2250738585072014e-308),
            (246, 65, '"-0.0500"', "-0.0500"), (246, 65, '"%s"' % ("9" * 65), "9" * 65),
            (10, 65, '"0000-00-00"', "0000-00-00"), (14, 65, '"2023-00-10"', "2023-00-10"),
            (11, 65, '"-838:59:59.000000"', "-838:59:59.000000"),
            (12, 65, '"2015-12-20 23:58:58.120"', "2015-12-20 23:58:58.120"),
            (7, 65, '"0000-00-00 00:00:00"', "0000-00-00 00:00:00"),
            (225, 65, '"[1,2.5,-0.0000012]"', "[1,2.5,-0.0000012]"), (225, 65, '"[]"', "[]"),
            (245, 65, r'"{\"a\": 1}"', '{"a": 1}'), (245, 65, '"null"', "null"),
            (247, 64, "0", 0), (247, 64, "3", 3), (248, 64, "18446744073709551615", (1 << 64) - 1),
            (15, 64, r'"\u003c\\x41"', r"<\x41"), (253, 0, '"é"', "é"), (254, 64, '""', ""),
            (15, 65, r'"\\x89PNG\\r"', b"\x89PNG\r"), (254, 65, r'"\\x00\\x00"', b"\0\0"), (253, 1, '"é"', "é".encode()),
            (252, 64, '"YWE="', "aa"), (249, 65, '"AAH/"', b"\0\1\xff"), (250, 64, '"/w=="', b"\xff"), (251, 65, '""', b""),
        ],
    )  # fmt: skip
    def test_values_are_exact(self, code: int, flags: int, value: str, expected: Any) -> None:
        got = cell(code, flags, value)
        assert (got, type(got)) == (expected, type(expected))

    @pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 225, *range(245, 255)])
    @pytest.mark.parametrize("flags", [64, 65, 192, 193])
    def test_null_is_null_in_every_type(self, code: int, flags: int) -> None:
        if code in (15, *range(249, 255)) and flags & 128:
            assert bad(f'{{"u":{{"c":{{"t":{code},"f":{flags},"v":null}}}}}}').reason == "unknown_column_type"
        else:
            assert cell(code, flags, "null") is None

    @pytest.mark.parametrize("code", [4, 5])
    @pytest.mark.parametrize("text", ["-0", "-0.0"])
    def test_negative_zero_keeps_its_sign(self, code: int, text: str) -> None:
        assert str(cell(code, 65, text)) == "-0.0"

    def test_negative_zero_is_found_in_old_values_and_deletes_too(self) -> None:
        zero, minus = '"c":{"t":5,"f":65,"v":0}', '"c":{"t":5,"f":65,"v":-0}'
        assert str(neutral(row(f'{{"u":{{{zero}}},"p":{{{minus}}}}}').before)) == "{'c': -0.0}"
        assert str(neutral(row(f'{{"d":{{{minus}}}}}').before)) == "{'c': -0.0}"

    def test_integers_have_no_negative_zero(self) -> None:
        assert cell(3, 65, "-0") == 0

    @pytest.mark.parametrize(("code", "expected"), [(15, b"a\xffb"), (254, b"a\xffb"), (245, b"a\xffb")])
    def test_text_that_is_not_utf8_becomes_bytes(self, code: int, expected: bytes) -> None:
        event = row(b'{"u":{"c":{"t":%d,"f":64,"v":"a\xffb"},"d":{"t":15,"f":64,"v":"\xc3\xa9"}}}' % code)
        assert neutral(event.after) == {"c": expected, "d": "é"}

    @pytest.mark.parametrize(
        ("code", "flags", "value"),
        [
            (1, 65, "128"), (1, 193, "-1"), (3, 65, "2147483648"), (8, 65, "9223372036854775808"), (8, 193, "-1"),
            (13, 193, "2156"), (247, 64, "65536"), (247, 64, "-1"), (3, 65, "1.5"), (3, 65, "1.0"), (3, 65, "true"),
            (3, 65, '"1"'), (3, 65, "{}"), (3, 65, "[1]"), (4, 65, "1e39"), (5, 65, "true"), (5, 65, '"1"'),
            (246, 65, "1.5"), (15, 64, "1"), (252, 64, '"YQ"'), (252, 65, '"not base64!"'), (16, 193, "-1"),
        ],
    )  # fmt: skip
    def test_values_that_the_type_can_not_have_are_bad(self, code: int, flags: int, value: str) -> None:
        event = bad(f'{{"u":{{"c":{{"t":{code},"f":{flags},"v":{value}}}}}}}')
        assert event.reason == "bad_cell"
        assert "column 'c' of u" in event.detail
        assert (event.commit_ts, event.schema, event.table) == (TS, "s", "t")

    @pytest.mark.parametrize(
        ("code", "flags", "value"),
        [
            (8, 193, "18446744073709551616"), (16, 193, "18446744073709551616"), (246, 65, '"1e5"'), (246, 65, '""'),
            (10, 65, '"2020-1-01"'), (10, 65, '"2020-01-01 "'), (10, 65, '"2020-01-01\\n2020-01-01"'), (12, 65, '"x"'),
            (11, 65, '"1:02:03"'), (7, 65, '"2020-01-01T00:00:00"'), (225, 65, '"[1,]"'), (15, 65, r'"\\q"'),
            (10, 65, '"٢٠٢٠-01-01"'),
        ],
    )  # fmt: skip
    def test_text_that_the_type_can_not_have_is_refused_when_it_is_converted(
        self, code: int, flags: int, value: str
    ) -> None:
        with pytest.raises(ValueError):
            cell(code, flags, value)


class TestFingerprint:
    def fingerprint(self, value: str, key: bytes = KEY, **options: Any) -> bytes:
        return row(value, key, **options).fingerprint

    def test_byte_equal_copies_share_it_in_any_batch_and_in_a_claim_check(self) -> None:
        value = f'{{"u":{{{ID}}}}}'
        claimed = KEY[:-1] + b',"ccl":"s3://b/%s"}' % NAME.encode()
        assert len(self.fingerprint(value)) == 16
        assert self.fingerprint(value) == self.fingerprint(value, claimed)

    def test_another_value_time_or_table_has_another(self) -> None:
        value = f'{{"u":{{{ID}}}}}'
        different = {
            self.fingerprint(value),
            self.fingerprint(f'{{"d":{{{ID}}}}}'),
            self.fingerprint(value, KEY.replace(b"136", b"137")),
            self.fingerprint(value, KEY.replace(b'"tbl":"t"', b'"tbl":"u"')),
            self.fingerprint(value, KEY.replace(b'"scm":"s"', b'"scm":"r"')),
        }
        assert len(different) == 5


class TestShapes:
    def test_rows_of_one_form_share_a_shape(self) -> None:
        reader = codec()
        values = [f'{{"u":{{"id":{{"t":3,"h":true,"f":11,"v":{n}}}}}}}'.encode() for n in range(5)]
        rows = [event for n, value in enumerate(values) for event in reader.decode(message([(KEY, value)], n))]
        shapes = {id(event.after.shape) for event in rows if isinstance(event, RowEvent) and event.after}
        assert len(rows) == 5
        assert len(shapes) == 1

    def test_flags_that_do_not_matter_for_reading_do_not_make_another_shape(self) -> None:
        reader = codec()
        flags = [11, 11, 43, 43, 11, 139]
        values = [f'{{"u":{{"id":{{"t":3,"h":true,"f":{flag},"v":1}}}}}}'.encode() for flag in flags]
        rows = [event for n, value in enumerate(values) for event in reader.decode(message([(KEY, value)], n))]
        shapes = [event.after.shape for event in rows if isinstance(event, RowEvent) and event.after]
        assert len({id(shape) for shape in shapes[:5]}) == 1
        assert shapes[5] is not shapes[0]
        assert str(shapes[5].columns[0].type) == "int unsigned"

    def test_a_changed_table_is_read_with_its_new_columns_at_once(self) -> None:
        reader = codec()
        before = f'{{"u":{{{ID}}}}}'.encode()
        after = f'{{"u":{{{ID},"a":{{"t":15,"f":64,"v":"x"}}}}}}'.encode()
        got = [
            neutral(event.after)
            for value in (before, before, before, after, before, after, after, after)
            for event in reader.decode(message([(KEY, value)], 0))
            if isinstance(event, RowEvent)
        ]
        assert got == [{"id": 1}] * 3 + [{"id": 1, "a": "x"}, {"id": 1}] + [{"id": 1, "a": "x"}] * 3

    @pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "表", "a<b", " ", "c0", "t", "u"])
    def test_columns_may_have_any_name(self, name: str) -> None:
        value = json.dumps({"u": {name: {"t": 3, "h": True, "f": 11, "v": 5}}})
        assert neutral(row(value).after) == {name: 5}
        assert neutral(row(value.replace("<", "\\u003c")).after) == {name: 5}

    def test_a_repeated_column_counts_as_it_stands_last(self) -> None:
        assert neutral(row('{"u":{"a":{"t":3,"f":65,"v":1},"a":{"t":3,"f":65,"v":2}}}').after) == {"a": 2}


class TestSchemaChanges:
    @pytest.mark.parametrize(
        "key", [b'{"ts":5,"scm":"s","t":2}', b'{"t": 2,"ts":5}', b'{"t"\t:\n2,"ts":5}', b'{"\\u0074":2,"ts":5}']
    )
    def test_a_ddl_is_seen(self, key: bytes) -> None:
        assert codec().is_schema_change(message([(key, b'{"q":"x","t":1}')], 0))

    def test_rows_and_watermarks_are_none(self) -> None:
        assert not codec().is_schema_change(message([(KEY, b"{}")], 0))
        assert not codec().is_schema_change(message([resolved(TS)], 0))
        assert not codec().is_schema_change(RawMessage("t", 0, 0, 0, None, None))
