"""However often, in whatever order and in how many pieces windows are applied, a mirror of any kind ends the same."""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pymysql
import pytest

from tests.support.changelogs import Changelog, delete, put, table
from tests.support.target_rigs import LakeRig, MirrorRig, MysqlRig, PostgresRig
from ticdc_replay import mysql_protocol
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import PolicyStopError, TargetMismatchError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.targets.mysql.staging import drop_staging

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
ALL = "SELECT id, v, _commit_ts FROM shop.orders ORDER BY id"


def test_the_last_version_of_each_row_is_mirrored(any_mirror: MirrorRig, artifacts: Path) -> None:
    changelog = Changelog(artifacts, 0, 100).rows(
        ORDERS,
        [
            put(10, id=1, v="first"),
            put(30, id=1, v="third", op="update"),
            put(20, id=1, v="second", op="upsert"),
            put(10, id=2, v="gone"),
            delete(20, id=2),
            put(11, id=3, v="kept"),
        ],
        files=3,
    )
    report = any_mirror.load_table(changelog)
    assert any_mirror.rows(ALL) == [(1, "third", 30), (3, "kept", 11)]
    assert (report.outcome, report.destination) == ("loaded", '"shop"."orders"')
    assert (report.events, report.keys, report.folded) == (6, 3, 3)
    assert (report.upserted, report.tombstones, report.deleted, report.superseded) == (2, 1, 0, 0)
    text = {PostgresRig: "text", MysqlRig: "varchar(20)", LakeRig: "string"}[type(any_mirror)]
    assert [(field.name, field.type) for field in report.fields] == [
        ("id", "bigint"),
        ("v", text),
        ("_commit_ts", "bigint"),
    ]


def test_a_ledger_of_an_older_version_gets_the_table_that_it_lacks(any_mirror: MirrorRig, artifacts: Path) -> None:
    if isinstance(any_mirror, LakeRig):
        pytest.skip("its ledger is a document")
    any_mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="x")]))
    any_mirror.execute("DROP TABLE _ticdc_replay.tasks")
    any_mirror.load(Changelog(artifacts, 100, 200).rows(ORDERS, [put(110, id=1, v="y")]))
    assert any_mirror.rows(ALL) == [(1, "y", 110)]
    assert any_mirror.rows("SELECT * FROM _ticdc_replay.tasks") == []


def test_a_key_may_be_called_like_a_path(any_mirror: MirrorRig, artifacts: Path) -> None:
    if isinstance(any_mirror, LakeRig):
        pytest.skip("a lake has no such names")
    orders = table("shop.orders", {".id": INT, "v": TEXT}, key=(".id",))
    rows = [put(11, **{".id": 2, "v": "b"}), put(12, **{".id": 1, "v": "a"})]
    any_mirror.load(Changelog(artifacts, 0, 100).rows(orders, rows))
    assert any_mirror.rows("SELECT v FROM shop.orders ORDER BY v") == [("a",), ("b",)]


def test_two_attempts_clear_up_beside_each_other(mysql_server: Connection) -> None:
    mirror = MysqlRig(mysql_server)
    mirror.execute("CREATE DATABASE IF NOT EXISTS _ticdc_replay")
    for name, columns in (
        ("staging", "name varchar(64) PRIMARY KEY, attempt varchar(64)"),
        ("tasks", "attempt varchar(64)"),
    ):
        mirror.execute(f"CREATE TABLE _ticdc_replay.{name} ({columns}) ENGINE = InnoDB")
    sessions = [pymysql.connect(**mysql_protocol.arguments(mysql_server, 3306)) for _ in range(2)]

    def clear_up(number: int) -> None:
        for at in range(100):
            with sessions[number].cursor() as cursor:
                cursor.execute("INSERT INTO _ticdc_replay.staging VALUES (%s, %s)", (f"{number}_{at}", str(number)))
            sessions[number].commit()
            drop_staging(sessions[number], [f"{number}_{at}"])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(clear_up, range(2)))
    for session in sessions:
        session.close()


def test_applying_a_window_twice_changes_nothing(any_mirror: MirrorRig, artifacts: Path) -> None:
    changelog = Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="x"), delete(20, id=2)])
    first = any_mirror.load_table(changelog)
    again = any_mirror.load_table(changelog)
    assert again.outcome == "done_before"
    assert (again.upserted, again.tombstones) == (first.upserted, first.tombstones) == (1, 1)
    assert again.commit == first.commit
    assert (first.commit != "") is isinstance(any_mirror, LakeRig)
    any_mirror.execute("UPDATE shop.orders SET v = 'damaged' WHERE id = 1")
    reloaded = any_mirror.load_table(changelog, reload=True)
    assert (reloaded.outcome, reloaded.upserted, reloaded.tombstones, reloaded.superseded) == ("loaded", 1, 1, 0)
    assert any_mirror.rows(ALL) == [(1, "x", 10)]


