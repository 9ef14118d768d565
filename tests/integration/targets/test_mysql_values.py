"""Every value arrives unaltered in MySQL, TiDB and MariaDB, or is named and not applied."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import mariadb
from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.examples import examples
from tests.support.target_rigs import MysqlRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PermanentError, UnrepresentableValueError

pytestmark = pytest.mark.integration

UTC = datetime.UTC


def declared(base: Any, **details: Any) -> ColumnType:
    return ColumnType(base, declared=True, **details)


INT = declared("bigint")
TEXT = declared("varchar", length=20)
HOSTILE = "e\u0301 😀 \t\n\r\0\\N \\ ' \" ` % {} \x1a\x08"

AS_TEXT, AS_NUMBER, AS_HEX = "CAST(v AS CHAR)", "CAST(v + 0 AS CHAR)", "HEX(v)"
CASES: list[tuple[str, ColumnType, str, str, list[tuple[Any, str]]]] = [
    ("tinyint", declared("tinyint"), "tinyint", AS_TEXT, [(-128, "-128"), (127, "127")]),
    ("smallint unsigned", declared("smallint", unsigned=True), "smallint unsigned", AS_TEXT, [(65535, "65535")]),
    ("mediumint unsigned", declared("mediumint", unsigned=True), "mediumint unsigned", AS_TEXT, [(16777215, "16777215")]),
    ("int", declared("int"), "int", AS_TEXT, [(-(2**31), "-2147483648")]),
    ("bigint", INT, "bigint", AS_TEXT, [(-(2**63), "-9223372036854775808")]),
    ("bigint unsigned", declared("bigint", unsigned=True), "bigint unsigned", AS_TEXT, [(2**64 - 1, "18446744073709551615")]),
    (
        "decimal(12,4)",
        declared("decimal", length=12, scale=4),
        "decimal(12,4)",
        AS_TEXT,
        [(Decimal("12345678.9000"), "12345678.9000"), (Decimal("-0.0001"), "-0.0001")],
    ),
    (
        "decimal(65,30)",
        declared("decimal", length=65, scale=30),
        "decimal(65,30)",
        AS_TEXT,
        [("9" * 35 + "." + "9" * 30, "9" * 35 + "." + "9" * 30), ("0." + "0" * 30, "0." + "0" * 30)],
    ),
    ("decimal, undeclared", ColumnType("decimal"), "decimal(65,30)", "CAST(v * 2 AS DECIMAL(9,1))", [("1.500", "3.0")]),
    ("bit(1)", declared("bit", length=1), "bit(1)", AS_NUMBER, [(1, "1"), (0, "0")]),
    ("bit(64)", declared("bit", length=64), "bit(64)", AS_NUMBER, [(2**64 - 1, "18446744073709551615")]),
    ("bit, undeclared", ColumnType("bit"), "bigint unsigned", AS_TEXT, [(2**64 - 1, "18446744073709551615")]),
    ("year", declared("year"), "year", AS_TEXT, [(0, "0000"), (1901, "1901"), (2155, "2155")]),
    (
        "date",
        declared("date"),
        "date",
        AS_TEXT,
        [(datetime.date(1, 1, 1), "0001-01-01"), (datetime.date(9999, 12, 31), "9999-12-31")],
    ),
    (
        "time(6), beyond a day and negative",
        declared("time", scale=6),
        "time(6)",
        AS_TEXT,
        [
            (((838 * 60 + 59) * 60 + 59) * 1_000_000, "838:59:59.000000"),
            (-((838 * 60 + 59) * 60 + 58) * 1_000_000 - 999_999, "-838:59:58.999999"),
            (-1, "-00:00:00.000001"),
        ],
    ),
    (
        "datetime(3)",
        declared("datetime", scale=3),
        "datetime(3)",
        AS_TEXT,
        [
            (datetime.datetime(9999, 12, 31, 23, 59, 59, 999000), "9999-12-31 23:59:59.999"),
            (datetime.datetime(1, 1, 1), "0001-01-01 00:00:00.000"),
        ],
    ),
    (
        "datetime, undeclared",
        ColumnType("datetime"),
        "datetime(6)",
        AS_TEXT,
        [(datetime.datetime(2000, 1, 1, 0, 0, 0, 1), "2000-01-01 00:00:00.000001")],
    ),
    (
        "timestamp(0)",
        declared("timestamp", scale=0),
        "timestamp(0)",
        AS_TEXT,
        [(datetime.datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC), "2038-01-19 03:14:07")],
    ),
    ("varchar", declared("varchar", length=60), "varchar(60)", AS_TEXT, [("", ""), (HOSTILE, HOSTILE), ("  x ", "  x ")]),
    ("char", declared("char", length=9), "varchar(9)", AS_TEXT, [("x", "x")]),
    ("long varchar", declared("varchar", length=769), "longtext", AS_TEXT, [("é" * 769, "é" * 769)]),
    ("longtext", declared("longtext"), "longtext", AS_TEXT, [("x" * 100_000, "x" * 100_000)]),
    (
        "json",
        declared("json"),
        "longtext",
        AS_TEXT,
        [('{"b": 1, "a": [1.0, 1.00]}', '{"b": 1, "a": [1.0, 1.00]}'), ("[" * 99 + "]" * 99, "[" * 99 + "]" * 99)],
    ),
    ("vector", declared("vector"), "longtext", AS_TEXT, [("[1,2.5]", "[1,2.5]")]),
    (
        "varbinary",
        declared("varbinary", length=300),
        "varbinary(300)",
        AS_HEX,
        [(bytes(range(256)), bytes(range(256)).hex().upper()), (b"", "")],
    ),
    ("blob", declared("blob"), "longblob", AS_HEX, [(bytes(range(256)) * 400, (bytes(range(256)) * 400).hex().upper())]),
    ("enum", declared("enum", elements=("new", "it's")), "varchar(4)", AS_TEXT, [("it's", "it's"), ("", "")]),
    ("enum, undeclared", ColumnType("enum"), "smallint unsigned", AS_TEXT, [(65535, "65535")]),
    ("set", declared("set", elements=("a", "b")), "varchar(4)", AS_TEXT, [("a,b", "a,b"), ("", "")]),
    ("set, undeclared", ColumnType("set"), "bigint unsigned", AS_TEXT, [(2**64 - 1, "18446744073709551615")]),
]  # fmt: skip


def test_values_of_every_type_arrive_unaltered(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    changelog = Changelog(artifacts, 0, 100)
    for number, (_, column_type, _, _, values) in enumerate(CASES):
        rows = [put(10, id=at, v=value) for at, (value, _) in enumerate([*values, (None, None)])]
        changelog.rows(table(f"shop.t{number}", {"id": INT, "v": column_type}), rows)
    report = mysql_mirror.load(changelog)
    types = {each.table.table: each.fields[1].type for each in report.tables}
    for number, (name, _, type_name, expression, values) in enumerate(CASES):
        assert (name, types[f"t{number}"]) == (name, type_name)
        found = mysql_mirror.rows(f"SELECT id, {expression} FROM shop.t{number} ORDER BY id")
        texts = [(at, None if text is None else str(text)) for at, text in found]
        assert (name, texts) == (name, [(at, text) for at, (_, text) in enumerate([*values, (None, None)])])


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def test_every_number_with_a_point_is_the_same_again(
    make_mysql_mirror: Callable[[], MysqlRig], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Servers print six digits of a float, and read texts of any length."""

    @settings(max_examples=examples(0.05), suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), FLOATS), max_size=30))
    def holds(numbers: list[tuple[float, float]]) -> None:
        mirror = make_mysql_mirror()
        schema = table("shop.t", {"id": INT, "f": declared("float"), "d": declared("double")})
        rows = [put(10, id=at, f=single, d=double) for at, (single, double) in enumerate(numbers)]
        mirror.load(Changelog(tmp_path_factory.mktemp("floats"), 0, 100).rows(schema, rows or [delete(10, id=0)]))
        found = mirror.rows("SELECT f * 1e0, d FROM shop.t ORDER BY id")
        assert [tuple(map(float, row)) for row in found] == numbers

    holds()


