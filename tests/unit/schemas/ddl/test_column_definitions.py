"""The column type that a definition means, in TiDB's normalised spelling and in people's."""

import pytest

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql

TABLE = TableName("shop", "t")


def column(text, options=""):
    return definition_from_sql(TABLE, f"CREATE TABLE `t` (`c` {text}) {options}").columns[0]


def type_of(text, options=""):
    column_type = column(text, options).type
    assert column_type.declared
    return ColumnType(
        column_type.base, column_type.unsigned, column_type.length, column_type.scale, column_type.elements
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TINYINT(1)", ColumnType("tinyint")),
        ("bool", ColumnType("tinyint")),
        ("BOOLEAN", ColumnType("tinyint")),
        ("INT2", ColumnType("smallint")),
        ("MIDDLEINT", ColumnType("mediumint")),
        ("MEDIUMINT(8) UNSIGNED ZEROFILL", ColumnType("mediumint", unsigned=True)),
        ("integer zerofill", ColumnType("int", unsigned=True)),
        ("bigint(20) unsigned", ColumnType("bigint", unsigned=True)),
        ("SERIAL", ColumnType("bigint", unsigned=True)),
        ("FLOAT(7,3)", ColumnType("float")),
        ("float(24)", ColumnType("float")),
        ("float(25)", ColumnType("double")),
        ("REAL", ColumnType("double")),
        ("DOUBLE PRECISION UNSIGNED", ColumnType("double", unsigned=True)),
        ("double(20,5)", ColumnType("double")),
        ("DECIMAL", ColumnType("decimal", length=10, scale=0)),
        ("DEC(5)", ColumnType("decimal", length=5, scale=0)),
        ("numeric(65,30) unsigned", ColumnType("decimal", unsigned=True, length=65, scale=30)),
        ("FIXED(4,1)", ColumnType("decimal", length=4, scale=1)),
        ("BIT", ColumnType("bit", length=1)),
        ("BIT(17)", ColumnType("bit", length=17)),
        ("YEAR(4)", ColumnType("year")),
        ("DATE", ColumnType("date")),
        ("DATETIME", ColumnType("datetime", scale=0)),
        ("TIMESTAMP(6) NULL", ColumnType("timestamp", scale=6)),
        ("TIME(3)", ColumnType("time", scale=3)),
        ("CHAR", ColumnType("char", length=1)),
        ("CHARACTER VARYING(5)", ColumnType("varchar", length=5)),
        ("NCHAR(5)", ColumnType("char", length=5)),
        ("NATIONAL CHAR(5)", ColumnType("char", length=5)),
        ("NATIONAL CHARACTER VARYING(5)", ColumnType("varchar", length=5)),
        ("NATIONAL VARCHAR(5)", ColumnType("varchar", length=5)),
        ("NVARCHAR(5)", ColumnType("varchar", length=5)),
        ("CHAR(3) BINARY", ColumnType("char", length=3)),
        ("CHAR(3) BYTE", ColumnType("binary", length=3)),
        ("VARCHAR(9) CHARACTER SET BINARY", ColumnType("varbinary", length=9)),
        ("varchar(9) collate binary", ColumnType("varbinary", length=9)),
        ("varchar(9) not null collate `binary`", ColumnType("varbinary", length=9)),
        ("varchar(9) CHARSET latin1 COLLATE latin1_bin", ColumnType("varchar", length=9)),
        ("MEDIUMTEXT charset binary", ColumnType("mediumblob")),
        ("BINARY", ColumnType("binary", length=1)),
        ("VARBINARY(300)", ColumnType("varbinary", length=300)),
        ("TEXT", ColumnType("text")),
        ("TEXT(10)", ColumnType("tinytext")),
        ("TEXT(16384)", ColumnType("mediumtext")),
        ("BLOB(70000)", ColumnType("mediumblob")),
        ("LONG", ColumnType("mediumtext")),
        ("LONG VARCHAR", ColumnType("mediumtext")),
        ("LONG VARBINARY", ColumnType("mediumblob")),
        ("JSON", ColumnType("json")),
        ("VECTOR", ColumnType("vector")),
        ("VECTOR(3)", ColumnType("vector", length=3)),
        ("VECTOR<FLOAT>(3)", ColumnType("vector", length=3)),
        ("ENUM('a','b','c,d','it''s','(x)')", ColumnType("enum", elements=("a", "b", "c,d", "it's", "(x)"))),
        ("ENUM('a',x'67',0x6869,b'01101010')", ColumnType("enum", elements=("a", "g", "hi", "j"))),
        ("enum(_utf8mb4'ü', 'b  ') character set binary", ColumnType("enum", elements=("ü", "b"))),
        ("SET('x','y z')", ColumnType("set", elements=("x", "y z"))),
    ],
)
def test_each_type_of_mysql_is_known_by_all_its_names(text, expected):
    assert type_of(text) == expected


