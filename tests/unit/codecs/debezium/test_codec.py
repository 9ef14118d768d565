"""Rows, schema changes and watermarks of Debezium in JSON."""

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.debezium_messages import ABSENT, CREATED, ID, TS, ddl, field, history, message, row, watermark
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried
from ticdc_replay.changefeed.rules import ColumnSelector, Dispatch
from ticdc_replay.changefeed.table_filter import ColumnFilter, TableFilter
from ticdc_replay.codecs.debezium.codec import DebeziumCodec
from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.domain.events import DdlEvent, Operation, RowEvent, Undecodable, WatermarkEvent
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.lookup import SchemaLookup

FIELDS = (ID, field("v", "string", tidb_type="varchar"))
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))"


def codec(known=None, max_bytes=100_000, **options):
    changefeed = Changefeed(protocol="debezium", topic="topic", timezone="Asia/Shanghai", **options)
    return DebeziumCodec(changefeed, max_bytes, SchemaLookup(known or SchemaHistory()))


def only(codec, raw):
    """The one event of a message, which is the same when its form is known."""
    (event,) = codec.decode(raw)
    for _ in range(2):
        (again,) = codec.decode(raw)
        assert described(again) == described(event)
    return event


def described(event):
    if not isinstance(event, RowEvent):
        return event
    return event._replace(before=shown(event.before), after=shown(event.after))


def shown(image):
    return image and (image.shape, [repr(value) for value in image.values])


def cells(image):
    return {
        column.name: column.neutral((value,))[0]
        for column, value in zip(image.shape.columns, image.values, strict=True)
    }


def undecodable(codec, raw):
    event = only(codec, raw)
    assert isinstance(event, Undecodable), event
    return event


def changed(raw, old, new):
    """*raw* with the bytes *old* of its value replaced."""
    assert old in raw.value
    return raw._replace(value=raw.value.replace(old, new))


def test_an_insert_has_its_new_image():
    event = only(codec(), row("c", after={"id": 7, "v": "text"}, fields=FIELDS))
    assert (event.operation, event.commit_ts, event.schema, event.table) == (Operation.INSERT, TS, "s", "t")
    assert (cells(event.after), event.before) == ({"id": 7, "v": "text"}, None)
    assert event.after.shape.handle_key == ("id",)
    assert (event.partial, event.lossy, event.damage, event.physical_table_id) == (False, (), "", None)


def test_an_update_has_both_images():
    event = only(codec(), row("u", before={"id": 7, "v": "a"}, after={"id": 7, "v": "b"}, fields=FIELDS))
    assert (event.operation, cells(event.before)["v"], cells(event.after)["v"]) == (Operation.UPDATE, "a", "b")
    assert event.before.shape is event.after.shape


def test_a_delete_has_its_old_image():
    event = only(codec(), row("d", before={"id": 7, "v": None}, fields=FIELDS))
    assert (event.operation, cells(event.before), event.after) == (Operation.DELETE, {"id": 7, "v": None}, None)


def test_an_update_may_lack_its_old_image_where_the_changefeed_says_so():
    raw = row("u", before=ABSENT, after={"id": 7, "v": "b"}, fields=FIELDS)
    event = only(codec(debezium_output_old_value=False), raw)
    assert (event.operation, event.before) == (Operation.UPDATE, None)
    refused = undecodable(codec(), raw)
    assert refused.reason == "incomplete_old_image"
    assert "debezium.output-old-value" in refused.detail


def test_a_start_ts_is_of_no_account():
    event = only(codec(), row(after={"id": 7, "v": "x"}, fields=FIELDS, start_ts=TS - 5))
    assert event.commit_ts == TS


@pytest.mark.parametrize("told", [True, False], ids=["with schemas", "without schemas"])
def test_keys_have_the_forms_of_the_row(told):
    fields = (
        field("n", "string", optional=False, tidb_type="bigint unsigned"),
        field("b", "string", optional=False, tidb_type="varbinary"),
    )
    known = history("CREATE TABLE t (n BIGINT UNSIGNED, b VARBINARY(9), PRIMARY KEY (n, b))")
    decoder = codec(
        known, debezium_bigint_unsigned_handling_mode="string", debezium_binary_handling_mode="base64-url-safe"
    )
    wire = {"n": "18446744073709551615", "b": "-_8="}
    event = only(decoder, row(after=wire, key=wire, fields=fields if told else None))
    assert (cells(event.after), event.lossy) == ({"n": 2**64 - 1, "b": b"\xfb\xff"}, ())
    other = row(after=wire, key={**wire, "b": "-_4="}, fields=fields if told else None)
    assert undecodable(decoder, other).reason == "key_mismatch"


