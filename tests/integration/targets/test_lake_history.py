"""A history in a lake has every row version once, whatever windows are loaded, in any order, and how often."""

import random
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.every_type import CELLS, SCHEMA, write_one_row
from tests.support.target_rigs import LakeRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import (
    ConfigError,
    PermanentError,
    TargetMismatchError,
    TransientError,
    UnrepresentableValueError,
)
from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.targets.lake.history_ledger import HistoryLedger

pytestmark = pytest.mark.integration

INT = ColumnType("int", declared=True)
BIG = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
LINES = table("shop.lines", {"v": TEXT}, key=())

ROWS: list[Row] = [
    *(put(10, id=1, v="a"), put(11, id=2, v="a"), put(90, id=1, v="b", op="update")),
    *(delete(110, id=1), put(110, id=1, v="c"), delete(111, id=2)),
    *(put(210, id=2, v="d"), put(211, id=3, v="d", op="upsert"), delete(212, id=3)),
]
"""At 110 a row is deleted and put again: two versions of one commitTs."""
DOCS = Path(__file__).parents[3] / "docs/targets.md"
VERSIONS = "SELECT id, v, _op, _commit_ts FROM shop.orders ORDER BY _commit_ts, _op, id"


@pytest.fixture(params=["iceberg", "delta"])
def history(request: pytest.FixtureRequest, lake_spark: SparkSession, tmp_path: Path) -> LakeRig:
    return LakeRig(request.param, lake_spark, tmp_path, mode="history")


def window(artifacts: Path, from_ts: int, to_ts: int, run: str = "a", rows: Sequence[Row] = ROWS) -> Changelog:
    """The window's changelog, with those of *rows* that are in it."""
    return Changelog(artifacts, from_ts, to_ts, run).rows(ORDERS, [r for r in rows if from_ts <= r.commit_ts < to_ts])