@pytest.mark.parametrize(
    ("text", "digits"),
    [("FLOAT(7,3)", (7, 3)), ("DOUBLE PRECISION(20,0) UNSIGNED", (20, 0)), ("FLOAT(24)", None), ("DECIMAL(7,3)", None)],
)
def test_the_digits_that_a_float_is_rounded_to_stand_beside_its_type(text, digits):
    assert column(text).digits == digits


def test_a_binary_default_charset_makes_character_columns_binary_unless_they_say_otherwise():
    assert type_of("VARCHAR(5)", "ENGINE=InnoDB DEFAULT CHARSET=binary").base == "varbinary"
    assert type_of("TEXT", "COLLATE = binary").base == "blob"
    assert type_of("VARCHAR(5) CHARACTER SET utf8mb4", "CHARSET binary").base == "varchar"


@pytest.mark.parametrize(
    ("text", "default", "computed"),
    [
        ("INT", None, False),
        ("INT DEFAULT NULL", None, False),
        ("INT DEFAULT 42", "42", False),
        ("INT DEFAULT -7", "-7", False),
        ("INT DEFAULT '9'", "9", False),
        ("VARCHAR(9) DEFAULT 'a' \"b\" COMMENT 'c'", "ab", False),
        ("TINYINT(1) DEFAULT TRUE", "1", False),
        ("INT DEFAULT 1.5", None, True),
        ("BIGINT AUTO_INCREMENT", None, True),
        ("BIGINT PRIMARY KEY /*T![auto_rand] AUTO_RANDOM(5) */", None, True),
        ("DOUBLE DEFAULT 1.5e+10", "1.5e+10", False),
        ("DOUBLE DEFAULT -.5e1", "-0.5e1", False),
        ("DECIMAL(8,3) DEFAULT 1.500", "1.500", False),
        ("DECIMAL(5,2) DEFAULT 1.235", "1.24", False),
        ("DECIMAL(5,2) DEFAULT '-0.001'", "0.00", False),
        ("DECIMAL DEFAULT 1e2", "100", False),
        (f"DECIMAL(65,30) DEFAULT {'9' * 35}.{'9' * 30}", f"{'9' * 35}.{'9' * 30}", False),
        ("DECIMAL DEFAULT 1e99", None, True),
        ("FLOAT(7,2) DEFAULT 1.25", "1.25", False),
        ("FLOAT(7,2) DEFAULT 1.239", None, True),
        ("DOUBLE(7,2) DEFAULT 1239e-3", None, True),
        ("VARCHAR(9) DEFAULT _UTF8MB4'it''s'", "it's", False),
        ("VARCHAR(9) DEFAULT ''", "", False),
        ("CHAR(9) DEFAULT 'x  '", "x", False),
        ("CHAR(9) DEFAULT 5", "5", False),
        ("VARCHAR(9) DEFAULT -1.50", "-1.50", False),
        ("VARCHAR(9) DEFAULT +0.5", "0.5", False),
        ("VARCHAR(9) DEFAULT TRUE", "1", False),
        ("VARCHAR(9) DEFAULT '007'", "007", False),
        ("VARCHAR(9) DEFAULT 1e3", None, True),
        ("VARCHAR(9) DEFAULT 1e-3", None, True),
        ("VARCHAR(9) DEFAULT 007", None, True),
        ("CHAR(9) DEFAULT 007", None, True),
        ("VARCHAR(9) DEFAULT 00.50", None, True),
        ("VARCHAR(9) DEFAULT 5.", None, True),
        ("VARCHAR(9) DEFAULT -0", None, True),
        ("VARCHAR(9) DEFAULT -0.00", None, True),
        (f"VARCHAR(99) DEFAULT 0.{'1' * 30}", f"0.{'1' * 30}", False),
        (f"VARCHAR(99) DEFAULT 0.{'1' * 31}", None, True),
        (f"VARCHAR(99) DEFAULT {'1' * 36}", None, True),
        ("FLOAT DEFAULT 1e-45", "1e-45", False),
        ("FLOAT DEFAULT 1e-50", None, True),
        ("FLOAT DEFAULT 1e39", None, True),
        ("FLOAT DEFAULT 0e-50", "0e-50", False),
        ("FLOAT DEFAULT -0.0", "-0.0", False),
        ("DOUBLE DEFAULT 1e-50", "1e-50", False),
        ("DOUBLE DEFAULT '1e-400'", None, True),
        ("DOUBLE DEFAULT 1e400", None, True),
        ("BIT(4) DEFAULT b'101'", "5", False),
        ("BINARY(4) DEFAULT _UTF8MB4'ab'", "ab\0\0", False),
        ("VARBINARY(8) DEFAULT x'00ff'", "\x00\xff", False),
        ("VARBINARY(8) DEFAULT 0x0ff", "\x00\xff", False),
        ("ENUM('s','m') DEFAULT 'm'", "m", False),
        ("ENUM('s','m') DEFAULT 'M'", None, True),
        ("SET('s','m','l') DEFAULT 'l,s'", "s,l", False),
        ("SET('s','m') DEFAULT ''", "", False),
        ("SET('s','m') DEFAULT 's,M'", None, True),
        ("DATETIME(3) DEFAULT '2020-02-02 00:00:00.9999'", None, True),
        ("TIME DEFAULT '00:00:00.9'", None, True),
        ("DATE DEFAULT '2020-02-02'", "2020-02-02", False),
        ("DATE DEFAULT '20200202'", None, True),
        ("DATETIME DEFAULT '2020-02-02'", "2020-02-02 00:00:00", False),
        ("DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)", None, True),
        ("TIMESTAMP DEFAULT '2020-02-02 00:00:00'", None, True),
        ("YEAR DEFAULT 2021", "2021", False),
        ("YEAR DEFAULT 21", None, True),
        ("TINYINT DEFAULT 127", "127", False),
        ("TINYINT DEFAULT 128", None, True),
        ("INT UNSIGNED DEFAULT -1", None, True),
        ("BIGINT UNSIGNED DEFAULT 18446744073709551615", "18446744073709551615", False),
        (f"INT DEFAULT {'9' * 5000}", None, True),
        ("INT DEFAULT '\u0663'", None, True),
        ("DECIMAL(5,2) DEFAULT 999.994", "999.99", False),
        ("DECIMAL(5,2) DEFAULT 999.995", None, True),
        ("DECIMAL(5,2) UNSIGNED DEFAULT -1", None, True),
        ("FLOAT(5,2) DEFAULT 999.99", "999.99", False),
        ("FLOAT(5,2) DEFAULT 1000", None, True),
        ("FLOAT(255,2) DEFAULT 1000", "1000", False),
        ("DOUBLE UNSIGNED DEFAULT -1", None, True),
        ("BIT(3) DEFAULT b'111'", "7", False),
        ("BIT(3) DEFAULT 8", None, True),
        (f"BIT(3) DEFAULT {'9' * 5000}", None, True),
        ("VARCHAR(3) DEFAULT 'äöü'", "äöü", False),
        ("VARCHAR(3) DEFAULT 'abcd'", None, True),
        ("VARCHAR(3) DEFAULT 1234", None, True),
        ("CHAR(3) DEFAULT 'abc  '", "abc", False),
        ("VARBINARY(3) DEFAULT 'äöü'", None, True),
        ("BINARY(3) DEFAULT x'61626364'", None, True),
        ("TIME DEFAULT '-838:59:59'", "-838:59:59", False),
        ("TIME DEFAULT '839:00:00'", None, True),
        ("TIME(1) DEFAULT '838:59:59.5'", None, True),
        ("TIME DEFAULT '99:99:99'", None, True),
        ("DATETIME DEFAULT '2026-01-01 24:00:00'", None, True),
        ("DATE DEFAULT '2026-13-01'", None, True),
        ("DATE DEFAULT '2026-02-31'", "2026-02-31", False),
        ("DATETIME DEFAULT '2026-00-10'", "2026-00-10 00:00:00", False),
        ("YEAR DEFAULT '0000'", "0000", False),
        ("YEAR DEFAULT 2156", None, True),
        ("JSON DEFAULT (json_array())", None, True),
        ("INT DEFAULT (1 + 2) NOT NULL", None, True),
        ("VARCHAR(40) DEFAULT UUID()", None, True),
        ("INT DEFAULT NEXT VALUE FOR `shop`.`seq`", None, True),
    ],
)
def test_a_default_is_a_literal_only_where_its_stored_value_is_certain(text, default, computed):
    found = column(text)
    assert (found.default, found.computed_default) == (default, computed)