@pytest.mark.parametrize("fields", [FIELDS, None], ids=["with schemas", "without schemas"])
def test_a_table_without_handle_key_has_an_empty_key(fields):
    event = only(
        codec(history("CREATE TABLE t (id INT, v VARCHAR(20))")), row(after={"id": 7, "v": "x"}, fields=fields, key={})
    )
    assert event.after.shape.handle_key == ()


def test_where_releases_send_no_key_the_definition_tells_the_handle_key():
    raw = row(after={"id": 7, "v": "x"}, fields=FIELDS, key=None)
    assert only(codec(history(TABLE)), raw).after.shape.handle_key == ("id",)
    assert only(codec(), raw).after.shape.handle_key == ()


def test_without_schemas_the_definition_tells_the_types():
    table = "CREATE TABLE t (id INT PRIMARY KEY, b VARBINARY(9), d DECIMAL(6,2), t TIME(1), u BIGINT UNSIGNED)"
    image = {"id": 7, "b": "/wA=", "d": 1.5, "t": -1_500_000, "u": -1}
    event = only(codec(history(table)), row(after=image, fields=None))
    assert cells(event.after) == {"id": 7, "b": b"\xff\x00", "d": "1.50", "t": "-00:00:01.5", "u": 2**64 - 1}
    assert event.lossy == ()
    assert all(column.type.declared for column in event.after.shape.columns)


def test_without_schemas_and_definition_cells_are_what_the_wire_says():
    image = {"id": 7, "d": 19723, "b": "/wA=", "f": True, "n": None, "r": 1.50}
    event = only(codec(), row(after=image, fields=None))
    assert cells(event.after) == {"id": "7", "d": "19723", "b": "/wA=", "f": "1", "n": None, "r": "1.5"}
    assert event.lossy == tuple(f"after.{name}" for name in image)


def test_a_definition_counts_for_the_rows_of_its_time():
    known = history(TABLE, "ALTER TABLE t MODIFY v VARBINARY(20)")
    before, after = (row(after={"id": 7, "v": "AAA="}, fields=None, ts=ts) for ts in (CREATED + 1, CREATED + 2))
    decoder = codec(known)
    for _ in range(3):
        assert cells(decoder.decode(before)[0].after)["v"] == "AAA="
        assert cells(decoder.decode(after)[0].after)["v"] == b"\x00\x00"


def test_virtual_columns_are_in_the_schema_alone():
    fields = (*FIELDS, field("virtual", "int32"))
    table = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), virtual INT AS (id + 1) VIRTUAL)"
    image = {"id": 7, "v": "x"}
    for known, listed in ((history(table), fields), (history(TABLE), (*fields, fields[-1])), (None, fields)):
        assert cells(only(codec(known), row(after=image, fields=listed)).after) == image


def test_a_column_without_value_is_a_fault_where_it_is_known_not_to_be_virtual():
    event = undecodable(codec(history(TABLE)), row(after={"id": 7}, fields=FIELDS))
    assert (event.reason, event.commit_ts, event.schema, event.table) == ("bad_value", TS, "s", "t")


def test_text_that_is_not_utf_8_is_kept_as_bytes():
    event = only(codec(), row(after={"id": 7, "v": "a\udcff"}, fields=FIELDS))
    assert cells(event.after)["v"] == b"a\xff"


def test_text_has_no_lone_surrogates():
    raw = changed(row(after={"id": 7, "v": "mark"}, fields=FIELDS), b"mark", rb"\udcff")
    assert undecodable(codec(), raw).reason == "bad_cell"


def test_the_sign_of_zero_is_kept():
    fields = (ID, field("f", "double", tidb_type="double"))
    for wire, value in ((b"-0", "-0.0"), (b"0", "0.0"), (b"-0.5", "-0.5")):
        event = only(codec(), changed(row(after={"id": 7, "f": 25}, fields=fields), b":25", b":" + wire))
        assert repr(cells(event.after)["f"]) == value


def test_names_of_any_kind_are_read():
    fields = (ID, field('odd "name"\\', "string", tidb_type="text"), field("schema", "string", tidb_type="text"))
    image = {"id": 7, 'odd "name"\\': '},"schema":{', "schema": '}}"op":"'}
    assert cells(only(codec(), row(after=image, fields=fields, schema='d"b', table='"server_id"')).after) == image


