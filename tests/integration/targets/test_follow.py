"""``mirror follow``: the mirror is as the upstream after the DDL, whatever broke on the way, and later windows go on.

The windows are [0, 100) before the DDL, [100, 151) with it at 150, its end, and [151, 300) after it.
"""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pymysql
import pymysql.cursors
import pytest

from tests.integration.targets.conftest import SERVERS
from tests.support.changelogs import Changelog, delete, put, table
from tests.support.dying_loads import Dying, FaultError
from tests.support.examples import counted
from tests.support.target_rigs import MirrorRig, MysqlRig, PostgresRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.targets.base import Followed, StoppingDdl

pytestmark = pytest.mark.integration

INT = ColumnType("int", declared=True)
SMALL = ColumnType("smallint", declared=True)
BIG = ColumnType("bigint", declared=True)
UNSIGNED = ColumnType("int", unsigned=True, declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
SHORT = ColumnType("varchar", length=5, declared=True)
PRICE = ColumnType("decimal", length=10, scale=4, declared=True)
CENTS = ColumnType("decimal", length=8, scale=2, declared=True)
BEFORE = {"id": INT, "v": TEXT, "u": INT, "p": PRICE}
CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(20), `u` INT NOT NULL, `p` DECIMAL(10,4))"
STOP = {"ddl": "stop", "tables": ("shop.*",)}
DDL_TS = 150
ROWS = [
    {"id": 1, "v": "a", "u": 11, "p": Decimal("1.5000")},
    {"id": 2, "v": "bcdef", "u": 12, "p": None},
    {"id": 3, "v": "c", "u": 13, "p": Decimal("-2.2500")},
]


class Case(NamedTuple):
    """A DDL of ``t``, what becomes of its columns, and of the cells of a row."""

    alter: str
    columns: Mapping[str, ColumnType]
    changed: Callable[[dict[str, Any]], dict[str, Any] | None] = dict
    key: str = "id"
    table: str = "shop.t"


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: {name: cell for name, cell in row.items() if name not in names}


