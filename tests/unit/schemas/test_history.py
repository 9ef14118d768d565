"""Which definition holds at a commitTs, whatever the order in which the DDLs were read."""

import pickle
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.growth import assert_linear
from tests.support.schema_histories import history_of, schema_at
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.schemas.history import SchemaHistory

T = TableName("shop", "t")


def ddl(commit_ts, query, table="t", schema="shop"):
    return DdlEvent(0, commit_ts, schema, table, query, 0)


def names(history, commit_ts, table="t"):
    schema = schema_at(history, TableName("shop", table), commit_ts)
    return None if schema is None else [column.name for column in schema.columns]


STORY = [
    ddl(10, "CREATE TABLE `t` (`id` INT PRIMARY KEY)"),
    ddl(20, "ALTER TABLE `t` ADD COLUMN `a` INT"),
    ddl(30, "ALTER TABLE `t` ADD INDEX `i`(`a`)"),
    ddl(40, "RENAME TABLE `t` TO `u`", table="u"),
    ddl(50, "ALTER TABLE `u` DROP COLUMN `a`", table="u"),
    ddl(60, "CREATE TABLE `t` (`other` INT)"),
    ddl(70, "DROP TABLE `shop`.`u`", table="u"),
    ddl(80, "ALTER TABLE `t` FROBNICATE"),
    ddl(90, "CREATE TABLE `t` (`again` INT)"),
]


def test_a_ddl_holds_for_rows_that_commit_after_it():
    history = SchemaHistory().with_ddls(STORY)
    assert [names(history, ts) for ts in (10, 11, 20, 21, 40, 41)] == [
        None,
        ["id"],
        ["id"],
        ["id", "a"],
        ["id", "a"],
        None,
    ]
    assert [names(history, ts, "u") for ts in (40, 41, 51, 70, 71)] == [None, ["id", "a"], ["id"], ["id"], None]


def test_after_a_ddl_that_is_not_understood_nothing_is_known_until_the_next_definition():
    history = SchemaHistory().with_ddls(STORY)
    assert [names(history, ts) for ts in (80, 81, 90, 91)] == [["other"], None, None, ["again"]]
    unparsed = [epoch for epoch in history.epochs if epoch.unparsed]
    assert [(epoch.name, epoch.after) for epoch in unparsed] == [(T, 80)]
    assert "FROBNICATE" in unparsed[0].unparsed


@settings(deadline=None)
@given(st.permutations(STORY), st.lists(st.sampled_from(STORY)), st.integers(0, len(STORY)))
def test_order_copies_and_portions_of_the_ddls_make_no_difference(shuffled, copies, cut):
    read = shuffled + copies
    history = SchemaHistory().with_ddls(read[:cut]).with_ddls(read[cut:])
    assert history.encode() == SchemaHistory().with_ddls(STORY).encode()


def test_a_rename_in_a_circle_is_put_in_order():
    # RENAME TABLE a TO tmp, b TO a, tmp TO b arrives as three DDLs of one commitTs.
    story = [
        ddl(1, "CREATE TABLE `a` (`of_a` INT)", "a"),
        ddl(2, "CREATE TABLE `b` (`of_b` INT)", "b"),
        ddl(9, "RENAME TABLE `shop`.`b` TO `shop`.`a`", "a"),
        ddl(9, "RENAME TABLE `shop`.`tmp` TO `shop`.`b`", "b"),
        ddl(9, "RENAME TABLE `shop`.`a` TO `shop`.`tmp`", "tmp"),
    ]
    history = SchemaHistory().with_ddls(story)
    assert names(history, 10, "a") == ["of_b"]
    assert names(history, 10, "b") == ["of_a"]
    assert names(history, 10, "tmp") is None


def test_a_declared_definition_holds_from_the_start_until_a_ddl():
    declared = definition_from_sql(T, "CREATE TABLE `t` (`id` INT)")
    history = history_of([declared]).with_ddls([ddl(20, "ALTER TABLE `t` ADD COLUMN `a` INT")])
    assert [names(history, ts) for ts in (1, 20, 21)] == [["id"], ["id"], ["id", "a"]]


