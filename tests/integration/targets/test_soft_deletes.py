"""Mirrors whose deleted rows stay (``deletes: soft``), in every kind of target."""

import itertools
from datetime import date
from pathlib import Path

import pytest

from tests.integration.targets.conftest import SERVERS, Mirror
from tests.integration.targets.test_follow import DDL_TS, follow
from tests.support.changelogs import Changelog, Row, base, delete, put, table
from tests.support.target_rigs import LakeRig, MirrorRig, MysqlRig, PostgresRig
from ticdc_replay.changelog.cells.written import written_cell
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PolicyStopError, TargetMismatchError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.targets.base import FoundRow, StoppingDdl

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
CREATED = definition_from_sql(
    TableName("shop", "orders"), "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20))"
)
ROWS = "SELECT id, v, _commit_ts, _is_deleted FROM shop.orders ORDER BY id"


def whole_delete(commit_ts: int, **cells: object) -> Row:
    """A delete whose event has the whole row."""
    return Row("delete", commit_ts, cells)


@pytest.fixture
def soft(any_mirror: MirrorRig) -> MirrorRig:
    """An empty mirror of each kind, whose deleted rows stay."""
    any_mirror.section["deletes"] = "soft"
    return any_mirror


@pytest.fixture(params=["postgres", *SERVERS])
def database(request: pytest.FixtureRequest) -> MirrorRig:
    """The same of each kind of database."""
    if request.param == "postgres":
        rig: MirrorRig = PostgresRig(request.getfixturevalue("make_database")())
    else:
        rig = MysqlRig(request.getfixturevalue(SERVERS[request.param]))
    rig.section["deletes"] = "soft"
    return rig


WINDOWS: list[tuple[int, int, list[Row]]] = [
    (0, 100, [put(10, id=1, v="a"), put(11, id=2, v="a"), put(12, id=3, v="a")]),
    (100, 200, [put(110, id=1, v="b"), whole_delete(111, id=2, v="a"), delete(112, id=3)]),
    (200, 300, [whole_delete(210, id=1, v="b"), put(211, id=2, v="c"), whole_delete(212, id=5, v="x")]),
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_a_softly_deleted_row_stays_with_what_its_event_has_of_it(
    soft: MirrorRig, artifacts: Path, order: tuple[int, ...]
) -> None:
    applied = 0
    for number in order:
        from_ts, to_ts, rows = WINDOWS[number]
        report = soft.load_table(Changelog(artifacts, from_ts, to_ts).rows(ORDERS, rows))
        assert report.keys == report.upserted + report.tombstones + report.superseded == 3
        assert report.deleted == 0
        applied += report.upserted + report.tombstones
    expected = [(1, "b", 210, True), (2, "c", 211, False), (3, None, 112, True), (5, "x", 212, True)]
    assert soft.rows(ROWS) == expected
    assert applied >= len(expected)
    for from_ts, to_ts, rows in WINDOWS:
        soft.load(Changelog(artifacts, from_ts, to_ts).rows(ORDERS, rows), reload=True)
    assert soft.rows(ROWS) == expected


def test_of_a_delete_and_a_put_at_one_commit_ts_the_put_stays(soft: MirrorRig, artifacts: Path) -> None:
    soft.load(Changelog(artifacts, 0, 100, run="first").rows(ORDERS, [put(50, id=1, v="moved"), put(51, id=2, v="x")]))
    deletes = [delete(50, id=1), whole_delete(50, id=2, v="older")]
    report = soft.load_table(Changelog(artifacts, 0, 100, run="second").rows(ORDERS, deletes))
    assert (report.tombstones, report.superseded) == (0, 2)
    soft.load(Changelog(artifacts, 0, 100, run="third").rows(ORDERS, [put(50, id=1, v="again")]))
    assert soft.rows(ROWS) == [(1, "again", 50, False), (2, "x", 51, False)]


def test_a_reload_repairs_what_a_deleted_row_shows(soft: MirrorRig, artifacts: Path) -> None:
    soft.load(Changelog(artifacts, 0, 100).rows(ORDERS, [whole_delete(50, id=1, v="x")]))
    soft.execute("UPDATE shop.orders SET v = 'spoilt'")
    report = soft.load_table(Changelog(artifacts, 0, 100).rows(ORDERS, [whole_delete(50, id=1, v="x")]), reload=True)
    assert (report.tombstones, report.superseded) == (1, 0)
    assert soft.rows(ROWS) == [(1, "x", 50, True)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
def test_a_base_is_continued(soft: MirrorRig, artifacts: Path, order: tuple[int, ...]) -> None:
    dump = [put(100, op="upsert", id=number, v="dump") for number in (1, 2)]
    soft.load(base(artifacts, 100).rows(ORDERS, dump))
    windows = [
        Changelog(artifacts, 50, 150).rows(ORDERS, [delete(60, id=9), whole_delete(110, id=1, v="dump")]),
        Changelog(artifacts, 150, 200).rows(ORDERS, [delete(160, id=2)]),
    ]
    for number in order:
        soft.load(windows[number])
    assert soft.rows(ROWS) == [(1, "dump", 110, True), (2, None, 160, True)], "nothing from below the floor"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=str)
@pytest.mark.parametrize("query", ["TRUNCATE TABLE orders", "DROP TABLE orders"])
def test_what_empties_the_table_takes_deleted_rows_too(
    database: MirrorRig, artifacts: Path, order: tuple[int, ...], query: str
) -> None:
    emptied = Changelog(artifacts, 100, 200).knows(CREATED).ddl(150, query)
    if query.startswith("DROP"):
        emptied = emptied.ddl(160, "CREATE TABLE orders (id BIGINT PRIMARY KEY, v VARCHAR(20))")
    windows = [
        Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="a"), delete(11, id=2), delete(12, id=4)]),
        emptied.rows(ORDERS, [put(170, id=2, v="new")]),
        Changelog(artifacts, 200, 300).rows(ORDERS, [delete(210, id=3)]),
    ]
    for number in order:
        database.load(windows[number], drop="apply")
    assert database.rows(ROWS) == [(2, "new", 170, False), (3, None, 210, True)]