def renamed(old: str, new: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: {new if name == old else name: cell for name, cell in row.items()}


CASES = {
    "added": Case(
        "ALTER TABLE t ADD COLUMN n INT NOT NULL DEFAULT 7", {**BEFORE, "n": INT}, lambda row: {**row, "n": 7}
    ),
    "widened": Case("ALTER TABLE t MODIFY u BIGINT", {**BEFORE, "u": BIG}),
    "dropped": Case("ALTER TABLE t DROP COLUMN v", without("v")(dict(BEFORE)), without("v")),
    "renamed": Case("ALTER TABLE t RENAME COLUMN v TO w", renamed("v", "w")(dict(BEFORE)), renamed("v", "w")),
    "several": Case(
        "ALTER TABLE t RENAME COLUMN v TO w, DROP COLUMN p, ADD COLUMN n INT DEFAULT 7, MODIFY u BIGINT",
        {"id": INT, "w": TEXT, "u": BIG, "n": INT},
        lambda row: {"id": row["id"], "w": row["v"], "u": row["u"], "n": 7},
    ),
    "renamed and wider": Case(
        "ALTER TABLE t CHANGE COLUMN u k BIGINT",
        {"id": INT, "v": TEXT, "k": BIG, "p": PRICE},
        renamed("u", "k"),
    ),
    "shorter text": Case("ALTER TABLE t MODIFY v VARCHAR(5)", {**BEFORE, "v": SHORT}),
    "smaller number": Case("ALTER TABLE t MODIFY u SMALLINT", {**BEFORE, "u": SMALL}),
    "unsigned": Case("ALTER TABLE t MODIFY u INT UNSIGNED", {**BEFORE, "u": UNSIGNED}),
    "fewer digits": Case("ALTER TABLE t MODIFY p DECIMAL(8,2)", {**BEFORE, "p": CENTS}),
    "truncated": Case("TRUNCATE TABLE t", BEFORE, lambda row: None),
    "renamed key": Case(
        "ALTER TABLE t RENAME COLUMN id TO k", renamed("id", "k")(dict(BEFORE)), renamed("id", "k"), "k"
    ),
    "another key": Case("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (u)", BEFORE, key="u"),
    "dropped key": Case(
        "ALTER TABLE t DROP PRIMARY KEY, DROP COLUMN id, ADD PRIMARY KEY (u)",
        without("id")(dict(BEFORE)),
        without("id"),
        "u",
    ),
    "renamed table": Case("RENAME TABLE t TO t2", BEFORE, table="shop.t2"),
    "renamed table and column": Case(
        "ALTER TABLE t DROP COLUMN v, RENAME TO t2", without("v")(dict(BEFORE)), without("v"), table="shop.t2"
    ),
}
NEEDS_KEY = ("another key", "dropped key")


class Feed(NamedTuple):
    """The windows of a case."""

    case: Case
    folder: Path

    def first(self) -> Changelog:
        rows = [put(10 + number, **row) for number, row in enumerate(ROWS[:2])]
        old = table("shop.t", BEFORE)
        return Changelog(self.folder, 0, 100).rows(old, [*rows, put(20, **{**ROWS[0], "id": 9}), delete(30, id=9)])

    def stopped(self) -> Changelog:
        window = Changelog(self.folder, 100, DDL_TS + 1)
        window.knows(definition_from_sql(TableName("shop", "t"), CREATE))
        window.ddl(DDL_TS, self.case.alter, table=self.case.table)
        return window.rows(table("shop.t", BEFORE), [put(DDL_TS, **ROWS[2])])

    def later(self) -> Changelog:
        schema = table(self.case.table, self.case.columns, [self.case.key], valid_from=DDL_TS)
        return Changelog(self.folder, DDL_TS + 1, 300).rows(schema, [put(210, **self.new)])

    @property
    def new(self) -> dict[str, Any]:
        cells = {"id": 5, "k": 5, "v": "e", "w": "e", "u": 15, "p": Decimal("3.00"), "n": 8}
        return {name: cells[name] for name in self.case.columns}

    def ddl(self, selection: Sequence[str] = ("shop.*",)) -> StoppingDdl:
        changes = self.stopped().write().changes
        return StoppingDdl(
            TableName("shop", "t"),
            DDL_TS,
            tuple(each for each in changes if each.commit_ts == DDL_TS),
            tuple(selection),
        )

    @property
    def upstream(self) -> list[dict[str, Any]]:
        changed = [self.case.changed(dict(row)) for row in ROWS]
        return [*(row for row in changed if row is not None), self.new]


def follow(mirror: MirrorRig, ddl: StoppingDdl) -> Followed:
    target = mirror.target(None)
    planned = target.how_to_follow("pipeline", ddl)
    done = target.follow("pipeline", ddl)
    assert done == planned
    return done


def stop(mirror: MirrorRig, feed: Feed) -> None:
    mirror.load(feed.first(), **STOP)
    with pytest.raises(PolicyStopError, match="end the window"):
        mirror.load(feed.stopped(), **STOP)


def shown(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return sorted(tuple(f"{name}={_plain(row[name])}" for name in sorted(row)) for row in rows)


def _plain(cell: Any) -> str:
    return str(float(cell)) if str(cell).replace(".", "").replace("-", "").isdigit() else str(cell)


def mirrored(mirror: MirrorRig, case: Case) -> list[tuple[str, ...]]:
    names = sorted(case.columns)
    found = mirror.rows(f"SELECT {', '.join(names)} FROM {case.table}")
    return shown([dict(zip(names, row, strict=True)) for row in found])


@pytest.fixture(params=["postgres", "mysql", "tidb"])
def make(request: pytest.FixtureRequest) -> Callable[[], MirrorRig]:
    """Makes empty mirrors of one kind."""
    if request.param == "postgres":
        make_database: Callable[[], str] = request.getfixturevalue("make_database")
        return lambda: PostgresRig(make_database())
    return partial(MysqlRig, request.getfixturevalue(SERVERS[request.param]))


@pytest.fixture
def mirror(make: Callable[[], MirrorRig]) -> MirrorRig:
    return make()


def skip_keys_of_tidb(request: pytest.FixtureRequest, name: str) -> None:
    if name in NEEDS_KEY and "tidb" in request.node.name:
        pytest.skip("TiDB can't change a key: a test of its own")


@pytest.mark.parametrize("name", CASES)
def test_a_followed_ddl_leaves_the_upstreams_table(
    request: pytest.FixtureRequest, mirror: MirrorRig, name: str, tmp_path: Path
) -> None:
    skip_keys_of_tidb(request, name)
    feed = Feed(CASES[name], tmp_path)
    stop(mirror, feed)
    assert follow(mirror, feed.ddl()).steps or name in ("shorter text", "smaller number", "fewer digits", "unsigned")
    assert follow(mirror, feed.ddl()).steps == ()
    for window in (feed.later(), feed.stopped(), feed.first(), feed.later()):
        mirror.load(window, **STOP)
    mirror.load(feed.first(), reload=True, **STOP)
    assert mirrored(mirror, feed.case) == shown(feed.upstream)
    if feed.case.table != "shop.t":
        assert not mirror.has_table("shop.t")


@pytest.mark.parametrize(
    "name",
    [
        "several",
        "renamed table and column",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("dropped key", "truncated")),
    ],
)
def test_it_can_be_killed_before_any_write_and_repeated(
    request: pytest.FixtureRequest, make: Callable[[], MirrorRig], name: str, tmp_path: Path
) -> None:
    """Some writes; at night all."""
    skip_keys_of_tidb(request, name)
    for number in counted(3):
        mirror, feed, dying = make(), Feed(CASES[name], tmp_path), Dying(number, after=False)
        stop(mirror, feed)
        with pytest.MonkeyPatch.context() as patch:
            watch_statements(patch, mirror, dying)
            with contextlib.suppress(FaultError):
                mirror.target(None).follow("pipeline", feed.ddl())
        if dying.struck:
            mirror.target(None).follow("pipeline", feed.ddl())
        for window in (feed.stopped(), feed.later()):
            mirror.load(window, **STOP)
        assert mirrored(mirror, feed.case) == shown(feed.upstream), f"killed before write {number}"
        if not dying.struck:
            break
    assert number > 3, "something was written"


def watch_statements(patch: pytest.MonkeyPatch, mirror: MirrorRig, dying: Dying) -> None:
    """Have each statement that writes be one of *dying*."""
    cursor = psycopg.Cursor if isinstance(mirror, PostgresRig) else pymysql.cursors.Cursor
    execute = cursor.execute

    def watched(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        text = query if isinstance(query, str) else query.as_string(None) if hasattr(query, "as_string") else str(query)
        if not WRITES.match(text):
            return execute(self, query, *args, **options)
        return dying.write(lambda: execute(self, query, *args, **options))

    patch.setattr(cursor, "execute", watched)


WRITES = re.compile(r"\s*(ALTER|RENAME|DROP|DELETE|INSERT|UPDATE|TRUNCATE)\b", re.IGNORECASE)


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        ("ALTER TABLE t MODIFY v VARCHAR(4)", "1 row does not fit the new type of the column v"),
        (
            "ALTER TABLE t MODIFY u TINYINT UNSIGNED, MODIFY p DECIMAL(10,1)",
            "1 row does not fit the new type of the column p",
        ),
        ("ALTER TABLE t MODIFY p DECIMAL(10,4) UNSIGNED", "1 row does not fit the new type of the column p"),
        ("ALTER TABLE t MODIFY u VARCHAR(20)", "only the upstream has its rows"),
        ("ALTER TABLE t ADD COLUMN n DATETIME DEFAULT CURRENT_TIMESTAMP", "only the upstream has its values"),
        ("ALTER TABLE t DROP PARTITION p0", "only the upstream has its rows"),
        ("ALTER TABLE t DROP PRIMARY KEY", "it has no key that is known now"),
    ],
)
def test_what_needs_the_upstream_is_refused_and_nothing_is_changed(
    mirror: MirrorRig, alter: str, why: str, tmp_path: Path
) -> None:
    feed = Feed(Case(alter, BEFORE), tmp_path)
    stop(mirror, feed)
    before = mirrored(mirror, feed.case)
    for refused in (mirror.target(None).how_to_follow, mirror.target(None).follow):
        with pytest.raises(PolicyStopError, match=why) as error:
            refused("pipeline", feed.ddl())
        assert "nothing was changed" in str(error.value)
        assert "rebuild its mirror" in str(error.value) or "take it out of `tables`" in str(error.value)
    assert mirrored(mirror, feed.case) == before
    assert mirror.target(None).floor_of(TableName("shop", "t")) == 0


