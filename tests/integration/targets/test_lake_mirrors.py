"""What a mirror in a lake has beside that of a database: soft deletes, layouts, tables that a person has filled."""

import datetime as dt
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.target_rigs import LakeRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import TargetMismatchError
from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.targets.lake import merge

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})


SOFT = "SELECT id, v, _commit_ts, _is_deleted FROM shop.orders ORDER BY id"
KEYS = {
    "a": ColumnType("int", declared=True),
    "b": ColumnType("bigint", unsigned=True, declared=True),
    "c": ColumnType("date", declared=True),
    "d": ColumnType("datetime", scale=6, declared=True),
    "e": ColumnType("timestamp", scale=3, declared=True),
    "f": TEXT,
}
OLD = {
    "a": -5,
    "b": 2**64 - 1,
    "c": dt.date(1, 1, 1),
    "d": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    "e": dt.datetime(1970, 1, 1, 0, 0, 1, 1000, tzinfo=dt.UTC),
    "f": "it's \\ ${old}",
}
RECENT = {
    "a": -1005,
    "b": 2**63,
    "c": dt.date(2025, 1, 1),
    "d": dt.datetime(2025, 1, 1),
    "e": dt.datetime(2025, 1, 1, tzinfo=dt.UTC),
    "f": "new",
}


@pytest.mark.parametrize("listed", [False, True], ids=["in ranges", "in lists"])
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_row_is_found_by_keys_of_any_type_and_only_files_with_such_keys_are_read(
    lake_spark: SparkSession, tmp_path: Path, kind: str, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "LISTED", merge.LISTED if listed else 0)
    lake = LakeRig(kind, lake_spark, tmp_path)
    orders = table("shop.orders", {**KEYS, "v": TEXT}, list(KEYS))
    lake.load(Changelog(tmp_path / "a", 0, 100).rows(orders, [put(10, **OLD, v="a"), put(11, **RECENT, v="a")]))
    plans, run = [], SparkSql.run

    def explained(sql: SparkSql, statement: str, settings: Mapping[str, str] = {}) -> Any:
        if statement.startswith("MERGE"):
            plans.append(run(sql, f"EXPLAIN {statement}")[0]["plan"])
        return run(sql, statement, settings)

    monkeypatch.setattr(SparkSql, "run", explained)
    rows = [put(110, **OLD, v="b"), delete(111, **RECENT), put(112, **{**OLD, "a": 7}, v="new")]
    report = lake.load_table(Changelog(tmp_path / "a", 100, 200).rows(orders, rows))
    assert (report.upserted, report.tombstones, report.superseded) == (2, 1, 0)
    assert lake.rows("SELECT a, v FROM shop.orders ORDER BY a") == [(-5, "b"), (7, "new")]
    if kind == "iceberg":
        (pushed,) = re.findall(r"filters=(.*?), runtimeFilters", plans[0])
        assert {*re.findall(r"\b([a-f]) (?:>=|=)", pushed)} == {*KEYS}, "each column of the key leaves files out"
        assert {*re.findall(r"\b([a-f]) IN", pushed)} == ({*KEYS} if listed else set())


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_ledger_and_a_key_that_spark_takes_for_secrets(lake_spark: SparkSession, tmp_path: Path, kind: str) -> None:
    lake = LakeRig(kind, lake_spark, tmp_path / "password-tokens")
    tokens = table("shop.tokens", {"access_token": INT, "v": TEXT}, ["access_token"])
    for number, v in enumerate(("a", "b")):
        rows = [put(100 * number + 10, access_token=1, v=v)]
        lake.load(Changelog(tmp_path / "a", 100 * number, 100 * number + 100).rows(tokens, rows))
    assert lake.rows("SELECT access_token, v FROM shop.tokens") == [(1, "b")]
    lake.execute("""ALTER TABLE shop.tokens SET TBLPROPERTIES ('ticdc-replay.key' = '["access_token"]')""")
    with pytest.raises(TargetMismatchError, match=r"Spark hides the table property ticdc-replay.key.*in hex"):
        lake.load(Changelog(tmp_path / "a", 200, 300).rows(tokens, [put(210, access_token=1, v="c")]))
    given = b'["access_token"]'.hex()
    lake.execute(f"ALTER TABLE shop.tokens SET TBLPROPERTIES ('ticdc-replay.key' = '{given}')")
    lake.load(Changelog(tmp_path / "a", 200, 300).rows(tokens, [put(210, access_token=1, v="c")]))
    assert lake.rows("SELECT access_token, v FROM shop.tokens") == [(1, "c")]


