"""Additive DDL is followed, in whatever order windows are loaded; everything else stops before a row is applied."""

import itertools
from pathlib import Path

import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, delete, put, table
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PermanentError, PolicyStopError, TargetMismatchError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql

pytestmark = pytest.mark.integration

INT = ColumnType("int", declared=True)
BIGINT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
NAME = TableName("shop", "orders")
KNOWN = definition_from_sql(NAME, "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))")
V1 = table("shop.orders", {"id": INT, "v": TEXT}, valid_from=0)
V2 = table("shop.orders", {"id": INT, "v": TEXT, "n": INT}, valid_from=150)
ADD = "ALTER TABLE `orders` ADD COLUMN `n` INT NOT NULL DEFAULT 5"


def first(artifacts: Path) -> Changelog:
    return Changelog(artifacts, 0, 100).rows(V1, [put(10, id=1, v="a"), put(11, id=2, v="a"), put(12, id=3, v="a")])


def second(artifacts: Path) -> Changelog:
    """The window with the DDL, and rows from before and after it."""
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ADD)
    window.rows(V1, [put(110, id=2, v="b"), put(150, id=4, v="b")])
    return window.rows(V2, [put(151, id=5, v="b", n=None), put(160, id=6, v="b", n=9)])


def third(artifacts: Path) -> Changelog:
    return Changelog(artifacts, 200, 300).rows(V2, [put(210, id=3, v="c", n=7), delete(220, id=6)])


END = [(1, "a", 5), (2, "b", 5), (3, "c", 7), (4, "b", 5), (5, "b", None)]
ROWS = "SELECT id, v, n FROM shop.orders ORDER BY id"


def test_rows_from_before_an_added_column_show_its_default(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    report = mirror.load_table(second(artifacts))
    assert report.ddl == ("ADD COLUMN n integer DEFAULT '5'::integer",)
    mirror.load(third(artifacts))
    assert mirror.rows(ROWS) == END


@pytest.mark.parametrize("order", list(itertools.permutations([first, second, third])))
def test_windows_around_an_added_column_may_come_in_any_order(mirror: Mirror, artifacts: Path, order: tuple) -> None:
    for window in order:
        mirror.load(window(artifacts))
    assert mirror.rows(ROWS) == END
    for window in order:
        assert mirror.load_table(window(artifacts), reload=True).ddl == ()
    assert mirror.rows(ROWS) == END


def test_a_column_whose_ddl_is_not_loaded_yet_is_reported(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    report = mirror.load_table(third(artifacts))
    assert report.ddl == (
        "ADD COLUMN n integer; what older rows show is filled in when the window of its DDL is loaded",
    )


def test_no_fill_is_promised_for_a_column_that_was_added_before_the_table_was_emptied(
    mirror: Mirror, artifacts: Path
) -> None:
    mirror.load(first(artifacts))
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ADD).ddl(155, "TRUNCATE TABLE orders")
    report = mirror.load_table(window.rows(V2, [put(160, id=2, v="b", n=1)]))
    assert report.ddl == ('TRUNCATE "shop"."orders"', "ADD COLUMN n integer")


def test_a_window_with_ddl_and_no_rows_is_followed(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    mirror.load(Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ADD))
    assert mirror.rows(ROWS) == [(1, "a", 5), (2, "a", 5), (3, "a", 5)]
    mirror.load(third(artifacts))
    assert mirror.rows(ROWS) == [(1, "a", 5), (2, "a", 5), (3, "c", 7)]


def test_ddl_that_was_seen_before_the_table_was_made_is_remembered(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, ADD))
    mirror.load(third(artifacts))
    mirror.load(first(artifacts))
    assert mirror.rows(ROWS) == [(1, "a", 5), (2, "a", 5), (3, "c", 7)]