def test_rows_with_no_other_memory_of_deletes(database: MirrorRig, artifacts: Path) -> None:
    database.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="a"), delete(11, id=2)]))
    names = database.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = '_ticdc_replay'")
    assert not [name for (name,) in names if name.startswith("tombstones_")]
    nullable = database.rows(
        "SELECT is_nullable FROM information_schema.columns WHERE table_schema = 'shop' AND column_name = '_is_deleted'"
    )
    assert nullable == [("NO",)]


def find(rig: MirrorRig, number: int) -> FoundRow:
    key = {"id": written_cell(str(number), INT, "UTC")}
    return rig.target(None).find_row("pipeline", ORDERS.name, key)


def test_a_deleted_row_is_found_as_such(database: MirrorRig, artifacts: Path) -> None:
    database.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="a"), whole_delete(11, id=2, v="b")]))
    assert find(database, 1) == FoundRow(where='"shop"."orders"', version=10)
    assert find(database, 2) == FoundRow(where='"shop"."orders"', version=11, is_deleted=True)
    assert find(database, 3) == FoundRow(where='"shop"."orders"')


FIRST = [put(10, id=1, v="a")]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"deletes": "hard"}, {}, r"made with `deletes: hard`, and the target has `deletes: soft` with.*_is_deleted"),
        (
            {},
            {"deletes": "hard"},
            r"made with `deletes: soft` with `deleted_column: _is_deleted`, and .*`deletes: hard`",
        ),
        ({}, {"deleted_column": "gone"}, r"`deleted_column: _is_deleted`, and .*`deleted_column: gone`"),
    ],
    ids=["hard to soft", "soft to hard", "another column"],
)
def test_a_mirror_stays_as_it_was_made(
    database: MirrorRig, artifacts: Path, before: dict[str, object], after: dict[str, object], words: str
) -> None:
    database.load(Changelog(artifacts, 0, 100).rows(ORDERS, FIRST), before)
    later = Changelog(artifacts, 100, 200).rows(ORDERS, [delete(110, id=1)])
    with pytest.raises(TargetMismatchError, match=rf"{words}.*mirror rebuild <pipeline> shop.orders.*mirror forget"):
        database.load(later, after)
    database.execute("DROP TABLE shop.orders")
    database.forget("shop.orders")
    for window in (Changelog(artifacts, 0, 100).rows(ORDERS, FIRST), later):
        database.load(window, after)
    marker = {**database.section, **after}.get("deleted_column", "_is_deleted")
    expected = [] if after == {"deletes": "hard"} else [(1, True)]
    assert database.rows(f"SELECT id, {marker if expected else 'v'} FROM shop.orders") == expected