def test_a_key_that_rows_repeat_is_refused(mirror: MirrorRig, tmp_path: Path) -> None:
    feed = Feed(CASES["another key"], tmp_path)
    stop(mirror, feed)
    mirror.execute("UPDATE shop.t SET u = 12 WHERE id = 1")
    with pytest.raises(
        PolicyStopError, match=r"0 have NULL in it, 2 have that of another row|can't give a table another"
    ):
        mirror.target(None).follow("pipeline", feed.ddl())


@pytest.mark.parametrize("repeated", [False, True])
def test_a_column_that_is_part_of_the_key_goes_only_if_the_rest_is_one(
    mirror: MirrorRig, tmp_path: Path, *, repeated: bool
) -> None:
    columns = {"id": INT, "b": INT}
    first = Changelog(tmp_path, 0, 100).rows(
        table("shop.t", columns, ("id", "b")), [put(10, id=1, b=1), put(11, id=1 if repeated else 2, b=2)]
    )
    window = Changelog(tmp_path, 100, DDL_TS + 1)
    window.knows(definition_from_sql(TableName("shop", "t"), "CREATE TABLE t (id INT, b INT, PRIMARY KEY (id, b))"))
    window.ddl(DDL_TS, "ALTER TABLE t DROP PRIMARY KEY, DROP COLUMN b, ADD PRIMARY KEY (id)", table="shop.t")
    mirror.load(first, **STOP)
    with pytest.raises(PolicyStopError, match="end the window"):
        mirror.load(window, **STOP)
    ddl = StoppingDdl(TableName("shop", "t"), DDL_TS, window.write().changes, ("shop.*",))
    if repeated:
        with pytest.raises(PolicyStopError, match="2 have that of another row"):
            mirror.target(None).follow("pipeline", ddl)
        return
    follow(mirror, ddl)
    mirror.load(window, **STOP)
    later = Changelog(tmp_path, DDL_TS + 1, 300).rows(table("shop.t", {"id": INT}, valid_from=DDL_TS), [put(210, id=3)])
    mirror.load(later, **STOP)
    assert mirror.rows("SELECT id FROM shop.t ORDER BY id") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("statement", ["DROP DATABASE shop", "TRUNCATE TABLE T"])