DEFAULTS = [
    ("VARCHAR(9) NOT NULL DEFAULT 'it''s'", "it's"),
    ("VARCHAR(9) NOT NULL", ""),
    ("VARCHAR(9)", None),
    ("DECIMAL(8,3) NOT NULL DEFAULT 1.5", "1.500"),
    ("DATETIME(3) NOT NULL DEFAULT '2020-02-02 02:02:02.222'", "2020-02-02 02:02:02.222"),
    ("ENUM('u','v') DEFAULT 'v'", "v"),
    ("ENUM('u','v') NOT NULL", "u"),
    ("SET('a','b') NOT NULL DEFAULT 'b,a'", "a,b"),
    ("BINARY(3) NOT NULL DEFAULT 'ab'", "\\x616200"),
    ("VARBINARY(9) NOT NULL DEFAULT X'00ff5c'", "\\x00ff5c"),
    ("BIT(8) DEFAULT b'101'", "5"),
    ("BIGINT UNSIGNED DEFAULT 18446744073709551615", "18446744073709551615"),
    ("TIME(2) DEFAULT '-838:59:59'", "-838:59:59"),
    ("DOUBLE DEFAULT -1.5", "-1.5"),
    ("DATE DEFAULT '0001-01-01'", "0001-01-01"),
    ("DATETIME(6) DEFAULT '9999-12-31 23:59:59.999999'", "9999-12-31 23:59:59.999999"),
    ("TIME DEFAULT '838:59:59'", "838:59:59"),
    ("TINYINT UNSIGNED DEFAULT 255", "255"),
    ("INT DEFAULT -2147483648", "-2147483648"),
    ("DECIMAL(5,2) DEFAULT 999.994", "999.99"),
    ("DECIMAL(65,2) DEFAULT -1e61", "-1" + 61 * "0" + ".00"),
    ("BIT(64) DEFAULT 0xffffffffffffffff", "18446744073709551615"),
    ("BIT DEFAULT TRUE", "1"),
    ("YEAR DEFAULT 2155", "2155"),
    ("FLOAT DEFAULT 3.4028235e38", "3.4028235e+38"),
    ("FLOAT DEFAULT 1e-45", "1e-45"),
    ("VARCHAR(3) DEFAULT 'äöü'", "äöü"),
]


@pytest.mark.parametrize(("definition", "shown"), DEFAULTS)
def test_defaults_of_every_type_are_filled_in(
    mirror: Mirror, artifacts: Path, definition: str, shown: str | None
) -> None:
    mirror.load(first(artifacts))
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, f"ALTER TABLE orders ADD COLUMN n {definition}")
    mirror.load(window)
    assert mirror.rows("SELECT DISTINCT n::text FROM shop.orders") == [(shown,)]


UNKNOWN = [
    ("DATETIME DEFAULT CURRENT_TIMESTAMP", "was decided by the server"),
    ("TIMESTAMP NOT NULL DEFAULT '2020-01-01 00:00:00'", "was decided by the server"),
    ("DATETIME NOT NULL DEFAULT '0000-00-00 00:00:00'", "PostgreSQL can't hold"),
    ("DATE DEFAULT '2026-02-00'", "rows from before the DDL show 2026-02-00 in n, which PostgreSQL can't hold"),
    ("DATE DEFAULT '2026-02-31'", "PostgreSQL can't hold"),
    ("DATE DEFAULT '0000-01-01'", "PostgreSQL can't hold"),
    ("DATETIME DEFAULT '2026-00-10 00:00:00'", "PostgreSQL can't hold"),
    ("DATETIME(6) DEFAULT '2026-02-30 00:00:00.000001'", "PostgreSQL can't hold"),
    ("DATETIME DEFAULT '2026-01-01 24:00:00'", "server"),
    ("DATETIME DEFAULT '2026-01-01 23:61:00'", "server"),
    ("TIME DEFAULT '99:99:99'", "server"),
    ("TIME DEFAULT '-839:00:00'", "server"),
    ("TINYINT DEFAULT 128", "server"),
    ("SMALLINT UNSIGNED DEFAULT -1", "server"),
    ("MEDIUMINT DEFAULT 8388608", "server"),
    ("INT DEFAULT 99999999999", "server"),
    ("BIGINT UNSIGNED DEFAULT 18446744073709551616", "server"),
    ("DECIMAL(5,2) DEFAULT 99999", "server"),
    ("DECIMAL(5,2) DEFAULT 999.995", "server"),
    ("DECIMAL(50,2) DEFAULT 1e49", "server"),
    ("DECIMAL(5,2) UNSIGNED DEFAULT -1", "server"),
    ("FLOAT UNSIGNED DEFAULT -1", "server"),
    ("FLOAT(5,2) DEFAULT 1234.5", "server"),
    ("BIT(3) DEFAULT b'1000'", "server"),
    ("YEAR DEFAULT 2156", "server"),
    ("VARCHAR(3) DEFAULT 'abcd'", "server"),
    ("CHAR(3) DEFAULT 'abcd'", "server"),
    ("VARBINARY(3) DEFAULT 'abcd'", "server"),
    ("BINARY(3) DEFAULT 0x61626364", "server"),
]