def test_any_text_and_bytes_arrive(
    make_mysql_mirror: Callable[[], MysqlRig], tmp_path_factory: pytest.TempPathFactory
) -> None:
    texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\\'\"\t\n\r\0N,`%"), max_size=20)

    @settings(max_examples=examples(0.1), suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(texts, st.binary(max_size=20)), max_size=20))
    def holds(cells: list[tuple[str, bytes]]) -> None:
        mirror = make_mysql_mirror()
        schema = table("shop.t", {"id": INT, "v": TEXT, "b": declared("varbinary", length=20)})
        rows = [put(10, id=at, v=text, b=octets) for at, (text, octets) in enumerate(cells)]
        mirror.load(Changelog(tmp_path_factory.mktemp("texts"), 0, 100).rows(schema, rows or [delete(10, id=0)]))
        assert mirror.rows("SELECT v, b FROM shop.t ORDER BY id") == cells

    holds()


def test_rows_are_found_again_by_keys_of_every_type(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    keys = {
        case[0]: (case[1], case[4][0][0] or "k")
        for case in CASES
        if case[1].base not in ("json", "vector", "longtext", "blob") and case[1].length != 769
    }

    def load(begin: int, end: int, row: Callable[[Any], Row]) -> None:
        changelog = Changelog(artifacts, begin, end)
        for number, (column_type, value) in enumerate(keys.values()):
            value = 0 if value == "k" and column_type.base == "year" else value
            changelog.rows(table(f"shop.t{number}", {"k": column_type, "v": INT}, key=["k"]), [row(value)])
        mysql_mirror.load(changelog)

    def found() -> dict[str, list[tuple[Any, ...]]]:
        return {name: mysql_mirror.rows(f"SELECT v FROM shop.t{number}") for number, name in enumerate(keys)}

    load(100, 200, lambda value: put(110, k=value, v=2))
    load(0, 100, lambda value: put(10, k=value, v=1))
    assert found() == {name: [(2,)] for name in keys}
    load(200, 300, lambda value: delete(210, k=value))
    load(150, 200, lambda value: put(160, k=value, v=3))
    assert found() == {name: [] for name in keys}


@pytest.mark.parametrize("length", [20, None], ids=["declared", "of unknown length"])
def test_keys_that_differ_in_letter_case_accents_or_trailing_spaces_are_rows_of_their_own(
    mysql_mirror: MysqlRig, artifacts: Path, length: int | None
) -> None:
    schema = table(
        "shop.t", {"k": ColumnType("varchar", length=length, declared=length is not None), "v": INT}, key=["k"]
    )
    keys = ["a", "A", "\u00e1", "a\u0301", "a ", "", " "]
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(schema, [put(10, k=key, v=1) for key in keys]))
    mysql_mirror.load(Changelog(artifacts, 100, 200).rows(schema, [put(110, k="a ", v=2), delete(120, k="A")]))
    expected = {key: 1 for key in keys if key != "A"} | {"a ": 2}
    assert dict(mysql_mirror.rows("SELECT k, v FROM shop.t")) == expected