def test_copies_have_one_fingerprint_whenever_they_were_built():
    image = {"id": 7, "v": "x"}
    first = only(codec(), row(after=image, fields=FIELDS))
    assert only(codec(), row(after=image, fields=FIELDS, built=5)).fingerprint == first.fingerprint
    assert only(codec(), row(after=image, fields=None)).fingerprint == first.fingerprint
    others = (
        row(after={"id": 7, "v": "y"}, fields=FIELDS),
        row(after=image, fields=FIELDS, ts=TS + 1),
        row(after=image, fields=FIELDS, table="t2"),
        row("d", before=image, fields=FIELDS),
    )
    found = {only(codec(), other).fingerprint for other in others}
    assert len(found) == len(others)
    assert first.fingerprint not in found


def test_a_watermark_says_its_tso():
    assert only(codec(), watermark(TS)) == WatermarkEvent(0, TS)


@pytest.mark.parametrize(("changes", "type_"), [(("DROP",), "DROP"), ((), "")])
def test_a_schema_change_has_the_type_of_its_table_change(changes, type_):
    assert only(codec(), ddl("DROP TABLE t", changes=changes)) == DdlEvent(0, TS, "s", "t", "DROP TABLE t", type_)


def test_key_and_value_are_compressed():
    raw = row(after={"id": 7, "v": "x"}, fields=FIELDS)
    packed = message(lz4.frame.compress(raw.key), lz4.frame.compress(raw.value))
    assert cells(only(codec(compression="lz4"), packed).after) == {"id": 7, "v": "x"}
    assert undecodable(codec(compression="lz4"), raw).reason == "bad_compression"
    assert undecodable(codec(compression="lz4", max_bytes=100), packed).reason == "too_large"


def test_schema_changes_and_watermarks_are_found_without_decoding():
    kinds = {"row": row(after={"id": 7, "v": "x"}, fields=FIELDS), "ddl": ddl("DROP TABLE t"), "watermark": watermark()}
    for compression in ("none", "lz4"):
        decoder = codec(compression=compression)
        for kind, raw in kinds.items():
            if compression == "lz4":
                raw = message(lz4.frame.compress(raw.key), lz4.frame.compress(raw.value))
            assert decoder.is_schema_change(raw) is (kind == "ddl")
            assert decoder.is_watermark(raw) is (kind == "watermark")
            without_key = raw._replace(key=None)
            assert decoder.is_schema_change(without_key) is (kind == "ddl")
            assert decoder.is_watermark(without_key) is (kind == "watermark")


@pytest.mark.parametrize("extension", [True, False])
def test_watermarks_need_the_extension(extension):
    changefeed = Changefeed(protocol="debezium", topic="t", timezone="UTC", enable_tidb_extension=extension)
    assert carried_by(changefeed) == Carried("rows", watermarks=extension, ddl="every partition", old_keys=True)


GOOD = row(after={"id": 7, "v": "x"}, fields=FIELDS)
ENUM = row(
    after={"id": 7, "e": "a"}, fields=(ID, field("e", "string", "io.debezium.data.Enum", parameters={"allowed": "a,b"}))
)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (message(b"k", None), "empty_message"),
        (message(b"k", b""), "empty_message"),
        (GOOD._replace(value=GOOD.value[:-1]), "bad_json"),
        (GOOD._replace(value=b"[" * 100_000), "bad_json"),
        (GOOD._replace(value=b"1"), "bad_value"),
        (GOOD._replace(value=b'{"payload":[]}'), "bad_value"),
        (GOOD._replace(value=b'{"payload":{}}'), "bad_value"),
        (changed(GOOD, b'"op":"c"', b'"op":"r"'), "unknown_event_type"),
        (changed(GOOD, b'"op":"c",', b""), "bad_value"),
        (changed(GOOD, b'"op":"c"', b'"op":"u"'), "bad_value"),
        (changed(GOOD, b'"op":"c"', b'"op":"d"'), "bad_value"),
        (changed(GOOD, b'"after":{', b'"other":{'), "bad_value"),
        (changed(GOOD, b'"before":null', b'"before":{"id":7,"v":"x"}'), "bad_value"),
        (changed(GOOD, str(TS).encode(), str(TS + (1 << 20)).encode()), "bad_value"),
        (changed(GOOD, str(TS).encode(), b"-1"), "bad_value"),
        (changed(GOOD, b'"db":"s"', b'"db":""'), "bad_value"),
        (changed(GOOD, b'"table":"t"', b'"table":5'), "bad_value"),
        (changed(GOOD, b'"after":{"id":7', b'"after":{"id":8'), "key_mismatch"),
        (changed(GOOD, b'"after":{"id":7', b'"after":{"id":"7"'), "bad_cell"),
        (changed(GOOD, b'"after":{"id":7', b'"after":{"id":70000000000'), "bad_cell"),
        (changed(GOOD, b'"v":"x"', b'"v":["x"]'), "bad_cell"),
        (changed(GOOD, b'"v":"x"', b'"w":"x"'), "bad_value"),
        (changed(GOOD, b'"type":"int32"', b'"type":"int64x"'), "bad_schema"),
        (changed(GOOD, b'"fields":[{"type":"struct"', b'"fields":[5,{"type":"struct"'), "bad_schema"),
        (GOOD._replace(key=b"{}"), "bad_value"),
        (GOOD._replace(key=b'{"payload":{"x":1}}'), "key_mismatch"),
        (GOOD._replace(key=b'{"payload":{"id":7},"schema":{"fields":[]}}'), "bad_key"),
        (GOOD._replace(key=b'{"payload":{"id":7}'), "bad_json"),
        (changed(GOOD, b'"field":"v"', b'"field":"\\ud800"'), "bad_value"),
        (GOOD._replace(key=GOOD.key.replace(b'"int32"', b'"\\ud800"')), "bad_schema"),
        (changed(ENUM, b'"a,b"', b'"a,\xff"'), "bad_schema"),
        (changed(ENUM, b'"a,b"', b'"a,\\ud800"'), "bad_schema"),
        (GOOD._replace(value=b'{"payload":{},"schema":' + b"[" * 45_000 + b"]" * 45_000 + b"}"), "bad_json"),
        (ddl("DROP TABLE t")._replace(key=GOOD.key), "key_mismatch"),
        (watermark()._replace(key=GOOD.key), "key_mismatch"),
        (changed(ddl("DROP TABLE t"), b'"type":"ALTER"', b'"type":1e5'), "bad_value"),
        (changed(ddl("DROP TABLE t"), b'"ddl":"DROP TABLE t"', b'"ddl":1'), "bad_value"),
    ],
)  # fmt: skip
def test_what_is_not_understood_says_why(raw, reason):
    decoder = codec()
    for _ in range(3):
        decoder.decode(GOOD)
    assert undecodable(decoder, raw).reason == reason


