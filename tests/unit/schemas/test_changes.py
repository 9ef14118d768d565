"""What a DDL means for a mirror of the table."""

import msgspec
import pytest

from tests.support.growth import assert_linear
from tests.support.schema_histories import schema_at
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.changes import (
    BreakingChange,
    Change,
    ColumnAdded,
    ColumnDropped,
    ColumnRenamed,
    ColumnWidened,
    NoRowChange,
    TableChanges,
    TableCreated,
    changes_of,
    kind_of,
    widens,
)
from ticdc_replay.schemas.history import SchemaHistory

T = TableName("shop", "t")
BASE = (
    "CREATE TABLE `t` (`id` INT PRIMARY KEY, `a` INT, `u` INT UNSIGNED, `d` DECIMAL(10,2), `s` VARCHAR(10) NOT NULL, "
    "`b` VARBINARY(5), `bf` BINARY(5), `dt` DATETIME(3), `bt` BIT(3), `e` ENUM('x','y'), `f` FLOAT, `c` CHAR(5), "
    "`g` INT AS (`a`+1) VIRTUAL, UNIQUE KEY `us` (`s`))"
)


def ddl(query, commit_ts=20, schema="shop", table="t"):
    return DdlEvent(0, commit_ts, schema, table, query, 0)


HISTORY = SchemaHistory().with_ddls([ddl(BASE, 10)])


def changes(query, history=HISTORY):
    """The changes of the one table that *query* touches."""
    (found,) = changes_of([ddl(query)], history)
    assert (found.table, found.commit_ts) == (T, 20)
    return list(found.changes)


@pytest.mark.parametrize(
    ("definition", "fill", "known"),
    [
        ("INT", None, True),
        ("INT DEFAULT 7", "7", True),
        ("INT NOT NULL DEFAULT 7", "7", True),
        ("INT NOT NULL", "0", True),
        ("DECIMAL(8,3) NOT NULL", "0", True),
        ("VARCHAR(9) NOT NULL", "", True),
        ("BINARY(3) NOT NULL", "\0\0\0", True),
        ("ENUM('p','q') NOT NULL", "p", True),
        ("SET('p','q') NOT NULL", "", True),
        ("TIME NOT NULL", "00:00:00", True),
        ("DATETIME NOT NULL", None, False),
        ("JSON NOT NULL", None, False),
        ("DATETIME DEFAULT CURRENT_TIMESTAMP", None, False),
        ("TIMESTAMP DEFAULT '2020-01-01 00:00:00'", None, False),
        ("INT AS (`a` * 2) STORED", None, False),
        ("VARBINARY(3) DEFAULT x'00ff'", "\x00\xff", True),
    ],
)
def test_an_added_column_tells_what_old_rows_have_in_it(definition, fill, known):
    (change,) = changes(f"ALTER TABLE `t` ADD COLUMN `n` {definition}")
    assert isinstance(change, ColumnAdded)
    assert (change.column.name, change.fill, change.fill_known) == ("n", fill, known)


@pytest.mark.parametrize(
    "action",
    [
        "MODIFY `a` BIGINT",
        "MODIFY `u` BIGINT",
        "MODIFY `d` DECIMAL(14,4)",
        "MODIFY `s` VARCHAR(11) NOT NULL",
        "MODIFY `s` TEXT NOT NULL",
        "MODIFY `s` VARCHAR(10)",
        "MODIFY `b` BLOB",
        "MODIFY `dt` DATETIME(6)",
        "MODIFY `bt` BIT(4)",
        "MODIFY `e` ENUM('x','y','z')",
        "MODIFY `f` DOUBLE",
        "MODIFY `c` VARCHAR(5)",
    ],
)
def test_a_wider_type_keeps_every_value(action):
    (change,) = changes(f"ALTER TABLE `t` {action}")
    assert isinstance(change, ColumnWidened)


