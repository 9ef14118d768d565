"""Mirrors follow DROP COLUMN and RENAME COLUMN: however windows come, old values are where the upstream has them."""

import itertools
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.changelogs import Changelog, put, table
from tests.support.deaths import die_at_statements
from tests.support.dying_loads import Dying, FaultError
from tests.support.target_rigs import LakeRig, MirrorRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PolicyStopError, TargetMismatchError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.spark.sql import SparkSql

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
OLD = {"id": INT, "v": TEXT, "u": TEXT}
FIRST = table("shop.orders", OLD)
KNOWN = definition_from_sql(
    TableName("shop", "orders"), "CREATE TABLE orders (id BIGINT PRIMARY KEY, v VARCHAR(20), u VARCHAR(20))"
)


def dropped(artifacts: Path) -> list[Changelog]:
    after = table("shop.orders", {"id": INT, "u": TEXT}, valid_from=150)
    return [
        Changelog(artifacts, 0, 100).rows(FIRST, [put(10, id=1, v="a", u="p"), put(10, id=2, v="a", u="p")]),
        Changelog(artifacts, 100, 200)
        .knows(KNOWN)
        .ddl(150, "ALTER TABLE orders DROP COLUMN v")
        .rows(FIRST, [put(110, id=2, v="b", u="q"), put(150, id=3, v="b", u="q")])
        .rows(after, [put(160, id=4, u="r")]),
        Changelog(artifacts, 200, 300).rows(after, [put(210, id=1, u="s")]),
    ]


def renamed(artifacts: Path) -> list[Changelog]:
    after = table("shop.orders", {"id": INT, "w": TEXT, "u": TEXT}, valid_from=150)
    return [
        Changelog(artifacts, 0, 100).rows(FIRST, [put(10, id=1, v="a", u="p"), put(10, id=2, v="a", u="p")]),
        Changelog(artifacts, 100, 200)
        .knows(KNOWN)
        .ddl(150, "ALTER TABLE orders CHANGE COLUMN v w VARCHAR(20)")
        .rows(FIRST, [put(110, id=2, v="b", u="q"), put(150, id=3, v="b", u="q")])
        .rows(after, [put(160, id=4, w="c", u="r")]),
        Changelog(artifacts, 200, 300).rows(after, [put(210, id=3, w="d", u="s")]),
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_a_dropped_column_goes_with_its_values(any_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]) -> None:
    windows = dropped(artifacts)
    any_mirror.load_all([windows[at] for at in order], drop="apply")
    expected = [(1, "s", 210), (2, "q", 110), (3, "q", 150), (4, "r", 160)]
    assert any_mirror.rows("SELECT * FROM shop.orders ORDER BY id") == expected
    for window in windows[:2]:
        any_mirror.load(window, drop="apply", reload=True)
    assert any_mirror.rows("SELECT * FROM shop.orders ORDER BY id") == expected


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_a_renamed_column_keeps_its_values(any_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]) -> None:
    windows = renamed(artifacts)
    any_mirror.load_all([windows[at] for at in order], drop="apply")
    expected = [(1, "a", "p", 10), (2, "b", "q", 110), (3, "d", "s", 210), (4, "c", "r", 160)]
    shown = "SELECT id, w, u, _commit_ts FROM shop.orders ORDER BY id"
    assert any_mirror.rows(shown) == expected
    for window in windows[:2]:
        any_mirror.load(window, drop="apply", reload=True)
    assert any_mirror.rows(shown) == expected
    assert len(any_mirror.rows("SELECT * FROM shop.orders")[0]) == 4


@pytest.mark.parametrize("any_mirror", ["postgres", "iceberg"], indirect=True)
def test_a_rename_may_change_letter_case_alone(any_mirror: MirrorRig, artifacts: Path) -> None:
    after = table("shop.orders", {"id": INT, "V": TEXT, "u": TEXT}, valid_from=150)
    any_mirror.load(Changelog(artifacts, 0, 100).rows(FIRST, [put(10, id=1, v="a", u="p")]))
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, "ALTER TABLE orders CHANGE COLUMN v V VARCHAR(20)")
    any_mirror.load(window.rows(after, [put(160, id=2, V="b", u="q")]))
    any_mirror.load(Changelog(artifacts, 200, 300).rows(after, [put(210, id=3, V="c", u="r")]))
    name = "`V`" if isinstance(any_mirror, LakeRig) else '"V"'
    expected = [(1, "a", "p", 10), (2, "b", "q", 160), (3, "c", "r", 210)]
    assert any_mirror.rows(f"SELECT id, {name}, u, _commit_ts FROM shop.orders ORDER BY id") == expected