@pytest.mark.parametrize(("definition", "why"), UNKNOWN)
def test_a_default_that_nobody_can_tell_stops(mirror: Mirror, artifacts: Path, definition: str, why: str) -> None:
    mirror.load(first(artifacts))
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, f"ALTER TABLE orders ADD COLUMN n {definition}")
    with pytest.raises(PolicyStopError, match=why):
        mirror.load(window)


def test_such_a_column_of_a_table_made_in_the_same_window_needs_no_default(mirror: Mirror, artifacts: Path) -> None:
    moment = ColumnType("datetime", scale=0, declared=True)
    window = Changelog(artifacts, 100, 200)
    window.ddl(120, "CREATE TABLE orders (id INT PRIMARY KEY)")
    window.ddl(150, "ALTER TABLE orders ADD COLUMN at DATETIME DEFAULT CURRENT_TIMESTAMP")
    window.rows(table("shop.orders", {"id": INT, "at": moment}, valid_from=150), [put(160, id=1)])
    mirror.load(window)
    assert mirror.rows("SELECT id, at FROM shop.orders") == [(1, None)]


def test_a_widened_column_and_key_hold_larger_values(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    mirror.load(Changelog(artifacts, 100, 150).rows(V1, [delete(110, id=2)]))
    wide = table("shop.orders", {"id": BIGINT, "v": TEXT}, valid_from=170)
    window = Changelog(artifacts, 150, 200).knows(KNOWN).ddl(170, "ALTER TABLE orders MODIFY COLUMN id BIGINT NOT NULL")
    window.rows(V1, [put(160, id=1, v="b")]).rows(wide, [put(180, id=2**40, v="b"), delete(190, id=2**41)])
    report = mirror.load_table(window)
    assert report.ddl == ("ALTER COLUMN id TYPE bigint",)
    older = Changelog(artifacts, 140, 150).rows(V1, [put(145, id=2, v="back"), put(145, id=1, v="older")])
    mirror.load(older)
    assert mirror.rows("SELECT id, v FROM shop.orders ORDER BY id") == [(1, "b"), (2, "back"), (3, "a"), (2**40, "b")]


WIDE = table("shop.orders", {"id": BIGINT, "v": TEXT}, valid_from=150)


def test_deletes_by_a_wider_key_are_remembered_though_its_ddl_came_without_rows(
    mirror: Mirror, artifacts: Path
) -> None:
    mirror.load(first(artifacts))
    mirror.load(Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, "ALTER TABLE orders MODIFY COLUMN id BIGINT"))
    mirror.load(Changelog(artifacts, 200, 300).rows(WIDE, [put(210, id=2**40, v="b"), delete(220, id=2**41)]))
    mirror.load(Changelog(artifacts, 160, 200).rows(WIDE, [put(170, id=2**41, v="older")]))
    assert mirror.rows("SELECT id FROM shop.orders ORDER BY id") == [(1,), (2,), (3,), (2**40,)]


def test_deletes_by_a_wider_key_are_remembered_though_an_older_window_came_last(
    mirror: Mirror, artifacts: Path
) -> None:
    mirror.load(Changelog(artifacts, 200, 300).rows(WIDE, [put(210, id=2**40, v="b")]))
    mirror.raise_floor("shop.orders", 5)
    mirror.load(first(artifacts))
    mirror.load(Changelog(artifacts, 300, 400).rows(WIDE, [delete(310, id=2**40), delete(320, id=2**41)]))
    assert mirror.rows("SELECT id FROM shop.orders ORDER BY id") == [(1,), (2,), (3,)]