@pytest.mark.parametrize("name", ["_is_deleted", "_IS_DELETED"])
def test_a_column_of_the_upstream_with_the_name_of_the_mark_is_refused(
    database: MirrorRig, artifacts: Path, name: str
) -> None:
    rows = table("shop.orders", {"id": INT, name: INT})
    window = Changelog(artifacts, 0, 100).rows(rows, [put(10, id=1, **{name: 5})])
    with pytest.raises(TargetMismatchError, match=rf"upstream has a column {name}: set `deleted_column`"):
        database.load(window)
    database.load(window, {"deleted_column": "gone"})
    assert database.rows(f'SELECT "{name}", gone FROM shop.orders') == [(5, False)]
    create = f"CREATE TABLE orders (id BIGINT PRIMARY KEY, `{name}` BIGINT)"
    known = definition_from_sql(TableName("shop", "orders"), create)
    added = Changelog(artifacts, 100, 200).ddl(150, "ALTER TABLE orders ADD COLUMN gone INT")
    with pytest.raises(TargetMismatchError, match="upstream has a column gone: set `deleted_column`"):
        database.load(added.knows(known), {"deleted_column": "gone"})


def test_a_table_that_a_person_has_filled_has_the_mark(database: MirrorRig, artifacts: Path) -> None:
    numbers = table("shop.orders", {"id": INT, "v": INT})
    window = Changelog(artifacts, 0, 100).rows(numbers, [put(40, id=1, v=1), delete(60, id=3)])
    database.execute("CREATE SCHEMA shop")
    database.execute("CREATE TABLE shop.orders (id bigint PRIMARY KEY, v bigint, _commit_ts bigint NOT NULL)")
    database.execute("INSERT INTO shop.orders VALUES (1, 5, 50), (3, 5, 50)")
    database.raise_floor("shop.orders", 50)
    with pytest.raises(TargetMismatchError, match="column _is_deleted is missing; boolean NOT NULL is needed"):
        database.load(window)
    database.execute("ALTER TABLE shop.orders ADD COLUMN _is_deleted boolean NOT NULL DEFAULT false")
    database.load(window)
    assert database.rows(ROWS) == [(1, 5, 50, False), (3, None, 60, True)]


def test_a_deleted_row_shows_what_shape_leaves_of_it(database: MirrorRig, artifacts: Path) -> None:
    shape = {"tables": ["shop.orders"], "mask": {"v": {"fixed": "***"}}, "rename": {"v": "w"}}
    rows = [put(10, id=1, v="planted"), whole_delete(20, id=2, v="planted"), delete(30, id=3)]
    database.load(Changelog(artifacts, 0, 100).rows(ORDERS, rows), {"shape": [shape]})
    found = database.rows("SELECT id, w, _is_deleted FROM shop.orders ORDER BY id")
    assert found == [(1, "***", False), (2, "***", True), (3, None, True)]
    taken = {"tables": ["shop.lines"], "rename": {"v": "_is_deleted"}}
    lines = Changelog(artifacts, 0, 100, run="lines").rows(table("shop.lines", {"id": INT, "v": TEXT}), rows)
    with pytest.raises(TargetMismatchError, match="upstream has a column _is_deleted: set `deleted_column`"):
        database.load(lines, {"shape": [taken]})


