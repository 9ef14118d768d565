"""Rows, schema changes and watermarks of Debezium in Avro."""

import json

import pytest

from tests.support.avro_messages import confluent, encoded
from tests.support.debezium_messages import TS, history, message
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import Carried
from ticdc_replay.changefeed.rules import ColumnSelector, Dispatch
from ticdc_replay.changefeed.table_filter import ColumnFilter, TableFilter
from ticdc_replay.codecs.debezium.avro import DebeziumAvroCodec
from ticdc_replay.codecs.registry import carried_by
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import TransientError
from ticdc_replay.domain.events import DdlEvent, Operation, RowEvent, Undecodable, WatermarkEvent
from ticdc_replay.domain.limits import MAX_COLUMNS
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.lookup import FixedWriterSchemas, SchemaLookup

KEY, VALUE, DDL, WATERMARK = 1, 2, 3, 4
TEST_MODE = {"enable_tidb_extension": True, "avro_enable_watermark": True}


def column(field, type_, *, tidb=None, optional=True, spelled=None, **connect):
    """A field of the column *field* as TiCDC writes it; *spelled* is how Avro has its name."""
    shape = {f"connect.{key}": value for key, value in connect.items() if key in ("name", "parameters", "type")}
    shape |= {key: value for key, value in connect.items() if key not in ("name", "parameters", "type")}
    written = {"type": type_, **shape} if shape else type_
    found = {"connect.field": field, "name": spelled or field, "type": ["null", written] if optional else written}
    return found | ({"default": None} if optional else {}) | ({"tidb_type": tidb} if tidb else {})


def bits(length):
    return column("c", "bytes", name="io.debezium.data.Bits", parameters={"length": str(length)})


def record(name, *fields):
    return {"type": "record", "name": name, "namespace": "c.s", "connect.name": f"c.s.{name}", "fields": list(fields)}


def plain(name, type_):
    return {"connect.field": name, "name": name, "type": type_}


SOURCE = plain("source", record("Source", plain("name", "string"), plain("ts_ms", "long"), plain("db", "string"),
    plain("table", "string"), plain("gtid", ["null", "string"]), plain("commit_ts", "long")))  # fmt: skip
ID = column("id", "int", tidb="int")
COLUMNS = (ID, column("v", "string", tidb="varchar"))


def value_schema(columns=COLUMNS):
    return record("tEnvelope", plain("before", ["null", record("t", *columns)]), plain("after", ["null", "c.s.t"]),
                  SOURCE, plain("op", "string"), plain("ts_ms", "long"))  # fmt: skip


SCHEMAS = {
    KEY: record("tKey", ID),
    VALUE: value_schema(),
    DDL: record(
        "SchemaChangeValue", SOURCE, plain("ts_ms", "long"), plain("databaseName", ["null", "string"]),
        plain("ddl", ["null", "string"]),
        plain("tableChanges", {"type": "array", "items": record("Change", plain("type", "string"), plain("id", "string"))}),
    ),
    WATERMARK: record(
        "watermarkEnvelope", SOURCE, plain("op", "string"), plain("ts_ms", ["null", "long"]),
        plain("transaction", ["null", record("block", plain("id", "string"))]),
    ),
}  # fmt: skip


def codec(columns=COLUMNS, known=None, schemas=None, **options):
    changefeed = Changefeed(protocol="debezium-avro", topic="topic", timezone="Asia/Shanghai", **options)
    documents = {**SCHEMAS, VALUE: value_schema(columns), **(schemas or {})}
    texts = {str(number): text if isinstance(text, str) else json.dumps(text) for number, text in documents.items()}
    return DebeziumAvroCodec(changefeed, 100_000, SchemaLookup(known or SchemaHistory(), FixedWriterSchemas(texts)))


def source(ts=TS, db="s", table="t"):
    return {"name": "c", "ts_ms": ts >> 18, "db": db, "table": table, "gtid": None, "commit_ts": ts}


def row(op="c", before=None, after=None, columns=COLUMNS, key=7, built=5, **where):
    value = {"before": before, "after": after, "source": source(**where), "op": op, "ts_ms": built}
    return message(
        None if key is None else confluent(KEY, encoded(SCHEMAS[KEY], {"id": key})),
        confluent(VALUE, encoded(value_schema(columns), value)),
    )


def only(codec, raw):
    (event,) = codec.decode(raw)
    return event


def cells(image):
    return {
        column.name: column.neutral((value,))[0]
        for column, value in zip(image.shape.columns, image.values, strict=True)
    }