def exactly(text: str) -> Row:
    """A row whose cell has no typed value."""
    return Row("insert", 20, {"id": 7}, exact={"v": text.encode()})


DATES = [
    (declared("date"), b"0000-00-00", "0000-00-00"),
    (declared("date"), b"2023-02-30", "2023-02-30"),
    (declared("date"), b"2023-00-10", "2023-00-10"),
    (declared("datetime", scale=0), b"0000-00-00 00:00:00", "0000-00-00 00:00:00"),
    (declared("datetime", scale=2), b"2023-02-00 01:02:03.4", "2023-02-00 01:02:03.40"),
    (declared("timestamp", scale=0), b"0000-00-00 00:00:00", "0000-00-00 00:00:00"),
]


@pytest.mark.parametrize(("column_type", "text", "shown"), DATES, ids=[f"{kind} {text!r}" for kind, text, _ in DATES])
def test_a_date_with_zero_parts_or_of_no_calendar_arrives(
    mysql_mirror: MysqlRig, artifacts: Path, column_type: ColumnType, text: bytes, shown: str
) -> None:
    schema = table("shop.t", {"id": INT, "v": column_type})
    rows = [Row("insert", 20, {"id": 7}, exact={"v": text}), put(20, id=8)]
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(schema, rows))
    assert mysql_mirror.rows("SELECT id, CAST(v AS CHAR) FROM shop.t ORDER BY id") == [(7, shown), (8, None)]