def found(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """What ``VERSIONS`` gives if the history has *rows*."""
    ordered = sorted(rows, key=lambda row: (row.commit_ts, row.op, row.cells["id"]))
    return [(row.cells["id"], row.cells.get("v"), row.op, row.commit_ts) for row in ordered]


def states(history: LakeRig) -> int:
    """How many states of the table readers could have seen."""
    if history.kind == "iceberg":
        return history.rows(f"SELECT count(*) FROM {history.catalog}.shop.orders.history")[0][0]
    return len(history.rows("DESCRIBE HISTORY shop.orders"))


def test_windows_of_any_grid_in_any_order(history: LakeRig, artifacts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a compaction that put several windows into one file, and a kill between a commit and its report."""
    grid = [window(artifacts, from_ts, from_ts + 100) for from_ts in (0, 100, 200)]
    for number in (2, 0, 0):
        report = history.load_table(grid[number])
    assert (report.outcome, report.events, report.upserted) == ("done_before", 3, 3)
    assert report.commit, "the snapshot or version of the load that did it"

    with monkeypatch.context() as broken:
        broken.setattr(HistoryLedger, "note_done", _broken)
        with pytest.raises(TransientError, match="the store is away"):
            history.load(grid[1])
    assert history.rows(VERSIONS) == found(ROWS)
    assert history.load_table(grid[1]).outcome == "loaded"
    assert history.rows(VERSIONS) == found(ROWS)

    compact = {
        "iceberg": f"CALL {getattr(history, 'catalog', '')}.system.rewrite_data_files(table => 'shop.orders', "
        "options => map('rewrite-all', 'true'))",
        "delta": "OPTIMIZE shop.orders",
    }[history.kind]
    history.spark.sql(compact if history.kind == "iceberg" else history.named(compact))
    assert len(history.rows("SELECT DISTINCT input_file_name() FROM shop.orders")) == 1
    before = states(history)
    assert history.load_table(window(artifacts, 50, 250, "wide")).events == 7
    assert states(history) == before + 1
    assert history.rows(VERSIONS) == found(ROWS)


def _broken(*_: object) -> None:
    raise TransientError("the store is away")


def test_a_database_that_was_dropped_before_its_history_began(
    history: LakeRig, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of the DROP is in the slice of its own window, whichever window brings it, also after an attempt that broke."""
    drop = Changelog(artifacts, 100, 200).ddl(150, "DROP DATABASE shop", table="shop.")
    history.load(drop)
    with monkeypatch.context() as broken:
        broken.setattr(SparkSql, "view", _broken)
        with pytest.raises(TransientError, match="the store is away"):
            history.load(window(artifacts, 0, 100))
    dropped = "SELECT _commit_ts, _ddl FROM shop.orders WHERE _op = 'empty'"
    for changelog in (window(artifacts, 0, 100), window(artifacts, 200, 300), window(artifacts, 0, 100), drop):
        history.load(changelog, reload=True)
        assert history.rows(dropped) == [(150, "dropped: the table was dropped with its database")]
    rows = [row for row in ROWS if not 100 <= row.commit_ts < 200]
    assert history.rows(VERSIONS.replace("ORDER", "WHERE _ddl IS NULL ORDER")) == found(rows)


def test_readers_see_nothing_but_appends_until_a_slice_is_replaced(
    lake_spark: SparkSession, artifacts: Path, tmp_path: Path
) -> None:
    history = LakeRig("iceberg", lake_spark, tmp_path, mode="history")
    for from_ts in (100, 0, 200):
        history.load(window(artifacts, from_ts, from_ts + 100))
    operations = (
        "SELECT operation FROM shop.orders.snapshots "
        "WHERE snapshot_id IN (SELECT snapshot_id FROM shop.orders.history) ORDER BY committed_at"
    )
    assert history.rows(operations) == [("append",)] * 3
    assert history.rows("SELECT name FROM shop.orders.refs") == [("main",)]


def test_values_keys_and_places(history: LakeRig, artifacts: Path) -> None:
    """Every type is read back; values that no typed column holds are set aside; rows without key have their place."""
    stored = pq.read_table(write_one_row(artifacts.parent)).to_pylist()[0]
    cells = {**stored["after"], "date": None}
    changelog = Changelog(artifacts, 0, 100).rows(SCHEMA, [Row("insert", 7, cells)])
    changelog.rows(LINES, [put(8, v="x"), put(8, v="x")])
    gone = Row("delete", 12, {"id": 3}, exact={"v": b"\xff"})
    changelog.rows(ORDERS, [put(9, id=1, v="a"), Row("insert", 10, {"id": 2}, exact={"v": b"\xff"}), gone])
    with pytest.raises(UnrepresentableValueError, match="column v"):
        history.load(changelog)
    report = {each.table.table: each for each in history.load(changelog, target_value="quarantine").tables}
    assert (report["orders"].events, report["orders"].quarantined, report["orders"].upserted) == (3, 1, 2)
    assert pq.read_table(f"{artifacts}/{report['orders'].quarantine_files[0]}")["offset"].to_pylist() == [5]
    query = "SELECT id, v, _op, _absent FROM shop.orders ORDER BY id"
    assert history.rows(query) == [(1, "a", "insert", None), (3, None, "delete", ["v"])]
    lines = "SELECT v, _commit_ts, _kafka_topic, _kafka_partition, _kafka_offset FROM shop.lines ORDER BY 5"
    assert history.rows(lines) == [("x", 8, "topic", 0, 2), ("x", 8, "topic", 0, 3)]
    name = history.named("shop.orders").replace("orders", "every.type")
    if history.kind == "iceberg":
        name = f"{history.catalog}.shop.`every.type`"
    (read,) = history.spark.table(name).toArrow().to_pylist()
    assert {name: read[name] for name in CELLS} == cells


def test_what_is_refused(lake_spark: SparkSession, artifacts: Path, tmp_path: Path) -> None:
    by_offset = Changelog(artifacts, 0, 100, order="place").rows(ORDERS, [put(1, id=1, v="a")])
    with pytest.raises(ConfigError, match="windows are by offset"):
        LakeRig("delta", lake_spark, tmp_path, mode="history").load(by_offset)
    for kind in ("iceberg", "delta"):
        with pytest.raises(ConfigError, match="needs a catalog that holds views"):
            LakeRig(kind, lake_spark, tmp_path, mode="scd2").load(window(artifacts, 0, 100))
    taken = table("shop.taken", {"id": INT, "_op": TEXT})
    with pytest.raises(TargetMismatchError, match="names of its columns _op"):
        LakeRig("delta", lake_spark, tmp_path, mode="history").load(
            Changelog(artifacts, 0, 100, "taken").rows(taken, [put(1, id=1)])
        )


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_intervals_have_no_overlap_and_no_hole(
    lake_spark: SparkSession, artifacts: Path, tmp_path: Path, kind: str
) -> None:
    rig = LakeRig(kind, lake_spark, tmp_path, mode="scd2", schema=f"scd2_{tmp_path.name}".replace("-", "_"))
    if kind == "iceberg":
        settings = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "jdbc.schema-version": "V1"}
        rig.section["settings"] = {**settings, "warehouse": str(tmp_path / "warehouse")}
        where = f"{rig.catalog}.{rig.section['schema']}"
    else:
        del rig.section["path"]
        where = f"spark_catalog.{rig.section['schema']}"
    chance = random.Random(kind)
    drawn = {(chance.randrange(300), chance.randrange(4), chance.random() < 0.4) for _ in range(150)}
    versions = [delete(ts, id=key) if gone else put(ts, id=key, v=str(ts)) for ts, key, gone in sorted(drawn)]
    keyless = table("shop.keyless", {"v": TEXT}, key=())
    windows = [window(artifacts, at, at + 100, rows=versions) for at in (0, 100, 200)]
    windows[1].ddl(150, "TRUNCATE TABLE orders").rows(keyless, [put(110, v="a")])
    for number in chance.sample(range(3), 3):
        outcomes = {each.table.table: each.outcome for each in rig.load(windows[number]).tables}
        assert outcomes == {"orders": "loaded"} | ({"keyless": "without_key"} if number == 1 else {})
    expected = []
    for key in range(4):
        events = sorted((row.commit_ts, row.op != "delete") for row in versions if row.cells["id"] == key)
        for number, (ts, is_put) in enumerate(events):
            ends = [later for later, _ in events[number + 1 :]] + ([150] if ts <= 150 else [])
            end = min(ends, default=None)
            if is_put and end != ts:
                expected.append((key, str(ts), ts, end, end is None))
    query = f"SELECT id, v, valid_from, valid_to, is_current FROM {where}.orders ORDER BY id, valid_from"
    assert [tuple(row) for row in lake_spark.sql(query).collect()] == sorted(expected, key=itemgetter(0, 2))
    as_of, intervals = (
        section.split("```")[0].replace("lake.shop.orders", f"{where}.orders_history")
        for section in DOCS.read_text().split("## History\n")[1].split("```sql\n")[1:3]
    )
    view = f"SELECT id, v FROM {where}.orders WHERE valid_from <= 170 AND coalesce(valid_to > 170, true) ORDER BY id"
    folded = as_of.replace("460000000000000000", "170")
    assert lake_spark.sql(view).collect() == lake_spark.sql(f"SELECT id, v FROM ({folded}) ORDER BY id").collect()
    computed = lake_spark.sql(
        query.split("FROM")[0].replace("is_current", "valid_to IS NULL") + f"FROM ({intervals}) ORDER BY id, valid_from"
    )
    assert [tuple(row) for row in computed.collect()] == sorted(expected, key=itemgetter(0, 2))
    with pytest.raises(PermanentError, match="load it in mode history"):
        rig.load(windows[1], tables=("shop.keyless",))