def test_an_update_has_both_images():
    event = only(codec(), row("u", before={"id": 7, "v": "a"}, after={"id": 7, "v": "b"}))
    assert (event.operation, event.commit_ts, event.schema, event.table) == (Operation.UPDATE, TS, "s", "t")
    assert (cells(event.before), cells(event.after)) == ({"id": 7, "v": "a"}, {"id": 7, "v": "b"})
    assert (event.after.shape.handle_key, event.partial) == (("id",), False)


@pytest.mark.parametrize(
    ("op", "images", "operation"),
    [
        ("c", {"after": {"id": 7, "v": "a"}}, Operation.INSERT),
        ("d", {"before": {"id": 7, "v": "a"}}, Operation.DELETE),
    ],
)
def test_an_operation_has_its_images(op, images, operation):
    event = only(codec(), row(op, **images))
    assert event.operation is operation
    assert {side: cells(getattr(event, side)) for side in images} == images


def test_an_update_may_lack_its_old_image_where_the_changefeed_says_so():
    raw = row("u", after={"id": 7, "v": "b"})
    assert only(codec(debezium_output_old_value=False), raw).before is None
    assert only(codec(), raw).reason == "incomplete_old_image"


def test_names_are_those_of_the_database():
    columns = (ID, column("col umn", "string", spelled="col_umn"))
    event = only(codec(columns), row(after={"id": 7, "col_umn": "x"}, columns=columns, db="dev-db 2.x", table="表"))
    assert (event.schema, event.table, cells(event.after)) == ("dev-db 2.x", "表", {"id": 7, "col umn": "x"})


CELLS = [
    (column("c", "bytes", logicalType="decimal", precision=12, scale=4), b"\xff", "-0.0001", True),
    (column("c", "string", tidb="decimal"), "-0.10", "-0.10", True),
    (column("c", "string", tidb="bigint unsigned"), str(2**64 - 1), 2**64 - 1, True),
    (column("c", "long", tidb="bigint unsigned"), 5, 5, True),
    (column("c", "int", type="int16", tidb="tinyint"), -5, -5, True),
    (column("c", "bytes", tidb="varbinary"), b"\x00\xff", b"\x00\xff", True),
    (bits(17), b"\x01\x00\x01", 0x10001, True),
    (column("c", "boolean", tidb="bit"), True, 1, True),
    (column("c", "int", name="io.debezium.time.Date"), 40000, "2079-07-08", True),
    (column("c", "long", name="io.debezium.time.MicroTimestamp"), -1, "1969-12-31 23:59:59.999999", True),
    (column("c", "string", name="io.debezium.time.ZonedTimestamp"), "2023-01-01T00:00:00Z", "2023-01-01 00:00:00Z", True),
    (column("c", "string", name="io.debezium.data.Enum", parameters={"allowed": "a,b"}), "b", "b", True),
    (column("c", "float", tidb="float"), 0.5, 0.5, True),
    (column("c", "string", tidb="text"), "é", "é", True),
    (column("c", "string", tidb="text"), None, None, False),
    (column("c", "int", name="io.debezium.time.Date"), None, None, True),
    (column("c", "int", tidb="int", optional=False), 5, 5, False),
]  # fmt: skip


@pytest.mark.parametrize(("field", "wire", "value", "lossy"), CELLS)
def test_cells_are_exact_but_may_be_the_default_in_place_of_null(field, wire, value, lossy):
    columns = (ID, field)
    event = only(codec(columns), row(after={"id": 7, "c": wire}, columns=columns))
    assert cells(event.after)["c"] == value
    assert event.lossy == (("after.c",) if lossy else ())


@pytest.mark.parametrize(
    ("defined", "field", "doubtful", "certain"),
    [
        ("INT", column("c", "int"), [], 0),
        ("INT NOT NULL DEFAULT 7", column("c", "int"), [], 7),
        ("INT DEFAULT 7", column("c", "int"), [7], 8),
        ("VARCHAR(9) DEFAULT 'x'", column("c", "string"), ["x"], "y"),
        ("VARBINARY(9) DEFAULT 'x'", column("c", "bytes"), [b"x"], b"y"),
        ("BIT(4) DEFAULT b'101'", bits(4), [b"\x05"], b"\x04"),
        ("INT DEFAULT (nextval(s))", column("c", "int"), [0, 7], None),
        ("DECIMAL(6,2)", column("c", "bytes", logicalType="decimal", precision=6, scale=2), [], b"\x05"),
    ],
)  # fmt: skip
def test_a_declared_definition_tells_which_cells_may_be_null(defined, field, doubtful, certain):
    known = history(f"CREATE TABLE t (id INT PRIMARY KEY, c {defined})")
    columns = (ID, field)
    for wire in doubtful:
        assert only(codec(columns, known), row(after={"id": 7, "c": wire}, columns=columns)).lossy == ("after.c",)
    if certain is not None:
        event = only(codec(columns, known), row(after={"id": 7, "c": certain}, columns=columns))
        assert event.lossy == ()
        assert event.after.shape.columns[1].type.declared