def added_again(artifacts: Path) -> list[Changelog]:
    """The column comes again in the same form, so that rows of both have one schema version."""
    without = table("shop.orders", {"id": INT, "u": TEXT}, valid_from=150)
    again = table("shop.orders", OLD, valid_from=170)
    return [
        Changelog(artifacts, 0, 100).rows(FIRST, [put(10, id=1, v="old", u="p"), put(10, id=2, v="old", u="p")]),
        Changelog(artifacts, 100, 200)
        .knows(KNOWN)
        .rows(FIRST, [put(110, id=2, v="old", u="q"), put(120, id=5, v="old", u="q")])
        .ddl(150, "ALTER TABLE orders DROP COLUMN v")
        .rows(without, [put(160, id=3, u="q")])
        .ddl(170, "ALTER TABLE orders ADD COLUMN v VARCHAR(20) DEFAULT 'fill' AFTER id")
        .rows(again, [put(180, id=4, v="new", u="r"), put(181, id=5, v=None, u="r")]),
        Changelog(artifacts, 200, 300).rows(again, [put(210, id=3, v="newer", u="s")]),
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_old_values_never_land_in_a_column_that_was_added_again(
    any_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]
) -> None:
    windows = added_again(artifacts)
    # As decode has it, which knows when the column was added.
    last = table("shop.orders", OLD, valid_from=170, since={"v": 170})
    windows[2] = Changelog(artifacts, 200, 300).rows(last, [put(210, id=3, v="newer", u="s")])
    any_mirror.load_all([windows[at] for at in order], drop="apply")
    expected = [
        (1, "fill", "p", 10),
        (2, "fill", "q", 110),
        (3, "newer", "s", 210),
        (4, "new", "r", 180),
        (5, None, "r", 181),
    ]
    assert any_mirror.rows("SELECT id, v, u, _commit_ts FROM shop.orders ORDER BY id") == expected


def test_a_dropped_column_stops_by_default_and_a_key_always(mirror: Any, artifacts: Path) -> None:
    first, second, _ = dropped(artifacts)
    mirror.load(first)
    with pytest.raises(PolicyStopError, match=r"the column v was dropped, and policies.drop is stop: drop the column"):
        mirror.load(second, drop="stop")
    _, renaming, _ = renamed(artifacts / "renamed")
    with pytest.raises(PolicyStopError, match=r"was renamed to w, and policies.ddl is stop: rename the column"):
        mirror.load(renaming, ddl="stop")
    for query in ("RENAME COLUMN id TO key", "DROP COLUMN id"):
        of_key = Changelog(artifacts, 100, 200, run=query).ddl(150, f"ALTER TABLE orders {query}")
        with pytest.raises(PolicyStopError, match=r"orders at 150 .*the column id was"):
            mirror.load(of_key, drop="apply")
    assert mirror.rows("SELECT id, v, u FROM shop.orders ORDER BY id") == [(1, "a", "p"), (2, "a", "p")]


def test_a_statement_with_several_changes_is_followed_as_a_whole(any_mirror: MirrorRig, artifacts: Path) -> None:
    first = Changelog(artifacts, 0, 100).rows(FIRST, [put(10, id=1, v="a", u="p")])
    query = "ALTER TABLE orders DROP COLUMN v, ADD COLUMN n BIGINT DEFAULT 5, CHANGE COLUMN u w VARCHAR(40)"
    after = table("shop.orders", {"id": INT, "n": INT, "w": TEXT}, valid_from=150)
    second = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, query).rows(after, [put(160, id=2, n=7, w="q")])
    any_mirror.load(first)
    any_mirror.load(second, drop="apply")
    assert any_mirror.rows("SELECT id, n, w FROM shop.orders ORDER BY id") == [(1, 5, "p"), (2, 7, "q")]
    late = Changelog(artifacts, 50, 100).rows(FIRST, [put(60, id=3, v="x", u="late")])
    any_mirror.load(late)
    assert any_mirror.rows("SELECT id, n, w FROM shop.orders WHERE id = 3") == [(3, 5, "late")]
    (row,) = any_mirror.rows("SELECT * FROM shop.orders WHERE id = 3")
    assert len(row) == 4


@pytest.mark.parametrize("any_mirror", ["iceberg"], indirect=True)
def test_a_column_that_the_layout_needs_stops_the_load_until_a_person_has_changed_it(
    any_mirror: LakeRig, artifacts: Path
) -> None:
    first, second, third = dropped(artifacts)
    any_mirror.load(first)
    any_mirror.execute("ALTER TABLE shop.orders ADD PARTITION FIELD v")
    for window in (second, third):
        with pytest.raises(TargetMismatchError, match=r"can't drop the column v: .* DROP PARTITION FIELD"):
            any_mirror.load(window, drop="apply")
    any_mirror.execute("ALTER TABLE shop.orders DROP PARTITION FIELD v")
    with pytest.raises(TargetMismatchError, match=r"is or was partitioned by it.*clean_expired_metadata"):
        any_mirror.load(second, drop="apply")
    any_mirror.spark.sql(
        f"CALL {any_mirror.catalog}.system.expire_snapshots(table => 'shop.orders', clean_expired_metadata => true)"
    )
    any_mirror.load(second, drop="apply")
    any_mirror.load(third)
    expected = [(1, "s", 210), (2, "q", 110), (3, "q", 150), (4, "r", 160)]
    assert any_mirror.rows("SELECT * FROM shop.orders ORDER BY id") == expected


