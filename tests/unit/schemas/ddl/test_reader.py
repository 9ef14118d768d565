"""What a DDL of the changefeed does to the known definitions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.parser import MAX_TABLES
from ticdc_replay.schemas.ddl.reader import AppliedDdl, ParsedDdl, UnparsedDdl, key_of
from ticdc_replay.schemas.ddl.reader import Tables as KnownTables


class Tables:
    """Definitions by name, changed by one DDL after the other; commitTs counts up."""

    def __init__(self, *queries):
        self.known = KnownTables()
        self.commit_ts = 0
        for query in queries:
            assert isinstance(self.run(query), AppliedDdl)

    def run(self, query, schema="shop", table="t"):
        self.commit_ts += 1
        outcome = ParsedDdl(DdlEvent(0, self.commit_ts, schema, table, query, 0)).apply(self.known)
        if isinstance(outcome, AppliedDdl):
            for name in outcome.gone:
                self.known.pop(key_of(name), None)
            for definition in outcome.defined:
                self.known[key_of(definition.name)] = definition
        return outcome

    def columns(self, table="t", schema="shop"):
        return [f"{column.name} {column.type}" for column in self.known[schema, table].columns]

    def __getitem__(self, table):
        return self.known["shop", table]


BASE = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` INT,`b` VARCHAR(10) NOT NULL,`v` INT AS (`a`+1) VIRTUAL)"


@pytest.mark.parametrize(
    ("actions", "columns"),
    [
        ("ADD COLUMN `c` DATE", ["id int", "a int", "b varchar(10)", "v int", "c date"]),
        ("ADD COLUMN `c` DATE FIRST", ["c date", "id int", "a int", "b varchar(10)", "v int"]),
        ("ADD `c` DATE AFTER `ID`", ["id int", "c date", "a int", "b varchar(10)", "v int"]),
        (
            "ADD COLUMN `c` DATE AFTER `v`, ADD COLUMN (`d` INT, `e` BIT(3))",
            ["id int", "a int", "b varchar(10)", "v int", "c date", "d int", "e bit(3)"],
        ),
        ("DROP COLUMN `a`", ["id int", "b varchar(10)", "v int"]),
        ("MODIFY COLUMN `b` VARCHAR(50) FIRST", ["b varchar(50)", "id int", "a int", "v int"]),
        ("MODIFY `b` TEXT", ["id int", "a int", "b text", "v int"]),
        (
            "CHANGE COLUMN `a` `A2` BIGINT UNSIGNED AFTER `b`",
            ["id int", "b varchar(10)", "A2 bigint unsigned", "v int"],
        ),
        ("RENAME COLUMN `a` TO `z`", ["id int", "z int", "b varchar(10)", "v int"]),
        ("CONVERT TO CHARACTER SET binary", ["id int", "a int", "b varbinary(10)", "v int"]),
        ("CONVERT TO CHARACTER SET UTF8MB4 COLLATE utf8mb4_bin", ["id int", "a int", "b varchar(10)", "v int"]),
        (
            "DEFAULT CHARACTER SET = binary, ADD `c` CHAR(2)",
            ["id int", "a int", "b varchar(10)", "v int", "c binary(2)"],
        ),
        ("LOCK = NONE, ALGORITHM = INPLACE, DROP COLUMN `a`", ["id int", "b varchar(10)", "v int"]),
    ],
)
def test_alter_table_changes_columns_and_their_order(actions, columns):
    tables = Tables(BASE, f"ALTER TABLE `t` {actions}")
    assert tables.columns() == columns


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE `t` COMMENT = 'drop column a, add x int'",
        "ALTER TABLE `t` AUTO_INCREMENT = 5000",
        "ALTER TABLE `t` ADD INDEX `i`(`a`), ADD FULLTEXT INDEX `f`(`b`)",
        "ALTER TABLE `t` ADD CONSTRAINT `fk` FOREIGN KEY (`a`) REFERENCES `u`(`id`) ON DELETE CASCADE",
        "ALTER TABLE `t` ADD VECTOR INDEX `vi`((VEC_COSINE_DISTANCE(`a`))) USING HNSW",
        "ALTER TABLE `t` DROP FOREIGN KEY `fk`",
        "ALTER TABLE `t` ALTER INDEX `i` INVISIBLE",
        "ALTER TABLE `t` /*T![ttl] REMOVE TTL */",
        "ALTER TABLE `t` /*T![ttl] TTL=`a` + INTERVAL 1 DAY TTL_ENABLE='OFF' */",
        "ALTER TABLE `t` /*T! SHARD_ROW_ID_BITS = 4 */",
        "ALTER TABLE `t` SET TIFLASH REPLICA 1",
        "ALTER TABLE `t` SET TIFLASH REPLICA 2 LOCATION LABELS 'zone', 'host', 'drop column a'",
        "ALTER TABLE `t` ADD STATS_EXTENDED IF NOT EXISTS `s` CORRELATION(`id`, `a`)",
        "ALTER TABLE `t` DROP STATS_EXTENDED IF EXISTS `s`",
        "ALTER TABLE `t` AFFINITY = 'table'",
        "ALTER TABLE `t` STATS_OPTIONS = '{\"sample_rate\": 1}'",
        "ALTER TABLE `t` STATS_SAMPLE_RATE = 0.5 STATS_COL_CHOICE = 'list' STATS_COL_LIST = 'id,a'",
        "ALTER TABLE `t` AUTOEXTEND_SIZE = 4M, DATA DIRECTORY = '/x', INDEX DIRECTORY = '/y', TABLE_CHECKSUM = 1",
        "ALTER TABLE `t` ORDER BY `a` DESC,`shop`.`t`.`b`",
        "ALTER TABLE `t` READ ONLY",
        "ALTER TABLE `t` PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (10), PARTITION `p1` VALUES LESS THAN (20))",
        "ALTER TABLE `t` ADD PARTITION (PARTITION `p2` VALUES LESS THAN (30))",
        "ALTER TABLE `t` REORGANIZE PARTITION `p0`,`p1` INTO (PARTITION `p` VALUES LESS THAN (20))",
        "ALTER TABLE `t` TRUNCATE PARTITION `p0`, `p1`",
        "ALTER TABLE `t` DROP PARTITION `p0`",
        "ALTER TABLE `shop`.`t` EXCHANGE PARTITION `p` WITH TABLE `shop`.`u`",
        "ALTER TABLE `t` REMOVE PARTITIONING",
        "TRUNCATE TABLE `t`",
        "CREATE INDEX `i` ON `t` (`a`)",
        "CREATE DATABASE `x`",
        "ALTER DATABASE `shop` CHARACTER SET = utf8mb4",
        "CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW `t` AS SELECT `id` FROM `u`",
        "DROP VIEW `shop`.`v`",
        "ALTER TABLE `t` DROP COLUMN `was_dropped_before`",
        "",
    ],
)
def test_what_does_not_concern_rows_leaves_the_columns_alone(query):
    tables = Tables(BASE)
    before = tables.columns()
    outcome = tables.run(query)
    assert isinstance(outcome, AppliedDdl), outcome
    assert not outcome.gone
    assert tables.columns() == before


@pytest.mark.parametrize(
    "action",
    [
        "SET TIFLASH REPLICA 2 LOCATION LABELS 'zone', 'host'",
        "ADD STATS_EXTENDED `s` CORRELATION(`id`, `a`)",
        "DROP STATS_EXTENDED `s`",
        "ADD CONSTRAINT `fk` FOREIGN KEY IF NOT EXISTS (`a`, `id`) REFERENCES `u`(`b`, `id`) ON DELETE SET NULL",
        "ORDER BY `id` DESC",
    ],
)
def test_what_follows_an_action_that_does_not_concern_rows_is_read(action):
    assert (
        Tables(BASE, f"ALTER TABLE `t` {action}, DROP COLUMN `a`").columns()
        == Tables(BASE, "ALTER TABLE `t` DROP COLUMN `a`").columns()
    )


def test_a_charset_among_other_options_of_the_table_counts():
    """TiDB writes options that stood without commas without them."""
    options = "COMMENT = 'x' DEFAULT CHARACTER SET = BINARY DEFAULT COLLATE = BINARY AUTO_INCREMENT = 5"
    tables = Tables(BASE, f"ALTER TABLE `t` {options}", "ALTER TABLE `t` ADD COLUMN `c` CHAR(2)")
    assert tables.columns()[-1] == "c binary(2)"


@pytest.mark.parametrize(
    "key",
    [
        "PRIMARY KEY `pk_t`(`a`)",
        "PRIMARY KEY `PRIMARY`(`a`)",
        "PRIMARY KEY pk_t (a)",
        "PRIMARY KEY `using`(`a`) /*T![clustered_index] NONCLUSTERED */ USING BTREE COMMENT 'x' /*T![global_index] GLOBAL */",
        "PRIMARY KEY pk_t USING BTREE (a)",
        "CONSTRAINT `c` PRIMARY KEY `pk_t`(`a`)",
        "CONSTRAINT PRIMARY KEY (`a`)",
        "PRIMARY KEY TYPE HASH (a)",
    ],
)
def test_the_primary_key_may_have_a_name(key):
    """TiDB writes the name of ``CONSTRAINT pk_t PRIMARY KEY (a)`` behind the words PRIMARY KEY."""
    for tables in (
        Tables(f"CREATE TABLE `t` (`id` INT,`a` INT,{key})"),
        Tables("CREATE TABLE `t` (`id` INT,`a` INT)", f"ALTER TABLE `t` ADD {key}"),
    ):
        assert tables["t"].handle_key() == ("a",)
        tables.run("ALTER TABLE `t` DROP PRIMARY KEY")
        assert tables["t"].handle_key() == ()


@pytest.mark.parametrize(
    "constraint",
    [
        "UNIQUE `u`(`a`) /*T![global_index] GLOBAL */",
        "UNIQUE KEY `u`(`a`(10) DESC) KEY_BLOCK_SIZE=4 USING HASH COMMENT 'x, y)' INVISIBLE",
        "UNIQUE INDEX `u`(`a`) /*T![pre_split] PRE_SPLIT_REGIONS = (BETWEEN (1) AND (9) REGIONS 4) */ VISIBLE",
        "UNIQUE KEY u USING BTREE (a)",
        "CONSTRAINT `u` UNIQUE (`a`)",
        "UNIQUE KEY `u`(`a`),KEY IF NOT EXISTS `k`(`id`),INDEX `i`((`a` + 1) DESC, `id`) USING BTREE LOCAL",
        "UNIQUE KEY `u`(`a`),FULLTEXT `f`(`id`) WITH PARSER `ngram`,FULLTEXT INDEX `g`(`id`)",
        "UNIQUE KEY `u`(`a`),VECTOR INDEX IF NOT EXISTS `v`((VEC_COSINE_DISTANCE(`id`))) USING HNSW",
        "UNIQUE KEY `u`(`a`),COLUMNAR INDEX `v`(`id`) USING INVERTED,HYBRID INDEX `h`(`id`) PARAMETER 'x'",
        "UNIQUE KEY `u`(`a`),CONSTRAINT `f` FOREIGN KEY (`id`) REFERENCES `x`.`y`(`id`) ON DELETE SET NULL ON UPDATE CASCADE",
        "UNIQUE KEY `u`(`a`),CONSTRAINT FOREIGN KEY IF NOT EXISTS (`id`) REFERENCES `y`(`id`) MATCH FULL",
        "UNIQUE KEY `u`(`a`),CONSTRAINT `c` CHECK(`a`>0 AND `id` IN (1, 2)) NOT ENFORCED,CHECK(`a`<9) ENFORCED",
    ],
)
def test_every_constraint_that_tidb_writes_is_read(constraint):
    for tables in (
        Tables(f"CREATE TABLE `t` (`id` INT,`a` INT NOT NULL,{constraint})"),
        Tables("CREATE TABLE `t` (`id` INT,`a` INT NOT NULL)", f"ALTER TABLE `t` ADD COLUMN ({constraint})"),
    ):
        assert tables["t"].handle_key() == ("a",)
        tables.run("ALTER TABLE `t` DROP INDEX `u`")
        assert tables["t"].handle_key() == ()


@pytest.mark.parametrize(
    ("body", "handle_key"),
    [
        ("`a` INT, `b` INT, PRIMARY KEY (`b`,`a`) /*T![clustered_index] NONCLUSTERED */, UNIQUE KEY (`a`)", ("a", "b")),
        ("`a` INT NOT NULL, `b` INT NOT NULL UNIQUE, UNIQUE KEY `u` (`a`,`b`)", ("b",)),
        ("`a` INT NOT NULL, `b` INT NOT NULL, UNIQUE KEY `u1` (`b`), UNIQUE KEY `u2` (`a`)", ("b",)),
        ("`a` INT NULL UNIQUE, `b` INT NOT NULL, UNIQUE KEY `u` (`a`,`b`)", ()),
        ("`a` INT NOT NULL, `b` INT AS (`a`) NOT NULL UNIQUE", ()),
        ("`a` INT NOT NULL, `b` INT AS (`a`) STORED NOT NULL UNIQUE", ("b",)),
        ("`a` INT NOT NULL, UNIQUE KEY `u` ((`a`+1))", ()),
        ("`a` INT NOT NULL, `b` INT, UNIQUE KEY `u` (`a`) COMMENT 'WHERE' WHERE `b` IN (1,2), KEY (`b`)", ()),
        ("`a` INT NOT NULL, `b` INT NOT NULL, UNIQUE KEY `u` (`a`) WHERE `b`=1, UNIQUE KEY `f` (`a`,`b`)", ("a", "b")),
        ("`a` INT NOT NULL, `b` INT, PRIMARY KEY `p` (`a`) WHERE `b`=1", ("a",)),
        ("`a` SERIAL", ("a",)),
        ("`a` VARCHAR(30) NOT NULL, UNIQUE KEY (`a`(10) DESC) USING BTREE COMMENT 'x', KEY (`a`)", ("a",)),
        ("`a` INT, KEY (`a`)", ()),
    ],
)
def test_the_handle_key_is_the_primary_key_or_the_narrowest_unique_key_without_null(body, handle_key):
    assert Tables(f"CREATE TABLE `t` ({body})")["t"].handle_key() == handle_key


def test_the_handle_key_follows_the_indexes():
    tables = Tables("CREATE TABLE `t` (`a` INT NOT NULL, `b` INT NOT NULL, UNIQUE KEY (`a`,`b`))")
    tables.run("ALTER TABLE `t` ADD UNIQUE `ub`(`b`)")
    assert tables["t"].handle_key() == ("b",)
    tables.run("ALTER TABLE `t` RENAME INDEX `ub` TO `uc`, RENAME COLUMN `b` TO `c`")
    assert tables["t"].handle_key() == ("c",)
    tables.run("ALTER TABLE `t` DROP INDEX `uc`")
    assert tables["t"].handle_key() == ("a", "c")
    tables.run("DROP INDEX `a` ON `t`")
    assert tables["t"].handle_key() == ()
    tables.run("ALTER TABLE `t` ADD PRIMARY KEY (`c`)")
    assert tables["t"].handle_key() == ("c",)
    assert not tables["t"].column("C").nullable
    tables.run("ALTER TABLE `t` DROP PRIMARY KEY")
    assert tables["t"].handle_key() == ()


def test_virtual_columns_are_known_but_not_part_of_the_rows():
    definition = Tables(BASE)["t"]
    assert definition.virtual() == ("v",)
    assert [column.name for column in definition.schema().columns] == ["id", "a", "b"]


def test_a_table_like_another_has_its_columns_and_keys():
    tables = Tables(BASE, "CREATE TABLE `u` LIKE `t`")
    assert tables["u"].columns == tables["t"].columns
    assert tables["u"].handle_key() == ("id",)
    assert tables["u"].valid_from == 2


def test_a_table_like_an_unknown_one_is_unknown():
    tables = Tables()
    assert tables.run("CREATE TABLE `u` LIKE `t`", table="u").gone == (TableName("shop", "u"),)


def test_a_table_like_one_whose_schema_is_not_told_is_unknown():
    """TiCDC sends the text of ``USE shop; CREATE TABLE other.u LIKE t`` so."""
    tables = Tables(BASE)
    outcome = tables.run("CREATE TABLE `other`.`u` LIKE `t`", schema="other", table="u")
    assert isinstance(outcome, AppliedDdl)
    assert (outcome.defined, outcome.gone) == ((), (TableName("other", "u"),))


@pytest.mark.parametrize(
    "query",
    [
        "RENAME TABLE `t` TO `u`",
        "RENAME TABLE `shop`.`t` TO `shop`.`u`;",
        "ALTER TABLE `t` RENAME TO `u`",
        "ALTER TABLE `T` RENAME AS u",
    ],
)
def test_a_renamed_table_keeps_its_definition(query):
    tables = Tables(BASE)
    columns = tables.columns()
    tables.run(query, table="u")
    assert tables.columns("u") == columns
    assert ("shop", "t") not in tables.known


def test_a_table_goes_to_another_schema_only_where_both_names_are_full():
    tables = Tables(BASE)
    assert isinstance(tables.run("RENAME TABLE `t` TO `other`.`t`", schema="other"), UnparsedDdl)
    tables.run("RENAME TABLE `shop`.`t` TO `other`.`t`", schema="other")
    assert list(tables.known) == [("other", "t")]


def test_dropped_tables_and_databases_are_gone():
    tables = Tables(BASE, "CREATE TABLE u (a INT)", "CREATE TABLE `x`.`y` (a INT)")
    tables.run("DROP TABLE IF EXISTS `shop`.`t`")
    assert sorted(tables.known) == [("shop", "u"), ("x", "y")]
    tables.run("DROP DATABASE `SHOP`", table="")
    assert list(tables.known) == [("x", "y")]


@pytest.mark.parametrize("pair", ["{0}", "{0} TO x{0}"], ids=["DROP", "RENAME"])
def test_a_statement_names_a_bounded_number_of_tables(pair):
    verb = "RENAME" if "TO" in pair else "DROP"

    def outcome(count):
        return Tables().run(f"{verb} TABLE " + ", ".join(pair.format(f"t{number}") for number in range(count)))

    assert not isinstance(outcome(MAX_TABLES), UnparsedDdl)
    assert "1001 tables in one statement" in outcome(MAX_TABLES + 1).reason


def test_one_table_is_not_renamed_twice_by_a_statement():
    tables = Tables(BASE)
    assert "renamed twice" in tables.run("RENAME TABLE t TO u, t TO v").reason
    tables = Tables(BASE, "CREATE TABLE u (a INT)")
    tables.run("RENAME TABLE t TO x, u TO t, x TO u")
    assert tables.columns("t") == ["a int"]


def test_names_of_any_kind_are_read():
    tables = Tables(
        'CREATE TABLE `dev-db 2.x`.`We$ird-Name.dot"q` '
        "(`Id` INT PRIMARY KEY,`col umn` INT,`select` INT,`名字` INT,`d.ot` INT,`1st` INT,`back``tick` INT, 表 INT)"
    )
    definition = tables.known["dev-db 2.x", 'we$ird-name.dot"q']
    assert definition.name == TableName("dev-db 2.x", 'We$ird-Name.dot"q')
    names = [column.name for column in definition.columns]
    assert names == ["Id", "col umn", "select", "名字", "d.ot", "1st", "back`tick", "表"]


def test_column_names_match_in_any_letter_case_and_keep_their_spelling():
    tables = Tables("CREATE TABLE t (Id INT, `Value` INT)", "ALTER TABLE T MODIFY COLUMN `ID` BIGINT AFTER `VALUE`")
    assert tables.columns() == ["Value int", "ID bigint"]


def test_backslashes_of_restored_text_are_themselves():
    # TiCDC restores the SQL text without escaping backslashes; SHOW CREATE TABLE and people escape them.
    restored = Tables("CREATE TABLE `t` (`e` ENUM('a\\b','c\\','d'))")
    assert restored["t"].columns[0].type.elements == ("a\\b", "c\\", "d")
    typed = Tables("create table t (e enum('a\\\\b','it\\'s','d'))")
    assert typed["t"].columns[0].type.elements == ("a\\b", "it's", "d")


_PIECES = [
    "(",
    ")",
    ",",
    "'",
    "`",
    "/*T![",
    "*/",
    "\\",
    "DEFAULT",
    "ADD",
    "COLUMN",
    "PRIMARY KEY",
    "x'0",
    "b'2",
    "1e5",
    "@",
]


@settings(deadline=None)
@given(st.data())
def test_no_text_whatever_raises(data):
    text = data.draw(
        st.one_of(st.text(max_size=40), st.sampled_from([BASE, "ALTER TABLE `t` MODIFY `a` BIT(3) FIRST"]))
    )
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.sampled_from(_PIECES)) + text[data.draw(st.integers(at, len(text))) :]
    assert isinstance(Tables(BASE).run(text), (AppliedDdl, UnparsedDdl))


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE `t` FROBNICATE COLUMN `a`",
        "ALTER TABLE `t` MODIFY COLUMN `nowhere` INT",
        "ALTER TABLE `t` ADD COLUMN `c` INT AFTER `nowhere`",
        "ALTER TABLE `t` ADD COLUMN `c` POINT",
        "ALTER TABLE `t` RENAME COLUMN `a` TO `b`",
        "CREATE TABLE `t` AS SELECT 1",
        "CREATE TABLE `t` (`a` INT) AS SELECT 1",
        "RECOVER TABLE `t` SOMEHOW",
        "ALTER TABLE `t` COMMENT 'no end",
        "\x00\xff",
    ],
)
def test_what_cannot_be_understood_is_an_outcome_that_names_the_table(query):
    outcome = Tables(BASE).run(query)
    assert isinstance(outcome, UnparsedDdl)
    assert outcome.table == TableName("shop", "t")
    assert outcome.reason


def test_an_index_gives_way_to_one_that_gets_its_name():
    tables = Tables("CREATE TABLE t (a INT, b INT, KEY i (a), KEY j (b))", "ALTER TABLE t RENAME INDEX j TO I")
    assert [(index.name, index.columns) for index in tables["t"].indexes] == [("I", ("b",))]
