"""``mirror follow``: the mirror is as the upstream after the DDL, whatever broke on the way, and later windows go on.

The windows are [0, 100) before the DDL, [100, 151) with it at 150, its end, and [151, 300) after it.
"""

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pymysql
import pymysql.cursors
import pytest
from pyspark.sql import SparkSession

from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.deaths import die_at_statements
from tests.support.dying_loads import LAST_LOOK, Dying, FaultError, Stalling
from tests.support.target_rigs import LakeRig, MirrorRig, MysqlRig, PostgresRig
from ticdc_replay.domain.column_types import BaseType, ColumnType
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import PolicyStopError, SupersededError, TargetMismatchError, TransientError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.targets.base import Followed, StoppingDdl
from ticdc_replay.targets.database_ddl import ddl_of
from ticdc_replay.targets.lake.following import FollowingLakeSession
from ticdc_replay.targets.lake.mirror import LakeMirror
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.mysql.session import MysqlSession
from ticdc_replay.targets.postgres.session import PostgresSession

pytestmark = pytest.mark.integration

DAY = datetime(2024, 5, 6, 7, 8, 9)
DOUBLE = ColumnType("double", declared=True)
FLOAT = ColumnType("float", declared=True)
POSITIVE = ColumnType("float", unsigned=True, declared=True)
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


def moment(digits: int) -> ColumnType:
    return ColumnType("datetime", scale=digits, declared=True)


def span(digits: int) -> ColumnType:
    return ColumnType("time", scale=digits, declared=True)


def names(base: BaseType, *elements: str) -> ColumnType:
    return ColumnType(base, elements=elements, declared=True)


class Case(NamedTuple):
    """A DDL of ``t``, what becomes of its columns, and of the cells of a row."""

    alter: str
    columns: Mapping[str, ColumnType]
    changed: Callable[[dict[str, Any]], dict[str, Any] | None] = dict
    key: str = "id"
    table: str = "shop.t"
    before: Mapping[str, ColumnType] = BEFORE
    create: str = CREATE
    rows: Sequence[dict[str, Any]] = ROWS


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: {name: cell for name, cell in row.items() if name not in names}


