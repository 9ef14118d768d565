"""A lake table that takes the place of another one, with other columns: whatever breaks, readers see old rows or new ones."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.deaths import die_at_statements
from tests.support.dying_loads import LAST_LOOK, Dying, FaultError, Stalling
from tests.support.in_process import in_process
from tests.support.target_rigs import LakeRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import (
    PermanentError,
    PolicyStopError,
    SupersededError,
    TargetMismatchError,
    TransientError,
)
from ticdc_replay.domain.tables import TableName
from ticdc_replay.jobspec import MaintainJob
from ticdc_replay.targets.base import Replaced
from ticdc_replay.targets.lake.maintain import maintain
from ticdc_replay.targets.lake.mirror import LakeMirror, format_of
from ticdc_replay.targets.lake.swapping_ledger import SwappingLakeLedger
from ticdc_replay.targets.lake.upkeep import MaintainedTable
from ticdc_replay.targets.mirror.planning.tables import Relation

pytestmark = pytest.mark.integration

TABLE = TableName("shop", "t")
INT = ColumnType("int", declared=True)
BIG = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
OLD = table("shop.t", {"id": INT, "v": INT, "gone": INT, "Name": TEXT, "n": INT})
NEW = table("shop.t", {"id": INT, "v": TEXT, "name": TEXT, "n": BIG, "added": INT})
OLD_ROWS = [(1, 11, 12, "one", 13), (2, 21, 22, "two", 23)]
NEW_ROWS = [(1, "eleven", "one", 2**40, 5), (3, "x", "three", 7, None)]

LATER = {"id": 4, "v": "y", "name": "four", "n": 8, "added": 6}


@pytest.fixture(params=["iceberg", "delta"])
def make_lake(request: pytest.FixtureRequest, lake_spark: SparkSession, tmp_path: Path) -> Callable[[], LakeRig]:
    """Makes a lake whose table has the old rows, and another form of it beside: what a rebuild from a newer base leaves."""

    def made() -> LakeRig:
        lake = LakeRig(request.param, lake_spark, tmp_path)
        artifacts = lake.folder / "artifacts"
        rows = [put(10, id=key, v=v, gone=gone, Name=name, n=n) for key, v, gone, name, n in OLD_ROWS]
        lake.load(Changelog(artifacts, 0, 100).rows(OLD, rows))
        new = [put(110, id=key, v=v, name=name, n=n, added=added) for key, v, name, n, added in NEW_ROWS]
        beside(
            lake, Changelog(artifacts, 0, 200).rows(NEW, [put(100, id=2, v="", name="", n=0), *new, delete(120, id=2)])
        )
        return lake

    return made


def mirror(lake: LakeRig) -> LakeMirror:
    target = lake.changeable()
    assert isinstance(target, LakeMirror)
    return target


def beside(lake: LakeRig, changelog: Changelog) -> None:
    lake.load(changelog, {"schema": mirror(lake).beside(TABLE).db_schema})


def swap(lake: LakeRig) -> Replaced:
    old = [run.run_hash for run in mirror(lake).applied(TABLE) if run.window.from_ts == 0]
    return mirror(lake).replace("pipeline", TABLE, old, ())


def rows(lake: LakeRig) -> list[tuple[object, ...]]:
    return sorted(lake.rows("SELECT * EXCEPT (_commit_ts) FROM shop.t"))


def new_rows(lake: LakeRig) -> list[tuple[object, ...]]:
    return sorted(lake.rows("SELECT id, v, name, n, added FROM shop.t"))


def test_a_new_table_may_have_other_columns_and_types(make_lake: Callable[[], LakeRig]) -> None:
    lake = make_lake()
    assert swap(lake).lacking == ()
    assert new_rows(lake) == NEW_ROWS
    assert {name for name, *_ in lake.rows("DESCRIBE shop.t") if name in ("gone", "Name", "name")} == {"name"}
    assert mirror(lake).applied_beside(TABLE) == ()
    late = lake.load_table(Changelog(lake.folder / "late", 50, 100).rows(NEW, [put(60, id=2, v="late", name="", n=0)]))
    assert (late.superseded, new_rows(lake)) == (1, NEW_ROWS), "the delete is remembered"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_swap_that_dies_at_any_write_leaves_the_old_rows_or_the_new_ones(
    make_lake: Callable[[], LakeRig], after: bool
) -> None:
    def attempt(number: int) -> int:
        lake, dying = make_lake(), Dying(number, after=after)
        with pytest.MonkeyPatch.context() as patch:
            dying.patched(patch)
            with suppress(FaultError):
                swap(lake)
        assert sorted(lake.rows("SELECT id FROM shop.t")) in ([(1,), (2,)], [(1,), (3,)])
        is_decided = mirror(lake).is_swapping(TABLE)
        if is_decided:
            with pytest.raises(PermanentError, match="mirror rebuild"):
                lake.raise_floor("shop.t", 5)
            lake.load(Changelog(lake.folder / "later", 200, 300).rows(NEW, [put(210, **LATER)]))
        elif mirror(lake).applied_beside(TABLE):
            swap(lake)
        assert new_rows(lake) == ([*NEW_ROWS, tuple(LATER.values())] if is_decided else NEW_ROWS)
        return dying.seen

    assert die_at_statements(attempt, few=1) >= 10


def test_nothing_is_loaded_beside_once_the_swap_is_decided(make_lake: Callable[[], LakeRig]) -> None:
    lake = make_lake()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ticdc_replay.targets.lake.swap.SwappingLakeSession._end", _die)
        with pytest.raises(FaultError):
            swap(lake)
    with pytest.raises(TransientError, match="is about to take the place"):
        beside(lake, Changelog(lake.folder / "later", 200, 300).rows(NEW, [put(210, **LATER)]))
    done = mirror(lake).replace("pipeline", TABLE, (), ())
    assert (done.lacking, new_rows(lake)) == ((), NEW_ROWS)


def test_maintenance_leaves_a_table_alone_that_is_built(make_lake: Callable[[], LakeRig]) -> None:
    (line,) = maintained(make_lake())
    assert (line.destination, line.outcome) == ('"shop"."t"', "dry_run")


def maintained(lake: LakeRig) -> tuple[MaintainedTable, ...]:
    job = MaintainJob(
        library_version="1",
        pipeline="pipeline",
        artifacts=(lake.folder / "artifacts").as_uri(),
        artifacts_connection=None,
        target=lake.section,
        tables=("*.*",),
        dry_run=True,
        asked_at_ms=0,
    )
    assert lake.sql is not None
    return maintain(job, lake.connections, in_process, lake.sql).tables


def test_a_load_that_came_between_keeps_the_old_table(make_lake: Callable[[], LakeRig]) -> None:
    """Of an attempt that stalled for longer than its lease, right before it decided."""
    lake = make_lake()
    begin = SwappingLakeLedger.begin_swap

    def stalled(ledger: SwappingLakeLedger, target: Relation, *rest: object) -> None:
        for lease in lake.ledger.rglob("lease.json"):
            lease.unlink()
        lake.load(Changelog(lake.folder / "between", 5, 9).rows(OLD, [put(6, id=8, v=1, gone=1, Name="", n=1)]))
        begin(ledger, target, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SwappingLakeLedger, "begin_swap", stalled)
        with pytest.raises(TransientError):
            swap(lake)
    assert lake.rows("SELECT count(*) FROM shop.t WHERE id = 8") == [(1,)]
    if mirror(lake).is_swapping(TABLE):
        lake.load(Changelog(lake.folder / "more", 1, 4).rows(OLD, [put(2, id=9, v=1, gone=1, Name="", n=1)]))
    assert not mirror(lake).is_swapping(TABLE)
    assert lake.rows("SELECT count(*) FROM shop.t WHERE id = 8") == [(1,)]
    assert [run.window.from_ts for run in swap(lake).lacking] == [5]


def test_a_new_table_that_somebody_dropped_leaves_the_old_one(make_lake: Callable[[], LakeRig]) -> None:
    lake = make_lake()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ticdc_replay.targets.lake.swap.SwappingLakeSession._end", _die)
        with pytest.raises(FaultError):
            swap(lake)
    side = Relation(str(mirror(lake).beside(TABLE).db_schema), "t")
    for statement in format_of(mirror(lake).config).drop_table(side):
        lake.spark.sql(statement)
    with pytest.raises(TargetMismatchError, match="there is no table beside"):
        mirror(lake).replace("pipeline", TABLE, (), ())
    assert not mirror(lake).is_swapping(TABLE)
    assert rows(lake) == OLD_ROWS


def test_a_column_that_the_layout_needs_refuses_the_swap(make_lake: Callable[[], LakeRig]) -> None:
    lake = make_lake()
    name = format_of(mirror(lake).config).name_of(Relation("shop", "t"))
    needs, frees = (
        ("WRITE LOCALLY ORDERED BY gone", "WRITE UNORDERED")
        if lake.kind == "iceberg"
        else ("ADD CONSTRAINT small CHECK (gone < 100)", "DROP CONSTRAINT small")
    )
    lake.spark.sql(f"ALTER TABLE {name} {needs}")
    with pytest.raises(TargetMismatchError, match=r"column gone, .*(sorted by it|small)"):
        swap(lake)
    assert not mirror(lake).is_swapping(TABLE)
    lake.spark.sql(f"ALTER TABLE {name} {frees}")
    assert swap(lake).lacking == ()
    assert new_rows(lake) == NEW_ROWS


@pytest.mark.parametrize("make_lake", ["delta"], indirect=True)
def test_generated_columns_refuse_the_swap_if_columns_change(make_lake: Callable[[], LakeRig]) -> None:
    """The column that one is computed from could not be dropped, after the new rows are there."""
    lake = make_lake()
    name = format_of(mirror(lake).config).name_of(Relation("shop", "t"))
    own = {key: value for key, value in lake.rows("SHOW TBLPROPERTIES shop.t") if not key.startswith("delta.min")}
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in own.items() if "maxColumnId" not in key)
    columns = "id INT, v INT, gone INT, Name STRING, n INT, _commit_ts BIGINT NOT NULL"
    lake.spark.sql(
        f"REPLACE TABLE {name} ({columns}, twice INT GENERATED ALWAYS AS (gone * 2)) USING delta TBLPROPERTIES ({properties})"
    )
    lake.spark.sql(f"INSERT INTO {name} (id, gone, _commit_ts) VALUES (1, 12, 10)")
    with pytest.raises(
        TargetMismatchError, match=r"columns v, gone, Name, twice(, n)? go, .* generated columns may need"
    ):
        swap(lake)
    assert not mirror(lake).is_swapping(TABLE)
    assert lake.rows("SELECT id, gone, twice FROM shop.t") == [(1, 12, 24)]


def test_a_swap_that_can_not_be_done_leaves_the_old_table(make_lake: Callable[[], LakeRig]) -> None:
    """Without the columns that it has added, so that loads go on."""
    lake = make_lake()
    give_up(lake)
    assert rows(lake) == OLD_ROWS
    late = [put(60, id=2, v=31, gone=32, Name="late", n=33)]
    lake.load(Changelog(lake.folder / "late", 50, 100).rows(OLD, late))
    assert rows(lake) == [OLD_ROWS[0], (2, 31, 32, "late", 33)]
    assert [run.window.from_ts for run in swap(lake).lacking] == [50]


@pytest.mark.parametrize("killed", [False, True])
def test_a_lost_table_stays_lost_if_a_swap_can_not_be_done(make_lake: Callable[[], LakeRig], killed: bool) -> None:
    """An empty one in its place would be loaded into, and lack all rows from before."""
    lake = make_lake()
    drop_by_hand(lake)
    give_up(lake, killed=killed)
    with pytest.raises(TargetMismatchError, match="was dropped"):
        lake.load(Changelog(lake.folder / "late", 50, 100).rows(OLD, [put(60, id=2, v=1, gone=1, Name="", n=1)]))
    assert swap(lake).lacking == ()
    assert new_rows(lake) == NEW_ROWS


def test_a_mirror_that_was_forgotten_stays_forgotten_if_a_swap_can_not_be_done(
    make_lake: Callable[[], LakeRig],
) -> None:
    """Else windows from below the floor of the new one would count as loaded."""
    lake = make_lake()
    lake.raise_floor("shop.t", 200, {"schema": mirror(lake).beside(TABLE).db_schema})
    drop_by_hand(lake)
    lake.forget("shop.t")
    give_up(lake)
    assert mirror(lake).floor_of(TABLE) == 0
    lake.load(Changelog(lake.folder / "again", 0, 100).rows(OLD, [put(10, id=1, v=11, gone=12, Name="one", n=13)]))
    assert rows(lake) == OLD_ROWS[:1]


def give_up(lake: LakeRig, *, killed: bool = False) -> None:
    """Swap without the right to write rows; if *killed*, die there, and abandon the rebuild."""

    def refused(*_: object, **__: object) -> None:
        raise FaultError if killed else PermanentError("no right to write")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ticdc_replay.targets.lake.swap.commit_as", refused)
        with pytest.raises(FaultError if killed else PermanentError):
            swap(lake)
    if killed:
        mirror(lake).withdraw_swap(TABLE)
    assert not mirror(lake).is_swapping(TABLE)


def drop_by_hand(lake: LakeRig) -> None:
    if lake.kind == "delta":
        shutil.rmtree(lake.folder / "tables" / "shop" / "t")
    else:
        lake.execute("DROP TABLE shop.t")


def test_a_rebuild_is_given_up_until_its_rows_have_come(make_lake: Callable[[], LakeRig]) -> None:
    for step, is_done in (("_take_rows", False), ("drop_table", True)):
        lake = make_lake()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"ticdc_replay.targets.lake.swap.SwappingLakeSession.{step}", _die)
            with pytest.raises(FaultError):
                swap(lake)
        if is_done:
            with pytest.raises(PolicyStopError, match="mirror rebuild"):
                mirror(lake).abandon(TABLE)
            mirror(lake).replace("pipeline", TABLE, (), ())
            assert new_rows(lake) == NEW_ROWS
        else:
            assert mirror(lake).abandon(TABLE)
            assert not mirror(lake).abandon(TABLE)
            assert rows(lake) == OLD_ROWS


def test_rows_that_came_are_known_without_their_snapshot(make_lake: Callable[[], LakeRig]) -> None:
    """Expired by maintenance, or beyond what is looked at of the table's history."""
    lake = make_lake()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SwappingLakeLedger, "take_over", _die)
        with pytest.raises(FaultError):
            swap(lake)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(format_of(mirror(lake).config)), "find_commit", lambda *_, **__: None)
        assert mirror(lake).replace("pipeline", TABLE, (), ()).lacking == ()
    assert new_rows(lake) == NEW_ROWS