def test_a_statement_that_names_the_table_in_another_way_is_refused(
    mirror: MirrorRig, statement: str, tmp_path: Path
) -> None:
    mirror.load(Feed(CASES["dropped"], tmp_path).first(), **STOP)
    window = Changelog(tmp_path, 100, DDL_TS + 1).ddl(DDL_TS, statement, table="shop.T")
    changes = tuple(entry for entry in window.write().changes if entry.table != TableName("shop", "t"))
    ddl = StoppingDdl(TableName("shop", "t"), DDL_TS, changes, ("shop.*",))
    with pytest.raises(PolicyStopError, match="does not name the table as its mirror does"):
        mirror.target(None).follow("pipeline", ddl)
    assert mirror.target(None).floor_of(TableName("shop", "t")) == 0


def test_windows_from_after_the_ddl_that_came_first_are_in_the_way(mirror: MirrorRig, tmp_path: Path) -> None:
    feed = Feed(CASES["shorter text"], tmp_path)
    mirror.load(feed.first(), **STOP)
    mirror.load(feed.later(), **STOP)
    with pytest.raises(PolicyStopError, match="has rows from after the DDL"):
        mirror.target(None).follow("pipeline", feed.ddl())


def test_a_mirror_whose_new_name_is_outside_the_pipeline_goes(mirror: MirrorRig, tmp_path: Path) -> None:
    feed = Feed(CASES["renamed table"], tmp_path)
    stop(mirror, feed)
    assert [step.partition(" ")[0] for step in follow(mirror, feed.ddl(["shop.t"])).steps] == ["DROP"]
    assert not mirror.has_table("shop.t")
    mirror.load(feed.stopped(), **{**STOP, "tables": ("shop.t",)})
    mirror.load(feed.first(), **{**STOP, "tables": ("shop.t",)}, reload=True)