@pytest.mark.parametrize(
    "action",
    [
        "MODIFY `a` SMALLINT",
        "MODIFY `a` INT UNSIGNED",
        "MODIFY `u` INT",
        "MODIFY `a` VARCHAR(30)",
        "MODIFY `d` DECIMAL(10,3)",
        "MODIFY `d` DECIMAL(9,2)",
        "MODIFY `s` VARCHAR(9) NOT NULL",
        "MODIFY `s` VARCHAR(10) CHARACTER SET binary NOT NULL",
        "MODIFY `bf` BINARY(6)",
        "MODIFY `dt` DATETIME",
        "MODIFY `dt` TIMESTAMP(3)",
        "MODIFY `e` ENUM('y','x')",
        "MODIFY `g` INT",
        "CHANGE `a` `a2` TINYINT",
        "DROP PRIMARY KEY",
        "CONVERT TO CHARACTER SET binary",
        "TRUNCATE PARTITION `p0`",
        "DROP PARTITION `p0`",
        "MODIFY `nowhere` INT",
        "FROBNICATE",
    ],
)
def test_what_row_events_do_not_carry_is_a_breaking_change(action):
    assert any(isinstance(change, BreakingChange) for change in changes(f"ALTER TABLE `t` {action}"))


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("FLOAT(7,2)", "FLOAT(7,2) COMMENT 'x'", "no_row_change"),
        ("FLOAT", "FLOAT(24)", "no_row_change"),
        ("DOUBLE(10,2)", "REAL(10,2)", "no_row_change"),
        ("FLOAT(7,2) NOT NULL", "FLOAT(7,2)", "column_widened"),
        ("FLOAT(7,2)", "FLOAT(8,2)", "column_widened"),
        ("FLOAT(7,2)", "FLOAT(8,3)", "column_widened"),
        ("FLOAT(7,2)", "FLOAT", "column_widened"),
        ("DOUBLE(10,2)", "DOUBLE", "column_widened"),
        ("FLOAT(7,2)", "DOUBLE", "column_widened"),
        ("FLOAT(7,2)", "FLOAT(5,1)", "column_changed"),
        ("FLOAT(7,2)", "FLOAT(8,1)", "column_changed"),
        ("FLOAT(7,2)", "FLOAT(7,3)", "column_changed"),
        ("FLOAT(7,2)", "FLOAT(6,2)", "column_changed"),
        ("FLOAT(7,2) NOT NULL", "FLOAT(5,1)", "column_changed"),
        ("FLOAT", "FLOAT(7,2)", "column_changed"),
        ("DOUBLE", "DOUBLE(10,2)", "column_changed"),
        ("FLOAT", "DOUBLE(10,2)", "column_changed"),
        ("FLOAT(7,2)", "DOUBLE(7,2)", "column_changed"),
        ("FLOAT(7,2)", "FLOAT(9,2) UNSIGNED", "column_narrowed"),
        ("DOUBLE", "FLOAT", "column_narrowed"),
        ("DOUBLE(10,2)", "FLOAT", "column_narrowed"),
        ("DOUBLE", "FLOAT(7,2)", "column_changed"),
        ("FLOAT", "DOUBLE UNSIGNED", "column_narrowed"),
    ],
)
def test_a_float_that_the_server_may_round_has_changed(before, after, kind):
    """``tests/integration/test_ddl_model.py`` holds this against a server."""
    history = SchemaHistory().with_ddls([ddl(f"CREATE TABLE `t` (`id` INT PRIMARY KEY, `c` {before})", 10)])
    for known in (history, SchemaHistory.decode(history.encode())):
        assert [kind_of(each) for each in changes(f"ALTER TABLE `t` MODIFY `c` {after}", known)] == [kind]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("DATETIME(6)", "DATETIME(3)", "column_narrowed"),
        ("TIMESTAMP(3)", "TIMESTAMP", "column_narrowed"),
        ("TIME(6)", "TIME(5)", "column_narrowed"),
        ("DATETIME(6)", "TIMESTAMP(6)", "column_changed"),
        ("DATETIME(6)", "DATE", "column_changed"),
        ("ENUM('a','b')", "ENUM('a','b','c')", "column_widened"),
        ("ENUM('a','b')", "ENUM('a')", "column_narrowed"),
        ("ENUM('a','b')", "ENUM('b','a','c')", "column_narrowed"),
        ("SET('a','b')", "SET('a','b','c')", "column_widened"),
        ("SET('a','b','c')", "SET('a','c','d')", "column_narrowed"),
        ("SET('a','b')", "SET('b','a')", "column_changed"),
        ("ENUM('a','b')", "SET('a','b')", "column_changed"),
    ],
)
def test_a_type_with_some_of_the_values_is_narrower(before, after, kind):
    history = SchemaHistory().with_ddls([ddl(f"CREATE TABLE `t` (`id` INT PRIMARY KEY, `c` {before})", 10)])
    (change,) = changes(f"ALTER TABLE `t` MODIFY `c` {after}", history)
    assert kind_of(change) == kind