def test_a_declared_definition_of_today_takes_the_ddls_that_led_to_it():
    today = definition_from_sql(T, "CREATE TABLE `t` (`id` INT, `new_name` INT, `a` INT)")
    story = [
        ddl(20, "ALTER TABLE `t` RENAME COLUMN `old_name` TO `new_name`"),
        ddl(30, "ALTER TABLE `t` ADD COLUMN `a` INT"),
        ddl(40, "ALTER TABLE `t` DROP COLUMN `gone`"),
    ]
    history = history_of([today]).with_ddls(story)
    assert names(history, 50) == ["id", "new_name", "a"]
    assert not any(epoch.unparsed for epoch in history.epochs)


def test_earlier_windows_hand_over_what_later_rows_need():
    whole = SchemaHistory().with_ddls(STORY)
    handed_over = SchemaHistory().with_ddls(STORY[:4]).since(45)
    assert {epoch.after for epoch in handed_over.epochs} == {40}
    later = handed_over.with_ddls(STORY[3:])
    for ts in range(45, 100):
        for table in ("t", "u"):
            assert names(later, ts, table) == names(whole, ts, table), (ts, table)


def test_epochs_of_several_sources_join():
    first = SchemaHistory().with_ddls(STORY[:2])
    second = SchemaHistory().with_ddls([ddl(15, "CREATE TABLE `x` (`c` INT)", "x")])
    joined = first.with_epochs(second.epochs)
    assert names(joined, 25) == ["id", "a"]
    assert names(joined, 25, "x") == ["c"]


def test_tables_are_found_in_any_letter_case():
    history = SchemaHistory().with_ddls([ddl(1, "CREATE TABLE `Shop`.`We$ird` (`Id` INT)", "We$ird")])
    assert schema_at(history, TableName("SHOP", "we$IRD"), 2).columns[0].name == "Id"


def test_names_are_the_same_where_each_letter_is_in_lower_case():
    story = [
        ddl(1, "CREATE TABLE `straße` (`Ä` INT, `maß` INT, `mass` INT)", "straße"),
        ddl(2, "CREATE TABLE `STRASSE` (`id` INT)", "STRASSE"),
        ddl(3, "ALTER TABLE `STRAẞE` DROP COLUMN `MASS`", "straße"),
        ddl(4, "CREATE TABLE `ΟΔΟΣ` (`İd` INT)", "ΟΔΟΣ"),
        ddl(5, "ALTER TABLE `οδοσ` ADD COLUMN `n` INT, CHANGE COLUMN `id` `a` INT", "οδοσ"),
    ]
    history = SchemaHistory().with_ddls(story)
    assert names(history, 9, "straße") == ["Ä", "maß"]
    assert names(history, 9, "strasse") == ["id"]
    assert names(history, 9, "οδοσ") == ["a", "n"]
    assert names(history, 9, "οδος") is None


def test_a_ddl_that_leaves_rows_alone_does_not_begin_a_new_schema():
    history = SchemaHistory().with_ddls(STORY[:3])
    assert history.known_at("shop", "t", 25) is history.known_at("shop", "t", 35)
    assert schema_at(history, T, 35).valid_from == 20


def test_a_history_travels():
    history = SchemaHistory().with_ddls(STORY)
    for copy in (SchemaHistory.decode(history.encode()), pickle.loads(pickle.dumps(history))):
        assert copy.epochs == history.epochs
        assert [names(copy, ts) for ts in range(100)] == [names(history, ts) for ts in range(100)]


def test_a_history_that_an_earlier_version_wrote_is_read():
    history = SchemaHistory().with_ddls(STORY)
    epochs = [msgspec.to_builtins(epoch) for epoch in history.epochs]
    assert SchemaHistory.decode(msgspec.json.encode({"epochs": epochs, "versions": []})).epochs == history.epochs


WIDE = ",".join(f"`c{n:04}` VARCHAR({n + 1}) COMMENT 'one of many'" for n in range(1_000))