WINDOWS: list[tuple[int, int, list]] = [
    (0, 100, [put(10, id=1, v="a"), put(11, id=2, v="a"), put(12, id=3, v="a"), put(13, id=4, v="a")]),
    (100, 200, [put(110, id=1, v="b"), delete(111, id=2), delete(112, id=3)]),
    (200, 300, [delete(210, id=1), put(211, id=2, v="c"), delete(212, id=5)]),
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_windows_in_any_order_give_one_table(any_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]) -> None:
    for number in order:
        from_ts, to_ts, rows = WINDOWS[number]
        any_mirror.load(Changelog(artifacts, from_ts, to_ts).rows(ORDERS, rows))
    assert any_mirror.rows(ALL) == [(2, "c", 211), (4, "a", 13)]


def test_a_delete_and_later_windows(any_mirror: MirrorRig, artifacts: Path) -> None:
    """A delete is not undone by an older put; a newer put brings the row back for good."""
    any_mirror.load(Changelog(artifacts, 100, 200).rows(ORDERS, [delete(150, id=1)]))
    report = any_mirror.load_table(Changelog(artifacts, 0, 50).rows(ORDERS, [put(40, id=1, v="old")]))
    assert any_mirror.rows(ALL) == []
    assert (report.upserted, report.superseded) == (0, 1)
    any_mirror.load(Changelog(artifacts, 200, 300).rows(ORDERS, [put(250, id=1, v="new")]))
    report = any_mirror.load_table(Changelog(artifacts, 50, 100).rows(ORDERS, [delete(60, id=1)]))
    assert any_mirror.rows(ALL) == [(1, "new", 250)]
    assert (report.tombstones, report.superseded) == (0, 1)


def test_of_a_delete_and_a_put_at_one_commit_ts_the_put_wins(any_mirror: MirrorRig, artifacts: Path) -> None:
    rows = [put(50, id=1, v="moved"), delete(50, id=1)]
    any_mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, rows, files=2))
    assert any_mirror.rows(ALL) == [(1, "moved", 50)]
    # As when one partition of the window was decoded by an earlier run.
    any_mirror.load(Changelog(artifacts, 0, 100, run="second").rows(ORDERS, rows[1:]))
    assert any_mirror.rows(ALL) == [(1, "moved", 50)]


def test_keys_change_and_unique_values_are_swapped(any_mirror: MirrorRig, artifacts: Path) -> None:
    users = table("shop.users", {"id": INT, "email": TEXT}, unique=[["email"]])
    any_mirror.load(Changelog(artifacts, 0, 100).rows(users, [put(10, id=1, email="a"), put(10, id=2, email="b")]))
    rows = [put(110, id=1, email="b"), delete(110, id=2), put(110, id=7, email="a")]
    any_mirror.load(Changelog(artifacts, 100, 200).rows(users, rows))
    assert any_mirror.rows("SELECT id, email FROM shop.users ORDER BY id") == [(1, "b"), (7, "a")]


def test_nothing_below_the_floor_is_applied(any_mirror: MirrorRig, artifacts: Path) -> None:
    any_mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="base")]))
    any_mirror.raise_floor("shop.orders", 150)
    rows = [delete(149, id=1), put(149, id=2, v="below"), put(150, id=3, v="at"), delete(20, id=4)]
    report = any_mirror.load_table(Changelog(artifacts, 100, 200).rows(ORDERS, rows))
    assert any_mirror.rows(ALL) == [(1, "base", 10), (3, "at", 150)]
    assert (report.keys, report.upserted, report.superseded) == (4, 1, 3)


def test_rows_of_equal_hash_stay_two_rows(any_mirror: MirrorRig, artifacts: Path) -> None:
    same = b"0123456789abcdef"
    rows = [put(10, id=1, v="a")._replace(key_hash=same), put(20, id=2, v="b")._replace(key_hash=same)]
    any_mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, rows))
    assert any_mirror.rows(ALL) == [(1, "a", 10), (2, "b", 20)]