def test_widening_that_an_unloaded_window_brought_is_followed(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    wide = table("shop.orders", {"id": INT, "v": TEXT, "n": BIGINT}, valid_from=190)
    mirror.load(second(artifacts))
    mirror.load(Changelog(artifacts, 200, 300).rows(wide, [put(210, id=1, v="c", n=2**40)]))
    assert mirror.rows("SELECT n FROM shop.orders WHERE id = 1") == [(2**40,)]


def test_a_dropped_database_stops_for_tables_that_decode_did_not_know(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    window = Changelog(artifacts, 100, 200).ddl(120, "ALTER DATABASE shop CHARACTER SET utf8mb4", table="shop")
    mirror.load(window)
    window = Changelog(artifacts, 200, 300).ddl(250, "DROP DATABASE shop", table="shop")
    with pytest.raises(PolicyStopError, match=r"shop.orders at 250 .*: the table was dropped with its database"):
        mirror.load(window)


def test_a_dropped_database_drops_the_mirrors_of_this_target_only(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    mirror.load(first(artifacts), target={"schema": "copy"})
    dropped = Changelog(artifacts, 100, 200).ddl(150, "DROP DATABASE shop", table="shop")
    mirror.load(dropped, drop="apply", tables=("other.*",))
    report = mirror.load_table(dropped, drop="apply", reload=True)
    assert report.ddl == ('DROP TABLE "shop"."orders"',)
    mirror.load(first(artifacts), reload=True)
    found = mirror.rows("SELECT table_schema FROM information_schema.tables WHERE table_name = 'orders'")
    assert found == [("copy",)], "an older window brings nothing back"


@pytest.mark.parametrize("schema", ["shop", ""])
def test_a_ddl_of_a_database_that_is_not_understood_stops_for_its_mirrors(
    mirror: Mirror, artifacts: Path, schema: str
) -> None:
    mirror.load(first(artifacts))
    mirror.load(Changelog(artifacts, 100, 200).ddl(150, "FLASHBACK DATABASE other", table="other"))
    window = Changelog(artifacts, 200, 300).ddl(250, "FLASHBACK CLUSTER TO TSO 1", table=schema)
    with pytest.raises(PolicyStopError, match=r"shop.orders at 250 .*not understood"):
        mirror.load(window)


@pytest.mark.parametrize("query", ["RENAME TABLE `t` TO `archive`.`t`", "ALTER TABLE `t` RENAME AS `archive`.`t`"])
def test_a_rename_that_does_not_tell_the_schema_stops_for_each_mirror_that_it_may_be_of(
    mirror: Mirror, artifacts: Path, query: str
) -> None:
    """The upstream has renamed s1.t; s2.t goes on."""
    columns, tables = {"id": INT, "v": TEXT}, ("s1.t", "s2.t", "s2.u")

    def window(from_ts: int, to_ts: int) -> Changelog:
        found = Changelog(artifacts, from_ts, to_ts)
        for name in tables:
            rows = [put(20, id=1, v="a"), put(120, id=2, v="b"), put(160, id=3, v="b")]
            rows = [row for row in rows if from_ts <= row.commit_ts < (150 if name == "s1.t" else to_ts)]
            found.rows(table(name, columns, valid_from=0), rows)
        return found.ddl(150, query, table="archive.t") if from_ts <= 150 < to_ts else found

    mirror.load(window(0, 100), tables=("s1.*", "s2.*"))
    renamed = window(100, 200)
    with pytest.raises(PolicyStopError) as stopped:
        mirror.load(renamed, tables=("s1.*", "s2.*"))
    lines = [line for line in str(stopped.value).splitlines() if query in line]
    assert [line.split()[1] for line in lines] == ["s1.t", "s2.t"]
    mirror.load(window(100, 150), tables=("s1.*", "s2.*"))
    with pytest.raises(PolicyStopError):
        mirror.load(window(150, 151), tables=("s1.*", "s2.*"))
    mirror.execute("DROP TABLE s1.t")
    for name in ("s1.t", "s2.t"):
        mirror.raise_floor(name, 151)
    mirror.load(renamed, tables=("s1.*", "s2.*"))
    assert mirror.rows("SELECT id, v FROM s2.t ORDER BY id") == [(1, "a"), (2, "b"), (3, "b")]
    assert mirror.rows("SELECT id FROM s2.u ORDER BY id") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("source", ["`other`.`orders`", "`orders`"])
def test_a_table_like_one_that_is_not_known_is_mirrored(mirror: Mirror, artifacts: Path, source: str) -> None:
    window = Changelog(artifacts, 100, 200).ddl(150, f"CREATE TABLE `shop`.`orders` LIKE {source}", table="shop.orders")
    mirror.load(window.rows(V1, [put(160, id=1, v="a")]))
    assert mirror.rows("SELECT id, v FROM shop.orders") == [(1, "a")]


def test_a_table_that_was_dropped_and_made_in_another_form_is_mirrored_in_that(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    mirror.load(Changelog(artifacts, 100, 110).rows(V1, [delete(105, id=3)]))
    other = table("shop.orders", {"w": TEXT, "n": INT}, key=["w"], valid_from=160)
    window = Changelog(artifacts, 110, 200).knows(KNOWN).ddl(150, "DROP TABLE orders")
    window.ddl(160, "CREATE TABLE orders (w VARCHAR(20) PRIMARY KEY, n INT)")
    window.rows(V1, [put(120, id=4, v="b")]).rows(other, [put(170, w="x", n=1), delete(171, w="y")])
    mirror.execute("CREATE VIEW shop.v AS SELECT id FROM shop.orders")
    with pytest.raises(PermanentError, match=r"view shop\.v depends on table shop\.orders"):
        mirror.load(window, drop="apply")
    mirror.execute("DROP VIEW shop.v")
    assert mirror.load_table(window, drop="apply").ddl == (
        'DROP TABLE "shop"."orders"',
        'CREATE TABLE "shop"."orders"',
    )
    mirror.load(first(artifacts), reload=True)
    assert mirror.rows("SELECT w, n, _commit_ts FROM shop.orders") == [("x", 1, 170)]


def test_a_truncate_that_breaks_off_leaves_rows_and_floor_as_they_were(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, "TRUNCATE TABLE orders")
    window.rows(V1, [put(110, id=1, v="b"), put(160, id=9, v="b")])
    state = "SELECT floor_ts, newest_ts FROM _ticdc_replay.tables"
    before = mirror.rows(state)
    mirror.execute("ALTER TABLE shop.orders ADD CONSTRAINT breaks CHECK (id <> 9)")
    with pytest.raises(PermanentError, match="breaks"):
        mirror.load(window)
    assert mirror.rows("SELECT id, v FROM shop.orders ORDER BY id") == [(1, "a"), (2, "a"), (3, "a")]
    assert mirror.rows(state) == before
    mirror.execute("ALTER TABLE shop.orders DROP CONSTRAINT breaks")
    assert mirror.load_table(window).ddl == ('TRUNCATE "shop"."orders"',)
    assert mirror.rows("SELECT id, v FROM shop.orders") == [(9, "b")]
    assert mirror.rows(state) == [(151, 160)]


def test_several_of_one_commit_ts_and_what_lies_before_the_last_truncate(mirror: Mirror, artifacts: Path) -> None:
    """One RENAME of three tables comes as three DDL of one commitTs; a later TRUNCATE makes up for it."""
    mirror.load(first(artifacts))
    window = Changelog(artifacts, 100, 200).knows(KNOWN)
    for old, new in (("orders", "tmp"), ("other", "orders"), ("tmp", "other")):
        window.ddl(150, f"RENAME TABLE `shop`.`{old}` TO `shop`.`{new}`", table=f"shop.{new}")
    with pytest.raises(PolicyStopError, match=r"orders at 150 .* renamed from[\s\S]*orders at 150 .* renamed to"):
        mirror.load(window, tables=("shop.orders",))
    window.ddl(160, "TRUNCATE TABLE orders").rows(V1, [put(155, id=1, v="b"), put(170, id=2, v="b")])
    mirror.load(window, tables=("shop.orders",))
    assert mirror.rows("SELECT id, v FROM shop.orders") == [(2, "b")]


def test_a_ddl_may_spell_a_table_in_other_letter_case(mirror: Mirror, artifacts: Path) -> None:
    """Of a table that the event does not name, and whose definition decode does not know, the text alone has the name."""
    mirror.load(first(artifacts))
    window = Changelog(artifacts, 100, 200)
    window.ddl(150, "ALTER TABLE parts EXCHANGE PARTITION p WITH TABLE ORDERS", table="shop.parts")
    with pytest.raises(PolicyStopError, match=r"shop\.orders at 150 .*exchanged with a partition of shop\.parts"):
        mirror.load(window, tables=("shop.orders",))


def test_rows_of_a_database_that_is_dropped_behind_them_are_left_out(mirror: Mirror, artifacts: Path) -> None:
    """Also of tables that neither decode knew nor a mirror was made for."""
    window = Changelog(artifacts, 100, 200).rows(V1, [put(110, id=1, v="a"), put(160, id=2, v="a")])
    mirror.load(window.ddl(150, "DROP DATABASE shop", table="shop"))
    assert mirror.rows("SELECT id FROM shop.orders") == [(2,)]


def test_a_ddl_may_spell_a_column_in_other_letter_case(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, "ALTER TABLE Orders ADD COLUMN N INT DEFAULT 5")
    mirror.load(window.rows(V1, [put(110, id=4, v="b")]).rows(V2, [put(160, id=5, v="b", n=6)]))
    assert mirror.rows("SELECT id, n FROM shop.orders ORDER BY id") == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 6)]


def test_a_column_that_was_dropped_and_added_anew_shows_its_new_default(mirror: Mirror, artifacts: Path) -> None:
    for window in (first(artifacts), second(artifacts)):
        mirror.load(window)
    mirror.execute("ALTER TABLE shop.orders DROP COLUMN n")
    mirror.raise_floor("shop.orders", 251)
    again = table("shop.orders", {"id": INT, "v": TEXT, "n": INT}, valid_from=350)
    added = Changelog(artifacts, 300, 400).knows(KNOWN).ddl(350, ADD.replace("5", "9"))
    for window in (Changelog(artifacts, 400, 500).rows(again, [put(410, id=1, v="d", n=1)]), added):
        mirror.load(window)
    assert mirror.rows(ROWS) == [(1, "d", 1), (2, "b", 9), (3, "a", 9), (4, "b", 9), (5, "b", 9), (6, "b", 9)]


def test_by_policy_additive_ddl_stops_too(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts), ddl="stop")
    with pytest.raises(
        PolicyStopError, match=r"orders at 150 .*: the column n was added, and policies.ddl is stop: add"
    ):
        mirror.load(second(artifacts), ddl="stop")
    with pytest.raises(PolicyStopError, match=r"shop.orders: .*: load that window first. The rows need ADD COLUMN n"):
        mirror.load(third(artifacts), ddl="stop")
    assert mirror.rows("SELECT count(*) FROM information_schema.columns WHERE table_schema = 'shop'") == [(3,)]


def test_additive_ddl_that_was_followed_before_the_policy_forbade_it_stops_no_reload(
    mirror: Mirror, artifacts: Path
) -> None:
    wider = Changelog(artifacts, 200, 300).knows(KNOWN).ddl(250, "ALTER TABLE orders MODIFY COLUMN id BIGINT")
    for window in (first(artifacts), second(artifacts), wider):
        mirror.load(window)
    for window in (second(artifacts), wider):
        assert mirror.load_table(window, reload=True, ddl="stop").ddl == ()


@pytest.mark.parametrize("widening", ["MODIFY COLUMN id BIGINT", "MODIFY COLUMN v VARCHAR(40)"])
def test_by_policy_a_wider_type_stops_though_the_rows_of_its_window_are_all_older(
    mirror: Mirror, artifacts: Path, widening: str
) -> None:
    mirror.load(first(artifacts), ddl="stop")
    window = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, f"ALTER TABLE orders {widening}")
    with pytest.raises(PolicyStopError, match=r"holds more values, and policies.ddl is stop: change the column"):
        mirror.load(window.rows(V1, [put(110, id=2, v="b")]), ddl="stop")
    assert mirror.rows("SELECT v FROM shop.orders WHERE id = 2") == [("a",)]


