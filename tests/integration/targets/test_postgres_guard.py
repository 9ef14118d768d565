"""However often, in whatever order and in how many pieces windows are applied, the mirror ends the same."""

import itertools
from pathlib import Path

import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, delete, put, table
from ticdc_replay.domain.column_types import ColumnType

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
ALL = "SELECT id, v, _commit_ts FROM shop.orders ORDER BY id"


def test_the_last_version_of_each_row_is_mirrored(mirror: Mirror, artifacts: Path) -> None:
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
    report = mirror.load_table(changelog)
    assert mirror.rows(ALL) == [(1, "third", 30), (3, "kept", 11)]
    assert (report.outcome, report.destination) == ("loaded", '"shop"."orders"')
    assert (report.events, report.keys, report.folded) == (6, 3, 3)
    assert (report.upserted, report.tombstones, report.deleted, report.superseded) == (2, 1, 0, 0)
    assert [(field.name, field.type) for field in report.fields] == [
        ("id", "bigint"),
        ("v", "text"),
        ("_commit_ts", "bigint"),
    ]


def test_applying_a_window_twice_changes_nothing(mirror: Mirror, artifacts: Path) -> None:
    changelog = Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="x"), delete(20, id=2)])
    first = mirror.load_table(changelog)
    again = mirror.load_table(changelog)
    assert again.outcome == "done_before"
    assert (again.upserted, again.tombstones) == (first.upserted, first.tombstones) == (1, 1)
    reloaded = mirror.load_table(changelog, reload=True)
    assert (reloaded.outcome, reloaded.upserted, reloaded.tombstones, reloaded.superseded) == ("loaded", 1, 1, 0)
    assert mirror.rows(ALL) == [(1, "x", 10)]


def test_a_reload_repairs_a_row_that_was_damaged(mirror: Mirror, artifacts: Path) -> None:
    changelog = Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="x")])
    mirror.load(changelog)
    mirror.execute("UPDATE shop.orders SET v = 'damaged'")
    mirror.load(changelog, reload=True)
    assert mirror.rows(ALL) == [(1, "x", 10)]


def test_windows_in_any_order_give_one_table(mirror: Mirror, artifacts: Path) -> None:
    windows = [
        Changelog(artifacts, 0, 100).rows(
            ORDERS, [put(10, id=1, v="a"), put(11, id=2, v="a"), put(12, id=3, v="a"), put(13, id=4, v="a")]
        ),
        Changelog(artifacts, 100, 200).rows(ORDERS, [put(110, id=1, v="b"), delete(111, id=2), delete(112, id=3)]),
        Changelog(artifacts, 200, 300).rows(ORDERS, [delete(210, id=1), put(211, id=2, v="c"), delete(212, id=5)]),
    ]
    for order in itertools.permutations(windows):
        for changelog in order:
            mirror.load(changelog)
        assert mirror.rows(ALL) == [(2, "c", 211), (4, "a", 13)]
        mirror.execute("DROP SCHEMA shop CASCADE; DROP SCHEMA _ticdc_replay CASCADE")


def test_a_delete_is_not_undone_by_an_older_put(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 100, 200).rows(ORDERS, [delete(150, id=1)]))
    report = mirror.load_table(Changelog(artifacts, 0, 100).rows(ORDERS, [put(50, id=1, v="old")]))
    assert mirror.rows(ALL) == []
    assert (report.upserted, report.superseded) == (0, 1)


def test_a_put_after_a_delete_brings_the_row_back_for_good(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 100, 200).rows(ORDERS, [delete(150, id=1)]))
    mirror.load(Changelog(artifacts, 200, 300).rows(ORDERS, [put(250, id=1, v="new")]))
    mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, [delete(60, id=1)]))
    assert mirror.rows(ALL) == [(1, "new", 250)]


@pytest.mark.parametrize("together", [True, False])
def test_of_a_delete_and_a_put_at_one_commit_ts_the_put_wins(mirror: Mirror, artifacts: Path, together: bool) -> None:
    rows = [put(50, id=1, v="moved"), delete(50, id=1)]
    if together:
        mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, rows, files=2))
    else:  # as when one partition of the window was decoded by an earlier run
        mirror.load(Changelog(artifacts, 0, 100, run="first").rows(ORDERS, rows[:1]))
        mirror.load(Changelog(artifacts, 0, 100, run="second").rows(ORDERS, rows[1:]))
    assert mirror.rows(ALL) == [(1, "moved", 50)]


def test_a_key_change_is_a_delete_and_a_put(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="x")]))
    mirror.load(Changelog(artifacts, 100, 200).rows(ORDERS, [delete(110, id=1), put(110, id=7, v="x")]))
    assert mirror.rows(ALL) == [(7, "x", 110)]


def test_values_of_a_unique_key_are_swapped_between_rows(mirror: Mirror, artifacts: Path) -> None:
    users = table("shop.users", {"id": INT, "email": TEXT}, unique=[["email"]])
    mirror.load(Changelog(artifacts, 0, 100).rows(users, [put(10, id=1, email="a"), put(10, id=2, email="b")]))
    mirror.load(Changelog(artifacts, 100, 200).rows(users, [put(110, id=1, email="b"), put(110, id=2, email="a")]))
    assert mirror.rows("SELECT id, email FROM shop.users ORDER BY id") == [(1, "b"), (2, "a")]
    (index,) = mirror.rows("SELECT indexdef FROM pg_indexes WHERE tablename = 'users' AND indexname <> 'users_pkey'")
    assert index[0] == "CREATE INDEX users_email_idx ON shop.users USING btree (email)"


def test_a_unique_value_may_be_double_while_an_older_window_is_missing(mirror: Mirror, artifacts: Path) -> None:
    users = table("shop.users", {"id": INT, "email": TEXT}, unique=[["email"]])
    mirror.load(Changelog(artifacts, 0, 100).rows(users, [put(10, id=1, email="a")]))
    mirror.load(Changelog(artifacts, 200, 300).rows(users, [put(210, id=2, email="a")]))
    assert mirror.rows("SELECT id, email FROM shop.users ORDER BY id") == [(1, "a"), (2, "a")]
    mirror.load(Changelog(artifacts, 100, 200).rows(users, [delete(110, id=1)]))
    assert mirror.rows("SELECT id, email FROM shop.users ORDER BY id") == [(2, "a")]


def test_nothing_below_the_floor_is_applied(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="base")]))
    mirror.execute("UPDATE _ticdc_replay.tables SET floor_ts = 150")
    rows = [delete(149, id=1), put(149, id=2, v="below"), put(150, id=3, v="at"), delete(20, id=4)]
    report = mirror.load_table(Changelog(artifacts, 100, 200).rows(ORDERS, rows))
    assert mirror.rows(ALL) == [(1, "base", 10), (3, "at", 150)]
    assert (report.keys, report.upserted, report.superseded) == (4, 1, 3)


def test_rows_of_equal_hash_stay_two_rows(mirror: Mirror, artifacts: Path) -> None:
    same = b"0123456789abcdef"
    rows = [put(10, id=1, v="a")._replace(key_hash=same), put(20, id=2, v="b")._replace(key_hash=same)]
    mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, rows))
    assert mirror.rows(ALL) == [(1, "a", 10), (2, "b", 20)]