@pytest.mark.parametrize(
    "story",
    [
        [ddl(n + 2, f"CREATE TABLE `t{n}` LIKE `t`", f"t{n}") for n in range(200)],
        [ddl(n + 2, f"ALTER TABLE `t` MODIFY COLUMN `c{n * 7 % 1000:04}` VARCHAR(2000)") for n in range(200)],
        [ddl(n + 2, f"ALTER TABLE `t` ADD COLUMN `a{n}` INT FIRST, ADD INDEX (`a{n}`)") for n in range(60)],
        [
            each
            for n in range(200)
            for each in (
                ddl(n + 2, f"CREATE TABLE `t{n}` LIKE `t`", f"t{n}"),
                ddl(n + 300, f"ALTER TABLE `t{n}` DROP COLUMN `c{n * 7 % 1000:04}`", f"t{n}"),
            )
        ],
        [ddl(9, "RENAME TABLE `t` TO `u`", "u"), *(ddl(n + 10, "ALTER TABLE `u` COMMENT 'x'", "u") for n in range(9))],
    ],
    ids=["like", "modify", "add-first", "like-and-drop", "rename"],
)
def test_a_history_is_not_much_larger_than_its_ddl(story):
    ddls = [ddl(1, f"CREATE TABLE `t` (`id` INT PRIMARY KEY,{WIDE})"), *story]
    history = SchemaHistory().with_ddls(ddls)
    content = history.encode()
    assert len(content) < 5 * sum(len(each.query) + 60 for each in ddls)
    copy = SchemaHistory.decode(content)
    assert copy.epochs == history.epochs
    assert copy.encode() == content


@pytest.mark.parametrize(
    "story",
    [
        lambda count: [ddl(9, f"CREATE TABLE `t{n}` (`id` INT)", f"t{n}") for n in range(count)],
        # Each waits for the one before it: in the order of their texts the last can run first.
        lambda count: [
            ddl(1, f"CREATE TABLE `a{count:05}` (`id` INT)", f"a{count:05}"),
            *(ddl(9, f"RENAME TABLE `a{n + 1:05}` TO `a{n:05}`", f"a{n:05}") for n in range(count)),
        ],
        # All wait, for as long as the table is there, and each change of it may be what they wait for.
        lambda count: [
            ddl(1, "CREATE TABLE `t` (`id` INT)"),
            *(ddl(9, f"ALTER TABLE `t` ADD COLUMN `c{n % 30}` INT, COMMENT '{n}'") for n in range(count)),
            *(ddl(9, f"/**/ RENAME TABLE `a{n}` TO `t`") for n in range(count)),
        ],
        # One waits, for all the others.
        lambda count: [
            *(ddl(1, f"CREATE TABLE `a{n}` (`id` INT)", f"a{n}") for n in range(count)),
            *(ddl(1, f"CREATE TABLE `b{n}` (`id` INT)", f"b{n}") for n in range(count)),
            *(ddl(9, f"DROP TABLE `b{n}`", f"b{n}") for n in range(count)),
            ddl(9, "/**/ RENAME TABLE " + ", ".join(f"`a{n}` TO `b{n}`" for n in range(count)), ""),
        ],
    ],
    ids=["tables", "renames", "renames-to-one", "renames-in-one"],
)
def test_many_ddls_of_one_commit_take_time_as_they_are_many(story):
    assert_linear(lambda count: SchemaHistory().with_ddls(story(count)), 400)


@settings(deadline=None)
@given(st.permutations("abcdef"), st.permutations("abcdef"), st.integers(2, 6))
def test_renames_of_one_commit_are_put_in_order_whatever_their_names(before, after, count):
    tables, steps = before[:count], after[:count]
    story = [ddl(1, f"CREATE TABLE `{name}` (`of_{name}` INT)", name) for name in tables]
    # A circle by way of a name that is free, as TiDB sends it; DDLs of one commitTs are read in the order of their texts.
    chain = ["tmp", *(name for name in steps if name in tables), "tmp"]
    story += [ddl(9, f"RENAME TABLE `{old}` TO `{new}`", new) for new, old in pairwise(chain)]
    history = SchemaHistory().with_ddls(story)
    moved = dict(pairwise(chain))
    for name in chain[1:-2]:
        assert names(history, 10, name) == [f"of_{moved[name]}"]
    assert names(history, 10, "tmp") is None