def test_a_table_without_marks_of_deletes_does_not_become_one_with_them(
    lake_spark: SparkSession, tmp_path: Path
) -> None:
    lake = LakeRig("iceberg", lake_spark, tmp_path)
    lake.load(Changelog(tmp_path / "a", 0, 100).rows(ORDERS, [put(10, id=1, v="a")]))
    lake.load(Changelog(tmp_path / "a", 200, 300).rows(ORDERS, [delete(250, id=2)]))
    later = Changelog(tmp_path / "a", 100, 150).rows(ORDERS, [delete(110, id=1)])
    with pytest.raises(TargetMismatchError, match=r"has no column _is_deleted.*add it as a boolean"):
        lake.load(later, {"deletes": "soft"})
    lake.execute("ALTER TABLE shop.orders ADD COLUMN _is_deleted boolean")
    lake.execute("UPDATE shop.orders SET _is_deleted = false")
    lake.load(later, {"deletes": "soft"})
    assert lake.rows(SOFT) == [(1, None, 110, True)]
    late = Changelog(tmp_path / "a", 150, 200).rows(ORDERS, [put(160, id=2, v="late"), put(170, id=3, v="late")])
    lake.load(late, {"deletes": "soft"})
    expected = [(1, None, 110, True), (2, "late", 250, True), (3, "late", 170, False)]
    assert lake.rows(SOFT) == expected, "a hard delete is remembered"


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_table_that_a_person_has_filled_becomes_a_mirror_from_its_floor_on(
    lake_spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    lake = LakeRig(kind, lake_spark, tmp_path)
    assert lake.sql is not None
    window = Changelog(tmp_path / "a", 0, 100).rows(ORDERS, [put(40, id=1, v="old"), put(60, id=2, v="new")])
    if kind == "iceberg":
        # A session knows a catalog once a target has named it.
        prefix = f"spark.sql.catalog.{lake.catalog}"
        lake.sql.set({prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.type": "hadoop"})
        lake.sql.set({f"{prefix}.warehouse": (lake.folder / "tables").as_uri(), f"{prefix}.cache-enabled": "false"})
        lake.execute("CREATE NAMESPACE " + lake.catalog + ".shop")
    lake.execute(
        f"CREATE TABLE shop.orders (id bigint, v string, _commit_ts bigint NOT NULL) USING {kind} "
        "TBLPROPERTIES ('ticdc-replay.key' = '[\"id\"]')"
    )
    lake.execute("INSERT INTO shop.orders VALUES (1, 'dump', 50), (3, 'dump', 50)")
    with pytest.raises(TargetMismatchError, match="of unknown age"):
        lake.load(window)
    lake.raise_floor("shop.orders", 50)
    lake.load(window)
    assert lake.rows("SELECT id, v FROM shop.orders ORDER BY id") == [(1, "dump"), (2, "new"), (3, "dump")]
    lake.load(Changelog(tmp_path / "a", 100, 200).rows(ORDERS, [delete(110, id=3)]))
    assert lake.rows("SELECT id, v FROM shop.orders ORDER BY id") == [(1, "dump"), (2, "new")]


def test_rows_by_place_are_ordered_in_their_partition(lake_spark: SparkSession, tmp_path: Path) -> None:
    lake = LakeRig("iceberg", lake_spark, tmp_path)
    later = Changelog(tmp_path / "a", 100, 200, order="place").rows(ORDERS, [put(20, id=1, v="b"), delete(21, id=2)])
    lake.load(later)
    older = Changelog(tmp_path / "a", 0, 100, order="place").rows(ORDERS, [put(10, id=1, v="a"), put(11, id=2, v="a")])
    report = lake.load_table(older)
    assert (report.upserted, report.superseded) == (0, 2)
    assert lake.rows("SELECT id, v, _place FROM shop.orders") == [(1, "b", 21)]
    moved = Changelog(tmp_path / "a", 200, 300, order="place")
    moved.rows(ORDERS, [put(30, id=1, v="c")._replace(partition=1)])
    with pytest.raises(TargetMismatchError, match=r"was in partition 0, and is in partition 1 now"):
        lake.load(moved)
    gone = Changelog(tmp_path / "a", 300, 400, order="place")
    gone.rows(ORDERS, [put(40, id=2, v="c")._replace(partition=1)])
    with pytest.raises(TargetMismatchError, match=r"was in partition 0, and is in partition 1 now"):
        lake.load(gone)


def test_a_table_is_made_as_its_layout_says_and_only_what_is_touched_is_written(
    lake_spark: SparkSession, tmp_path: Path
) -> None:
    layout = {
        "tables": ["shop.*"],
        "partition_by": ["truncate(100, id)"],
        "sort_by": ["id"],
        "properties": {"write.parquet.compression-codec": "gzip", "made.by": "me"},
    }
    lake = LakeRig("iceberg", lake_spark, tmp_path, layouts=[layout])
    lake.load(
        Changelog(tmp_path / "a", 0, 100).rows(ORDERS, [put(10, id=number, v="a") for number in range(0, 1000, 10)])
    )
    properties = dict(lake.rows("SHOW TBLPROPERTIES shop.orders"))
    assert (properties["made.by"], properties["write.parquet.compression-codec"]) == ("me", "gzip")
    before = {row[0] for row in lake.rows(f"SELECT file_path FROM {lake.catalog}.shop.orders.files WHERE content = 0")}
    assert len(before) == 10
    lake.load(Changelog(tmp_path / "a", 100, 200).rows(ORDERS, [put(110, id=10, v="b"), delete(111, id=20)]))
    after = {row[0] for row in lake.rows(f"SELECT file_path FROM {lake.catalog}.shop.orders.files WHERE content = 0")}
    assert before <= after
    assert len(after - before) == 1
    assert lake.rows("SELECT count(*), count_if(v = 'b') FROM shop.orders") == [(99, 1)]


def test_a_soft_delete_with_a_value_without_type_is_applied(lake_spark: SparkSession, tmp_path: Path) -> None:
    lake = LakeRig("iceberg", lake_spark, tmp_path, deletes="soft")
    dated = table("shop.dated", {"id": INT, "d": ColumnType("date", declared=True)})
    lake.load(Changelog(tmp_path / "a", 0, 100).rows(dated, [put(10, id=1, d=None)]))
    gone = Row("delete", 110, {"id": 1, "d": None}, exact={"d": b"0000-00-00"})
    lake.load(Changelog(tmp_path / "a", 100, 200).rows(dated, [gone]))
    assert lake.rows("SELECT id, d, _is_deleted FROM shop.dated") == [(1, None, True)]


def test_deletes_of_windows_by_place_are_remembered_above_a_floor(lake_spark: SparkSession, tmp_path: Path) -> None:
    lake = LakeRig("iceberg", lake_spark, tmp_path)
    lake.raise_floor("shop.orders", 100)
    lake.load(Changelog(tmp_path / "a", 200, 300, order="place").rows(ORDERS, [delete(21, id=1), put(22, id=2, v="b")]))
    lake.load(Changelog(tmp_path / "a", 100, 200, order="place").rows(ORDERS, [put(10, id=1, v="a")]))
    assert lake.rows("SELECT id FROM shop.orders") == [(2,)]


def test_a_mirror_that_was_renamed_by_hand_goes_on_and_keeps_its_files_from_the_next_one(
    lake_spark: SparkSession, tmp_path: Path
) -> None:
    lake = LakeRig("iceberg", lake_spark, tmp_path)
    settings = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "jdbc.schema-version": "V1"}
    lake.section["settings"] = {**settings, "warehouse": str(tmp_path / "warehouse")}
    lake.load(Changelog(tmp_path / "a", 0, 100).rows(ORDERS, [put(10, id=1, v="a")]))
    lake.spark.sql(f"ALTER TABLE {lake.catalog}.shop.orders RENAME TO shop.orders_2025")
    lake.forget("shop.orders")
    lake.raise_floor("shop.orders_2025", 150)
    renamed = table("shop.orders_2025", {"id": INT, "v": TEXT})
    later = Changelog(tmp_path / "a", 200, 300).rows(renamed, [put(210, id=2, v="b")])
    later.rows(ORDERS, [put(220, id=3, v="c")])
    with pytest.raises(TargetMismatchError, match="UNSET TBLPROPERTIES"):
        lake.load(later)
    lake.execute("ALTER TABLE shop.orders_2025 UNSET TBLPROPERTIES ('ticdc-replay.incarnation')")
    lake.load(later)
    assert lake.rows("SELECT id, v FROM shop.orders_2025 ORDER BY id") == [(1, "a"), (2, "b")]
    assert lake.rows("SELECT id, v FROM shop.orders") == [(3, "c")]
    folders = {
        name: {row[0].rpartition("/data/")[0] for row in lake.rows(f"SELECT input_file_name() FROM shop.{name}")}
        for name in ("orders", "orders_2025")
    }
    assert not folders["orders"] & folders["orders_2025"], "maintenance takes files of other tables for orphans"