def test_a_change_of_digits_is_told_with_them():
    history = SchemaHistory().with_ddls([ddl("CREATE TABLE `t` (`c` FLOAT(7,2) UNSIGNED)", 10)])
    (change,) = changes("ALTER TABLE `t` MODIFY `c` FLOAT(5,1)", history)
    assert change.what == "the column c changed from float(7,2) unsigned to float(5,1)"


def test_a_float_whose_digits_an_earlier_version_did_not_store_has_changed():
    """Nothing tells whether the server rounded it."""
    history = SchemaHistory().with_ddls([ddl("CREATE TABLE `t` (`c` FLOAT(7,2))", 10)])
    stored = history.encode()
    assert stored.count(b'"digits":[7,2],') == 1
    earlier = SchemaHistory.decode(stored.replace(b'"digits":[7,2],', b""))
    assert [kind_of(each) for each in changes("ALTER TABLE `t` MODIFY `c` FLOAT(7,2)", earlier)] == ["column_changed"]
    assert [kind_of(each) for each in changes("ALTER TABLE `t` MODIFY `c` FLOAT", earlier)] == ["no_row_change"]
    assert schema_at(earlier, T, 20) == schema_at(history, T, 20)


@pytest.mark.parametrize(
    "action",
    [
        "ADD INDEX `i`(`a`)",
        "DROP INDEX `us`",
        "COMMENT = 'x'",
        "MODIFY `a` INT COMMENT 'x' FIRST",
        "MODIFY `a` INT NOT NULL",
        "ALTER COLUMN `a` SET DEFAULT 5",
        "ADD COLUMN `v` INT AS (`a`) VIRTUAL",
        "DROP COLUMN `g`",
        "ADD PARTITION (PARTITION `p` VALUES LESS THAN (5))",
        "REMOVE PARTITIONING",
        "CONVERT TO CHARACTER SET utf8mb4",
    ],
)
def test_what_leaves_rows_alone_is_no_change(action):
    assert all(isinstance(change, NoRowChange) for change in changes(f"ALTER TABLE `t` {action}"))


def test_each_action_of_a_statement_is_one_change_in_order():
    found = changes("ALTER TABLE `t` ADD COLUMN `n` INT, MODIFY `a` BIGINT, ADD INDEX `i`(`n`), DROP COLUMN `f`")
    assert [type(change) for change in found] == [ColumnAdded, ColumnWidened, NoRowChange, ColumnDropped]


