"""With ``drop_column: keep`` mirrors keep a column that the upstream drops: however windows come, rows from before the DROP have
their values, later ones NULL, and no other column of the name inherits them."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, delete, put, table
from tests.support.dying_loads import FaultError
from tests.support.target_rigs import LakeRig, MirrorRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.storage.file import FileStore
from ticdc_replay.targets.base import StoppingDdl

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
FIRST = table("shop.orders", {"id": INT, "v": TEXT, "u": TEXT})
WITHOUT = table("shop.orders", {"id": INT, "u": TEXT}, valid_from=150)
KNOWN = definition_from_sql(
    TableName("shop", "orders"), "CREATE TABLE orders (id BIGINT PRIMARY KEY, v VARCHAR(20), u VARCHAR(20))"
)
SHOWN = "SELECT id, v, u, _commit_ts FROM shop.orders ORDER BY id"
ORDERS = list(itertools.permutations(range(3)))


def dropped(artifacts: Path) -> list[Changelog]:
    return [
        Changelog(artifacts, 0, 100).rows(FIRST, [put(10 + key, id=key, v=f"v{key}", u="p") for key in (1, 2, 3)]),
        Changelog(artifacts, 100, 200)
        .knows(KNOWN)
        .ddl(150, "ALTER TABLE orders DROP COLUMN v")
        .rows(FIRST, [put(110, id=2, v="b", u="q"), put(150, id=4, v="at", u="q"), put(149, id=6, v="x", u="q")])
        .rows(WITHOUT, [put(160, id=5, u="r"), delete(161, id=6)]),
        Changelog(artifacts, 200, 300).rows(WITHOUT, [put(210, id=1, u="s")]),
    ]


KEPT = [(1, None, "s", 210), (2, "b", "q", 110), (3, "v3", "p", 13), (4, "at", "q", 150), (5, None, "r", 160)]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_kept_column_has_the_values_of_rows_from_before(
    any_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]
) -> None:
    windows = dropped(artifacts)
    any_mirror.load_all([windows[at] for at in order], drop_column="keep")
    assert any_mirror.rows(SHOWN) == KEPT
    for window in windows:
        any_mirror.load(window, drop_column="keep", reload=True)
    assert any_mirror.rows(SHOWN) == KEPT


def taken(artifacts: Path, ddl: str, last: str) -> list[Changelog]:
    """A column *last* takes the name v by *ddl*, in a window after that of the DROP."""
    columns = {"id": INT, "v": TEXT, "u": TEXT} if last == "u" else {"id": INT, "v": TEXT}
    after = table("shop.orders", columns, valid_from=250, since={"v": 250})
    without = definition_from_sql(
        TableName("shop", "orders"), "CREATE TABLE orders (id BIGINT PRIMARY KEY, u VARCHAR(20))"
    )
    cells = {"u": "t"} if last == "u" else {}
    return [
        *dropped(artifacts)[:2],
        Changelog(artifacts, 200, 300)
        .knows(without)
        .ddl(250, ddl)
        .rows(WITHOUT, [put(210, id=1, u="s")])
        .rows(after, [put(260, id=5, v="new", **cells)]),
        Changelog(artifacts, 300, 400).rows(after, [put(310, id=7, v="newer", **cells)]),
    ]


@pytest.mark.parametrize("any_mirror", ["postgres", "mysql", "tidb", "iceberg"], indirect=True)
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (0, 1, 3, 2), (2, 0, 3, 1)], ids=str)
def test_a_column_that_is_added_again_has_no_value_of_the_kept_one(
    any_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]
) -> None:
    windows = taken(artifacts, "ALTER TABLE orders ADD COLUMN v VARCHAR(20) DEFAULT 'fill' AFTER id", "u")
    any_mirror.load_all([windows[at] for at in order], drop_column="keep")
    assert any_mirror.rows(SHOWN) == [
        (1, "fill", "s", 210),
        (2, "fill", "q", 110),
        (3, "fill", "p", 13),
        (4, "fill", "q", 150),
        (5, "new", "t", 260),
        (7, "newer", "t", 310),
    ]


@pytest.mark.parametrize("any_mirror", ["postgres", "mysql", "tidb", "iceberg"], indirect=True)
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 1, 0, 3), (1, 2, 0, 3)], ids=str)
def test_a_column_that_is_renamed_to_the_name_takes_its_place(
    any_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]
) -> None:
    windows = taken(artifacts, "ALTER TABLE orders RENAME COLUMN u TO v", "v")
    any_mirror.load_all([windows[at] for at in order], drop_column="keep")
    assert any_mirror.rows("SELECT id, v, _commit_ts FROM shop.orders ORDER BY id") == [
        (1, "s", 210),
        (2, "q", 110),
        (3, "p", 13),
        (4, "q", 150),
        (5, "new", 260),
        (7, "newer", 310),
    ]
    assert len(any_mirror.rows("SELECT * FROM shop.orders")[0]) == 3


def with_default(artifacts: Path) -> list[Changelog]:
    """The column is added and dropped, and older rows lack it."""
    older = table("shop.orders", {"id": INT, "u": TEXT})
    known = definition_from_sql(
        TableName("shop", "orders"), "CREATE TABLE orders (id BIGINT PRIMARY KEY, u VARCHAR(20))"
    )
    added = table("shop.orders", {"id": INT, "u": TEXT, "v": TEXT}, valid_from=50, since={"v": 50})
    return [
        Changelog(artifacts, 0, 40).rows(older, [put(10, id=1, u="p"), put(11, id=2, u="p")]),
        Changelog(artifacts, 40, 100)
        .knows(known)
        .ddl(50, "ALTER TABLE orders ADD COLUMN v VARCHAR(20) DEFAULT 'fill'")
        .rows(older, [put(45, id=3, u="q")])
        .rows(added, [put(60, id=4, u="q", v="own"), put(61, id=5, u="q", v=None)]),
        Changelog(artifacts, 100, 300)
        .ddl(150, "ALTER TABLE orders DROP COLUMN v")
        .rows(WITHOUT, [put(160, id=2, u="r"), put(161, id=6, u="r")]),
    ]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_rows_from_before_a_kept_column_show_its_default_and_those_from_after_it_none(
    any_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]
) -> None:
    windows = with_default(artifacts)
    any_mirror.load_all([windows[at] for at in order], drop_column="keep")
    expected = [
        (1, "fill", "p", 10),
        (2, None, "r", 160),
        (3, "fill", "q", 45),
        (4, "own", "q", 60),
        (5, None, "q", 61),
        (6, None, "r", 161),
    ]
    assert any_mirror.rows(SHOWN) == expected
    for window in windows:
        any_mirror.load(window, drop_column="keep", reload=True)
    assert any_mirror.rows(SHOWN) == expected


@pytest.mark.parametrize(
    ("policies", "stops"),
    [
        ({"drop": "stop"}, "policies.drop is stop"),
        ({"drop": "apply", "drop_column": "stop"}, "policies.drop_column is stop"),
        ({"drop": "stop", "drop_column": "apply"}, None),
        ({"drop": "stop", "drop_column": "keep"}, None),
        ({"ddl": "stop", "drop_column": "keep"}, "policies.drop_column is stop"),
    ],
)
def test_the_policy_of_dropped_columns_is_that_of_drop_if_it_is_absent(
    mirror: Mirror, artifacts: Path, policies: dict[str, str], stops: str | None
) -> None:
    first, second, _ = dropped(artifacts)
    mirror.load(first)
    if stops is None:
        mirror.load(second, **policies)
        return
    with pytest.raises(PolicyStopError, match=stops):
        mirror.load(second, **policies)


def test_a_column_of_the_key_is_not_kept(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(dropped(artifacts)[0])
    of_key = Changelog(artifacts, 100, 200, run="key").ddl(150, "ALTER TABLE orders DROP COLUMN id")
    with pytest.raises(PolicyStopError, match=r"orders at 150 .*the column id was"):
        mirror.load(of_key, drop_column="keep")


@pytest.mark.parametrize("any_mirror", ["postgres", "mysql", "iceberg"], indirect=True)
def test_a_column_stays_kept_above_a_floor_and_under_another_policy(any_mirror: MirrorRig, artifacts: Path) -> None:
    first, second, third = dropped(artifacts)
    any_mirror.load_all([first, second], drop_column="keep")
    any_mirror.load(second, drop_column="apply", reload=True)
    any_mirror.raise_floor("shop.orders", 200)
    any_mirror.load(third, drop_column="apply")
    assert any_mirror.rows(SHOWN) == KEPT
    again = table("shop.orders", {"id": INT, "v": TEXT, "u": TEXT}, valid_from=350, since={"v": 350})
    adding = Changelog(artifacts, 300, 400).ddl(350, "ALTER TABLE orders ADD COLUMN v VARCHAR(20) AFTER id")
    adding.rows(again, [put(360, id=3, v="new", u="t")])
    with pytest.raises(
        PolicyStopError, match=r"another column v than the one .* below the mirror's floor. Drop the column v"
    ):
        any_mirror.load(adding)
    any_mirror.execute("ALTER TABLE shop.orders DROP COLUMN v")
    any_mirror.load(adding)
    assert [row[:2] for row in any_mirror.rows(SHOWN)] == [(1, None), (2, None), (3, "new"), (4, None), (5, None)]


@pytest.mark.parametrize("any_mirror", ["postgres", "mysql", "iceberg"], indirect=True)
def test_a_kept_column_goes_with_its_table(any_mirror: MirrorRig, artifacts: Path) -> None:
    any_mirror.load_all(dropped(artifacts), drop_column="keep")
    made = table("shop.orders", {"id": INT, "v": INT}, valid_from=320)
    again = Changelog(artifacts, 300, 400).ddl(310, "DROP TABLE orders")
    again.ddl(320, "CREATE TABLE orders (id BIGINT PRIMARY KEY, v BIGINT)").rows(made, [put(330, id=1, v=7)])
    any_mirror.load(again, drop="apply", drop_column="keep")
    any_mirror.load(Changelog(artifacts, 400, 500).rows(made, [put(410, id=2, v=8)]), drop_column="keep")
    assert any_mirror.rows("SELECT id, v FROM shop.orders ORDER BY id") == [(1, 7), (2, 8)]


def test_one_statement_may_drop_a_column_and_add_another_of_its_name(mirror: Mirror, artifacts: Path) -> None:
    first = dropped(artifacts)[0]
    after = table("shop.orders", {"id": INT, "u": TEXT, "v": INT}, valid_from=150, since={"v": 150})
    query = "ALTER TABLE orders DROP COLUMN v, ADD COLUMN v BIGINT DEFAULT 5"
    second = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, query).rows(after, [put(160, id=2, u="q", v=7)])
    mirror.load_all([first, second], drop_column="keep")
    assert mirror.rows("SELECT id, v FROM shop.orders ORDER BY id") == [(1, 5), (2, 7), (3, 5)]


def followed(mirror: MirrorRig, window: Changelog, name: str) -> None:
    """Load *window*, which a DDL at its end stops, and let the mirror of *name* follow that."""
    mirror.changeable().follow("pipeline", stopped(mirror, window, name))


def stopped(mirror: MirrorRig, window: Changelog, name: str) -> StoppingDdl:
    """Load *window*; the DDL at its end that stops it, for the mirror of *name*."""
    with pytest.raises(PolicyStopError, match="end the window"):
        mirror.load(window, drop_column="keep")
    changes = tuple(each for each in window.write().changes if each.commit_ts == window.window.to_ts - 1)
    return StoppingDdl(TableName("shop", name), window.window.to_ts - 1, changes, ("shop.*",))


@pytest.mark.parametrize("any_mirror", ["postgres", "mysql", "iceberg"], indirect=True)
def test_a_kept_column_follows_its_table_to_another_name(any_mirror: MirrorRig, artifacts: Path) -> None:
    if isinstance(any_mirror, LakeRig):
        any_mirror.use_catalog_with_views()  # which can rename tables, too
    any_mirror.load_all(dropped(artifacts), drop_column="keep")
    without = definition_from_sql(
        TableName("shop", "orders"), "CREATE TABLE orders (id BIGINT PRIMARY KEY, u VARCHAR(20))"
    )
    renaming = Changelog(artifacts, 300, 351).knows(without).ddl(350, "RENAME TABLE orders TO old", table="shop.old")
    followed(any_mirror, renaming, "orders")
    old = table("shop.old", {"id": INT, "u": TEXT}, valid_from=350)
    any_mirror.load(Changelog(artifacts, 351, 400).rows(old, [put(360, id=3, u="t")]), drop_column="keep")
    shown = any_mirror.rows(SHOWN.replace("shop.orders", "shop.old"))
    assert [row[:3] for row in shown] == [
        *(row[:3] for row in KEPT[:2]),
        (3, None, "t"),
        *(row[:3] for row in KEPT[3:]),
    ]
    made = table("shop.orders", {"id": INT, "v": INT}, valid_from=410)
    again = Changelog(artifacts, 400, 500).ddl(410, "CREATE TABLE orders (id BIGINT PRIMARY KEY, v BIGINT)")
    any_mirror.load(again.rows(made, [put(420, id=1, v=7)]), drop_column="keep")
    assert any_mirror.rows("SELECT id, v FROM shop.orders") == [(1, 7)]


def test_a_kept_column_follows_its_table_though_the_command_is_killed_between_two_documents(
    lake_spark: SparkSession, tmp_path: Path, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = LakeRig("iceberg", lake_spark, tmp_path)
    lake.use_catalog_with_views()
    lake.load_all(dropped(artifacts), drop_column="keep")
    without = definition_from_sql(
        TableName("shop", "orders"), "CREATE TABLE orders (id BIGINT PRIMARY KEY, u VARCHAR(20))"
    )
    renaming = Changelog(artifacts, 300, 351).knows(without).ddl(350, "RENAME TABLE orders TO old", table="shop.old")
    ddl, update = stopped(lake, renaming, "orders"), FileStore.update

    def dying(store: FileStore, name: str, change: Callable[[bytes | None], bytes]) -> None:
        update(store, name, change)
        if name == "tables/shop/old/state.json":
            raise FaultError

    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "update", dying)
        with pytest.raises(FaultError):
            lake.changeable().follow("pipeline", ddl)
    lake.changeable().follow("pipeline", ddl)
    old = table("shop.old", {"id": INT, "u": TEXT}, valid_from=350)
    lake.load(Changelog(artifacts, 351, 400).rows(old, [put(360, id=3, u="t")]), drop_column="keep")
    shown = [row[:3] for row in lake.rows(SHOWN.replace("shop.orders", "shop.old"))]
    assert shown == [*(row[:3] for row in KEPT[:2]), (3, None, "t"), *(row[:3] for row in KEPT[3:])]


@pytest.mark.parametrize("any_mirror", ["postgres", "mysql", "iceberg"], indirect=True)
@pytest.mark.parametrize(
    ("change", "columns", "rows"),
    [
        ("ADD COLUMN v BIGINT DEFAULT 5", {"id": INT, "u": TEXT, "v": INT}, [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]),
        ("RENAME COLUMN u TO v", {"id": INT, "v": TEXT}, [(1, "s"), (2, "q"), (3, "p"), (4, "q"), (5, "r")]),
    ],
)
def test_a_mirror_that_follows_a_statement_drops_the_kept_column_whose_name_is_taken(
    any_mirror: MirrorRig, artifacts: Path, change: str, columns: dict[str, ColumnType], rows: list[tuple[Any, ...]]
) -> None:
    any_mirror.load_all(dropped(artifacts), drop_column="keep")
    without = definition_from_sql(
        TableName("shop", "orders"), "CREATE TABLE orders (id BIGINT PRIMARY KEY, u VARCHAR(20))"
    )
    mixed = Changelog(artifacts, 300, 351).knows(without)
    followed(any_mirror, mixed.ddl(350, f"ALTER TABLE orders MODIFY COLUMN id INT, {change}"), "orders")
    assert any_mirror.rows("SELECT id, v FROM shop.orders ORDER BY id") == rows
    after = table("shop.orders", columns, valid_from=350, since={"v": 350})
    later = Changelog(artifacts, 351, 400).rows(after, [put(360, id=3, v=None), put(361, id=9, v=rows[0][1])])
    any_mirror.load(later, drop_column="keep")
    assert any_mirror.rows("SELECT id, v FROM shop.orders WHERE id IN (3, 9) ORDER BY id") == [
        (3, None),
        (9, rows[0][1]),
    ]