BAD: list[tuple[str, ColumnType, Row, str]] = [
    ("too many digits of a second", declared("datetime", scale=2), exactly("2023-02-03 01:02:03.456"), "the value '2023-02-03 "),
    ("an index that is no name", declared("enum", elements=("a",)), exactly("9"), "the value '9'"),
    ("a timestamp in part", declared("timestamp", scale=0), exactly("2023-00-00 00:00:00"), "the value '2023-00-00 "),
    (
        "more digits than declared",
        declared("decimal", length=40, scale=2),
        put(20, id=7, v="1.234"),
        r"more digits than decimal\(40,2\) holds",
    ),
    ("no number", ColumnType("decimal"), put(20, id=7, v="1e5"), "more digits than"),
    (
        "more characters than declared",
        declared("varchar", length=2),
        put(20, id=7, v="ééé"),
        r"more than the 2 characters of varchar\(2\)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("column_type", "row", "reason"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_value_that_mysql_cannot_hold_stops_the_load_or_is_set_aside(
    mysql_mirror: MysqlRig, artifacts: Path, column_type: ColumnType, row: Row, reason: str
) -> None:
    schema = table("shop.t", {"id": INT, "v": column_type})
    changelog = Changelog(artifacts, 0, 100).rows(schema, [put(10, id=1), row])
    with pytest.raises(
        UnrepresentableValueError, match=r'shop.t {"id": 7}, column v \(topic\[0\]@2, event 0\): .*' + reason
    ):
        mysql_mirror.load(changelog)
    assert not mysql_mirror.has_table("shop.t")
    assert mysql_mirror.rows("SELECT count(*) FROM _ticdc_replay.staging") == [(0,)]
    report = mysql_mirror.load_table(changelog, target_value="quarantine")
    assert (report.upserted, report.quarantined) == (1, 1)
    assert mysql_mirror.rows("SELECT id FROM shop.t") == [(1,)]


def test_a_default_of_every_kind_is_shown_by_older_rows(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    added = {
        "a": ("INT DEFAULT 7", declared("int"), 7),
        "b": ("VARCHAR(9) DEFAULT 'it''s'", declared("varchar", length=9), "it's"),
        "c": ("BIT(3) NOT NULL DEFAULT b'101'", declared("bit", length=3), b"\x05"),
        "d": ("DATE NOT NULL DEFAULT '0000-00-00'", declared("date"), "0000-00-00"),
        "e": ("DOUBLE DEFAULT 0.1", declared("double"), 0.1),
        "f": ("VARBINARY(3) DEFAULT 0x4100", declared("varbinary", length=3), b"A\x00"),
        "g": ("ENUM('x','y') NOT NULL", declared("enum", elements=("x", "y")), "x"),
    }
    old = table("shop.t", {"id": INT})
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(old, [put(10, id=1)]))
    statement = "ALTER TABLE t " + ", ".join(f"ADD COLUMN {name} {text}" for name, (text, _, _) in added.items())
    new = table("shop.t", {"id": INT, **{name: kind for name, (_, kind, _) in added.items()}})
    values: dict[str, Any] = dict.fromkeys(added)
    window = Changelog(artifacts, 100, 200).rows(old, [put(110, id=2)]).ddl(150, statement)
    mysql_mirror.load(window.rows(new, [put(160, id=3, **values)]))
    shown = tuple(value for _, _, value in added.values())
    columns = "a, b, c, CAST(d AS CHAR), e, f, g"
    assert mysql_mirror.rows(f"SELECT {columns} FROM shop.t ORDER BY id") == [shown, shown, (None,) * len(added)]


def test_a_table_that_a_person_has_made_as_the_upstream_s_alters_no_value(
    mysql_mirror: MysqlRig, artifacts: Path
) -> None:
    """Such as that of a dump: it numbers rows whose key is 0, and has a time that changes with an UPDATE."""
    mysql_mirror.execute("CREATE DATABASE shop")
    mysql_mirror.execute(
        "CREATE TABLE shop.t (id bigint AUTO_INCREMENT PRIMARY KEY, v bigint, "
        "changed timestamp NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, _commit_ts bigint NOT NULL)"
    )
    changed = datetime.datetime(2020, 1, 1, tzinfo=UTC)
    columns = {"id": INT, "v": INT, "changed": declared("timestamp", scale=0)}
    before, after = table("shop.t", columns), table("shop.t", {**columns, "n": INT}, valid_from=150)
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(before, [put(10, id=0, v=1, changed=changed)]))
    # The window of the DDL comes last: then older rows get what they show in the column.
    mysql_mirror.load(Changelog(artifacts, 200, 300).rows(after, [put(210, id=1, v=2, changed=changed, n=1)]))
    added = "ALTER TABLE t ADD COLUMN n BIGINT DEFAULT 7"
    mysql_mirror.load(Changelog(artifacts, 100, 200).ddl(150, added, table="shop.t"))
    naive = changed.replace(tzinfo=None)
    assert mysql_mirror.rows("SELECT id, v, changed, n FROM shop.t ORDER BY id") == [(0, 1, naive, 7), (1, 2, naive, 1)]