def test_copies_have_one_fingerprint_whenever_they_were_built():
    image = {"id": 7, "v": "x"}
    first, copy, other = (
        only(codec(), row(after=image, built=built, ts=ts)) for built, ts in ((5, TS), (6, TS), (5, TS + 1))
    )
    assert first.fingerprint == copy.fingerprint != other.fingerprint


def test_without_key_the_definition_tells_the_handle_key():
    raw = row(after={"id": 7, "v": "x"}, key=None)
    assert only(codec(), raw).after.shape.handle_key == ()
    known = history("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))")
    assert only(codec(known=known), raw).after.shape.handle_key == ("id",)


def test_a_key_of_which_a_selector_drops_a_column_identifies_no_row():
    selector = ColumnSelector(TableFilter(("*.*",)), ColumnFilter(("*", "!id")))
    dropping = Dispatch(selectors=(selector,))
    columns = [each for each in COLUMNS if each["name"] != "id"]
    raw = row(after={"v": "x"}, columns=columns)
    assert only(codec(columns), raw).reason == "key_mismatch"
    assert only(codec(columns, dispatch=dropping), raw).after.shape.handle_key == ()
    assert only(codec(dispatch=dropping), row(after={"id": 7, "v": "x"})).after.shape.handle_key == ("id",)
    assert only(codec(dispatch=dropping), row(after={"id": 7, "v": "x"}, key=8)).reason == "key_mismatch"


@pytest.mark.parametrize("changes", [[], ["ALTER"], ["DROP", "ALTER"]])
def test_the_test_mode_has_schema_changes(changes):
    value = {
        "source": source(), "ts_ms": 5, "databaseName": "s", "ddl": "ALTER TABLE t ADD x INT",
        "tableChanges": [{"type": type_, "id": "t"} for type_ in changes],
    }  # fmt: skip
    raw = message(b"k", confluent(DDL, encoded(SCHEMAS[DDL], value)))
    decoder = codec(**TEST_MODE)
    assert only(decoder, raw) == DdlEvent(0, TS, "s", "t", "ALTER TABLE t ADD x INT", (changes or [""])[0])
    assert decoder.is_schema_change(raw)
    assert not codec().is_schema_change(raw)


def test_the_test_mode_has_watermarks():
    value = {"source": source(db="", table=""), "op": "m", "ts_ms": 5, "transaction": None}
    raw = message(b"k", confluent(WATERMARK, encoded(SCHEMAS[WATERMARK], value)))
    decoder = codec(**TEST_MODE)
    assert only(decoder, raw) == WatermarkEvent(0, TS)
    assert decoder.is_watermark(raw)
    assert not codec().is_watermark(raw)


@pytest.mark.parametrize(
    ("options", "test_mode"), [({}, False), ({"enable_tidb_extension": True}, False), (TEST_MODE, True)]
)
def test_what_is_carried_depends_on_the_test_mode(options, test_mode):
    changefeed = Changefeed(protocol="debezium-avro", topic="t", timezone="UTC", **options)
    ddl = "every partition" if test_mode else "nowhere"
    assert carried_by(changefeed) == Carried("rows", watermarks=test_mode, ddl=ddl, old_keys=True)


GOOD = row(after={"id": 7, "v": "x"})


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (message(b"k", None), "empty_message"),
        (GOOD._replace(value=b"\x07" + GOOD.value[1:]), "bad_framing"),
        (GOOD._replace(value=GOOD.value[:4]), "bad_framing"),
        (GOOD._replace(value=confluent(9, b"")), "schema_unknown"),
        (GOOD._replace(value=GOOD.value[:-1]), "bad_value"),
        (GOOD._replace(value=GOOD.value + b"\x00"), "bad_value"),
        (GOOD._replace(key=GOOD.key + b"\x00"), "bad_key"),
        (GOOD._replace(key=GOOD.key[:5]), "bad_key"),
        (GOOD._replace(key=GOOD.value), "bad_schema"),
        (row(after={"id": 7, "v": "x"}, key=8), "key_mismatch"),
        (row("r", after={"id": 7, "v": "x"}), "unknown_event_type"),
        (row("c", before={"id": 7, "v": "x"}, after={"id": 7, "v": "x"}), "bad_value"),
        (row("d", after={"id": 7, "v": "x"}), "bad_value"),
        (row("u", before={"id": 7, "v": "x"}), "bad_value"),
        (row(after={"id": 7, "v": "x"}, db=""), "bad_value"),
        (row(after={"id": 7, "v": "x"}, ts=0), "bad_value"),
    ],
)
def test_what_is_not_understood_says_why(raw, reason):
    event = only(codec(), raw)
    assert isinstance(event, Undecodable)
    assert event.reason == reason