def renamed(old: str, new: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: {new if name == old else name: cell for name, cell in row.items()}


def typed(name: str, before: ColumnType, after: ColumnType, values: Sequence[object], new: str | None = None) -> Case:
    """A change of the type of the column *name*, with a value for each of three rows; *new* is its name after it."""
    columns, to = {"id": INT, name: before}, new or name
    change = f"CHANGE COLUMN `{name}` `{new}`" if new else f"MODIFY COLUMN `{name}`"
    shown_type = (
        str(before).upper().replace("\\", "\\\\")
    )  # TiCDC restores DDL without escapes, SHOW CREATE TABLE has them
    return Case(
        f"ALTER TABLE `t` {change} {str(after).upper()}",
        {"id": INT, to: after},
        renamed(name, to),
        before=columns,
        create=f"CREATE TABLE `t` (`id` INT PRIMARY KEY, `{name}` {shown_type})",
        rows=[{"id": number, name: value} for number, value in enumerate(values, 1)],
    )


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
NARROWED = {
    "fewer fractions": typed("m", moment(6), moment(3), [DAY, DAY.replace(microsecond=120000), None]),
    "no fractions": typed("m", moment(6), moment(0), [DAY, DAY.replace(second=59), None]),
    "fewer fractions of a time": typed("m", span(6), span(2), [-1_500_000, 120_000, None]),
    "float": typed("f", DOUBLE, FLOAT, [1.5, -16777216.0, None]),
    "renamed and a float": typed("f", DOUBLE, FLOAT, [1.5, -16777216.0, None], "g"),
    "unsigned float": typed("f", FLOAT, POSITIVE, [1.5, 0.0, None]),
    "fewer names": typed("e", names("enum", "A", "B'\\", "C"), names("enum", "B'\\", "N", "A"), ["A", "B'\\", None]),
    "fewer members": typed("s", names("set", "A", "B", "C"), names("set", "A", "C"), ["", "A,C", None]),
}
CASES |= NARROWED
KEEP_THEIR_TYPE = ("shorter text", "smaller number", "fewer digits", "unsigned", *NARROWED)
NEEDS_KEY = ("another key", "dropped key")


class Feed(NamedTuple):
    """The windows of a case."""

    case: Case
    folder: Path

    def first(self) -> Changelog:
        own = self.case.rows
        rows = [put(10 + number, **row) for number, row in enumerate(own[:2])]
        old = table("shop.t", self.case.before)
        return Changelog(self.folder, 0, 100).rows(old, [*rows, put(20, **{**own[0], "id": 9}), delete(30, id=9)])

    def stopped(self) -> Changelog:
        window = Changelog(self.folder, 100, DDL_TS + 1)
        window.knows(definition_from_sql(TableName("shop", "t"), self.case.create))
        window.ddl(DDL_TS, self.case.alter, table=self.case.table)
        return window.rows(table("shop.t", self.case.before), [put(DDL_TS, **self.case.rows[2])])

    def later(self) -> Changelog:
        schema = table(self.case.table, self.case.columns, [self.case.key], valid_from=DDL_TS)
        return Changelog(self.folder, DDL_TS + 1, 300).rows(schema, [put(210, **self.new)])

    @property
    def new(self) -> dict[str, Any]:
        cells = {"id": 5, "k": 5, "v": "e", "w": "e", "u": 15, "p": Decimal("3.00"), "n": 8}
        cells |= {"m": 2_500_000 if self.case.columns.get("m", INT).base == "time" else DAY, "f": 0.25, "g": 0.25}
        cells |= {"e": "A", "s": "C"}
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
        changed = [self.case.changed(dict(row)) for row in self.case.rows]
        return [*(row for row in changed if row is not None), self.new]


def follow(mirror: MirrorRig, ddl: StoppingDdl) -> Followed:
    target = mirror.changeable()
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
    if isinstance(cell, timedelta):
        return str(float(cell // timedelta(microseconds=1)))
    return str(float(cell)) if str(cell).replace(".", "").replace("-", "").isdigit() else str(cell)


def mirrored(mirror: MirrorRig, case: Case) -> list[tuple[str, ...]]:
    names = sorted(case.columns)
    found = mirror.rows(f"SELECT {', '.join(names)} FROM {case.table}")
    return shown([dict(zip(names, row, strict=True)) for row in found])


@pytest.fixture
def make(make_mirror: Callable[[], MirrorRig]) -> Callable[[], MirrorRig]:
    """Makes empty mirrors of one kind, whose tables can be renamed."""

    def made() -> MirrorRig:
        mirror = make_mirror()
        if isinstance(mirror, LakeRig):
            mirror.use_catalog_with_views()
        return mirror

    return made


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
    assert follow(mirror, feed.ddl()).steps or name in KEEP_THEIR_TYPE
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
    skip_keys_of_tidb(request, name)

    def attempt(number: int) -> int:
        mirror, feed, dying = make(), Feed(CASES[name], tmp_path), Dying(number, after=False)
        stop(mirror, feed)
        with pytest.MonkeyPatch.context() as patch:
            watch_statements(patch, mirror, dying)
            with contextlib.suppress(FaultError):
                mirror.changeable().follow("pipeline", feed.ddl())
        if dying.struck:
            mirror.changeable().follow("pipeline", feed.ddl())
        for window in (feed.stopped(), feed.later()):
            mirror.load(window, **STOP)
        assert mirrored(mirror, feed.case) == shown(feed.upstream)
        return dying.seen

    assert die_at_statements(attempt) > 1, "something was written"


def watch_statements(patch: pytest.MonkeyPatch, mirror: MirrorRig, dying: Dying) -> None:
    """Have each statement that writes be one of *dying*."""
    if isinstance(mirror, LakeRig):
        dying.patched(patch)
        return
    cursor = psycopg.Cursor if isinstance(mirror, PostgresRig) else pymysql.cursors.Cursor
    execute = cursor.execute

    def watched(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        text = query if isinstance(query, str) else query.as_string(None) if hasattr(query, "as_string") else str(query)
        if not WRITES.match(text):
            return execute(self, query, *args, **options)
        return dying.write(lambda: execute(self, query, *args, **options))

    patch.setattr(cursor, "execute", watched)


WRITES = re.compile(r"\s*(ALTER|CREATE|RENAME|DROP|DELETE|INSERT|UPDATE|TRUNCATE)\b", re.IGNORECASE)


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
    for refused in (mirror.changeable().how_to_follow, mirror.changeable().follow):
        with pytest.raises(PolicyStopError, match=why) as error:
            refused("pipeline", feed.ddl())
        assert "nothing was changed" in str(error.value)
        assert "rebuild its mirror" in str(error.value) or "take it out of `tables`" in str(error.value)
    assert mirrored(mirror, feed.case) == before
    assert mirror.target(None).floor_of(TableName("shop", "t")) == 0


@pytest.mark.parametrize(
    ("kind", "alter", "why"),
    [
        ("iceberg", "RENAME TABLE t TO t2", "of type hadoop, can't rename a table"),
        ("iceberg", "ALTER TABLE t DROP COLUMN v, MODIFY u BIGINT UNSIGNED", r"change it from int to decimal\(20,0\)"),
        ("delta", "RENAME TABLE t TO t2", "a table below a path can't be renamed"),
    ],
)
def test_what_a_lake_can_not_change_is_refused_and_nothing_is_changed(
    lake_spark: SparkSession, tmp_path: Path, kind: str, alter: str, why: str
) -> None:
    lake = LakeRig(kind, lake_spark, tmp_path)
    feed = Feed(Case(alter, BEFORE), tmp_path)
    stop(lake, feed)
    with pytest.raises(PolicyStopError, match=why) as error:
        lake.changeable().follow("pipeline", feed.ddl())
    assert "nothing was changed" in str(error.value)
    assert ("mirror rebuild <pipeline> shop.t2 --dump-base" if "t2" in alter else "rebuild its mirror") in str(
        error.value
    )
    assert mirrored(lake, feed.case) == shown(ROWS)


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize("value", ["9" * 38, "-1"])
def test_a_decimal_of_a_lake_is_narrowed_to_as_many_digits_as_it_has(
    lake_spark: SparkSession, tmp_path: Path, kind: str, value: str
) -> None:
    """The upstream's ``DECIMAL(38, 0) UNSIGNED``: a literal of 39 digits is none of Spark's."""
    lake = LakeRig(kind, lake_spark, tmp_path)
    wide, unsigned = (ColumnType("decimal", length=38, scale=0, unsigned=flag, declared=True) for flag in (False, True))
    feed = Feed(typed("p", wide, unsigned, [Decimal(value), Decimal(0), None]), tmp_path)
    stop(lake, feed)
    if value == "-1":
        with pytest.raises(PolicyStopError, match="1 row does not fit the new type of the column p"):
            follow(lake, feed.ddl())
        return
    follow(lake, feed.ddl())
    assert lake.rows("SELECT p FROM shop.t ORDER BY id") == [(Decimal(value),), (Decimal(0),), (None,)]


def test_a_key_that_rows_repeat_is_refused(mirror: MirrorRig, tmp_path: Path) -> None:
    feed = Feed(CASES["another key"], tmp_path)
    stop(mirror, feed)
    mirror.execute("UPDATE shop.t SET u = 12 WHERE id = 1")
    with pytest.raises(
        PolicyStopError, match=r"0 have NULL in it, 2 have that of another row|can't give a table another"
    ):
        mirror.changeable().follow("pipeline", feed.ddl())


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
            mirror.changeable().follow("pipeline", ddl)
        return
    follow(mirror, ddl)
    mirror.load(window, **STOP)
    later = Changelog(tmp_path, DDL_TS + 1, 300).rows(table("shop.t", {"id": INT}, valid_from=DDL_TS), [put(210, id=3)])
    mirror.load(later, **STOP)
    assert mirror.rows("SELECT id FROM shop.t ORDER BY id") == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("statement", "event"),
    [("DROP DATABASE shop", "shop"), ("TRUNCATE TABLE T", "shop.T"), ("DROP TABLE T", "shop.T")],
)
def test_a_statement_that_names_the_table_in_another_way_is_followed(
    request: pytest.FixtureRequest, mirror: MirrorRig, statement: str, event: str, tmp_path: Path
) -> None:
    """One that drops its database, or spells the name in another letter case. A database that takes both spellings for one name
    refuses that, and a person takes the new one over."""
    stop_all = {"tables": ("shop.*",), "ddl": "stop"}
    feed = Feed(CASES["dropped"], tmp_path)
    mirror.load(feed.first(), **stop_all)
    window = Changelog(tmp_path, 100, DDL_TS + 1).ddl(DDL_TS, statement, table=event)
    window.rows(table("shop.t", BEFORE), [put(DDL_TS, **ROWS[2])])
    if event == "shop.T" and any(kind in request.node.name for kind in ("tidb", "delta")):
        with pytest.raises(
            TargetMismatchError, match=r"one name.* drop the mirror, run `.* forget <pipeline> shop\.t`"
        ):
            mirror.load(window, **stop_all)
        mirror.execute("DROP TABLE shop.t")
        mirror.forget("shop.t")
        mirror.load(
            Changelog(tmp_path, DDL_TS + 1, 300).rows(table("shop.T", BEFORE), [put(210, **ROWS[1])]), **stop_all
        )
        assert mirror.rows("SELECT id FROM shop.t") == [(2,)]
        return
    with pytest.raises(PolicyStopError, match="end the window"):
        mirror.load(window, **stop_all)
    own = TableName("shop", "t")
    follow(mirror, StoppingDdl(own, DDL_TS, ddl_of(window.write(), own, DDL_TS), ("shop.*",)))
    assert mirror.target(None).floor_of(own) == DDL_TS + 1
    assert mirror.has_table("shop.t") == statement.startswith("TRUNCATE")
    mirror.load(window, **stop_all)
    mirror.load(feed.first(), reload=True, **stop_all)
    later = Changelog(tmp_path, DDL_TS + 1, 300)
    mirror.load(later.rows(table("shop.t", BEFORE, valid_from=DDL_TS), [put(210, **ROWS[1])]), **stop_all)
    assert mirror.rows("SELECT id FROM shop.t") == [(2,)]


def test_a_rename_whose_text_leaves_the_schema_out_is_left_to_a_person(mirror: MirrorRig, tmp_path: Path) -> None:
    feed = Feed(CASES["dropped"], tmp_path)
    mirror.load(feed.first(), **STOP)
    window = Changelog(tmp_path, 100, DDL_TS + 1).ddl(DDL_TS, "RENAME TABLE `t` TO `archive`.`t`", table="archive.t")
    with pytest.raises(PolicyStopError, match="may have renamed it"):
        mirror.load(window, **STOP)
    own = TableName("shop", "t")
    ddl = StoppingDdl(own, DDL_TS, ddl_of(window.write(), own, DDL_TS), ("shop.*",))
    with pytest.raises(PolicyStopError, match=r"If nothing, raise the floor: .* shop\.t --at 151"):
        mirror.changeable().follow("pipeline", ddl)


def test_windows_from_after_the_ddl_that_came_first_are_in_the_way(mirror: MirrorRig, tmp_path: Path) -> None:
    feed = Feed(CASES["shorter text"], tmp_path)
    mirror.load(feed.first(), **STOP)
    mirror.load(feed.later(), **STOP)
    with pytest.raises(PolicyStopError, match="has rows from after the DDL"):
        mirror.changeable().follow("pipeline", feed.ddl())


def test_a_table_that_has_the_old_name_since_is_built_again_and_not_dropped(mirror: MirrorRig, tmp_path: Path) -> None:
    feed = Feed(CASES["renamed table"], tmp_path)
    stop(mirror, feed)
    another = table("shop.t", BEFORE, valid_from=DDL_TS)
    mirror.load(Changelog(tmp_path / "later", DDL_TS + 1, 300).rows(another, [put(210, **ROWS[1])]), **STOP)
    with pytest.raises(PolicyStopError, match="has rows from after the DDL") as refused:
        mirror.changeable().follow("pipeline", feed.ddl())
    assert "mirror rebuild <pipeline> shop.t2 shop.t --dump-base" in str(refused.value)
    assert "Drop" not in str(refused.value)


def test_a_mirror_whose_new_name_is_outside_the_pipeline_goes(mirror: MirrorRig, tmp_path: Path) -> None:
    feed = Feed(CASES["renamed table"], tmp_path)
    stop(mirror, feed)
    assert [step.partition(" ")[0] for step in follow(mirror, feed.ddl(["shop.t"])).steps] == ["DROP"]
    assert not mirror.has_table("shop.t")
    mirror.load(feed.stopped(), **{**STOP, "tables": ("shop.t",)})
    mirror.load(feed.first(), **{**STOP, "tables": ("shop.t",)}, reload=True)


@pytest.mark.parametrize("name", ["added", "renamed table"])
def test_a_mirror_that_is_lost_after_it_is_missed(mirror: MirrorRig, name: str, tmp_path: Path) -> None:
    """Also before any row comes from after the DDL."""
    feed = Feed(CASES[name], tmp_path)
    stop(mirror, feed)
    follow(mirror, feed.ddl())
    mirror.execute(f"DROP TABLE {feed.case.table}")
    with pytest.raises(TargetMismatchError, match="was dropped"):
        mirror.load(feed.later(), **STOP)


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_mirror_that_a_rebuild_brings_back_after_its_rename_is_refused(
    lake_spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """The rebuild began before the DDL was followed."""
    lake, feed, own = (
        LakeRig(kind, lake_spark, tmp_path),
        Feed(CASES["renamed table"], tmp_path),
        TableName("shop", "t"),
    )
    lake.use_catalog_with_views()
    stop(lake, feed)
    beside = lake.changeable()
    assert isinstance(beside, LakeMirror)
    lake.load(feed.first(), {"schema": beside.beside(own).db_schema}, **STOP)
    follow(lake, feed.ddl())
    assert beside.replace("pipeline", own, (), ()).lacking == ()
    with pytest.raises(PolicyStopError, match="end the window"):
        lake.load(feed.stopped(), **STOP)
    with pytest.raises(PolicyStopError, match="is there already, beside"):
        follow(lake, feed.ddl())
    lake.execute("DROP TABLE shop.t")
    follow(lake, feed.ddl())
    for window in (feed.stopped(), feed.later()):
        lake.load(window, **STOP)
    assert mirrored(lake, feed.case) == shown(feed.upstream)
    assert not lake.has_table("shop.t")


class Names(NamedTuple):
    """Tables ``a`` and ``b``, which get other names, or the same again; whose rows each mirror has then, and what is mirrored."""

    statement: str
    rows: Mapping[str, str]
    selection: Sequence[str] = ("shop.*",)


ROUND = {
    "swap": Names("RENAME TABLE a TO c, b TO a, c TO b", {"a": "b", "b": "a"}),
    "chain": Names("RENAME TABLE a TO a_old, b TO a", {"a_old": "a", "a": "b"}),
    "one goes": Names("RENAME TABLE a TO a_old, b TO a", {"a": "b"}, ("shop.a", "shop.b")),
    "there and back": Names("RENAME TABLE a TO c, c TO a", {"a": "a", "b": "b"}),
}


class Round(NamedTuple):
    """The windows of a case, each with the tables that it knows. Rows say which table they were put into first."""

    names: Names
    folder: Path
    columns: Mapping[str, ColumnType] = {"id": INT, "v": TEXT}

    def first(self) -> Changelog:
        window = Changelog(self.folder, 0, 100)
        for number, name in enumerate(("a", "b"), 1):
            rows = [put(10 * number, id=1, v=name), put(10 * number, id=number + 1, v=name)]
            window.rows(table(f"shop.{name}", self.columns), rows)
        return window

    def stopped(self) -> Changelog:
        return Changelog(self.folder, 100, DDL_TS + 1).ddl(DDL_TS, self.names.statement, table="shop.b")

    def later(self) -> Changelog:
        window = Changelog(self.folder, DDL_TS + 1, 300)
        for name in self.names.rows:
            schema = table(f"shop.{name}", self.columns, valid_from=DDL_TS)
            window.rows(schema, [put(210, id=1, v=f"later in {name}"), put(220, id=9, v=f"later in {name}")])
        return window

    def ddl(self) -> StoppingDdl:
        return StoppingDdl(TableName("shop", "a"), DDL_TS, self.stopped().write().changes, self.names.selection)

    def mirrored(self, mirror: MirrorRig) -> dict[str, list[tuple[Any, ...]]]:
        return {name: mirror.rows(f"SELECT id, v FROM shop.{name} ORDER BY id") for name in self.names.rows}

    @property
    def upstream(self) -> dict[str, list[tuple[Any, ...]]]:
        own = {"a": (2, "a"), "b": (3, "b")}
        return {
            name: [(1, f"later in {name}"), own[was], (9, f"later in {name}")] for name, was in self.names.rows.items()
        }


def stop_round(mirror: MirrorRig, feed: Round) -> dict[str, object]:
    options = {**STOP, "tables": feed.names.selection}
    mirror.load(feed.first(), **options)
    with pytest.raises(PolicyStopError, match="end the window"):
        mirror.load(feed.stopped(), **options)
    return options


@pytest.mark.parametrize("name", ROUND)
def test_tables_take_the_names_of_each_other(mirror: MirrorRig, name: str, tmp_path: Path) -> None:
    feed = Round(ROUND[name], tmp_path)
    options = stop_round(mirror, feed)
    follow(mirror, feed.ddl())
    assert follow(mirror, feed.ddl()).steps == ()
    for window in (feed.later(), feed.stopped(), feed.first(), feed.later()):
        mirror.load(window, **options)
    mirror.load(feed.first(), reload=True, **options)
    assert feed.mirrored(mirror) == feed.upstream
    gone = {"a", "b", "c", "a_old"} - set(feed.names.rows)
    assert not any(mirror.has_table(f"shop.{each}") for each in gone)


@pytest.mark.parametrize("name", ["swap", pytest.param("one goes", marks=pytest.mark.nightly)])
def test_names_that_go_round_can_be_killed_before_any_write_and_repeated(
    make: Callable[[], MirrorRig], name: str, tmp_path: Path
) -> None:
    """Whatever load comes meanwhile ends, or puts its rows where they belong."""

    def attempt(number: int) -> int:
        mirror, feed, dying = make(), Round(ROUND[name], tmp_path), Dying(number, after=False)
        options = stop_round(mirror, feed)
        with pytest.MonkeyPatch.context() as patch:
            watch_statements(patch, mirror, dying)
            with contextlib.suppress(FaultError):
                mirror.changeable().follow("pipeline", feed.ddl())
        if dying.struck:
            with contextlib.suppress(TargetMismatchError):
                mirror.load(feed.first(), reload=True, **options)
            mirror.changeable().follow("pipeline", feed.ddl())
        for window in (feed.stopped(), feed.later()):
            mirror.load(window, **options)
        assert feed.mirrored(mirror) == feed.upstream
        return dying.seen

    assert die_at_statements(attempt) > 1, "something was written"


def test_tables_swap_their_names_twice_without_a_load_between(mirror: MirrorRig, tmp_path: Path) -> None:
    feed = Round(ROUND["swap"], tmp_path)
    options = stop_round(mirror, feed)
    follow(mirror, feed.ddl())
    again = Changelog(tmp_path, DDL_TS + 1, 251).ddl(250, feed.names.statement, table="shop.b")
    with pytest.raises(PolicyStopError, match="end the window"):
        mirror.load(again, **options)
    follow(mirror, StoppingDdl(TableName("shop", "a"), 250, again.write().changes, feed.names.selection))
    mirror.load(again, **options)
    assert feed.mirrored(mirror) == {name: [(1, name), (number, name)] for number, name in ((2, "a"), (3, "b"))}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "alter",
    [
        "CHANGE v w VARCHAR(20), CHANGE w v VARCHAR(20)",
        "RENAME COLUMN v TO w, RENAME COLUMN w TO v",
        "RENAME COLUMN v TO n, RENAME COLUMN w TO v",
        "RENAME COLUMN v TO n, ADD COLUMN v INT",
        "DROP COLUMN v, ADD COLUMN v INT",
        "DROP COLUMN v, RENAME COLUMN w TO v",
        "MODIFY v VARCHAR(30), RENAME COLUMN v TO n",
    ],
)
def test_tidb_runs_no_statement_that_changes_a_column_twice(tidb_server: Connection, alter: str) -> None:
    """So no changelog has one, and that servers without DDL in transactions refuse it costs nobody anything."""
    upstream = MysqlRig(tidb_server)
    upstream.execute("CREATE DATABASE shop")
    upstream.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20), w VARCHAR(20))")
    with pytest.raises(pymysql.MySQLError, match=r"Duplicate column name|Unsupported operate same column"):
        upstream.execute(f"ALTER TABLE shop.t {alter}")


@pytest.mark.parametrize(
    "case",
    [
        typed("m", moment(6), moment(3), [DAY, DAY.replace(microsecond=123400), None]),
        typed("f", DOUBLE, FLOAT, [0.5, 0.1, None], "g"),
        typed("e", names("enum", "A", "B"), names("enum", "B"), ["B", "A", None]),
        typed("s", names("set", "A", "B"), names("set", "B"), ["B", "A,B", None]),
    ],
    ids=lambda case: case.alter,
)
def test_rows_that_a_narrower_type_alters_are_refused(mirror: MirrorRig, case: Case, tmp_path: Path) -> None:
    feed = Feed(case, tmp_path)
    stop(mirror, feed)
    with pytest.raises(PolicyStopError, match="1 row does not fit the new type"):
        mirror.changeable().follow("pipeline", feed.ddl())
    mirror.execute("DELETE FROM shop.t WHERE id = 2")
    follow(mirror, feed.ddl())


def test_names_that_are_mirrored_by_number_are_refused(mirror: MirrorRig, tmp_path: Path) -> None:
    """The rows came before any definition gave names; the DDL gives them other numbers."""
    case = typed("e", names("enum", "A", "B"), names("enum", "B"), [2, 2, 2])
    feed = Feed(case._replace(before={"id": INT, "e": ColumnType("enum")}), tmp_path)
    stop(mirror, feed)
    with pytest.raises(PolicyStopError, match="mirrored by number"):
        mirror.changeable().follow("pipeline", feed.ddl())
    appended = feed.case._replace(alter="ALTER TABLE t MODIFY e ENUM('A','B','C')")
    assert follow(mirror, Feed(appended, tmp_path).ddl()).steps == ()
    assert mirror.rows("SELECT e FROM shop.t ORDER BY id") == [(2,), (2,), (2,)]


def test_deleted_rows_that_stay_make_way_for_another_key(
    request: pytest.FixtureRequest, mirror: MirrorRig, tmp_path: Path
) -> None:
    """One stays if it has a value of its own for the new key; of two with one value, the one that was deleted later. A lake
    refuses the key."""
    skip_keys_of_tidb(request, "another key")
    mirror.section["deletes"] = "soft"
    feed = Feed(CASES["another key"], tmp_path)
    deleted = {9: 11, 7: 14, 8: 14, 5: 15}
    rows = [put(10 + number, id=number, v="x", u=deleted[number], p=None) for number in deleted]
    rows += [put(30 + number, id=number, v="x", u=number + 10, p=None) for number in (1, 2)]
    rows += [Row("delete", 50 + number, {"id": number, "v": "x", "u": u, "p": None}) for number, u in deleted.items()]
    mirror.load(Changelog(tmp_path, 0, 100).rows(table("shop.t", BEFORE), [*rows, delete(70, id=6)]), **STOP)
    with pytest.raises(PolicyStopError, match="end the window"):
        mirror.load(feed.stopped(), **STOP)
    if isinstance(mirror, LakeRig):
        with pytest.raises(
            PolicyStopError, match=r"4 have that of another row \(rows that are marked as deleted count"
        ):
            follow(mirror, feed.ddl())
        return
    steps = follow(mirror, feed.ddl()).steps
    assert [step.partition(": ")[2] for step in steps] == [
        "DELETE of 3 deleted rows without a value of their own for (u)",
        "PRIMARY KEY (u)",
    ]
    deleted_rows = "SELECT id, u FROM shop.t WHERE _is_deleted ORDER BY id"
    assert mirror.rows(deleted_rows) == [(5, 15), (8, 14)]
    mirror.load(feed.later(), **STOP)
    assert mirror.rows(deleted_rows) == [(8, 14)]
    assert mirror.rows("SELECT u FROM shop.t WHERE NOT _is_deleted ORDER BY u") == [(11,), (12,), (13,), (15,)]


def test_a_deleted_row_that_a_narrower_column_has_no_room_for_is_named_before_anything_is_done(
    mirror: MirrorRig, tmp_path: Path
) -> None:
    if isinstance(mirror, LakeRig):
        pytest.skip("a lake's types stay")
    mirror.section["deletes"] = "soft"
    before = {"id": INT, "c": ColumnType("decimal", length=10, scale=2, declared=True)}
    known = definition_from_sql(TableName("shop", "t"), "CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `c` DECIMAL(10,2))")
    mirror.load(Changelog(tmp_path, 0, 100).rows(table("shop.t", before), [put(10, id=1, c=Decimal("1.50"))]))
    gone = {"id": 2, "c": Decimal("12345678.90")}
    mirror.load(Changelog(tmp_path, 100, 140).rows(table("shop.t", before), [Row("delete", 120, gone)]))
    statement = "ALTER TABLE `t` ADD COLUMN `n` INT, MODIFY COLUMN `c` DECIMAL(8,4)"
    window = Changelog(tmp_path, 140, DDL_TS + 1).knows(known).ddl(DDL_TS, statement, table="shop.t")
    own = TableName("shop", "t")
    ddl = StoppingDdl(own, DDL_TS, ddl_of(window.write(), own, DDL_TS), ("shop.*",))
    with pytest.raises(PolicyStopError, match="1 row does not fit the new type of the column c"):
        follow(mirror, ddl)
    assert mirror.rows("SELECT id, c FROM shop.t ORDER BY id") == [(1, Decimal("1.50")), (2, Decimal("12345678.90"))]


@pytest.mark.parametrize("is_dropped", [False, True])
def test_names_that_go_round_a_second_time_can_be_killed_and_repeated(
    mirror: MirrorRig, is_dropped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Round(ROUND["one goes"], tmp_path)
    options = stop_round(mirror, feed)
    follow(mirror, feed.ddl())
    mirror.load(feed.stopped(), **options)
    later = Changelog(tmp_path, DDL_TS + 1, 300)
    later.rows(table("shop.a", feed.columns, valid_from=DDL_TS), [put(210, id=1, v="second a")])
    later.rows(table("shop.b", feed.columns, valid_from=200), [put(220, id=7, v="new b"), put(221, id=8, v="new b")])
    mirror.load(later, **options)
    if is_dropped:  # it had the name of the other one
        dropped = Changelog(tmp_path, 300, 321).ddl(320, "DROP TABLE a", table="shop.a")
        mirror.load(dropped, drop="apply", tables=feed.names.selection)
        assert not mirror.has_table("shop.a")
    statement = "RENAME TABLE b TO a" if is_dropped else feed.names.statement
    again = Changelog(tmp_path, 321 if is_dropped else 300, 351).ddl(350, statement, table="shop.b")
    with pytest.raises(PolicyStopError, match="end the window"):
        mirror.load(again, **options)
    ddl = StoppingDdl(TableName("shop", "a"), 350, again.write().changes, feed.names.selection)

    def dies(*_: object) -> None:
        raise FaultError

    with monkeypatch.context() as patch:
        for session in (FollowingLakeSession, MysqlSession, PostgresSession):
            patch.setattr(session, "end_renames", dies)
        with contextlib.suppress(FaultError):
            follow(mirror, ddl)
    if isinstance(mirror, LakeRig):
        with pytest.raises(TargetMismatchError, match="if it broke while it renamed tables"):
            mirror.load(later, reload=True, **options)
    follow(mirror, ddl)
    assert mirror.rows("SELECT id, v FROM shop.a ORDER BY id") == [(7, "new b"), (8, "new b")]


def test_a_rename_that_broke_is_ended_by_its_own_databases_alone(mysql_mirror: MysqlRig, tmp_path: Path) -> None:
    feed, end = Round(ROUND["swap"], tmp_path), MysqlSession.end_renames
    options = stop_round(mysql_mirror, feed)

    def ends_too_late(self: MysqlSession, names: Mapping[Relation, Relation], floor_ts: int) -> None:
        renaming = self.ledger.renaming_of(Relation("shop", "a"))
        assert renaming is not None
        self.ledger.end_renaming(renaming)
        end(self, names, floor_ts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MysqlSession, "end_renames", ends_too_late)
        with pytest.raises(TransientError, match=r'taken the rename of "shop"\."[ab]" back'):
            mysql_mirror.changeable().follow("pipeline", feed.ddl())
    noted = "SELECT DISTINCT content FROM _ticdc_replay.renames"
    assert len(mysql_mirror.rows(noted)) == 1
    mysql_mirror.load(feed.first(), target={"schema": "elsewhere"}, **options)
    assert len(mysql_mirror.rows(noted)) == 1
    mysql_mirror.load(feed.first(), reload=True, **options)
    assert mysql_mirror.rows(noted) == []
    follow(mysql_mirror, feed.ddl())
    for window in (feed.stopped(), feed.later()):
        mysql_mirror.load(window, **options)
    assert feed.mirrored(mysql_mirror) == feed.upstream


def test_a_table_takes_rows_under_its_new_name_from_a_machine_whose_clock_is_behind(
    lake_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta's table keeps the number of the last commit under its old name, and the lease of the new one has smaller numbers."""
    lake, feed, now = LakeRig("delta", lake_spark, tmp_path), Feed(CASES["renamed table"], tmp_path), time.time_ns
    lake.use_catalog_with_views()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now() + 3600 * 10**9)
        lake.load(feed.first(), **STOP)
    with pytest.raises(PolicyStopError, match="end the window"):
        lake.load(feed.stopped(), **STOP)
    follow(lake, feed.ddl())
    lake.load(feed.later(), **STOP)
    assert mirrored(lake, feed.case) == shown(feed.upstream)


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_load_that_stalls_while_tables_swap_their_names_changes_neither(
    lake_spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, feed = LakeRig(kind, lake_spark, tmp_path), Round(ROUND["swap"], tmp_path)
    lake.use_catalog_with_views()
    options = {**STOP, "tables": feed.names.selection}
    lake.load(feed.first(), **options)
    late = Changelog(tmp_path, 100, 110).rows(table("shop.a", feed.columns), [put(105, id=5, v="a")])
    last = Changelog(tmp_path, 110, DDL_TS + 1).ddl(DDL_TS, feed.names.statement, table="shop.b")

    def meanwhile() -> None:
        lake.load(late, **options)
        with pytest.raises(PolicyStopError, match="end the window"):
            lake.load(last, **options)
        follow(lake, feed.ddl())

    stalling = Stalling(lake, 1, meanwhile, killed=False, only=LAST_LOOK[kind])
    with monkeypatch.context() as patch, contextlib.suppress(TransientError, SupersededError):
        stalling.patched(patch)
        lake.load(late, **options)
    assert stalling.stalled
    assert feed.mirrored(lake) == {"a": [(1, "b"), (3, "b")], "b": [(1, "a"), (2, "a"), (5, "a")]}