def test_columns_that_go_or_get_another_name():
    assert changes("ALTER TABLE `t` DROP COLUMN `A`") == [ColumnDropped("a")]
    assert changes("ALTER TABLE `t` RENAME COLUMN `A` TO `a2`") == [ColumnRenamed("a", "a2")]
    assert changes("ALTER TABLE `t` CHANGE `a` `a2` INT") == [ColumnRenamed("a", "a2")]
    renamed, widened = changes("ALTER TABLE `t` CHANGE `a` `a2` BIGINT")
    assert renamed == ColumnRenamed("a", "a2")
    assert (widened.before.name, widened.after.name, widened.after.type.base) == ("a", "a2", "bigint")


def test_of_a_column_that_goes_it_is_known_when_its_name_came():
    later = HISTORY.with_ddls(
        [
            ddl("ALTER TABLE `t` RENAME COLUMN `a` TO `x`", 12),
            ddl("ALTER TABLE `t` ADD COLUMN `a` INT", 14),
            ddl("ALTER TABLE `t` MODIFY COLUMN `x` BIGINT, MODIFY COLUMN `a` BIGINT", 16),
        ]
    )
    assert changes("ALTER TABLE `t` DROP COLUMN `a`", later) == [ColumnDropped("a", since=14)]
    assert changes("ALTER TABLE `t` RENAME COLUMN `x` TO `a2`", later) == [ColumnRenamed("x", "a2", since=12)]
    kept = SchemaHistory.decode(later.encode())
    assert changes("ALTER TABLE `t` DROP COLUMN `a`", kept) == [ColumnDropped("a", since=14)]
    assert changes("ALTER TABLE `t` DROP COLUMN `a`", SchemaHistory()) == [ColumnDropped("a")]


def test_changes_of_older_changelogs_are_read():
    older = b'{"type":"BreakingChange","what":"the column a was dropped","kind":"column_dropped"}'
    change = msgspec.json.decode(older, type=Change)
    assert change == BreakingChange("the column a was dropped", "column_dropped")


def test_another_handle_key_is_a_breaking_change():
    (index, key) = changes("ALTER TABLE `t` DROP PRIMARY KEY")
    assert index == NoRowChange("drop index")
    assert key == BreakingChange("rows are now identified by s", "key_changed", key=("s",))


def test_without_the_definition_only_what_the_text_alone_tells_is_additive():
    unknown = SchemaHistory()
    (added,) = changes("ALTER TABLE `t` ADD COLUMN `n` INT DEFAULT 7", unknown)
    assert isinstance(added, ColumnAdded)
    (modified,) = changes("ALTER TABLE `t` MODIFY `a` BIGINT", unknown)
    assert isinstance(modified, BreakingChange)


def test_new_and_gone_tables():
    (created,) = changes(BASE.replace("`g` INT AS (`a`+1) VIRTUAL, ", ""))
    assert isinstance(created, TableCreated)
    assert created.schema.handle_key == ("id",)
    for query in ("DROP TABLE `shop`.`t`", "TRUNCATE TABLE `t`", "DROP DATABASE `shop`"):
        (change,) = changes(query)
        assert isinstance(change, BreakingChange)


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("TRUNCATE TABLE `t`", "truncated"),
        ("DROP TABLE `t`", "dropped"),
        ("DROP DATABASE `shop`", "dropped"),
        ("RECOVER TABLE `t`", "recovered"),
        ("RECOVER TABLE BY JOB 123", "recovered"),
        ("FLASHBACK TABLE `shop`.`x` TO `t`", "recovered"),
        ("ALTER TABLE `t` DROP COLUMN `a`", "column_dropped"),
        ("ALTER TABLE `t` RENAME COLUMN `a` TO `a2`", "column_renamed"),
        ("ALTER TABLE `t` CHANGE `a` `a2` INT", "column_renamed"),
        ("ALTER TABLE `t` MODIFY `a` TINYINT", "column_narrowed"),
        ("ALTER TABLE `t` CONVERT TO CHARACTER SET binary", "column_changed"),
        ("ALTER TABLE `t` DROP PARTITION `p0`", "partition_emptied"),
        ("ALTER TABLE `t` FIRST PARTITION LESS THAN (5)", "partition_emptied"),
        ("ALTER TABLE `t` CONVERT PARTITION `p0` TO TABLE `x`", "not_understood"),
        ("ALTER TABLE `t` DISCARD PARTITION `p0` TABLESPACE", "not_understood"),
        ("FLASHBACK DATABASE `shop`", "not_understood"),
    ],
)
def test_what_breaks_has_a_kind(query, kind):
    assert {kind_of(change) for change in changes(query)} == {kind}