MESSAGES = [
    GOOD,
    row("u", before={"id": 7, "v": "a"}, after={"id": 7, "v": None}, fields=FIELDS),
    row("d", before={"id": 7, "v": "a\udcff"}, fields=FIELDS),
    row(after={"id": 7, "v": "x"}, fields=FIELDS[::-1]),
    row(after={"v": "x", "id": 7}, fields=FIELDS),
    row(after={"id": 7, "v": "x"}, fields=FIELDS, key=None),
    row(after={"id": 7, "v": "x"}, fields=FIELDS, key={}),
    row(after={"id": 7, "v": "x"}, fields=(ID, field("v", "string", tidb_type="text"))),
    row(after={"id": 7, "v": "x"}, fields=None),
    row(after={"id": 7, "v": 5}, fields=None),
    row(after={"id": 7, "v": 5, "w": False}, fields=None, ts=CREATED),
    watermark(),
    ddl("DROP TABLE t"),
]


@given(st.lists(st.sampled_from(range(len(MESSAGES))), max_size=12))
def test_a_message_is_read_alike_whatever_was_read_before(order):
    decoder = codec(history(TABLE))
    for at in order:
        (event,) = decoder.decode(MESSAGES[at])
        (fresh,) = codec(history(TABLE)).decode(MESSAGES[at])
        assert columns_shown(event) == columns_shown(fresh)


def columns_shown(event):
    if not isinstance(event, RowEvent):
        return event
    images = [
        image
        and {
            c.name: (c.type, c.is_handle_key, value) for c, value in zip(image.shape.columns, image.values, strict=True)
        }
        for image in (event.before, event.after)
    ]
    return event._replace(before=None, after=None, lossy=sorted(event.lossy)), images


def test_a_key_of_which_a_selector_drops_a_column_identifies_no_row():
    """New TiCDC drops it from the value alone."""
    selector = ColumnSelector(TableFilter(("*.*",)), ColumnFilter(("*", "!id")))
    dropping = codec(dispatch=Dispatch(selectors=(selector,)))
    for fields in (None, FIELDS):
        raw = row(after={"v": "x"}, fields=fields and FIELDS[1:], key={})._replace(
            key=row(after={"id": 7, "v": "x"}, fields=fields).key
        )
        assert only(codec(), raw).reason == "key_mismatch"
        assert only(dropping, raw).after.shape.handle_key == ()
    whole = row(after={"id": 7, "v": "x"}, fields=FIELDS)
    assert only(dropping, whole).after.shape.handle_key == ("id",)
    assert only(dropping, whole._replace(key=whole.key.replace(b"7", b"8"))).reason == "key_mismatch"
