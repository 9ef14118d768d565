"""Every type and name arrives in lake tables unaltered, and other readers than Spark see the same rows."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.target_rigs import LakeRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import TargetMismatchError, UnrepresentableValueError
from ticdc_replay.domain.tables import TableName, TableSchema

pytestmark = pytest.mark.integration

UTC = datetime.UTC


def declared(base: Any, **details: Any) -> ColumnType:
    return ColumnType(base, declared=True, **details)


INT = declared("bigint")
TEXT = declared("varchar", length=20)
HOURS_838 = ((838 * 60 + 59) * 60 + 59) * 1_000_000

CASES: list[tuple[str, ColumnType, str, list[Any]]] = [
    ("tinyint", declared("tinyint"), "int", [-128, 127]),
    ("tinyint unsigned", declared("tinyint", unsigned=True), "int", [0, 255]),
    ("smallint unsigned", declared("smallint", unsigned=True), "int", [0, 65535]),
    ("mediumint unsigned", declared("mediumint", unsigned=True), "int", [0, 16777215]),
    ("int unsigned", declared("int", unsigned=True), "bigint", [0, 2**32 - 1]),
    ("bigint", INT, "bigint", [-(2**63), 2**63 - 1]),
    ("bigint unsigned", declared("bigint", unsigned=True), "decimal(20,0)", [Decimal(2**64 - 1), Decimal(0)]),
    ("float", declared("float"), "float", [-0.0, 1.5]),
    ("double", declared("double"), "double", [5e-324, 1.7976931348623157e308]),
    (
        "decimal(12,4)",
        declared("decimal", length=12, scale=4),
        "decimal(12,4)",
        [Decimal("12345678.9"), Decimal("-0.0001")],
    ),
    (
        "decimal(38,10)",
        declared("decimal", length=38, scale=10),
        "decimal(38,10)",
        [Decimal("9" * 28 + "." + "9" * 10), None],
    ),
    (
        "decimal(65,30)",
        declared("decimal", length=65, scale=30),
        "string",
        ["9" * 35 + "." + "9" * 30, "0." + "0" * 30],
    ),
    ("decimal, undeclared", ColumnType("decimal"), "string", ["1.500", "-0.00"]),
    ("bit(1)", declared("bit", length=1), "bigint", [1, 0]),
    ("bit(64)", declared("bit", length=64), "decimal(20,0)", [Decimal(2**64 - 1), Decimal(0)]),
    ("year", declared("year"), "int", [0, 2155]),
    ("date", declared("date"), "date", [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    ("time(6)", declared("time", scale=6), "bigint", [HOURS_838, -HOURS_838 - 1]),
    (
        "datetime(6)",
        declared("datetime", scale=6),
        "timestamp_ntz",
        [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)],
    ),
    (
        "timestamp(0)",
        declared("timestamp", scale=0),
        "timestamp",
        [datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime.datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC)],
    ),
    ("varchar", TEXT, "string", ["", "e\u0301 😀 \t\n\\ ' \0"]),
    ("json", declared("json"), "string", ['{"b": 1, "a": [1.0, 1.00]}', "null"]),
    ("vector", declared("vector"), "string", ["[1,2.5]", None]),
    ("varbinary", declared("varbinary", length=300), "binary", [b"", bytes(range(256))]),
    ("enum", declared("enum", elements=("a", "b")), "string", ["a", ""]),
    ("enum, undeclared", ColumnType("enum"), "int", [0, 65535]),
    ("set", declared("set", elements=("a", "b")), "string", ["a,b", ""]),
    ("set, undeclared", ColumnType("set"), "decimal(20,0)", [Decimal(2**64 - 1), Decimal(0)]),
]
ODD_NAMES = {"order": INT, "a`b": INT, 'quo"te': INT, "it's": INT, "Ünïcode": TEXT, "select * from": INT}
EVERY = {**{name: type_ for name, type_, _, _ in CASES}, **ODD_NAMES, "id": INT}


@pytest.fixture(params=["iceberg-2", "iceberg-3", "delta"])
def lake(request: pytest.FixtureRequest, lake_spark: SparkSession, tmp_path: Path) -> LakeRig:
    kind, _, version = request.param.partition("-")
    return LakeRig(kind, lake_spark, tmp_path, **({"format_version": int(version)} if version else {}))


def read_by_others(lake: LakeRig, table: str) -> pa.Table:
    """*table* as pyiceberg or delta-rs reads it."""
    folder = lake.folder / "tables" / table.replace(".", "/")
    if lake.kind == "delta":
        found = QueryBuilder().register("t", DeltaTable(str(folder))).execute("SELECT * FROM t")
        return pa.table(found.read_all())
    version = (folder / "metadata" / "version-hint.text").read_text().strip()
    return StaticTable.from_metadata(str(folder / "metadata" / f"v{version}.metadata.json")).scan().to_arrow()


def test_every_type_and_name_arrives_and_is_read_by_others(lake: LakeRig, artifacts: Path) -> None:
    every = table("shop.every", EVERY)
    rows = [
        put(10 + at, id=at, **{name: values[at] for name, _, _, values in CASES}, **dict.fromkeys(ODD_NAMES, None))
        for at in (0, 1)
    ]
    rows = [row._replace(cells={**row.cells, "order": 7, "a`b": 8, "Ünïcode": "ö"}) for row in rows]
    lake.load(Changelog(artifacts, 0, 100).rows(every, [*rows, put(20, id=2, bigint=1), put(21, id=3, bigint=1)]))
    lake.load(Changelog(artifacts, 100, 200).rows(every, [put(110, id=2, bigint=2), delete(111, id=3)]))
    assert lake.sql is not None
    found = {name: type_name for name, type_name, _ in lake.sql.columns(lake.named("shop.every"))}
    assert {name: found[name] for name, *_ in CASES} == {name: type_name for name, _, type_name, _ in CASES}
    spark = [row.asDict() for row in lake.spark.sql(lake.named("SELECT * FROM shop.every ORDER BY id")).collect()]
    others = sorted(read_by_others(lake, "shop.every").to_pylist(), key=lambda row: row["id"])
    for at, row in enumerate(rows):
        for name, value in row.cells.items():
            for reader in (spark, others):
                assert _plain(reader[at][name]) == _plain(value), name
    assert [(row["id"], row["bigint"], row["_commit_ts"]) for row in others[2:]] == [(2, 2, 110)]
    assert len(spark) == len(others) == 3


def _plain(value: Any) -> Any:
    """*value* as all readers have it: moments with a zone in UTC, bytes as bytes."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.parametrize(
    "key",
    [
        "bigint unsigned",
        "varbinary",
        *(
            pytest.param(key, marks=pytest.mark.nightly)
            for key in ("date", "varchar", "timestamp(0)", "decimal(12,4)", "double")
        ),
    ],
)
def test_rows_with_a_key_of_any_type_are_replaced_and_deleted(
    lake_spark: SparkSession, tmp_path: Path, key: str
) -> None:
    lake = LakeRig("iceberg", lake_spark, tmp_path)
    ((_, key_type, _, values),) = [case for case in CASES if case[0] == key]
    keyed = table("shop.keyed", {"k": key_type, "v": INT}, ["k"])
    lake.load(Changelog(tmp_path / "a", 0, 100).rows(keyed, [put(10, k=value, v=1) for value in values]))
    lake.load(Changelog(tmp_path / "a", 100, 200).rows(keyed, [put(110, k=values[0], v=2), delete(111, k=values[1])]))
    lake.load(Changelog(tmp_path / "a", 50, 60).rows(keyed, [put(55, k=value, v=3) for value in values]))
    (row,) = lake.rows("SELECT k, v FROM shop.keyed")
    assert (_plain(row[0].replace(tzinfo=UTC) if key == "timestamp(0)" else row[0]), row[1]) == (_plain(values[0]), 2)