def test_tables_swap_their_names_where_ddl_is_part_of_a_transaction(mirror: MirrorRig, tmp_path: Path) -> None:
    columns = {"id": INT, "v": TEXT}
    tables = {name: table(f"shop.{name}", columns) for name in ("a", "b")}
    first = Changelog(tmp_path, 0, 100)
    for number, (name, schema) in enumerate(tables.items()):
        first.rows(schema, [put(10 + number, id=number, v=f"of {name}")])
    window = Changelog(tmp_path, 100, DDL_TS + 1)
    window.ddl(DDL_TS, "RENAME TABLE a TO c, b TO a, c TO b", table="shop.b")
    mirror.load(first, **STOP)
    with pytest.raises(PolicyStopError, match="end the window"):
        mirror.load(window, **STOP)
    ddl = StoppingDdl(TableName("shop", "a"), DDL_TS, window.write().changes, ("shop.*",))
    if isinstance(mirror, MysqlRig):
        with pytest.raises(PolicyStopError, match="names go round"):
            mirror.target(None).follow("pipeline", ddl)
        return
    follow(mirror, ddl)
    assert mirror.rows("SELECT v FROM shop.a") == [("of b",)]
    assert mirror.rows("SELECT v FROM shop.b") == [("of a",)]
    mirror.load(window, **STOP)


def test_a_new_table_takes_the_name_of_one_that_goes(mirror: MirrorRig, tmp_path: Path) -> None:
    columns = {"id": INT, "v": TEXT}
    first = Changelog(tmp_path, 0, 100)
    for number, name in enumerate(("t", "t_new")):
        first.rows(table(f"shop.{name}", columns), [put(10 + number, id=number, v=f"of {name}")])
    window = Changelog(tmp_path, 100, DDL_TS + 1).ddl(DDL_TS, "RENAME TABLE t TO t_old, t_new TO t", table="shop.t")
    mirror.load(first, **STOP)
    with pytest.raises(PolicyStopError, match="end the window"):
        mirror.load(window, **STOP)
    ddl = StoppingDdl(TableName("shop", "t"), DDL_TS, window.write().changes, ("shop.t", "shop.t_new"))
    if isinstance(mirror, MysqlRig):
        with pytest.raises(PolicyStopError, match="names go round"):
            mirror.target(None).follow("pipeline", ddl)
        return
    follow(mirror, ddl)
    assert mirror.rows("SELECT v FROM shop.t") == [("of t_new",)]
    assert not mirror.has_table("shop.t_new")
