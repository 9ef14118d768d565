"""Texts that no TiDB sends: none ends a job, none takes longer than its length allows."""

import msgspec
import pytest

from tests.support.growth import assert_linear
from tests.support.schema_histories import schema_at
from ticdc_replay.domain.errors import ConfigError, TransientError
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl import reader
from ticdc_replay.schemas.ddl.reader import AppliedDdl, ParsedDdl, Tables, UnparsedDdl, definition_from_sql
from ticdc_replay.schemas.ddl.tokens import MAX_CHARACTERS
from ticdc_replay.schemas.history import SchemaHistory

T = TableName("shop", "t")
ONE = "CREATE TABLE `t` (`id` INT PRIMARY KEY, {})"


def applied(query, known=None):
    tables = Tables()
    if known is not None:
        tables["shop", "t"] = definition_from_sql(T, known)
    return ParsedDdl(DdlEvent(0, 9, "shop", "t", query, 3)).apply(tables)


def history(query):
    created = DdlEvent(0, 1, "shop", "t", "CREATE TABLE `t` (`id` INT PRIMARY KEY)", 3)
    return SchemaHistory().with_ddls([created, DdlEvent(0, 9, "shop", "t", query, 3)])


@pytest.mark.parametrize(
    "column",
    [
        "b VARBINARY(9) DEFAULT X'1_0'",
        "b VARBINARY(9) DEFAULT 0x1_0",
        "b BIT(9) DEFAULT b'1_0'",
        "b BIT(9) DEFAULT 0b1_0",
        "e ENUM('a',x'e4')",
        "e ENUM('a',x'1_0')",
        f"c VARCHAR({'9' * 5000})",
        f"c VARCHAR({'9' * 30})",
        f"e BINARY({1 << 63})",
        f"d DECIMAL({'9' * 5000}, 2)",
        "j JSON UNIQUE NOT NULL",
        "j JSON, UNIQUE KEY (`id`, `J`)",
        "c INT, UNIQUE KEY (c, `id`, C)",
        "c INT, KEY (c, c)",
        "d DECIMAL(10,20)",
        "d DECIMAL(1,2)",
        "d DECIMAL(66)",
        "f FLOAT(5,6)",
        "f DOUBLE(256,2)",
        "b BIT(0)",
        "c CHAR(256)",
        f"b VARBINARY({1 << 32})",
        "s SET(" + ",".join(f"'{number}'" for number in range(65)) + ")",
        "c INT, " + ",".join(f"c{number} INT" for number in range(5000)),
        "c INT, " + ",".join("KEY (c)" for _ in range(1000)),
        "c INT, KEY (" + ",".join(["c"] * 1000) + ")",
    ],
    ids=lambda text: text[:40],
)
def test_from_a_text_with_impossible_parts_on_nothing_is_known_of_the_table(column):
    outcome = applied(ONE.format(column))
    assert isinstance(outcome, UnparsedDdl)
    assert outcome.table == T
    assert 0 < len(outcome.reason) <= 1000
    assert "defect" not in outcome.reason
    known = history(ONE.format(column))
    assert schema_at(known, T, 9) is not None
    assert schema_at(known, T, 10) is None
    assert [epoch.unparsed is None for epoch in known.epochs] == [True, False]
    assert SchemaHistory.decode(known.encode()).encode() == known.encode()


@pytest.mark.parametrize(
    ("column", "default"),
    [
        (f"b BIT(9) DEFAULT b'{'1' * 20_000}'", None),
        ("b BIT(64) DEFAULT X'ffffffffffffffff'", str((1 << 64) - 1)),
        ("d DOUBLE(9,2) DEFAULT 1e9999999", None),
        ("d DECIMAL(9,2) DEFAULT 1e9999999", None),
        ("d DECIMAL(9,2) DEFAULT 1e-9999999", "0.00"),
    ],
    ids=lambda text: str(text)[:40],
)
def test_a_default_that_no_column_has_counts_as_computed(column, default):
    outcome = applied(ONE.format(column))
    assert isinstance(outcome, AppliedDdl)
    (definition,) = outcome.defined
    assert definition.columns[1].default == default
    assert definition.columns[1].computed_default is (default is None)
    assert history(ONE.format(column)).encode()


def test_a_text_that_is_too_long_is_not_read():
    outcome = applied("ALTER TABLE t COMMENT '" + "x" * MAX_CHARACTERS + "'")
    assert isinstance(outcome, UnparsedDdl)
    assert str(MAX_CHARACTERS) in outcome.reason