def test_maintenance_leaves_a_table_alone_that_gets_the_rows_of_another_one(make_lake: Callable[[], LakeRig]) -> None:
    lake = make_lake()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ticdc_replay.targets.lake.swap.SwappingLakeSession._end", _die)
        with pytest.raises(FaultError):
            swap(lake)
    (line,) = maintained(lake)
    assert (line.destination, line.outcome) == ('"shop"."t"', "swapping")


def _die(*_: object) -> None:
    raise FaultError


@pytest.mark.parametrize("new", [[put(110, id=1, v="new")], []], ids=["rows", "no rows"])
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_load_that_stalls_during_the_swap_brings_nothing_into_the_new_table(
    lake_spark: SparkSession, tmp_path: Path, kind: str, new: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of its window are in the base that the new table was made of."""
    lake, own = LakeRig(kind, lake_spark, tmp_path), table("shop.t", {"id": INT, "v": TEXT})
    old = [put(10, id=1, v="old")]
    lake.load(Changelog(tmp_path, 0, 100).rows(own, old if new else [*old, delete(20, id=1)]))
    late = Changelog(tmp_path, 100, 110).rows(own, [put(105, id=5, v="late")])
    beside(lake, Changelog(tmp_path, 0, 200).rows(own, new or [put(110, id=1, v="new"), delete(120, id=1)]))
    lake.raise_floor("shop.t", 200, {"schema": mirror(lake).beside(TABLE).db_schema})
    stalling = Stalling(lake, 1, lambda: swap(lake), killed=False, only=LAST_LOOK[kind])
    with monkeypatch.context() as patch, suppress(TransientError, SupersededError):
        stalling.patched(patch)
        lake.load(late)
    assert stalling.stalled
    lake.load(late)
    assert lake.rows("SELECT id, v FROM shop.t ORDER BY id") == [(1, "new")] * len(new)


def test_a_swap_that_stalls_at_its_commit_until_it_is_given_up_brings_no_row(
    make_lake: Callable[[], LakeRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease has ended by then, and the ledger no longer knows it."""
    lake = make_lake()
    alike = [put(110, id=7, v=8, gone=9, Name="new", n=1)]
    mirror(lake).abandon(TABLE)
    beside(lake, Changelog(lake.folder / "artifacts", 0, 200, "alike").rows(OLD, alike))
    last_look = {"iceberg": "CALL", "delta": "INSERT INTO"}[lake.kind]
    stalling = Stalling(lake, 1, lambda: mirror(lake).withdraw_swap(TABLE), killed=False, only=last_look)
    with monkeypatch.context() as patch:
        stalling.patched(patch)
        with pytest.raises(TransientError):
            swap(lake)
    assert stalling.stalled
    assert lake.rows("SELECT id, v, gone, Name, n FROM shop.t ORDER BY id") == OLD_ROWS