def test_partitions_that_are_merged_keep_their_rows():
    (change,) = changes("ALTER TABLE `t` MERGE FIRST PARTITION LESS THAN (5)")
    assert isinstance(change, NoRowChange)


def test_a_column_that_may_have_been_there_is_not_filled():
    """Alone the statement would not have been sent for a column that is there; among others it is sent with them."""
    (added,) = changes("ALTER TABLE `t` ADD COLUMN IF NOT EXISTS `a` INT DEFAULT 7")
    assert isinstance(added, ColumnAdded)
    perhaps, other = changes("ALTER TABLE `t` ADD COLUMN IF NOT EXISTS `a` INT DEFAULT 7, ADD COLUMN `n` INT")
    assert perhaps == BreakingChange(
        "ADD COLUMN IF NOT EXISTS a among other changes, and whether the column was there is unknown"
    )
    assert isinstance(other, ColumnAdded)
    harmless, _ = changes("ALTER TABLE `t` ADD COLUMN IF NOT EXISTS `a` INT, ADD COLUMN `n` INT")
    assert isinstance(harmless, NoRowChange)
    known = HISTORY.with_ddls([ddl("ALTER TABLE `t` ADD COLUMN IF NOT EXISTS `a` BIGINT, ADD COLUMN `n` INT")])
    assert known.definition_at("shop", "t", 30).column("a").type == ColumnType("int", declared=True)


def test_tables_are_named_as_tidb_spells_them_whatever_the_text_does():
    (truncated,) = changes_of([ddl("TRUNCATE TABLE `SHOP`.`T`")], HISTORY)
    assert truncated.table == T
    renamed = changes_of([ddl("RENAME TABLE `T` TO `new`", table="New")], HISTORY)
    assert [str(change.table) for change in renamed] == ["shop.t", "shop.New"]
    exchanged = changes_of([ddl("ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `T`", table="p")], HISTORY)
    assert [str(change.table) for change in exchanged] == ["shop.p", "shop.t"]


@pytest.mark.parametrize("query", ["RENAME TABLE {} TO `T`", "ALTER TABLE {} RENAME TO `T`"])
def test_a_rename_may_change_letter_case_alone(query):
    """The event has the new name. The old one is that of the definition; where that is not known, that of the text."""
    for history in (HISTORY, SchemaHistory()):
        found = changes_of([ddl(query.format("`t`"), table="T")], history)
        assert [(each.table.table, *map(kind_of, each.changes)) for each in found] == [
            ("t", "renamed_away"),
            ("T", "renamed_here"),
        ]


def test_a_rename_and_an_exchange_concern_both_tables():
    renamed = changes_of([ddl("RENAME TABLE `t` TO `u`", table="u")], HISTORY)
    assert [str(change.table) for change in renamed] == ["shop.t", "shop.u"]
    exchanged = changes_of([ddl("ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `x`.`u`")], HISTORY)
    assert [str(change.table) for change in exchanged] == ["shop.t", "x.u"]
    assert all(isinstance(change, BreakingChange) for found in renamed + exchanged for change in found.changes)