@pytest.mark.parametrize(
    "schema",
    [
        "[]",
        "{",
        record("t", plain("source", "string"), plain("op", "string")),
        record("t", SOURCE),
        record("t", plain("op", "string")),
        record("t", SOURCE, plain("op", "string"), plain("before", "string"), plain("after", "string")),
        record("t", SOURCE, plain("op", "int")),
        record("t", plain("source", ["null", SOURCE["type"]]), plain("op", "string")),
        record("t", plain("before", record("r", ID)), plain("after", "c.s.r"), SOURCE, plain("op", "string")),
        record("t", SOURCE, plain("op", "string"), plain("x", ["null", "string", "int"])),
        record("t", SOURCE, plain("op", "string"), plain("x", "c.s.unheard")),
        record("t", SOURCE, plain("op", "string"), plain("op", "string")),
        record(
            "t",
            SOURCE,
            plain("op", "string"),
            plain("x", record("a", plain("b", record("c", plain("d", record("e")))))),
        ),
        value_schema((ID, column("c", "bytes", name="io.debezium.data.Bits"))),
        value_schema((ID, column("c", "bytes", logicalType="decimal", precision=3, scale=4))),
        value_schema((ID, column("c", "bytes", logicalType="decimal", precision=0, scale=0))),
        value_schema((ID, column("c", "bytes", logicalType="decimal", precision=65, scale=31))),
        value_schema((ID, column("id", "int", spelled="other"))),
    ],
)
def test_a_schema_that_ticdc_does_not_register_is_refused(schema):
    assert only(codec(schemas={VALUE: schema}), GOOD).reason == "bad_schema"


def numbered(count):
    return [plain(f"c{number}", "int") for number in range(count)]


def doubled(at):
    """A record with two fields of the record before it."""
    type_ = f"c.s.R{at - 1}" if at else "int"
    return record(f"R{at}", plain("a", type_), plain("b", type_))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ([plain(f"f{at}", doubled(at)) for at in range(40)], "field 'a': type 'c.s.R0'"),
        ([plain("f", record("R", plain("a", ["null", "c.s.R"])))], "field 'a': type 'c.s.R'"),
        (numbered(20_000), "20000 fields"),
        ([plain("source", record("Source", *numbered(20_000)))], "20001 fields"),
        ([plain("f", record("R", *numbered(1_000))), *(plain(f"f{at}", "c.s.R") for at in range(100))], "101101 fields"),
    ],
    ids=["doubled", "recursive", "wide", "wide in a record", "named again and again"],
)  # fmt: skip
@pytest.mark.parametrize("part", [KEY, VALUE])
def test_a_schema_is_refused_before_a_reader_of_too_many_fields_is_made(fields, told, part):
    event = only(codec(schemas={part: record("t", *fields)}), GOOD)
    assert (event.reason, told in event.detail) == ("bad_schema", True), event.detail


def test_both_images_may_be_of_the_widest_table():
    columns = (ID, *(column(f"c{number}", "int") for number in range(MAX_COLUMNS - 1)))
    image = {"id": 7, **{f"c{number}": number for number in range(MAX_COLUMNS - 1)}}
    event = only(codec(columns), row("u", before=image, after={**image, "c0": 5}, columns=columns))
    assert (cells(event.before), cells(event.after)) == (image, {**image, "c0": 5})


def test_a_registry_that_is_away_is_no_bad_message():
    class Away:
        def text(self, schema_id):
            raise TransientError(f"no answer for {schema_id}")

    changefeed = Changefeed(protocol="debezium-avro", topic="topic", timezone="UTC")
    decoder = DebeziumAvroCodec(changefeed, 1000, SchemaLookup(writer_schemas=Away()))
    with pytest.raises(TransientError):
        decoder.decode(GOOD)


def test_types_without_the_extension_are_as_narrow_as_the_wire_tells():
    columns = (ID, column("s", "string"), column("b", "bytes"), column("l", "long"))
    event = only(codec(columns), row(after={"id": 7, "s": "1.50", "b": b"\xff", "l": 1}, columns=columns))
    assert isinstance(event, RowEvent)
    assert [column.type for column in event.after.shape.columns[1:]] == [
        ColumnType("longtext"), ColumnType("longblob"), ColumnType("bigint"),
    ]  # fmt: skip
