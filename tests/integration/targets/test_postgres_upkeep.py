"""What a mirror refuses to guess, and what a person tells it: floors, tables built anew, and whose mirror it is."""

from pathlib import Path

import psycopg
import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, delete, put, table
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import ConfigError, PolicyStopError, TargetMismatchError
from ticdc_replay.schemas.ddl.reader import definition_from_sql

pytestmark = pytest.mark.integration

INT = ColumnType("int", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
KNOWN = definition_from_sql(ORDERS.name, "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))")
ALL = "SELECT id, v FROM shop.orders ORDER BY id"
BASE = """\
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id int PRIMARY KEY, v text COLLATE "C", _commit_ts bigint NOT NULL);
INSERT INTO shop.orders VALUES (1, 'base', 500)
"""


def window(folder: Path, from_ts: int, run: str = "a") -> Changelog:
    return Changelog(folder, from_ts, from_ts + 100, run)


def test_a_base_load_is_used_from_its_commit_ts_on(mirror: Mirror, artifacts: Path) -> None:
    mirror.execute(BASE)
    later = window(artifacts, 600).rows(ORDERS, [put(610, id=3, v="new")])
    with pytest.raises(TargetMismatchError, match=r"ticdc-replay mirror floor <pipeline> shop\.orders --at"):
        mirror.load(later)
    assert mirror.raise_floor("shop.orders", 500).now == 500
    mirror.load(later)
    # Row 7 was deleted upstream before the base load.
    mirror.load(window(artifacts, 300).rows(ORDERS, [put(310, id=7, v="dead"), put(320, id=1, v="old")]))
    assert mirror.rows(ALL) == [(1, "base"), (3, "new")]


def test_a_floor_can_be_set_before_anything_is_there_and_is_never_lowered(mirror: Mirror, artifacts: Path) -> None:
    assert (mirror.raise_floor("shop.orders", 50).before, mirror.raise_floor("shop.orders", 20).now) == (0, 50)
    mirror.load(window(artifacts, 0).rows(ORDERS, [put(49, id=1, v="below"), put(50, id=2, v="at")]))
    assert mirror.rows(ALL) == [(2, "at")]


def test_a_floor_takes_tombstones_below_it_along(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(window(artifacts, 0).rows(ORDERS, [put(10, id=1, v="a"), delete(20, id=2), delete(50, id=3)]))
    ((tombstones,),) = mirror.rows("SELECT tombstones FROM _ticdc_replay.tables")
    mirror.raise_floor("shop.orders", 50)
    assert mirror.rows(f'SELECT id, _commit_ts FROM _ticdc_replay."{tombstones}"') == [(3, 50)]
    mirror.raise_floor("shop.orders", 51)
    mirror.load(window(artifacts, 0, run="b").rows(ORDERS, [put(15, id=2, v="old"), put(49, id=3, v="old")]))
    assert mirror.rows(ALL) == [(1, "a")]


@pytest.mark.parametrize(
    "ddl", ["TRUNCATE TABLE orders", "DROP TABLE `shop`.`orders`", "RENAME TABLE `shop`.`orders` TO `else`.`where`"]
)
def test_what_empties_a_table_of_which_nothing_is_mirrored_is_followed(
    mirror: Mirror, artifacts: Path, ddl: str
) -> None:
    emptied = window(artifacts, 100).knows(KNOWN).ddl(150, ddl)
    emptied.rows(ORDERS, [put(110, id=1, v="before"), put(160, id=2, v="after")])
    mirror.load(emptied, tables=("shop.*",))
    assert mirror.rows(ALL) == [(2, "after")]
    mirror.load(window(artifacts, 0).rows(ORDERS, [put(10, id=3, v="before")]))
    assert mirror.rows(ALL) == [(2, "after")]


def test_a_table_that_was_never_mirrored_may_be_dropped(mirror: Mirror, artifacts: Path) -> None:
    (report,) = mirror.load(window(artifacts, 100).ddl(150, "DROP TABLE `shop`.`tmp`", table="shop.tmp")).tables
    assert (report.outcome, report.events) == ("loaded", 0)


def test_a_mirror_that_was_dropped_is_not_done_and_not_begun_in_the_middle(mirror: Mirror, artifacts: Path) -> None:
    first = window(artifacts, 0).rows(ORDERS, [put(10, id=1, v="a"), put(11, id=2, v="b")])
    mirror.load(first)
    mirror.execute("DROP TABLE shop.orders")
    for changelog in (first, window(artifacts, 100).rows(ORDERS, [put(110, id=3, v="c")])):
        with pytest.raises(TargetMismatchError, match=r"with rows up to 11 .* was dropped"):
            mirror.load(changelog)
    assert mirror.forget("shop.orders") == '"shop"."orders"'
    assert mirror.load_table(first).outcome == "loaded"
    assert mirror.rows(ALL) == [(1, "a"), (2, "b")]


def test_a_mirror_that_is_there_is_not_forgotten(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(window(artifacts, 0).rows(ORDERS, [put(10, id=1, v="a")]))
    with pytest.raises(ConfigError, match="still there: drop it first"):
        mirror.forget("shop.orders")


def test_a_table_that_was_dropped_upstream_and_by_hand_may_come_again(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(window(artifacts, 0).rows(ORDERS, [put(10, id=1, v="a")]))
    mirror.execute("DROP TABLE shop.orders")
    mirror.raise_floor("shop.orders", 60)
    mirror.load(window(artifacts, 100).rows(ORDERS, [put(110, id=1, v="again")]))
    assert mirror.rows(ALL) == [(1, "again")]


@pytest.mark.parametrize("filled", ["by loads", "by hand"])
def test_a_mirror_that_is_lost_after_its_floor_was_raised_is_missed(
    mirror: Mirror, artifacts: Path, filled: str
) -> None:
    """All of its rows are below the floor."""
    if filled == "by hand":
        mirror.execute(BASE)
    else:
        mirror.load(window(artifacts, 400).rows(ORDERS, [put(410, id=1, v="a")]))
    mirror.raise_floor("shop.orders", 600)
    mirror.execute("DROP TABLE shop.orders")
    with pytest.raises(TargetMismatchError, match="was dropped"):
        mirror.load(window(artifacts, 600).rows(ORDERS, [put(610, id=2, v="b")]))


def test_a_mirror_belongs_to_one_pipeline_unless_the_upstream_is_the_same(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(window(artifacts, 0).rows(ORDERS, [put(10, id=1, v="eu")]))
    other = window(artifacts, 100).rows(ORDERS, [put(110, id=1, v="us")])
    other.pipeline = "us"
    with pytest.raises(TargetMismatchError, match="is a mirror of pipeline pipeline"):
        mirror.load(other)
    with pytest.raises(TargetMismatchError, match="is a mirror of pipeline pipeline"):
        mirror.raise_floor("shop.orders", 5, pipeline="us")
    mirror.load(other, {"same_upstream_as": ["pipeline"]})
    assert mirror.rows(ALL) == [(1, "us")]


def test_staging_that_a_dead_attempt_still_holds_keeps_no_other_load_waiting(
    mirror: Mirror, artifacts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mirror.load(window(artifacts, 0).rows(ORDERS, [put(10, id=1, v="a")]))
    mirror.execute("CREATE UNLOGGED TABLE _ticdc_replay.stage_dead (id int)")
    mirror.execute("INSERT INTO _ticdc_replay.staging VALUES ('stage_dead', 4711, 'shop', 'orders')")
    with psycopg.connect(mirror.dsn) as worker:
        worker.execute("INSERT INTO _ticdc_replay.stage_dead VALUES (1)")
        mirror.load(window(artifacts, 100).rows(ORDERS, [put(110, id=2, v="b")]))
        assert "stage_dead of an attempt that ended is still in use" in caplog.text
        worker.rollback()
    mirror.load(window(artifacts, 200).rows(ORDERS, [put(210, id=3, v="c")]))
    assert mirror.rows("SELECT name FROM _ticdc_replay.staging") == []


def test_a_table_that_is_created_over_rows_of_an_older_one_stops(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(window(artifacts, 0).rows(ORDERS, [put(10, id=1, v="old table")]))
    created = window(artifacts, 100).ddl(150, "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))")
    created.rows(ORDERS, [put(160, id=2, v="new table")])
    with pytest.raises(PolicyStopError, match="its mirror has rows from before"):
        mirror.load(created)
    mirror.execute("TRUNCATE shop.orders")
    mirror.raise_floor("shop.orders", 150)
    mirror.load(created)
    mirror.load(created, reload=True)
    assert mirror.rows(ALL) == [(2, "new table")]


def test_rows_of_an_older_table_do_not_come_after_the_creation_of_a_newer_one(mirror: Mirror, artifacts: Path) -> None:
    created = window(artifacts, 100).ddl(150, "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))")
    created.rows(ORDERS, [put(140, id=3, v="old table"), put(160, id=2, v="new table")])
    mirror.load(created)
    mirror.load(window(artifacts, 0).rows(ORDERS, [put(10, id=1, v="old table")]))
    assert mirror.rows(ALL) == [(2, "new table")]