def test_columns_that_differ_without_a_ddl_are_not_guessed(mirror: Mirror, artifacts: Path) -> None:
    wire = ColumnType("varchar")
    full = table("shop.orders", {"id": INT, "v": wire})
    lesser = table("shop.orders", {"id": INT})
    mirror.load(Changelog(artifacts, 0, 100).rows(full, [put(10, id=1, v="a")]).rows(lesser, [delete(20, id=2)]))
    assert mirror.rows("SELECT id, v FROM shop.orders") == [(1, "a")]
    with pytest.raises(PermanentError, match=r"rows of shop.orders lack v, .* no DDL explains it.*repin"):
        mirror.load(Changelog(artifacts, 100, 200).rows(full, [put(110, id=1)]).rows(lesser, [put(120, id=2)]))
    with pytest.raises(TargetMismatchError, match="column v is not in the rows of the window"):
        mirror.load(Changelog(artifacts, 200, 300).rows(lesser, [put(210, id=2)]))


def test_a_mirror_that_only_knew_deletes_learns_its_columns_later(mirror: Mirror, artifacts: Path) -> None:
    wire = table("shop.orders", {"id": INT})
    mirror.load(Changelog(artifacts, 100, 200).rows(wire, [delete(110, id=1)]))
    mirror.load(Changelog(artifacts, 200, 300).rows(V1, [put(210, id=2, v="x")]))
    assert mirror.rows("SELECT id, v FROM shop.orders") == [(2, "x")]


def test_a_key_that_changes_within_the_window_stops(mirror: Mirror, artifacts: Path) -> None:
    other = table("shop.orders", {"id": INT, "v": TEXT}, key=["v"], valid_from=150)
    window = Changelog(artifacts, 100, 200).rows(V1, [put(110, id=1, v="a")]).rows(other, [put(160, id=2, v="b")])
    with pytest.raises(TargetMismatchError, match="rows are identified by id and v"):
        mirror.load(window)
