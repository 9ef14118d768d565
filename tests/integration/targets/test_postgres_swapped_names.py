"""A name that another table takes at the commitTs at which the old one left it, or soon after, in a window that is loaded first.

TiCDC sends a RENAME of several tables as one DDL for each, all of one commitTs.
"""

from pathlib import Path

import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, Row, put, table
from ticdc_replay.changelog.files.version_order import VersionOrder
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PolicyStopError

pytestmark = pytest.mark.integration

COLUMNS = {"id": ColumnType("int", declared=True), "v": ColumnType("varchar", length=20, declared=True)}
CREATE = "CREATE TABLE `{}` (`id` INT, `v` VARCHAR(20), PRIMARY KEY (`id`))"
SWAP = (("a", "a_old"), ("a_new", "a"))
FROM_BEFORE = (("a", 110, put(120, id=1, v="old")), ("a_new", 130, put(140, id=1, v="copied")))
LATER = ("a", 150, put(160, id=3, v="later"))
ROWS = "SELECT id, v FROM shop.{} ORDER BY id"


def window(artifacts: Path, to_ts: int, renames: tuple[tuple[str, str], ...] = SWAP, from_ts: int = 100) -> Changelog:
    """[*from_ts*, *to_ts*) of a table, one that is made to take its name at 150, and a row after that."""
    changelog = Changelog(artifacts, from_ts, to_ts)

    def rows(name: str, valid_from: int, row: Row) -> None:
        if from_ts <= row.commit_ts < to_ts:
            changelog.rows(table(f"shop.{name}", COLUMNS, valid_from=valid_from), [row])

    for name, created_ts, row in FROM_BEFORE:
        if from_ts <= created_ts:
            changelog.ddl(created_ts, CREATE.format(name), table=f"shop.{name}")
        rows(name, created_ts, row)
    if to_ts > 150:
        for old, new in renames:
            changelog.ddl(150, f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`", table=f"shop.{new}")
    rows(*LATER)
    return changelog


@pytest.mark.parametrize("tables", [("shop.a",), ("shop.a", "shop.a_new"), ("*.*",)])
@pytest.mark.parametrize("renames", [SWAP, (("a", "0_old"), ("a_new", "a"))], ids=["here first", "away first"])
def test_a_name_that_another_table_takes_at_once_stops_the_first_load(
    mirror: Mirror, artifacts: Path, tables: tuple[str, ...], renames: tuple[tuple[str, str], ...]
) -> None:
    told = "shop.a at 150 .*: the table was renamed from shop.a_new: rename the mirror"
    with pytest.raises(PolicyStopError, match=told):
        mirror.load(window(artifacts, 200, renames), tables=tables)
    assert mirror.rows("SELECT FROM pg_tables WHERE schemaname = 'shop'") == []


def test_after_the_stop_it_goes_on_as_for_mirrored_tables(mirror: Mirror, artifacts: Path) -> None:
    whole, ends_with_it = window(artifacts, 200), window(artifacts, 151, from_ts=150)
    with pytest.raises(PolicyStopError):
        mirror.load(whole, tables=("*.*",))
    mirror.load(window(artifacts, 150), tables=("*.*",))
    with pytest.raises(PolicyStopError):
        mirror.load(ends_with_it, tables=("*.*",))
    mirror.execute("ALTER TABLE shop.a RENAME TO a_old; ALTER TABLE shop.a_new RENAME TO a")
    for name in ("a", "a_old", "a_new"):
        mirror.raise_floor(f"shop.{name}", 151)
    for again in (ends_with_it, whole):
        mirror.load(again, tables=("*.*",))
    assert mirror.rows(ROWS.format("a")) == [(1, "copied"), (3, "later")]
    assert mirror.rows(ROWS.format("a_old")) == [(1, "old")]


def test_a_window_that_ends_with_it_brings_the_rows_from_before_it_and_stops(mirror: Mirror, artifacts: Path) -> None:
    with pytest.raises(PolicyStopError, match=r"shop.a at 150 .*: the table was renamed from shop.a_new"):
        mirror.load(window(artifacts, 151), tables=("*.*",))
    assert mirror.rows(ROWS.format("a")) == [(1, "old")]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("RENAME TABLE `shop`.`a_new` TO `shop`.`a`", "the table was renamed from shop.a_new"),
        ("RECOVER TABLE `a`", "is back with its rows"),
        ("ALTER TABLE `a_new` EXCHANGE PARTITION `p` WITH TABLE `a`", "its rows were exchanged"),
    ],
)
@pytest.mark.parametrize("order", ["commit_ts", "place"])
def test_a_name_that_gets_rows_after_a_drop_stops_the_first_load(
    mirror: Mirror, artifacts: Path, query: str, told: str, order: VersionOrder
) -> None:
    changelog = Changelog(artifacts, 100, 200, order=order)
    changelog.ddl(150, "DROP TABLE `shop`.`a`", table="shop.a")
    changelog.ddl(151, query, table="shop.a_new" if "EXCHANGE" in query else "shop.a")
    with pytest.raises(PolicyStopError, match=f"shop.a at 151 .*{told}"):
        mirror.load(changelog, tables=("shop.a",))


def test_a_later_drop_of_it_stops_nothing(mirror: Mirror, artifacts: Path) -> None:
    changelog = window(artifacts, 200).ddl(170, "DROP TABLE `a`", table="shop.a")
    changelog.ddl(171, CREATE.format("a"), table="shop.a")
    changelog.rows(table("shop.a", COLUMNS, valid_from=171), [put(180, id=9, v="new")])
    mirror.load(changelog, tables=("shop.a",))
    assert mirror.rows(ROWS.format("a")) == [(9, "new")]