@pytest.mark.parametrize("query", ["RENAME TABLE `T` TO `archive`.`t`", "ALTER TABLE `t` RENAME AS `archive`.`t`"])
def test_a_rename_that_does_not_tell_the_schema_of_the_old_name_may_be_of_any_table_of_that_name(query):
    created = [
        ddl(BASE, 10),
        ddl(BASE, 10, schema="other"),
        ddl(BASE, 10, schema="gone"),
        ddl("DROP TABLE `t`", 15, schema="gone"),
        ddl("CREATE TABLE `u` (`id` INT)", 10, table="u"),
        ddl(BASE, 30, schema="later"),
    ]
    renames = [ddl(query, ts, schema="archive") for ts in (20, 21)]
    history = SchemaHistory().with_ddls([*created, *renames])
    found = changes_of(renames, history)
    assert [(str(each.table), each.commit_ts, *map(kind_of, each.changes)) for each in found] == [
        ("archive.t", 20, "not_understood"),
        ("archive.t", 21, "not_understood"),
        ("other.t", 21, "not_understood"),
        ("shop.t", 21, "not_understood"),
    ]
    assert query in found[2].changes[0].what
    # A table that was not the one goes on as it was.
    assert schema_at(history, T, 40) is not None
    assert schema_at(history, TableName("archive", "t"), 40) is None


def test_changes_travel():
    found = changes_of(
        [ddl("ALTER TABLE `t` ADD COLUMN `n` INT, MODIFY `a` BIGINT, DROP COLUMN `f`, COMMENT 'x'")], HISTORY
    )
    found += changes_of([ddl("CREATE TABLE `t` (`a` INT)")], HISTORY)
    assert msgspec.json.decode(msgspec.json.encode(found), type=list[TableChanges]) == found


def test_a_type_is_never_wider_than_one_with_values_it_lacks():
    assert not widens(ColumnType("varchar", length=300), ColumnType("tinytext"))
    assert not widens(ColumnType("varchar", length=5), ColumnType("char", length=9))  # loses trailing spaces
    assert not widens(ColumnType("set", elements=("a", "b")), ColumnType("set", elements=("a",)))
    assert not widens(ColumnType("float", unsigned=False), ColumnType("float", unsigned=True))
    assert not widens(ColumnType("decimal", length=5, scale=2), ColumnType("decimal", unsigned=True, length=5, scale=2))


def test_each_table_of_a_database_is_dropped_once_however_many_ddls_say_so():
    ddls = [
        ddl("CREATE TABLE `t` (`id` INT)", 10),
        ddl("CREATE TABLE `u` (`id` INT)", 10, table="u"),
        ddl("CREATE TABLE `t` (`id` INT)", 10, schema="other"),
        ddl("DROP TABLE `u`", 15, table="u"),
        ddl("DROP DATABASE `shop`", 20, table=""),
        ddl("DROP DATABASE `Shop`", 20, schema="Shop", table=""),
        ddl("TRUNCATE TABLE `t`", 20),  # the tables are those of the moment before
        ddl("DROP DATABASE `shop`", 21, table=""),
        ddl("CREATE TABLE `t` (`id` INT)", 30),
        ddl("DROP DATABASE `shop`", 40, table=""),
    ]
    for history in (SchemaHistory().with_ddls(ddls), SchemaHistory().with_ddls([*ddls[:4], ddls[8]])):
        kinds = [
            (str(each.table), each.commit_ts, kind_of(each.changes[0])) for each in changes_of(reversed(ddls), history)
        ]
        assert sorted(kind for kind in kinds if kind[2] == "dropped") == [
            ("shop.t", 20, "dropped"),
            ("shop.t", 40, "dropped"),
            ("shop.u", 15, "dropped"),
        ]
        assert [at for _, at, _ in kinds] == sorted(at for _, at, _ in kinds)
        assert ("shop.t", 20, "truncated") in kinds


def drops(database, commit_ts):
    """As many drops of *database* as there are tables in shop, each at the time that *commit_ts* gives its number."""
    return lambda count: [
        *(ddl(f"CREATE TABLE `t{n}` (`id` INT)", 1, table=f"t{n}") for n in range(count)),
        *(
            ddl(f"DROP DATABASE `{database}` /*{n}*/", 2 + commit_ts(n), schema=database, table="")
            for n in range(count)
        ),
    ]