def test_rows_that_nobody_has_loaded_are_not_replaced(database: MirrorRig, artifacts: Path) -> None:
    database.load(Changelog(artifacts, 0, 100).rows(ORDERS, FIRST))
    database.execute("UPDATE shop.orders SET _commit_ts = 500")
    window = Changelog(artifacts, 100, 200).rows(ORDERS, [delete(110, id=1)])
    with pytest.raises(TargetMismatchError, match="newer than every window that was loaded into it"):
        database.load(window)
    database.load(window, reload=True)
    assert database.rows(ROWS) == [(1, "a", 500, False)]


def test_rows_by_place_are_ordered_in_their_partition(database: MirrorRig, artifacts: Path) -> None:
    later = Changelog(artifacts, 100, 200, order="place").rows(ORDERS, [put(20, id=1, v="b"), delete(21, id=2)])
    database.load(later)
    older = Changelog(artifacts, 0, 100, order="place").rows(ORDERS, [put(10, id=1, v="a"), put(11, id=2, v="a")])
    report = database.load_table(older)
    assert (report.upserted, report.superseded) == (0, 2)
    rows = "SELECT id, v, _place, _is_deleted FROM shop.orders ORDER BY id"
    assert database.rows(rows) == [(1, "b", 21, False), (2, None, 22, True)]
    gone = Changelog(artifacts, 300, 400, order="place")
    gone.rows(ORDERS, [put(40, id=2, v="c")._replace(partition=1)])
    with pytest.raises(TargetMismatchError, match=r"was in partition 0, and is in partition 1 now"):
        database.load(gone)


def test_deleted_rows_follow_columns(database: MirrorRig, artifacts: Path) -> None:
    wider = table("shop.orders", {"id": INT, "v": TEXT, "n": INT}, valid_from=150)
    windows = [
        Changelog(artifacts, 0, 100).rows(ORDERS, [whole_delete(10, id=1, v="a"), delete(11, id=2)]),
        Changelog(artifacts, 100, 200)
        .knows(CREATED)
        .ddl(150, "ALTER TABLE orders ADD COLUMN n BIGINT NOT NULL DEFAULT 7")
        .rows(wider, [whole_delete(160, id=3, v="c", n=8), delete(161, id=4)]),
    ]
    for number in (1, 0):
        database.load(windows[number])
    rows = "SELECT id, v, n, _is_deleted FROM shop.orders ORDER BY id"
    assert database.rows(rows) == [(1, "a", 7, True), (2, None, 7, True), (3, "c", 8, True), (4, None, None, True)]


def followed(database: MirrorRig, artifacts: Path, query: str) -> None:
    window = Changelog(artifacts, 100, DDL_TS + 1).knows(CREATED).ddl(DDL_TS, query)
    with pytest.raises(PolicyStopError):
        database.load(window, tables=("shop.*",))
    changes = tuple(each for each in window.write().changes if each.commit_ts == DDL_TS)
    follow(database, StoppingDdl(TableName("shop", "orders"), DDL_TS, changes, ("shop.*",)))


def test_rows_that_are_deleted_may_keep_what_a_narrower_type_lacks(soft: MirrorRig, artifacts: Path) -> None:
    soft.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="abc"), whole_delete(11, id=2, v="abcdef")]))
    followed(soft, artifacts, "ALTER TABLE orders MODIFY v VARCHAR(5)")
    assert soft.rows(ROWS) == [(1, "abc", 10, False), (2, "abcdef", 11, True)]


def test_deleted_rows_are_in_a_table_that_gets_another_name(database: MirrorRig, artifacts: Path) -> None:
    database.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="a"), whole_delete(11, id=2, v="b")]))
    followed(database, artifacts, "RENAME TABLE orders TO sold")
    sold = table("shop.sold", {"id": INT, "v": TEXT}, valid_from=DDL_TS)
    database.load(Changelog(artifacts, 200, 300).rows(sold, [delete(210, id=1), put(211, id=2, v="c")]))
    found = database.rows("SELECT id, v, _is_deleted FROM shop.sold ORDER BY id")
    assert found == [(1, None, True), (2, "c", False)]
    with pytest.raises(TargetMismatchError, match=r"made with `deletes: soft`"):
        database.load(Changelog(artifacts, 300, 400).rows(sold, [delete(310, id=2)]), {"deletes": "hard"})


