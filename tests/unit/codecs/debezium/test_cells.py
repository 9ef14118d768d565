"""Cells of Debezium: their values, and which of them can't be relied on."""

from base64 import b64encode

import pytest

from tests.support.debezium_messages import ID, field, history, row
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.debezium.cells import cells_of
from ticdc_replay.codecs.debezium.codec import DebeziumCodec
from ticdc_replay.codecs.debezium.compiled import compile_doubts
from ticdc_replay.codecs.debezium.schema import ConnectField
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.events import RowEvent
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.lookup import SchemaLookup

DATE, ZONED, TIME = "io.debezium.time.Date", "io.debezium.time.ZonedTimestamp", "io.debezium.time.MicroTime"
MILLIS, MICROS = "io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp"
NOON = 43_200_000


def read(wire, *, told=None, defined=None, zone="Asia/Shanghai", **options):
    """The value, the type and whether it is lossy, of a cell *wire* of a column ``c``.

    *told* are the arguments of its field in the schema block, *defined* is its definition in the DDL. *options* are those of
    the changefeed.
    """
    known = SchemaHistory() if defined is None else history(f"CREATE TABLE t (id INT PRIMARY KEY, c {defined})")
    changefeed = Changefeed(protocol="debezium", topic="topic", timezone=zone, **options)
    codec = DebeziumCodec(changefeed, 100_000, SchemaLookup(known))
    fields = None if told is None else (ID, field("c", *told[0], **told[1]))
    raw = row(after={"id": 1, "c": wire}, fields=fields)
    found = []
    for _ in range(3):  # the third time with compiled code
        (event,) = codec.decode(raw)
        if not isinstance(event, RowEvent):
            found.append(event.reason)
            continue
        column, value = event.after.shape.columns[1], event.after.values[1]
        try:
            found.append((column.neutral((value,))[0], column.type, "after.c" in event.lossy))
        except ValueError:
            found.append("bad_cell")
    assert found[0] == found[1] == found[2]
    return found[0]


def told(*args, **more):
    return args, more