ADDED = table("shop.orders", {"id": INT, "v": TEXT, "n": INT}, valid_from=150)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
def test_a_column_is_added_with_its_default_in_any_order(
    any_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]
) -> None:
    windows = [
        Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="a"), put(10, id=2, v="a")]),
        Changelog(artifacts, 100, 200)
        .rows(ORDERS, [put(110, id=2, v="b"), put(111, id=3, v="b")])
        .ddl(150, "ALTER TABLE orders ADD COLUMN n BIGINT DEFAULT 5")
        .rows(ADDED, [put(160, id=3, v="c", n=None), put(161, id=4, v="c", n=7)]),
    ]
    for number in order:
        any_mirror.load(windows[number])
    expected = [(1, "a", 5), (2, "b", 5), (3, "c", None), (4, "c", 7)]
    assert any_mirror.rows("SELECT id, v, n FROM shop.orders ORDER BY id") == expected


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_a_truncate_is_followed_in_any_order(any_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]) -> None:
    windows = [
        Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="a"), put(10, id=2, v="a")]),
        Changelog(artifacts, 100, 200)
        .rows(ORDERS, [put(110, id=3, v="b"), put(160, id=4, v="b")])
        .ddl(150, "TRUNCATE TABLE orders"),
        Changelog(artifacts, 200, 300).rows(ORDERS, [put(210, id=1, v="c")]),
    ]
    for number in order:
        any_mirror.load(windows[number])
    assert any_mirror.rows(ALL) == [(1, "c", 210), (4, "b", 160)]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)], ids=str)
def test_a_dropped_table_goes_and_the_next_one_is_made_in_its_own_form(
    any_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]
) -> None:
    other = table("shop.orders", {"id": INT, "w": TEXT}, valid_from=250)
    windows = [
        Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="a"), put(10, id=2, v="a")]),
        Changelog(artifacts, 100, 200).ddl(150, "DROP TABLE orders"),
        Changelog(artifacts, 200, 300)
        .ddl(250, "CREATE TABLE orders (id BIGINT PRIMARY KEY, w VARCHAR(20))")
        .rows(other, [put(260, id=1, w="x")]),
    ]
    for number in order:
        any_mirror.load(windows[number], drop="apply")
    assert any_mirror.rows("SELECT id, w FROM shop.orders ORDER BY id") == [(1, "x")]


def test_a_column_gets_wider_as_the_upstream_s_does(any_mirror: MirrorRig, artifacts: Path) -> None:
    narrow = table("shop.orders", {"id": INT, "n": ColumnType("int", declared=True)})
    wide = table("shop.orders", {"id": INT, "n": INT}, valid_from=150)
    any_mirror.load(Changelog(artifacts, 0, 100).rows(narrow, [put(10, id=1, n=1)]))
    ddl = "ALTER TABLE orders MODIFY COLUMN n BIGINT"
    known = definition_from_sql(TableName("shop", "orders"), "CREATE TABLE orders (id BIGINT PRIMARY KEY, n INT)")
    changelog = Changelog(artifacts, 100, 200).knows(known).ddl(150, ddl)
    any_mirror.load(changelog.rows(wide, [put(160, id=2, n=1 << 40)]))
    assert any_mirror.rows("SELECT id, n FROM shop.orders ORDER BY id") == [(1, 1), (2, 1 << 40)]


def test_a_mirror_that_was_dropped_by_hand_is_not_made_again(
    any_mirror: MirrorRig, artifacts: Path, drop_by_hand: Callable[[str], None]
) -> None:
    first = Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="a")])
    any_mirror.load(first)
    drop_by_hand("shop.orders")
    later = Changelog(artifacts, 100, 200).rows(ORDERS, [put(110, id=2, v="b")])
    with pytest.raises(TargetMismatchError, match="was dropped"):
        any_mirror.load(later)
    any_mirror.forget("shop.orders")
    any_mirror.load(later)
    any_mirror.load(first)
    assert any_mirror.rows(ALL) == [(1, "a", 10), (2, "b", 110)]


def test_names_and_texts_that_statements_could_take_for_something_else(any_mirror: MirrorRig, artifacts: Path) -> None:
    odd = table("shop.odd", {"id": TEXT, "version": INT, "put": INT}, ["id"])
    key = "${env:HOME}"
    any_mirror.load(Changelog(artifacts, 0, 100).rows(odd, [put(10, id=key, version=1, put=1)]))
    any_mirror.load(Changelog(artifacts, 100, 200).rows(odd, [put(110, id=key, version=2, put=3)]))
    assert any_mirror.rows("SELECT * FROM shop.odd") == [(key, 2, 3, 110)]


