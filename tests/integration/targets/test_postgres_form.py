"""The columns of a mirror follow from the definitions that its windows have, not from the order of loads, nor from whether rows
need them."""

import itertools
from pathlib import Path

import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, put, table
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PolicyStopError, TargetMismatchError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql

pytestmark = pytest.mark.integration

INT = ColumnType("int", declared=True)
BIGINT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
NAME = TableName("shop", "orders")
KNOWN = definition_from_sql(NAME, "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))")
WITH_N = definition_from_sql(NAME, "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20), n INT)")
V1 = table("shop.orders", {"id": INT, "v": TEXT})
V2 = table("shop.orders", {"id": INT, "v": TEXT, "n": INT}, valid_from=150)
V3 = table("shop.orders", {"id": INT, "v": TEXT, "n": TEXT}, valid_from=250)
ADD = "ALTER TABLE orders ADD COLUMN n INT NOT NULL DEFAULT 5"
COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid)
FROM pg_attribute a LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
WHERE a.attrelid = to_regclass('shop.orders') AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> '_commit_ts'
ORDER BY a.attname
"""
OLD_FORM = [("id", "integer", None), ("v", "text", None)]
NEW_FORM = [("id", "integer", None), ("n", "integer", "5"), ("v", "text", None)]


def test_a_column_that_is_added_after_all_rows_of_the_first_window_is_there(mirror: Mirror, artifacts: Path) -> None:
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ADD).rows(V1, [put(110, id=1, v="a")])
    mirror.load(window)
    assert mirror.rows(COLUMNS) == NEW_FORM
    assert mirror.rows("SELECT id, n FROM shop.orders") == [(1, 5)]


def test_ddl_of_a_table_without_mirror_counts_when_an_older_window_makes_it(mirror: Mirror, artifacts: Path) -> None:
    wider = "ALTER TABLE orders MODIFY COLUMN n BIGINT NOT NULL, MODIFY COLUMN id BIGINT"
    mirror.load(Changelog(artifacts, 200, 300).knows(WITH_N).ddl(250, wider))
    mirror.load(Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ADD))
    mirror.load(Changelog(artifacts, 0, 100).rows(V1, [put(10, id=1, v="a")]))
    assert mirror.rows(COLUMNS) == [("id", "bigint", None), ("n", "bigint", "5"), ("v", "text", None)]
    assert mirror.rows("SELECT id, n FROM shop.orders") == [(1, 5)]


def test_a_table_is_made_though_it_has_no_row(mirror: Mirror, artifacts: Path) -> None:
    window = Changelog(artifacts, 100, 200).ddl(120, "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20), KEY (v))")
    window.ddl(150, ADD)
    assert mirror.load_table(window).ddl == ('CREATE TABLE "shop"."orders"',)
    assert mirror.rows(COLUMNS) == NEW_FORM
    keyless = Changelog(artifacts, 200, 300).ddl(250, "CREATE TABLE logs (line TEXT)", table="shop.logs")
    assert mirror.load_table(keyless).ddl == ()
    assert mirror.rows("SELECT to_regclass('shop.logs')") == [(None,)]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_truncate_keeps_the_columns_whatever_is_loaded_first(
    mirror: Mirror, artifacts: Path, order: tuple[int, ...], together: bool
) -> None:
    """Also those of rows that the TRUNCATE took, and of DDL before it."""
    cut = 200 if together else 152
    first = Changelog(artifacts, 0, 100).rows(V1, [put(10, id=1, v="a")])
    added = Changelog(artifacts, 100, cut).knows(KNOWN).ddl(150, ADD)
    truncated = added if together else Changelog(artifacts, cut, 200).knows(WITH_N)
    truncated.ddl(155, "TRUNCATE TABLE orders")
    windows = [first, added, truncated]
    for at in order:
        mirror.load(windows[at])
    assert mirror.rows(COLUMNS) == [("id", "integer", None), ("n", "integer", None), ("v", "text", None)]
    assert mirror.rows("SELECT id FROM shop.orders") == []


def test_a_changed_column_stops_though_a_truncate_follows(mirror: Mirror, artifacts: Path) -> None:
    """No row is left to be changed, but the column has another type for rows to come."""
    mirror.load(Changelog(artifacts, 0, 100).rows(V2, [put(10, id=1, v="a", n=1)]))
    window = Changelog(artifacts, 200, 300).knows(WITH_N)
    window.ddl(250, "ALTER TABLE orders MODIFY COLUMN n VARCHAR(20)").ddl(260, "TRUNCATE TABLE orders")
    with pytest.raises(PolicyStopError, match=r"orders at 250 .* the column n changed from int to varchar"):
        mirror.load(window)


def added(artifacts: Path) -> Changelog:
    return Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ADD).rows(V2, [put(160, id=1, v="a", n=7)])


def changed(artifacts: Path) -> Changelog:
    return Changelog(artifacts, 200, 300).knows(WITH_N).ddl(250, "ALTER TABLE orders MODIFY COLUMN n VARCHAR(20)")


def later(artifacts: Path) -> Changelog:
    return Changelog(artifacts, 300, 400).rows(V3, [put(310, id=2, v="b", n="x")])


APART = r"column n is {} in this window and {} in its mirror: .* DDL between {} .* and {} .* Load the windows between"


@pytest.mark.parametrize("with_rows", [True, False])
def test_a_window_of_another_type_waits_for_the_ddl_that_stops(
    mirror: Mirror, artifacts: Path, with_rows: bool
) -> None:
    window = added(artifacts) if with_rows else Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ADD)
    mirror.load(Changelog(artifacts, 0, 100).rows(V1, [put(10, id=1, v="a")]))
    mirror.load(window)
    with pytest.raises(
        PolicyStopError, match=APART.format("text", "integer", "159|150", "309").replace("159|150", "(159|150)")
    ):
        mirror.load(later(artifacts))
    with pytest.raises(PolicyStopError, match=r"orders at 250 .* changed from int to varchar.*: change the column"):
        mirror.load(changed(artifacts))


@pytest.mark.parametrize("with_rows", [True, False])
def test_an_older_window_of_another_type_is_told_of_the_ddl_between(
    mirror: Mirror, artifacts: Path, with_rows: bool
) -> None:
    mirror.load(later(artifacts))
    window = added(artifacts) if with_rows else Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ADD)
    with pytest.raises(PolicyStopError, match=r"column n is integer .* text .* rebuild its mirror .* newest row, 310"):
        mirror.load(window)
    assert mirror.rows(COLUMNS) == [("id", "integer", None), ("n", "text", None), ("v", "text", None)]


def test_windows_around_a_table_that_was_made_again_in_another_form_wait_for_its_drop(
    mirror: Mirror, artifacts: Path
) -> None:
    other = table("shop.orders", {"w": TEXT, "n": TEXT}, key=["w"], valid_from=260)
    first = Changelog(artifacts, 0, 200).rows(V2, [put(160, id=1, v="a", n=7)])
    again = Changelog(artifacts, 200, 300).knows(WITH_N).ddl(250, "DROP TABLE orders")
    again.ddl(260, "CREATE TABLE orders (w VARCHAR(20) PRIMARY KEY, n VARCHAR(20))")
    after = Changelog(artifacts, 300, 400).rows(other, [put(310, w="x", n="y")])
    for one, two in ((first, after), (after, first)):
        mirror.load(one, drop="apply")
        with pytest.raises(PolicyStopError, match="Load the windows between them first"):
            mirror.load(two, drop="apply")
        mirror.load(again, drop="apply")
        mirror.load(two, drop="apply")
        assert mirror.rows("SELECT w, n FROM shop.orders") == [("x", "y")]
        assert mirror.rows(COLUMNS) == [("n", "text", None), ("w", "text", None)]
        mirror.execute("DROP SCHEMA shop, _ticdc_replay CASCADE")


def test_a_table_that_a_person_changed_is_still_a_mismatch(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(added(artifacts))
    mirror.execute("ALTER TABLE shop.orders ALTER COLUMN n TYPE text")
    more = Changelog(artifacts, 200, 300).rows(V2, [put(210, id=2, v="b", n=8)])
    with pytest.raises(TargetMismatchError, match="column n is text, integer is needed"):
        mirror.load(more)


def test_mirrors_of_an_older_ledger_go_on(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 0, 100).rows(V1, [put(10, id=1, v="a")]))
    mirror.execute(
        """
        DROP TABLE _ticdc_replay.columns;
        ALTER TABLE _ticdc_replay.tables DROP COLUMN whole_ts, DROP COLUMN form_floor_ts, DROP COLUMN truncated_to"""
    )
    mirror.load(Changelog(artifacts, 200, 300).rows(V2, [put(210, id=2, v="b", n=8)]))
    mirror.load(Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ADD))
    mirror.load(Changelog(artifacts, 300, 400).knows(WITH_N).ddl(350, "ALTER TABLE orders MODIFY COLUMN n BIGINT"))
    assert mirror.rows("SELECT id, n FROM shop.orders ORDER BY id") == [(1, 5), (2, 8)]
    assert mirror.rows(COLUMNS)[1] == ("n", "bigint", "5")


def test_what_a_mirror_has_of_a_table_that_was_dropped_goes_though_newer_rows_came_first(
    mirror: Mirror, artifacts: Path
) -> None:
    wide = definition_from_sql(NAME, "CREATE TABLE orders (id BIGINT PRIMARY KEY, v VARCHAR(20))")
    old = table("shop.orders", {"id": BIGINT, "v": TEXT})
    new = table("shop.orders", {"id": INT, "v": TEXT}, valid_from=260)
    first = Changelog(artifacts, 0, 200).knows(wide).ddl(150, ADD).rows(old, [put(110, id=1, v="a")])
    again = Changelog(artifacts, 200, 300).ddl(250, "DROP TABLE orders")
    again.ddl(260, "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))")
    after = Changelog(artifacts, 300, 400).rows(new, [put(310, id=2, v="b")])
    for window in (first, after, again):
        mirror.load(window, drop="apply")
    assert mirror.rows(COLUMNS) == OLD_FORM
    assert mirror.rows("SELECT id, v FROM shop.orders") == [(2, "b")]