NOT_NULL = {"optional": False}
EXACT = [
    # what the schema block tells, the definition, the wire, the value
    (told("int16", tidb_type="tinyint"), None, -128, -128),
    (told("int64", tidb_type="bigint unsigned"), None, -1, 2**64 - 1),
    (told("int64", tidb_type="bigint unsigned"), None, 2**64 - 1, 2**64 - 1),
    (told("int64"), "BIGINT UNSIGNED", -(2**63), 2**63),
    (told("int64"), "BIGINT", -5, -5),
    (told("float", tidb_type="float"), None, 0.1, 0.1),
    (told("double", tidb_type="float"), None, 0.1, 0.1),
    (told("double", tidb_type="double unsigned"), None, 1e300, 1e300),
    (told("double"), "DOUBLE(20,5)", 3, 3.0),
    (told("double"), "DECIMAL(12,4)", 1.5, "1.5000"),
    (told("double", tidb_type="decimal"), "DECIMAL(12,4)", -0.00005e4, "-0.5000"),
    (told("double"), "DECIMAL(15,0)", 999999999999999, "999999999999999"),
    (told("double"), "DECIMAL(20,0)", 9007199254740991, "9007199254740991"),
    (told("double"), "DECIMAL(30,30)", 1e-30, "0.000000000000000000000000000001"),
    (told("boolean"), None, True, 1),
    (told("bytes", "io.debezium.data.Bits", parameters={"length": "17"}), None, "AQAB", 0x10001),
    (told("int32", "io.debezium.time.Year"), None, 2155, 2155),
    (told("int32", DATE), None, -1, "1969-12-31"),
    (told("int32", DATE), None, 36525, "2070-01-01"),
    (told("int64", MILLIS), "DATETIME", -1000, "1969-12-31 23:59:59"),
    (told("int64", MILLIS), "DATETIME(2)", -10, "1969-12-31 23:59:59.99"),
    (told("int64", MICROS), "DATETIME(4)", -100, "1969-12-31 23:59:59.9999"),
    (None, "DATETIME(6)", -1, "1969-12-31 23:59:59.999999"),
    (told("string", ZONED), None, "2023-01-01T00:00:00.120Z", "2023-01-01 00:00:00.120Z"),
    (told("int64", TIME), "TIME", -3020399000000, "-838:59:59"),
    (told("int64", TIME), "TIME(3)", 1000, "00:00:00.001"),
    (told("string", tidb_type="varchar"), None, "\x00é", "\x00é"),
    (told("string", tidb_type="varbinary"), None, "AP8=", b"\x00\xff"),
    (told("string"), "BLOB", "AP8=", b"\x00\xff"),
    (told("string"), "TEXT", "AP8=", "AP8="),
    (told("string", "io.debezium.data.Enum", parameters={"allowed": "a,b\\,c"}), None, "b,c", "b,c"),
    (told("string", "io.debezium.data.Enum", parameters={"allowed": "a,b"}), None, "", ""),
    (told("string", "io.debezium.data.EnumSet", parameters={"allowed": "x,y"}), None, "x,y", "x,y"),
    (told("string", "io.debezium.data.Json"), None, '{"a": 1}', '{"a": 1}'),
    (told("string", "io.debezium.data.TiDBVectorFloat32"), None, "[1,2.5]", "[1,2.5]"),
    (told("string", tidb_type="char"), None, None, None),
    (told("string", ZONED), None, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("told", "defined", "wire", "value"), EXACT)
def test_a_cell_is_exact(told, defined, wire, value):
    found, _, lossy = read(wire, told=told, defined=defined)
    assert (found, lossy) == (value, False)


LOSSY = [
    (told("double", tidb_type="decimal"), None, 1.5, "1.5"),
    (told("double"), None, 1.5, 1.5),
    (told("double"), "DECIMAL(20,0)", 9007199254740992, "9007199254740992"),
    (told("double"), "DECIMAL(65,30)", 1.5, "1.500000000000000000000000000000"),
    (told("double"), "DECIMAL(18,2)", 1234567890123456.8, "1234567890123456.80"),
    (told("double"), "DECIMAL(65,0)", 1e64, "1" + 64 * "0"),
    (told("int64"), None, -1, -1),
    (told("string"), None, "AP8=", "AP8="),
    (told("int32", DATE), None, 0, "1970-01-01"),
    (told("int32", DATE), None, 36524, "2069-12-31"),
    (told("int32", DATE), None, None, None),
    (told("int64", MILLIS), "DATETIME", 0, "1970-01-01 00:00:00"),
    (told("int64", MICROS), "DATETIME(6)", 3155759999999999, "2069-12-31 23:59:59.999999"),
    (told("int64", MILLIS), "DATETIME NOT NULL", NOON, "1970-01-01 12:00:00"),
    (told("int64", MILLIS), None, -1000, "1969-12-31 23:59:59"),
    (told("int64", MILLIS), None, -999, "1969-12-31 23:59:59.001"),
    (told("string", ZONED), None, "1970-01-01T00:00:00Z", "1970-01-01 00:00:00Z"),
    (told("int64", TIME), None, 1_500_000, "00:00:01.5"),
    (told("int64", TIME), None, 60_000_000, "00:01:00"),
    (None, None, "AP8=", "AP8="),
    (None, None, 12345678901234567890123, "12345678901234567890123"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wire", "zone", "lossy"),
    [
        ("2024-11-03T04:59:59Z", "America/New_York", False),
        ("2024-11-03T05:00:00Z", "America/New_York", True),  # 01:00, for the first time
        ("2024-11-03T06:59:59.5Z", "America/New_York", True),  # 01:59, for the second time
        ("2024-11-03T07:00:00Z", "America/New_York", False),
        ("2024-03-10T07:30:00Z", "America/New_York", False),  # set forward
        ("1990-09-15T17:30:00Z", "Asia/Shanghai", True),
        ("2024-11-03T05:00:00Z", "Asia/Shanghai", False),
        ("2024-11-03T05:00:00Z", "UTC", False),
    ],
)
def test_a_timestamp_that_clocks_showed_twice_may_be_the_other_one(wire, zone, lossy):
    found, _, marked = read(wire, told=told("string", ZONED), zone=zone)
    assert (found, marked) == (wire.replace("T", " "), lossy)
    in_avro = ConnectField("c", "string", ZONED, nullable=False, avro=True)
    doubts = compile_doubts(["c"], [cells_of(in_avro, None, False, zone)], "after")
    assert doubts((wire.encode(),)) == (("after.c",) if lossy else ())
    assert doubts((None,)) == ()


@pytest.mark.parametrize(("told", "defined", "wire", "value"), LOSSY)
def test_a_cell_that_may_be_another_is_marked(told, defined, wire, value):
    found, _, lossy = read(wire, told=told, defined=defined)
    assert (found, lossy) == (value, True)


@pytest.mark.parametrize(
    ("told", "defined", "wire"),
    [
        (told("int16", tidb_type="tinyint"), None, 128),
        (told("int16", tidb_type="tinyint unsigned"), None, -1),
        (told("int64", tidb_type="bigint unsigned"), None, 2**64),
        (told("float"), None, 1e39),
        (told("double"), "DECIMAL(6,2)", 1.234),
        (told("double"), "DECIMAL(65,0)", 1e66),
        (told("bytes", "io.debezium.data.Bits", parameters={"length": "17"}), None, "AQ=="),
        (told("bytes", "io.debezium.data.Bits", parameters={"length": "17"}), None, "AQAE"),
        (told("string", tidb_type="blob"), None, "A"),
        (told("int32", DATE), None, 2932897),
        (told("int64", MILLIS), "DATETIME", 1),
        (told("int64", MILLIS), "DATETIME(1)", 10),
        (told("int64", TIME), "TIME", 1),
        (told("int64", TIME), "TIME", 3020400000000),
        (told("string", ZONED), None, "2023-01-01 00:00:00"),
        (told("string", "io.debezium.data.TiDBVectorFloat32"), None, "[1,]"),
        (None, "INT", "1"),
        (None, "VARCHAR(5)", 1),
    ],
)
def test_a_cell_that_its_column_can_not_hold_is_refused(told, defined, wire):
    assert read(wire, told=told, defined=defined) == "bad_cell"


NULLS = [
    # what the schema block tells, the definition, wires that may stand for NULL, a wire that does not
    (told("int32", default=7), "INT DEFAULT 7", [7], 8),
    (told("int32", default=7), None, [7], 0),
    (told("int32"), None, [0], 1),
    (told("int32"), "INT", [], 0),
    (told("int32"), "INT DEFAULT (nextval(s))", [0], 7),
    (None, "INT DEFAULT 7", [7], 0),
    (None, "INT DEFAULT (nextval(s))", [0, 7], None),
    (told("int64", tidb_type="bigint unsigned", default=18446744073709552000), None, [-1, 0, -2], 1),
    (told("int64", tidb_type="bigint", default=9007199254740992), None, [9007199254740993], 9007199254740990),
    (told("float", tidb_type="float", default=1.23456789), None, [1.2345679], 1.234568),
    (told("double", tidb_type="double", default=0.1), None, [0.1], 0.2),
    (told("double", default=1.5), "DECIMAL(6,2) DEFAULT 1.50", [1.5], 1.51),
    (None, "DECIMAL(6,2) DEFAULT '1.50'", [1.5], 1.51),
    (told("boolean", default=True), None, [True], False),
    (told("bytes", "io.debezium.data.Bits", parameters={"length": "4"}, default="BQ=="), None, ["BQ=="], "BA=="),
    (None, "BIT(12) DEFAULT b'101'", ["BQA="], "BAA="),
    (told("int32", "io.debezium.time.Year", default=2021), None, [2021, 21], 2020),
    (told("int32", DATE, default=40000), None, [40000], 40001),
    (told("int64", MILLIS, default=-1000), "DATETIME DEFAULT '1969-12-31 23:59:59'", [-1000], -2000),
    (None, "DATETIME(6) DEFAULT '1969-12-31 23:59:59.5'", [-500000], -2000),
    (told("int64", MICROS, default="1969-12-31 23:59:59.5"), "DATETIME(6)", [-500000], -2000),
    (told("string", ZONED, default="2021-05-04T21:05:05Z"), None,
     ["2021-05-04T21:05:05Z", "2021-05-04T13:05:05Z"], "2021-05-04T21:05:06Z"),
    (told("int64", TIME, default=NOON * 1000), "TIME DEFAULT '12:00:00'", [0, NOON * 1000], 1_000_000),
    (None, "TIME(1) DEFAULT '-00:00:01.5'", [0, -1_500_000], 1_000_000),
    (told("string", tidb_type="varchar", default="x"), None, ["x"], "X"),
    (told("string", tidb_type="varchar", default=""), None, [""], "X"),
    (None, "VARCHAR(9) DEFAULT 'x'", ["x"], "y"),
    (None, "JSON DEFAULT ('{}')", ["{}", "[]"], None),
    (told("string", "io.debezium.data.Enum", parameters={"allowed": "s,M"}, default="m"), None, ["M"], "s"),
    (told("string", "io.debezium.data.EnumSet", parameters={"allowed": "x,y"}, default="y,x"), None, ["x,y"], "x"),
    (told("string", tidb_type="varbinary", default="\x00\ufffd"), None, ["AO+/vQ=="], "AAA="),
    (None, "VARBINARY(9) DEFAULT 0x00FF", ["AP8=", "AO+/vQ=="], "AAA="),
]  # fmt: skip


@pytest.mark.parametrize(("told", "defined", "doubtful", "certain"), NULLS)
def test_a_value_that_is_the_default_may_be_null(told, defined, doubtful, certain):
    for wire in doubtful:
        assert read(wire, told=told, defined=defined)[2], wire
    if certain is not None:
        assert not read(certain, told=told, defined=defined)[2]


LONG = "12345678901234567890123456789012345.123456789012345678901234567890"
TEXT = {"debezium_decimal_handling_mode": "string", "debezium_bigint_unsigned_handling_mode": "string"}
URL_SAFE, HEX = ({"debezium_binary_handling_mode": mode} for mode in ("base64-url-safe", "hex"))


@pytest.mark.parametrize(
    ("options", "told", "defined", "wire", "value"),
    [
        (TEXT, told("string", tidb_type="decimal"), None, LONG, LONG),
        ({}, told("string", tidb_type="decimal"), "DECIMAL(65,30)", f"-{LONG}", f"-{LONG}"),
        (TEXT, told("string"), "DECIMAL(65,30)", LONG, LONG),
        (TEXT, None, "DECIMAL(65,30)", LONG, LONG),
        (TEXT, None, "DECIMAL(9,2)", None, None),
        (
            TEXT,
            told("double", tidb_type="decimal"),
            "DECIMAL(9,2)",
            1.5,
            "1.50",
        ),  # before the changefeed had the option
        (TEXT, told("string", tidb_type="bigint unsigned"), None, "18446744073709551614", 2**64 - 2),
        (TEXT, told("string"), "BIGINT UNSIGNED", "18446744073709551614", 2**64 - 2),
        (TEXT, None, "BIGINT UNSIGNED", "18446744073709551614", 2**64 - 2),
        (TEXT, None, "BIGINT", -7, -7),
        (TEXT, None, "INT UNSIGNED", 7, 7),
        ({}, told("bytes", tidb_type="varbinary"), None, "+/8=", b"\xfb\xff"),
        ({}, told("bytes"), "BLOB", "+/8=", b"\xfb\xff"),
        (URL_SAFE, told("string", tidb_type="varbinary"), None, "-_8=", b"\xfb\xff"),
        (URL_SAFE, told("string"), "BLOB", "-_8AAA==", b"\xfb\xff\0\0"),
        (URL_SAFE, None, "BINARY(2)", "-_8=", b"\xfb\xff"),
        (HEX, told("string", tidb_type="blob"), None, "fbff", b"\xfb\xff"),
        (HEX, None, "VARBINARY(9)", "", b""),
        (HEX, None, "VARCHAR(9)", "fbff", "fbff"),
        (HEX, told("bytes", "io.debezium.data.Bits", parameters={"length": "12"}), None, "BQA=", 5),
    ],
)
def test_numbers_and_bytes_are_exact_in_the_forms_of_newer_releases(options, told, defined, wire, value):
    found, _, lossy = read(wire, told=told, defined=defined, **options)
    assert (found, lossy) == (value, False)


@pytest.mark.parametrize(
    ("options", "told", "defined", "doubtful", "certain"),
    [
        (TEXT, told("string", tidb_type="decimal", default="1.5"), "DECIMAL(6,2) DEFAULT 1.5", ["1.5", "1.50"], "1.51"),
        (TEXT, None, "DECIMAL(6,2) DEFAULT 1.5", ["1.50"], "0.00"),
        (TEXT, told("string", tidb_type="decimal"), None, ["0.00", "0"], "10.00"),
        (TEXT, told("string", tidb_type="bigint unsigned", default="7"), None, ["7", "0"], "70"),
        (TEXT, None, "BIGINT UNSIGNED DEFAULT (nextval(s))", ["7", "0"], None),
        (TEXT, None, "BIGINT UNSIGNED DEFAULT 18446744073709551615", ["18446744073709551615", "0"], "1"),
        (URL_SAFE, told("string", tidb_type="varbinary", default="-_8="), None, ["-_8="], "-_8A"),
        (HEX, told("string", tidb_type="varbinary", default="6162"), None, ["6162"], "6163"),
        (HEX, None, "VARBINARY(9) DEFAULT 'ab'", ["6162"], "6163"),
        (URL_SAFE, None, "VARBINARY(9) DEFAULT 0x00FF", ["AP8=", "AO-_vQ=="], "AAA="),
        ({}, told("string", tidb_type="varbinary", default="YWI="), None, ["YWI="], "YWM="),
    ],
)
def test_the_default_in_a_form_of_newer_releases_may_be_null(options, told, defined, doubtful, certain):
    for wire in doubtful:
        assert read(wire, told=told, defined=defined, **options)[2], wire
    if certain is not None:
        assert not read(certain, told=told, defined=defined, **options)[2]


@pytest.mark.parametrize(
    ("options", "defined", "wire"),
    [
        (TEXT, "DECIMAL(6,2)", 1.5),
        (TEXT, "DECIMAL(6,2)", "1e5"),
        (TEXT, "BIGINT UNSIGNED", "-1"),
        (TEXT, "BIGINT UNSIGNED", "\u0661"),
        (TEXT, "BIGINT UNSIGNED", str(2**64)),
        (URL_SAFE, "BLOB", "+/8="),
        (HEX, "BLOB", "fbf"),
        (HEX, "BLOB", "\u0661\u0661"),
    ],
)
def test_what_is_not_in_the_form_of_the_option_is_refused(options, defined, wire):
    assert read(wire, defined=defined, **options) == "bad_cell"


@pytest.mark.parametrize(
    ("told", "defined", "wire"),
    [
        (told("int32", default=7, **NOT_NULL), None, 7),
        (None, "INT NOT NULL DEFAULT 7", 7),
        (None, "VARCHAR(9) NOT NULL DEFAULT (uuid())", "x"),
    ],
)
def test_a_value_of_a_column_that_is_never_null_is_itself(told, defined, wire):
    assert not read(wire, told=told, defined=defined)[2]


def test_classic_ticdc_writes_the_default_of_a_binary_column_raw_after_its_base64():
    told_ = told("string", tidb_type="varbinary", default="a!")
    assert read("a!", told=told_)[::2] == (b"a!", True)
    assert read(b64encode(b"a!").decode(), told=told_)[::2] == (b"a!", True)
    assert read(b64encode(b"b!").decode(), told=told_)[::2] == (b"b!", False)
    assert read("b!", told=told_) == "bad_cell"


def test_a_definition_that_contradicts_the_schema_is_not_used():
    assert read("x", told=told("string", tidb_type="varchar"), defined="BLOB")[:2] == ("x", ColumnType("varchar"))
    assert read(5, told=told("int16", tidb_type="tinyint"), defined="INT")[1] == ColumnType("tinyint", declared=True)
    assert read(1, told=told("int64", MILLIS), defined="DATETIME(6)")[1] == ColumnType("datetime")


@pytest.mark.parametrize(
    ("told", "defined", "type_"),
    [
        (told("int16"), None, ColumnType("smallint")),
        (told("int16"), "TINYINT UNSIGNED", ColumnType("tinyint", unsigned=True, declared=True)),
        (told("int32", tidb_type="mediumint unsigned"), None, ColumnType("mediumint", unsigned=True, declared=True)),
        (told("int32", DATE), None, ColumnType("date", declared=True)),
        (told("int64", TIME), None, ColumnType("time")),
        (told("int64", TIME), "TIME(3)", ColumnType("time", scale=3, declared=True)),
        (told("double", tidb_type="decimal"), None, ColumnType("decimal")),
    ],
)
def test_types_are_declared_where_all_of_them_is_known(told, defined, type_):
    assert read(None, told=told, defined=defined)[1] == type_


@pytest.mark.parametrize("name", ["it''s", "a\\'b", "a,b", "a\\"])
def test_names_of_an_enum_that_the_schema_does_not_tell_whole_come_from_ddl(name):
    """TiCDC leaves one quote of two, and of one behind a backslash."""
    sent = name.replace(",", "\\,").replace("\\'", "'").replace("''", "'")
    defined = ColumnType("enum", elements=(name, "z"), declared=True)
    told_ = told("string", "io.debezium.data.Enum", parameters={"allowed": f"{sent},z"})
    quoted = name.replace("\\", "\\\\").replace("'", "''")
    assert read(name, told=told_, defined=f"ENUM('{quoted}','z')")[1] == defined


def test_names_of_an_enum_come_with_the_schema():
    told_ = told("string", "io.debezium.data.Enum", parameters={"allowed": "a,b"})
    assert read("a", told=told_)[1] == ColumnType("enum", elements=("a", "b"), declared=True)