def renames_of_any_schema(count):
    """Renames of a table ``t``, twice as many as there are, whose texts do not tell which one."""
    return [
        *(ddl("CREATE TABLE `t` (`id` INT)", 1, schema=f"s{n}") for n in range(count // 2)),
        *(ddl("RENAME TABLE `t` TO `x`.`t`", 2 + n, schema="x") for n in range(count)),
    ]


@pytest.mark.parametrize(
    "story",
    [
        lambda count: [ddl(f"CREATE TABLE `t{n}` (`id` INT)", n + 1, table=f"t{n}") for n in range(count)],
        drops("shop", lambda n: 0),
        drops("shop", lambda n: n),
        drops("empty", lambda n: 0),
        drops("empty", lambda n: n),
        renames_of_any_schema,
    ],
    ids=["tables", "drops-at-once", "drops", "empty-drops-at-once", "empty-drops", "renames"],
)
def test_what_many_ddls_did_takes_time_and_room_as_they_are_many(story):
    def told(count):
        ddls = story(count)
        return ddls, SchemaHistory().with_ddls(ddls)

    made = {count: told(count) for count in (500, 2_000)}
    assert_linear(lambda count: changes_of(*made[count]), 500)
    assert len(changes_of(*made[2_000])) <= 4_000


ALTERS = {
    "modify": lambda n: [f"MODIFY `c{n - 1}` INT"] * n,
    "modify-first": lambda n: [f"MODIFY `c{n - 1}` INT FIRST"] * n,
    "add": lambda n: [f"ADD COLUMN `n{at}` INT" for at in range(n)],
    "add-if-not-there": lambda n: [f"ADD COLUMN IF NOT EXISTS `c{n - 1}` INT"] * n,
    "drop": lambda n: [f"DROP COLUMN `c{at}`" for at in range(1, n)],
    "rename": lambda n: [f"RENAME COLUMN `c{n - 1 - at}` TO `n{at}`" for at in range(n)],
    "default": lambda n: [f"ALTER COLUMN `c{n - 1}` SET DEFAULT 5"] * n,
    "charset": lambda n: ["CONVERT TO CHARACTER SET binary"] * n,
    "keys": lambda n: [
        f"ADD UNIQUE KEY `k{at}` ({', '.join(f'`c{n - 1 - of}`' for of in range(16))})" for at in range(n // 4)
    ],
    "drop-keys": lambda n: [f"DROP KEY `k{at}`" for at in range(n)],
}


@pytest.mark.parametrize("actions", ALTERS.values(), ids=ALTERS.keys())
def test_an_alter_takes_time_as_its_actions_and_the_columns_are_many(actions):
    def story(count):
        columns = ", ".join(f"`c{n}` VARCHAR(9) NOT NULL" for n in range(count))
        return [
            ddl(f"CREATE TABLE `t` ({columns}, UNIQUE KEY `u` (`c0`))", 1),
            ddl("ALTER TABLE `t` " + ", ".join(actions(count)), 2),
        ]

    def told(count):
        history = SchemaHistory().with_ddls(made[count])
        assert history.epochs[-1].unparsed is None
        return schema_at(history, T, 3), changes_of(made[count], history)

    made = {count: story(count) for count in (500, 2_000)}
    assert_linear(told, 500)


def test_what_happened_to_a_column_is_told_once_of_a_statement():
    once = "CONVERT TO CHARACTER SET binary, MODIFY `a` BIGINT, ADD COLUMN `n` INT"
    found = changes(f"ALTER TABLE `t` {once}")
    assert {kind_of(change) for change in found} == {"column_changed", "column_widened", "column_added"}
    assert changes(f"ALTER TABLE `t` {once}, {once}") == found