def test_mirrors_whose_names_differ_in_letter_case_alone_are_two(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    """Where the server takes them for two; catalogues may compare names without letter case all the same."""
    if mysql_mirror.rows("SELECT @@lower_case_table_names") != [(0,)]:
        pytest.skip("the server takes them for one")
    small, large = table("shop.orders", {"id": INT, "v": TEXT}), table("shop.Orders", {"id": INT, "w": INT})
    for number in range(2):
        window = Changelog(artifacts, 100 * number, 100 * number + 100)
        at = 100 * number + 10
        mysql_mirror.load(window.rows(small, [put(at, id=number, v="x")]).rows(large, [put(at, id=number, w=1)]))
    assert mysql_mirror.rows("SELECT id, v FROM shop.orders ORDER BY id") == [(0, "x"), (1, "x")]
    assert mysql_mirror.rows("SELECT id, w FROM shop.Orders ORDER BY id") == [(0, 1), (1, 1)]


def test_rows_arrive_without_load_data(
    tmp_path_factory: pytest.TempPathFactory, mariadb_programs: mariadb.Programs, artifacts: Path
) -> None:
    """A server may forbid LOCAL, and take small statements only."""
    options = {"local-infile": "0", "max-allowed-packet": "65536"}
    with mariadb.running(tmp_path_factory.mktemp("strict"), mariadb_programs, options) as server:
        mirror = MysqlRig(server)
        octets = declared("varbinary", length=256)
        schema = table("shop.t", {"id": INT, "v": declared("varchar", length=60), "b": octets})
        rows = [put(10, id=at, v=HOSTILE, b=bytes(range(256))) for at in range(1000)]
        mirror.load(Changelog(artifacts, 0, 100).rows(schema, [*rows, put(10, id=-1)]))
        found = mirror.rows("SELECT count(*), v, b FROM shop.t GROUP BY v, b ORDER BY v")
        assert found == [(1, None, None), (1000, HOSTILE, bytes(range(256)))]


def test_names_that_differ_in_letter_case_are_one_mirror_where_the_server_folds_them(
    tmp_path_factory: pytest.TempPathFactory, mariadb_programs: mariadb.Programs, artifacts: Path
) -> None:
    with mariadb.running(tmp_path_factory.mktemp("folds"), mariadb_programs, {"lower-case-table-names": "1"}) as server:
        mirror = MysqlRig(server)
        orders = table("Shop.Orders", {"id": INT, "v": TEXT})
        report = mirror.load_table(Changelog(artifacts, 0, 100).rows(orders, [put(10, id=1, v="x")]))
        assert report.destination == '"shop"."orders"'
        mirror.load(Changelog(artifacts, 100, 200).rows(orders, [put(110, id=1, v="y")]))
        assert mirror.rows("SELECT v FROM shop.orders") == [("y",)]


def test_a_server_that_keeps_no_warnings_alters_no_value(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    schema = table("shop.t", {"id": INT, "v": declared("timestamp", scale=0)})
    beyond = datetime.datetime(2345, 1, 1, tzinfo=datetime.UTC)
    mysql_mirror.execute("SET GLOBAL max_error_count = 0")
    try:
        with pytest.raises(PermanentError, match=r"Incorrect (datetime|timestamp) value"):
            mysql_mirror.load(Changelog(artifacts, 0, 100).rows(schema, [put(10, id=1, v=beyond)]))
    finally:
        mysql_mirror.execute("SET GLOBAL max_error_count = DEFAULT")


def test_rows_that_are_longer_than_a_packet_are_loaded(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    schema = table("shop.t", {"id": INT, "v": declared("longtext")})
    ((size,),) = mysql_mirror.rows("SELECT @@global.max_allowed_packet")
    mysql_mirror.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        for number, length in enumerate((900_000, 3_000_000)):
            window = Changelog(artifacts, 100 * number, 100 * number + 100)
            mysql_mirror.load(window.rows(schema, [put(100 * number + 10, id=at, v="x" * length) for at in range(3)]))
    finally:
        mysql_mirror.execute(f"SET GLOBAL max_allowed_packet = {size}")
    assert mysql_mirror.rows("SELECT sum(length(v)) FROM shop.t") == [(9_000_000,)]