def test_a_value_without_typed_cell_stops_the_load_or_is_set_aside(lake_spark: SparkSession, tmp_path: Path) -> None:
    lake = LakeRig("iceberg", lake_spark, tmp_path)
    dated = table("shop.dated", {"id": INT, "d": declared("date")})
    rows = [Row("insert", 10, {"id": 1, "d": None}, exact={"d": b"0000-00-00"}), put(11, id=2, d=None)]
    changelog = Changelog(tmp_path / "a", 0, 100).rows(dated, rows)
    with pytest.raises(UnrepresentableValueError, match="0000-00-00"):
        lake.load(changelog)
    report = lake.load_table(changelog, target_value="quarantine")
    assert (report.upserted, report.quarantined) == (1, 1)
    assert lake.rows("SELECT id FROM shop.dated") == [(2,)]


def test_a_key_of_decimals_without_known_digits_is_refused(lake_spark: SparkSession, tmp_path: Path) -> None:
    lake = LakeRig("delta", lake_spark, tmp_path)
    keyed = table("shop.keyed", {"k": ColumnType("decimal")}, ["k"])
    with pytest.raises(TargetMismatchError, match="one number may have several texts"):
        lake.load(Changelog(tmp_path / "a", 0, 100).rows(keyed, [put(10, k="1.5")]))


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_names_of_tables_that_are_no_words(lake_spark: SparkSession, tmp_path: Path, kind: str) -> None:
    lake = LakeRig(kind, lake_spark, tmp_path)
    names = ["it's a `table`", "dot.ted", "Ünïcode", "ORDERS", "../up", "per%20cent", "select"]
    changelog = Changelog(tmp_path / "a", 0, 100)
    for at, name in enumerate(names):
        changelog.rows(_named(name), [put(10, id=at)])
    reports = {report.table.table: report for report in lake.load(changelog).tables}
    assert {name: report.upserted for name, report in reports.items()} == dict.fromkeys(names, 1)
    assert lake.sql is not None
    for at, name in enumerate(names):
        place = reports[name].destination.partition(".")[2].strip('"')
        quoted = place.replace("`", "``")
        where = (
            f"{lake.catalog}.shop.`{quoted}`"
            if kind == "iceberg"
            else f"delta.`{(lake.folder / 'tables').as_uri()}/shop/{quoted}`"
        )
        assert [row["id"] for row in lake.sql.run(f"SELECT id FROM {where}")] == [at], name
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == sorted({"a", lake.folder.name})


def _named(name: str) -> TableSchema:
    return msgspec.structs.replace(table("shop.t", {"id": INT}), name=TableName("shop", name))
