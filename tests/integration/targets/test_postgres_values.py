"""Every value arrives unaltered, or is named and not applied."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, Row, delete, put, table
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PermanentError, TargetMismatchError, UnrepresentableValueError

pytestmark = pytest.mark.integration

UTC = datetime.UTC


def declared(base: Any, **details: Any) -> ColumnType:
    return ColumnType(base, declared=True, **details)


INT = declared("bigint")
TEXT = declared("varchar", length=20)


def random_text(octets: int) -> str:
    """A text that compression makes no shorter, of so many bytes."""
    return Random(octets).randbytes(octets).hex()[:octets]


CASES: list[tuple[str, ColumnType, str, list[tuple[Any, str | None]]]] = [
    ("tinyint", declared("tinyint"), "smallint", [(-128, "-128"), (127, "127")]),
    ("tinyint unsigned", declared("tinyint", unsigned=True), "smallint", [(255, "255")]),
    ("smallint unsigned", declared("smallint", unsigned=True), "integer", [(65535, "65535")]),
    ("mediumint unsigned", declared("mediumint", unsigned=True), "integer", [(16777215, "16777215")]),
    ("int", declared("int"), "integer", [(-(2**31), "-2147483648")]),
    ("int unsigned", declared("int", unsigned=True), "bigint", [(2**32 - 1, "4294967295")]),
    ("bigint", INT, "bigint", [(-(2**63), "-9223372036854775808")]),
    ("bigint unsigned", declared("bigint", unsigned=True), "numeric(20,0)", [(2**64 - 1, "18446744073709551615"), (0, "0")]),
    ("float", declared("float"), "real", [(0.1, "0.1"), (3.4028235e38, "3.4028235e+38"), (-0.0, "-0")]),
    ("double", declared("double"), "double precision", [(5e-324, "5e-324"), (1.7976931348623157e308, "1.7976931348623157e+308")]),
    (
        "decimal(12,4)",
        declared("decimal", length=12, scale=4),
        "numeric(12,4)",
        [(Decimal("12345678.9000"), "12345678.9000"), (Decimal("-0.0001"), "-0.0001")],
    ),
    (
        "decimal(65,30)",
        declared("decimal", length=65, scale=30),
        "numeric(65,30)",
        [
            ("9" * 35 + "." + "9" * 30, "9" * 35 + "." + "9" * 30),
            ("-" + "1" * 35 + "." + "2" * 29 + "0", "-" + "1" * 35 + "." + "2" * 29 + "0"),
            ("0." + "0" * 30, "0." + "0" * 30),
        ],
    ),
    ("decimal, undeclared", ColumnType("decimal"), "numeric", [("1.500", "1.500"), ("9" * 65, "9" * 65), ("-0.00", "0.00")]),
    ("bit(1)", declared("bit", length=1), "bigint", [(1, "1")]),
    ("bit(64)", declared("bit", length=64), "numeric(20,0)", [(2**64 - 1, "18446744073709551615")]),
    ("bit, undeclared", ColumnType("bit"), "numeric(20,0)", [(2**64 - 1, "18446744073709551615")]),
    ("year", declared("year"), "smallint", [(0, "0"), (2155, "2155")]),
    ("date", declared("date"), "date", [(datetime.date(1, 1, 1), "0001-01-01"), (datetime.date(9999, 12, 31), "9999-12-31")]),
    (
        "time(6), beyond a day and negative",
        declared("time", scale=6),
        "interval",
        [
            (((838 * 60 + 59) * 60 + 59) * 1_000_000, "838:59:59"),
            (-((838 * 60 + 59) * 60 + 58) * 1_000_000 - 999_999, "-838:59:58.999999"),
        ],
    ),
    (
        "datetime(3)",
        declared("datetime", scale=3),
        "timestamp(3) without time zone",
        [
            (datetime.datetime(9999, 12, 31, 23, 59, 59, 999000), "9999-12-31 23:59:59.999"),
            (datetime.datetime(1, 1, 1), "0001-01-01 00:00:00"),
        ],
    ),
    (
        "datetime, undeclared",
        ColumnType("datetime"),
        "timestamp without time zone",
        [(datetime.datetime(2000, 1, 1, 0, 0, 0, 1), "2000-01-01 00:00:00.000001")],
    ),
    (
        "timestamp(0)",
        declared("timestamp", scale=0),
        "timestamp(0) with time zone",
        [(datetime.datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC), "2038-01-19 03:14:07+00")],
    ),
    ("varchar", declared("varchar", length=20), "text", [("", ""), ("e\u0301 😀 \t\n\\", "e\u0301 😀 \t\n\\"), ("  x ", "  x ")]),
    ("longtext", declared("longtext"), "text", [("x" * 100_000, "x" * 100_000)]),
    (
        "json",
        declared("json"),
        "json",
        [('{"b": 1, "a": [1.0, 1.00]}', '{"b": 1, "a": [1.0, 1.00]}'), ("null", "null"), ('"\\u0000"', '"\\u0000"')],
    ),
    ("vector", declared("vector"), "text", [("[1,2.5]", "[1,2.5]")]),
    (
        "varbinary",
        declared("varbinary", length=300),
        "bytea",
        [(bytes(range(256)), "\\x" + bytes(range(256)).hex()), (b"", "\\x")],
    ),
    ("enum", declared("enum", elements=("new", "it's")), "text", [("it's", "it's"), ("", "")]),
    ("enum, undeclared", ColumnType("enum"), "integer", [(65535, "65535")]),
    ("set", declared("set", elements=("a", "b")), "text", [("a,b", "a,b"), ("", "")]),
    ("set, undeclared", ColumnType("set"), "numeric(20,0)", [(2**64 - 1, "18446744073709551615")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("column_type", "pg_type", "values"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_values_of_every_type_arrive_unaltered(
    mirror: Mirror, artifacts: Path, column_type: ColumnType, pg_type: str, values: list[tuple[Any, str | None]]
) -> None:
    schema = table("shop.t", {"id": INT, "v": column_type})
    rows = [put(10, id=at, v=value) for at, (value, _) in enumerate([*values, (None, None)])]
    report = mirror.load_table(Changelog(artifacts, 0, 100).rows(schema, rows))
    assert report.fields[1].type == pg_type
    assert mirror.rows("SELECT id, v::text FROM shop.t ORDER BY id") == [
        (at, text) for at, (_, text) in enumerate([*values, (None, None)])
    ]


def test_rows_are_found_again_by_keys_of_every_type(mirror: Mirror, artifacts: Path) -> None:
    keys = {
        case[0]: (case[1], case[3][0][0])
        for case in CASES
        if case[1].base not in ("json", "longtext", "float", "double")
    }

    def load(begin: int, end: int, row: Callable[[Any], Row]) -> None:
        changelog = Changelog(artifacts, begin, end)
        for number, (column_type, value) in enumerate(keys.values()):
            changelog.rows(table(f"shop.t{number}", {"k": column_type, "v": INT}, key=["k"]), [row(value)])
        mirror.load(changelog)

    def found() -> dict[str, list[tuple[Any, ...]]]:
        return {name: mirror.rows(f"SELECT v FROM shop.t{number}") for number, name in enumerate(keys)}

    load(100, 200, lambda value: put(110, k=value, v=2))
    load(0, 100, lambda value: put(10, k=value, v=1))
    assert found() == {name: [(2,)] for name in keys}
    load(200, 300, lambda value: delete(210, k=value))
    load(150, 200, lambda value: put(160, k=value, v=3))
    assert found() == {name: [] for name in keys}


def test_keys_that_differ_only_in_letter_case_or_accents_are_two_rows(mirror: Mirror, artifacts: Path) -> None:
    schema = table("shop.t", {"k": TEXT}, key=["k"])
    keys = ["a", "A", "\u00e1", "a\u0301", "a "]
    mirror.load(Changelog(artifacts, 0, 100).rows(schema, [put(10, k=key) for key in keys]))
    assert sorted(mirror.rows("SELECT k FROM shop.t")) == sorted((key,) for key in keys)


BAD: list[tuple[str, ColumnType, Row, str]] = [
    ("NUL in text", TEXT, put(20, id=7, v="a\0b"), "the character NUL"),
    ("zero date", declared("date"), Row("insert", 20, {"id": 7}, exact={"v": b"0000-00-00"}), "the value '0000-00-00'"),
    (
        "more digits than declared",
        declared("decimal", length=40, scale=2),
        put(20, id=7, v="1.234"),
        r"more digits than numeric\(40,2\) holds",
    ),
    ("too large a decimal", declared("decimal", length=40, scale=2), put(20, id=7, v="9" * 39), "more digits than"),
    ("no number", ColumnType("decimal"), put(20, id=7, v="1e5"), "more digits than"),
    ("text that is not JSON", declared("json"), put(20, id=7, v='{"a":'), "text that is not JSON"),
    ("deep JSON", declared("json"), put(20, id=7, v="[" * 100_000 + "]" * 100_000), "JSON of more than 500 levels"),
]  # fmt: skip


@pytest.mark.parametrize(("column_type", "row", "reason"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_value_that_postgres_cannot_hold_stops_the_load_and_is_named(
    mirror: Mirror, artifacts: Path, column_type: ColumnType, row: Row, reason: str
) -> None:
    schema = table("shop.t", {"id": INT, "v": column_type})
    changelog = Changelog(artifacts, 0, 100).rows(schema, [put(10, id=1), row])
    with pytest.raises(
        UnrepresentableValueError, match=r'shop.t {"id": 7}, column v \(topic\[0\]@2, event 0\): .*' + reason
    ):
        mirror.load(changelog)
    assert mirror.rows("SELECT to_regclass('shop.t')::text") == [(None,)]
    assert mirror.rows("SELECT count(*) FROM _ticdc_replay.staging") == [(0,)]


@pytest.mark.parametrize(("column_type", "row", "reason"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_by_policy_such_a_row_is_set_aside_and_the_rest_is_loaded(
    mirror: Mirror, artifacts: Path, column_type: ColumnType, row: Row, reason: str
) -> None:
    schema = table("shop.t", {"id": INT, "v": column_type})
    mirror.load(Changelog(artifacts, 0, 10).rows(schema, [put(5, id=7)]))
    changelog = Changelog(artifacts, 10, 100).rows(schema, [put(10, id=1), row])
    report = mirror.load(changelog, target_value="quarantine")
    assert (report.tables[0].quarantined, report.tables[0].keys, report.tables[0].events) == (1, 1, 2)
    assert mirror.rows("SELECT id, _commit_ts FROM shop.t ORDER BY id") == [(1, 10), (7, 5)]
    (name,) = report.quarantine_files
    (entry,) = pq.read_table(artifacts / name).to_pylist()
    assert (entry["table"], entry["key"], entry["column"], entry["commit_ts"]) == ("t", '{"id": 7}', "v", 20)
    assert (entry["topic"], entry["partition"], entry["operation"]) == ("topic", 0, "insert")
    assert pq.read_table(artifacts / entry["file"]).num_rows == 2


def test_a_bad_value_that_a_later_version_replaced_does_not_matter(mirror: Mirror, artifacts: Path) -> None:
    schema = table("shop.t", {"id": INT, "v": TEXT})
    changelog = Changelog(artifacts, 0, 100).rows(schema, [put(10, id=1, v="\0"), put(20, id=1, v="good")], files=2)
    assert mirror.load_table(changelog).quarantined == 0
    assert mirror.rows("SELECT v FROM shop.t") == [("good",)]


def test_a_delete_whose_key_postgres_cannot_hold_is_named(mirror: Mirror, artifacts: Path) -> None:
    schema = table("shop.t", {"day": declared("date")}, key=["day"])
    row = Row("delete", 20, {}, exact={"day": b"0000-00-00"}, partial=True)
    with pytest.raises(UnrepresentableValueError, match=r'shop.t {"day": "0000-00-00"}, column day'):
        mirror.load(Changelog(artifacts, 0, 100).rows(schema, [row]))


LONG_TEXT = declared("varchar", length=3072)
LONG_BYTES = declared("varbinary", length=3072)
LONG_KEYS: list[tuple[str, dict[str, ColumnType], dict[str, Any], dict[str, Any]]] = [
    ("text", {"a": LONG_TEXT}, {"a": random_text(2692)}, {"a": random_text(2693)}),
    ("bytes", {"a": LONG_BYTES}, {"a": Random(1).randbytes(2692)}, {"a": Random(2).randbytes(2693)}),
    (
        "several",
        {"a": LONG_TEXT, "b": declared("bigint"), "c": LONG_BYTES},
        {"a": random_text(1316), "b": 1, "c": Random(1).randbytes(1316)},
        {"a": random_text(1316), "b": 1, "c": Random(1).randbytes(1340)},
    ),
]


@pytest.mark.parametrize(
    ("key", "fits", "too_long"), [case[1:] for case in LONG_KEYS], ids=[case[0] for case in LONG_KEYS]
)
def test_a_key_that_no_index_holds_is_named_or_set_aside_and_the_longest_others_are_loaded(
    mirror: Mirror, artifacts: Path, key: dict[str, ColumnType], fits: dict[str, Any], too_long: dict[str, Any]
) -> None:
    schema = table("shop.t", {**key, "v": INT}, key=list(key))
    puts = Changelog(artifacts, 0, 100).rows(schema, [put(10, **fits, v=1), put(20, **too_long, v=2)])
    with pytest.raises(UnrepresentableValueError, match=r"shop.t .* a key of \d+ bytes in an index, where 2696 fit"):
        mirror.load(puts)
    report = mirror.load(puts, target_value="quarantine")
    assert (report.tables[0].keys, report.tables[0].quarantined) == (1, 1)
    assert mirror.rows("SELECT v FROM shop.t") == [(1,)]
    deletes = Changelog(artifacts, 100, 200, "b").rows(schema, [delete(110, **fits), delete(120, **too_long)])
    with pytest.raises(UnrepresentableValueError, match="a key of"):
        mirror.load(deletes)
    report = mirror.load(deletes, target_value="quarantine")
    assert (report.tables[0].keys, report.tables[0].quarantined) == (1, 1)
    assert mirror.rows("SELECT v FROM shop.t") == []


def test_a_partial_row_is_never_loaded_as_if_it_were_whole(mirror: Mirror, artifacts: Path) -> None:
    schema = table("shop.t", {"id": INT, "v": TEXT})
    with pytest.raises(PermanentError, match="the row lacks columns"):
        mirror.load(Changelog(artifacts, 0, 100).rows(schema, [put(10, id=1)._replace(partial=True)]))
    absent = put(10, id=1)._replace(absent=["before.v", "after.v"])
    with pytest.raises(PermanentError, match=r"the row of shop.t came without v"):
        mirror.load(Changelog(artifacts, 100, 200).rows(schema, [absent]))


def test_odd_names_stay_as_they_are(mirror: Mirror, artifacts: Path) -> None:
    name, long_name = 'we"ird na.me%s {x} 表', "c" + "x" * 63
    schema = table(
        f"dev-db 2%.{name}", {"I d": INT, 'a"b': TEXT, "select": TEXT, "d.ot": INT, long_name: INT}, ["I d", "d.ot"]
    )
    row = {"I d": 1, 'a"b': "x", "select": "y", "d.ot": 2, long_name: 3}
    for _ in range(2):
        mirror.load(
            Changelog(artifacts, 0, 100).rows(schema, [put(10, **row), delete(20, **{"I d": 2, "d.ot": 2})]),
            reload=True,
        )
    assert mirror.rows(
        'SELECT "I d", "a""b", "select", "d.ot" FROM "dev-db 2%%"."we""ird na.me%%s {x} 表"'.replace("%%", "%")
    ) == [(1, "x", "y", 2)]
    columns = mirror.rows("SELECT column_name FROM information_schema.columns WHERE column_name LIKE 'cxx%'")
    (shortened,) = columns[0]
    assert shortened.startswith("c" + "x" * 53)
    assert len(shortened) == 63


def test_a_table_with_other_types_is_refused_with_every_difference(mirror: Mirror, artifacts: Path) -> None:
    mirror.execute("CREATE SCHEMA shop; CREATE TABLE shop.t (id integer, v bytea, extra text, _commit_ts integer)")
    schema = table("shop.t", {"id": INT, "v": TEXT, "w": INT})
    with pytest.raises(TargetMismatchError) as error:
        mirror.load(Changelog(artifacts, 0, 100).rows(schema, [put(10, id=1)]))
    assert str(error.value).splitlines()[1:7] == [
        "- column _commit_ts is integer; bigint NOT NULL is needed",
        "- the primary key is none; rows are identified by id",
        "- column extra is not in the rows of the window",
        "- column id is integer, bigint is needed",
        "- column v is bytea, text is needed",
        "- column w bigint is missing",
    ]
    assert mirror.rows("SELECT count(*) FROM _ticdc_replay.staging") == [(0,)]


def test_a_table_made_by_hand_that_fits_is_used(mirror: Mirror, artifacts: Path) -> None:
    mirror.execute(
        "CREATE SCHEMA lake; CREATE TABLE lake.t (v text, id bigint PRIMARY KEY, replay_ts bigint NOT NULL);"
        "INSERT INTO lake.t VALUES ('base', 1, 50), ('base', 2, 50)"
    )
    schema = table("shop.t", {"id": INT, "v": TEXT})
    changelog = Changelog(artifacts, 0, 100).rows(schema, [put(40, id=3, v="older"), put(60, id=2, v="newer")])
    settings: dict[str, object] = {"schema": "lake", "commit_ts_column": "replay_ts"}
    with pytest.raises(TargetMismatchError, match="it has rows that no load has brought"):
        mirror.load(changelog, settings)
    mirror.raise_floor("shop.t", 50, settings)
    mirror.load(changelog, settings)
    assert mirror.rows("SELECT id, v, replay_ts FROM lake.t ORDER BY id") == [(1, "base", 50), (2, "newer", 60)]


def test_a_unique_constraint_that_would_reject_late_windows_is_refused(mirror: Mirror, artifacts: Path) -> None:
    mirror.execute(
        "CREATE SCHEMA shop; CREATE TABLE shop.t (id bigint PRIMARY KEY, v text UNIQUE, _commit_ts bigint NOT NULL)"
    )
    schema = table("shop.t", {"id": INT, "v": TEXT})
    with pytest.raises(TargetMismatchError, match=r"the unique index shop.t_v_key \(v\) can't stay unique"):
        mirror.load(Changelog(artifacts, 0, 100).rows(schema, [put(10, id=1)]))


def test_two_tables_are_not_mixed_in_one(mirror: Mirror, artifacts: Path) -> None:
    changelog = Changelog(artifacts, 0, 100)
    for schema in ("a", "b"):
        changelog.rows(table(f"{schema}.t", {"id": INT}), [put(10, id=1)])
    with pytest.raises(TargetMismatchError, match=r"a.t and b.t would both be mirrored"):
        mirror.load(changelog, {"schema": "one"})
    mirror.load(changelog, {"schema": "one"}, tables=("a.*",))
    later = Changelog(artifacts, 100, 200).rows(table("b.t", {"id": INT}), [put(110, id=1)])
    with pytest.raises(TargetMismatchError, match=r"it is the mirror of a.t"):
        mirror.load(later, {"schema": "one"})


def test_a_column_named_like_the_commit_ts_column_is_refused(mirror: Mirror, artifacts: Path) -> None:
    schema = table("shop.t", {"id": INT, "_commit_ts": INT})
    with pytest.raises(TargetMismatchError, match="set commit_ts_column of the target"):
        mirror.load(Changelog(artifacts, 0, 100).rows(schema, [put(10, id=1)]))


def test_a_table_without_key_is_left_out_and_reported(mirror: Mirror, artifacts: Path) -> None:
    schema = table("shop.log", {"line": TEXT}, key=[])
    changelog = Changelog(artifacts, 0, 100).rows(schema, [put(10, line="x")])
    report = mirror.load_table(changelog)
    assert (report.outcome, report.events, report.upserted) == ("without_key", 1, 0)
    with pytest.raises(PermanentError, match=r"shop.log: without primary key .* a mirror can't hold them"):
        mirror.load(changelog, tables=("shop.log",))