def test_an_alter_table_of_more_actions_than_any_table_needs_is_not_read():
    many = ",".join("ADD COLUMN c INT, DROP COLUMN c" for _ in range(6000))
    assert isinstance(applied(f"ALTER TABLE t {many}", "CREATE TABLE t (id INT)"), UnparsedDdl)


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError("deep"), ZeroDivisionError(), UnicodeError("u")])
def test_whatever_the_reader_raises_is_a_text_that_was_not_understood(monkeypatch, error):
    def fail(tokens):
        raise error

    monkeypatch.setattr(reader.parser, "parse", fail)
    outcome = applied("ALTER TABLE t ADD x INT")
    assert isinstance(outcome, UnparsedDdl)
    assert outcome.reason.startswith(f"{type(error).__name__}: {error} in {__name__}.")
    with pytest.raises(ConfigError, match=type(error).__name__):
        definition_from_sql(T, "CREATE TABLE t (id INT)")


def test_whatever_raises_while_a_statement_is_applied_is_a_text_that_was_not_understood(monkeypatch):
    monkeypatch.setattr(reader.alter, "alter", lambda *parts: 1 // 0)
    outcome = applied("ALTER TABLE t ADD x INT", "CREATE TABLE t (id INT)")
    assert isinstance(outcome, UnparsedDdl)
    assert "ZeroDivisionError" in outcome.reason


@pytest.mark.parametrize("error", [TransientError("away"), MemoryError(), KeyboardInterrupt()])
def test_what_is_not_the_texts_fault_is_raised(monkeypatch, error):
    def fail(tokens):
        raise error

    monkeypatch.setattr(reader.parser, "parse", fail)
    with pytest.raises(type(error)):
        applied("ALTER TABLE t ADD x INT")


GROWING = {
    "escaped quotes": lambda n: "ALTER TABLE t COMMENT '" + "\\'" * n,
    "normalised escaped quotes": lambda n: "ALTER TABLE `t` COMMENT='" + "\\'" * n,
    "quotes": lambda n: "ALTER TABLE t COMMENT " + "'" * (2 * n + 1),
    "table options": lambda n: "CREATE TABLE t (a INT) " + "COMMENT='x' " * (n // 4),
    "alter options": lambda n: "ALTER TABLE t " + ",".join(["COMMENT='x'"] * (n // 4)),
    "partitions": lambda n: (
        "ALTER TABLE t PARTITION BY RANGE (id) ("
        + ",".join(f"PARTITION p{at} VALUES LESS THAN ({at})" for at in range(n // 16))
        + ")"
    ),
    "comments": lambda n: "ALTER TABLE t " + "/*" * n,
    "conditional comments": lambda n: "ALTER TABLE t " + "/*T![" * n,
    "features": lambda n: "ALTER TABLE t " + "/*T![ */" * n,
    "versions": lambda n: "ALTER TABLE t /*!" + "1" * n,
    "hints": lambda n: "ALTER TABLE t " + "/*+ x " * n,
    "parentheses": lambda n: "ALTER TABLE t ADD x INT DEFAULT " + "(" * n,
    "semicolons": lambda n: "ALTER TABLE t ADD x INT" + ";" * n,
    "words of CREATE": lambda n: "CREATE " + "x " * n,
    "elements": lambda n: f"CREATE TABLE t (a ENUM({','.join(repr(str(at)) for at in range(n))}))",
    "names": lambda n: "DROP TABLE " + ",".join(f"t{at}" for at in range(n)),
}


@pytest.mark.parametrize("build", GROWING.values(), ids=GROWING.keys())
def test_reading_takes_time_as_a_text_is_long(build):
    assert_linear(lambda size: applied(build(size)), 2_000)


@pytest.mark.parametrize("build", GROWING.values(), ids=GROWING.keys())
def test_what_is_read_of_a_text_is_no_longer_than_the_text(build):
    text = build(4_000)
    outcome = applied(text)
    assert len(msgspec.msgpack.encode(outcome.statement if isinstance(outcome, AppliedDdl) else outcome)) < 40 * len(
        text
    )


def test_a_table_with_a_column_twice_is_not_understood():
    assert isinstance(applied("CREATE TABLE t (a INT, A INT)"), UnparsedDdl)


@pytest.mark.parametrize(
    ("known", "query"),
    [
        ("CREATE TABLE `t` (`id` INT PRIMARY KEY)", "ALTER TABLE t MODIFY id JSON"),
        ("CREATE TABLE `t` (`id` INT, j JSON)", "ALTER TABLE t ADD PRIMARY KEY (j)"),
        ("CREATE TABLE `t` (`id` INT, j JSON)", "ALTER TABLE t ADD PRIMARY KEY (id, id)"),
        ("CREATE TABLE `t` (`id` INT, j JSON)", "CREATE TABLE t (id JSON, PRIMARY KEY (id))"),
    ],
)
def test_a_key_that_no_table_has_is_not_understood(known, query):
    outcome = applied(query, known)
    assert isinstance(outcome, UnparsedDdl)
    assert "defect" not in outcome.reason


def test_an_index_of_an_expression_over_json_is_one_of_tidb():
    query = "CREATE TABLE t (id INT PRIMARY KEY, j JSON, UNIQUE KEY m (id, (CAST(j->'$.a' AS UNSIGNED ARRAY))))"
    assert isinstance(applied(query), AppliedDdl)