def test_a_load_that_dies_at_any_write_while_columns_move_goes_on(lake_spark: SparkSession, tmp_path: Path) -> None:
    """A window that is older than the DDL comes before the load is tried again."""
    added = table("shop.orders", {"id": INT, "u": TEXT, "v": TEXT, "n": INT}, valid_from=170)

    def attempt(number: int) -> int:
        lake = LakeRig("iceberg", lake_spark, tmp_path)
        artifacts = lake.folder / "artifacts"
        lake.load(Changelog(artifacts, 0, 100).rows(FIRST, [put(10, id=1, v="a", u="p"), put(10, id=2, v="a", u="p")]))
        moving = Changelog(artifacts, 100, 200).knows(KNOWN).rows(FIRST, [put(110, id=2, v="b", u="q")])
        moving.ddl(150, "ALTER TABLE orders DROP COLUMN v").ddl(160, "ALTER TABLE orders RENAME COLUMN u TO v")
        moving.ddl(
            170, "ALTER TABLE orders ADD COLUMN u VARCHAR(20) DEFAULT 'fill' AFTER id, ADD COLUMN n BIGINT DEFAULT 5"
        )
        moving.rows(added, [put(180, id=3, u="x", v="r", n=7)])
        dying = Dying(number, after=True)
        with pytest.MonkeyPatch.context() as patch:
            dying.patched(patch)
            with suppress(FaultError):
                lake.load(moving, drop="apply")
        lake.load(Changelog(artifacts, 50, 100).rows(FIRST, [put(60, id=4, v="late", u="s")]))
        lake.load(moving, drop="apply")
        assert lake.rows("SELECT id, u, v, n, _commit_ts FROM shop.orders ORDER BY id") == [
            (1, "fill", "p", 5, 10),
            (2, "fill", "q", 5, 110),
            (3, "x", "r", 7, 180),
            (4, "fill", "s", 5, 60),
        ]
        assert len(lake.rows("SELECT * FROM shop.orders LIMIT 1")[0]) == 5
        return dying.seen

    assert die_at_statements(attempt) > 14


def test_a_column_that_a_broken_load_was_adding_does_not_stop_the_next_one_in_windows_by_offset(
    lake_spark: SparkSession, tmp_path: Path
) -> None:
    lake = LakeRig("iceberg", lake_spark, tmp_path)
    artifacts = lake.folder / "artifacts"
    added = table("shop.orders", {**OLD, "n": INT}, valid_from=150)
    lake.load(Changelog(artifacts, 0, 100, order="place").rows(FIRST, [put(1, id=1, v="a", u="p")]))
    window = Changelog(artifacts, 100, 200, order="place").knows(KNOWN)
    window.ddl(150, "ALTER TABLE orders ADD COLUMN n BIGINT DEFAULT 5").rows(added, [put(2, id=2, v="b", u="q", n=7)])
    for number in itertools.count(1):
        dying = Dying(number, after=True)
        with pytest.MonkeyPatch.context() as patch:
            dying.patched(patch)
            with suppress(FaultError):
                lake.load(window)
        if not dying.struck:
            break
    assert number > 5
    assert lake.rows("SELECT id, n FROM shop.orders ORDER BY id") == [(1, 5), (2, 7)]


def test_a_column_that_a_broken_load_was_adding_is_not_taken_for_one_of_a_later_table(
    lake_spark: SparkSession, tmp_path: Path
) -> None:
    lake = LakeRig("iceberg", lake_spark, tmp_path)
    artifacts = lake.folder / "artifacts"
    added = {"id": INT, "v": TEXT, "u": TEXT, "n": INT}
    lake.load(Changelog(artifacts, 0, 100).rows(FIRST, [put(10, id=1, v="a", u="p")]))
    adding = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, "ALTER TABLE orders ADD COLUMN n BIGINT DEFAULT 5")
    adding.rows(table("shop.orders", added, valid_from=150), [put(160, id=2, v="b", u="q", n=7)])
    run = SparkSql.run

    def dies_in_update(sql: SparkSql, statement: str, settings: Mapping[str, str] = {}) -> list[dict[str, Any]]:
        if statement.startswith("UPDATE"):
            raise FaultError
        return run(sql, statement, settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSql, "run", dies_in_update)
        with pytest.raises(FaultError):
            lake.load(adding)
    assert any(row[0] == "n" for row in lake.rows("DESCRIBE TABLE shop.orders"))
    again = Changelog(artifacts, 200, 300).ddl(250, "DROP TABLE orders")
    again.ddl(260, "CREATE TABLE orders (id BIGINT PRIMARY KEY, v VARCHAR(20), u VARCHAR(20), n BIGINT)")
    again.rows(table("shop.orders", added, valid_from=260), [put(270, id=3, v="c", u="r", n=9)])
    lake.load(again, drop="apply")
    lake.load(adding, drop="apply")
    lake.load(
        Changelog(artifacts, 300, 400).rows(
            table("shop.orders", added, valid_from=260), [put(310, id=4, v="d", u="s", n=8)]
        )
    )
    expected = [(3, "c", "r", 9), (4, "d", "s", 8)]
    assert lake.rows("SELECT id, v, u, n FROM shop.orders ORDER BY id") == expected