def test_a_deleted_row_goes_with_a_key_that_it_lacks_or_the_key_is_not_followed(
    request: pytest.FixtureRequest, soft: MirrorRig, artifacts: Path
) -> None:
    soft.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="a"), delete(11, id=2)]))
    query = "ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (v)"
    if isinstance(soft, LakeRig) or "tidb" in request.node.name:
        with pytest.raises(PolicyStopError, match=r"1 have NULL in it|can't give a table another primary key"):
            followed(soft, artifacts, query)
    else:
        followed(soft, artifacts, query)
        assert soft.rows("SELECT id FROM shop.orders") == [(1,)]


def test_a_column_with_the_name_of_the_mark_is_not_followed(soft: MirrorRig, artifacts: Path) -> None:
    soft.load(Changelog(artifacts, 0, 100).rows(ORDERS, FIRST))
    window = Changelog(artifacts, 100, DDL_TS + 1).knows(CREATED)
    window.ddl(DDL_TS, "ALTER TABLE orders ADD COLUMN _is_deleted INT")
    ddl = StoppingDdl(TableName("shop", "orders"), DDL_TS, window.write().changes, ("shop.*",))
    with pytest.raises(PolicyStopError, match=r"marks deleted rows in the column _is_deleted.*mirror rebuild"):
        follow(soft, ddl)


def test_parts_that_are_committed_one_by_one(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    mysql_mirror.section |= {"deletes": "soft", "rows_per_commit": 1000}
    first = [put(10, id=number, v="a") for number in range(2_500)]
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, first))
    later = [delete(110, id=number) if number % 2 else put(110, id=number, v="b") for number in range(1, 3_001)]
    report = mysql_mirror.load_table(Changelog(artifacts, 100, 200).rows(ORDERS, later))
    assert (report.upserted, report.tombstones, report.superseded) == (1500, 1500, 0)
    report = mysql_mirror.load_table(Changelog(artifacts, 0, 100).rows(ORDERS, first), reload=True)
    assert (report.upserted, report.superseded) == (1, 2499)
    counts = "SELECT _is_deleted, count(*) FROM shop.orders GROUP BY 1 ORDER BY 1"
    assert mysql_mirror.rows(counts) == [(0, 1501), (1, 1500)]


def test_a_deleted_row_shows_a_date_that_no_calendar_has(mysql_mirror: MysqlRig, artifacts: Path) -> None:
    mysql_mirror.section["deletes"] = "soft"
    dates = table(
        "shop.orders", {"id": INT, "d": ColumnType("date", declared=True), "e": ColumnType("date", declared=True)}
    )
    gone = Row("delete", 10, {"id": 1, "d": None, "e": date(2026, 3, 1)}, {"d": b"0000-00-00"})
    mysql_mirror.load(Changelog(artifacts, 0, 100).rows(dates, [gone]))
    shown = "SELECT CAST(d AS CHAR), CAST(e AS CHAR), _is_deleted FROM shop.orders"
    assert mysql_mirror.rows(shown) == [("0000-00-00", "2026-03-01", 1)]


WIDE = table("shop.orders", {"id": INT, **{f"n{at}": ColumnType("bigint", declared=True) for at in range(1_100)}})


@pytest.mark.parametrize("in_order", [True, False])
def test_a_deleted_row_without_room_is_set_aside(mirror: Mirror, artifacts: Path, in_order: bool) -> None:
    mirror.section["deletes"] = "soft"
    cells = {f"n{at}": 2**60 for at in range(1_100)}
    rows = [put(20, id=1), whole_delete(21, id=2, **cells), delete(22, id=3)]
    if not in_order:
        mirror.load(Changelog(artifacts, 100, 200).rows(WIDE, [put(120, id=4)]))
    report = mirror.load_table(Changelog(artifacts, 0, 100).rows(WIDE, rows), target_value="quarantine")
    assert (report.quarantined, report.upserted, report.tombstones) == (1, 1, 1)
    found = mirror.rows("SELECT id, _is_deleted FROM shop.orders WHERE id < 4 ORDER BY id")
    assert found == [(1, False), (3, True)]