@pytest.mark.parametrize(
    ("text", "generated"),
    [
        ("INT AS (a + 1)", "virtual"),
        ("INT GENERATED ALWAYS AS(`a`+`b`) VIRTUAL NOT NULL", "virtual"),
        ("VARCHAR(30) GENERATED ALWAYS AS (JSON_UNQUOTE(JSON_EXTRACT(`j`, _UTF8MB4'$.name'))) STORED", "stored"),
        ("INT COMMENT 'generated always as (a) stored'", None),
    ],
)
def test_generated_columns_are_told_apart(text, generated):
    assert column(text).generated == generated


@pytest.mark.parametrize(
    "options",
    [
        "NOT NULL COMMENT 'a, \"b\" `c` )' UNIQUE KEY",
        "CHECK (c > 0) NOT ENFORCED",
        "CONSTRAINT `positive` CHECK (c > 0) ENFORCED",
        "REFERENCES other (id) MATCH FULL ON DELETE SET NULL ON UPDATE NO ACTION",
        "COLUMN_FORMAT FIXED STORAGE DISK INVISIBLE",
        "/*!80023 INVISIBLE */ /* INT, no column */ -- it's a comment",
        "PRIMARY KEY /*T![clustered_index] NONCLUSTERED */ /*T![global_index] GLOBAL */",
    ],
)
def test_options_without_a_meaning_for_rows_are_read_over(options):
    assert type_of(f"INT {options}\n") == ColumnType("int")


@pytest.mark.parametrize(
    "text",
    ["GEOMETRY", "INT SIDEWAYS", "VARCHAR(", "ENUM(a)", "DECIMAL(66)", "DECIMAL(5,2,1)", "BIT(65)", "DATETIME(7)"],
)
def test_what_is_not_known_is_refused_with_its_place(text):
    with pytest.raises(ConfigError, match=r"shop\.t.*SHOW CREATE TABLE"):
        column(text)


def test_a_definition_of_another_table_is_refused():
    with pytest.raises(ConfigError, match="it creates the table 'u'"):
        definition_from_sql(TABLE, "CREATE TABLE `u` (`c` INT)")