def test_the_default_of_an_enum_is_shown_in_older_rows(any_mirror: MirrorRig, artifacts: Path) -> None:
    names = ColumnType("enum", elements=("a", "b"), declared=True)
    added = table("shop.orders", {"id": INT, "v": TEXT, "w": names}, valid_from=150)
    any_mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="x")]))
    changelog = Changelog(artifacts, 100, 200).ddl(150, "ALTER TABLE orders ADD COLUMN w ENUM('a','b') DEFAULT 'a'")
    any_mirror.load(changelog.rows(added, [put(160, id=2, v="y", w="b")]))
    assert any_mirror.rows("SELECT id, w FROM shop.orders ORDER BY id") == [(1, "a"), (2, "b")]


def test_a_narrower_table_of_the_name_that_came_first_keeps_its_rows(any_mirror: MirrorRig, artifacts: Path) -> None:
    narrow = ColumnType("int", declared=True)
    wide, later = table("shop.t", {"id": INT, "n": INT}), table("shop.t", {"id": INT, "n": narrow}, valid_from=155)
    any_mirror.load(Changelog(artifacts, 0, 100).rows(wide, [put(10, id=1, n=1)]))
    any_mirror.load(Changelog(artifacts, 200, 300).rows(later, [put(210, id=3, n=3)]))
    between = Changelog(artifacts, 100, 200).ddl(152, "DROP TABLE t", table="shop.t")
    between.ddl(155, "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT)", table="shop.t").rows(later, [put(160, id=2, n=2)])
    any_mirror.load(between, drop="apply")
    assert any_mirror.rows("SELECT id, n FROM shop.t ORDER BY id") == [(2, 2), (3, 3)]


KEYED = table("shop.orders", {"id": INT, "v": TEXT})
KEYLESS = table("shop.orders", {"id": INT, "v": TEXT}, key=(), valid_from=150)


@pytest.mark.parametrize("ddl", [None, "ALTER TABLE orders DROP PRIMARY KEY"], ids=["unknown", "known"])
def test_a_mirror_whose_table_has_lost_its_key_stops_and_does_not_grow_old(
    any_mirror: MirrorRig, artifacts: Path, drop_by_hand: Callable[[str], None], ddl: str | None
) -> None:
    any_mirror.load(Changelog(artifacts, 0, 100).rows(KEYED, [put(10, id=1, v="a")]))
    window = Changelog(artifacts, 100, 200).rows(KEYLESS, [put(160, id=3, v="c")])
    if ddl is not None:
        window.ddl(150, ddl, table="shop.orders")
    with pytest.raises(PolicyStopError, match=r"rows of this window have no key, and .* mirrors earlier ones"):
        any_mirror.load(window)
    drop_by_hand("shop.orders")
    any_mirror.forget("shop.orders")
    assert any_mirror.load_table(window).outcome == "without_key"


def test_a_window_from_before_a_table_had_a_key_is_left_out_again(any_mirror: MirrorRig, artifacts: Path) -> None:
    keyless = Changelog(artifacts, 0, 100).rows(
        table("shop.orders", {"id": INT, "v": TEXT}, key=()), [put(10, id=3, v="c")]
    )
    keyed = table("shop.orders", {"id": INT, "v": TEXT}, valid_from=150)
    any_mirror.load(keyless)
    any_mirror.load(Changelog(artifacts, 100, 200).rows(keyed, [put(160, id=1, v="a")]))
    assert any_mirror.load_table(keyless, reload=True).outcome == "without_key"
    assert any_mirror.rows("SELECT id, v FROM shop.orders") == [(1, "a")]


def test_a_mirror_that_was_dropped_may_be_followed_by_a_table_without_key(
    any_mirror: MirrorRig, artifacts: Path
) -> None:
    any_mirror.load(Changelog(artifacts, 0, 100).rows(KEYED, [put(10, id=1, v="a")]))
    window = Changelog(artifacts, 100, 200).ddl(140, "DROP TABLE orders", table="shop.orders")
    window.ddl(145, "CREATE TABLE orders (id BIGINT, v VARCHAR(20))", table="shop.orders")
    window.rows(KEYLESS, [put(160, id=3, v="c")])
    with pytest.raises(PolicyStopError, match="rows of this window have no key"):
        any_mirror.load(window, drop="apply")
    any_mirror.load(Changelog(artifacts, 100, 141).ddl(140, "DROP TABLE orders", table="shop.orders"), drop="apply")
    assert any_mirror.load_table(window, drop="apply").outcome == "without_key"
