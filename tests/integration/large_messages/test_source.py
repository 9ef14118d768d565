"""Rows are read from the source exactly, by statements that MariaDB runs; only the snapshot statement is TiDB's own."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.support import mariadb
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, PermanentError, TransientError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.large_messages import source_statements
from ticdc_replay.large_messages.source import RowRequest, RowUnreadable, SourceReader
from ticdc_replay.large_messages.source_images import SourceRow, image_of
from ticdc_replay.large_messages.source_statements import Statement

pytestmark = pytest.mark.integration

TSO = 443_812_345_678_901_234


@pytest.fixture(autouse=True)
def snapshot_of_mariadb(monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB has no ``tidb_snapshot``: a user variable takes its place."""
    monkeypatch.setattr(source_statements, "at_snapshot", lambda tso: Statement("SET @tidb_snapshot = %s", (str(tso),)))


@pytest.fixture
def reader(source: Connection) -> Iterator[SourceReader]:
    reader = SourceReader(source, "Asia/Shanghai")
    yield reader
    reader.close()


@pytest.fixture
def database(source: Connection) -> str:
    name = f"d`%s {uuid4().hex[:8]}"
    mariadb.execute(source, f"CREATE DATABASE `{name.replace('`', '``')}`")
    return name


def create(source: Connection, database: str, table: str, columns: str, *rows: str) -> TableName:
    """A table with *columns*, and *rows* as lists of SQL values."""
    place = f"`{database.replace('`', '``')}`.`{table.replace('`', '``')}`"
    inserts = [f"INSERT INTO {place} VALUES ({row})" for row in rows]
    mariadb.execute(source, f"CREATE TABLE {place} ({columns}) CHARSET utf8mb4", *inserts)
    return TableName(database, table)


def read(reader: SourceReader, table: TableName, names: tuple[str, ...], *keys: tuple[Any, ...]) -> list[Any]:
    return reader.rows([RowRequest(table, TSO, names, key) for key in keys])


def cells(row: Any) -> dict[str, Any]:
    """The neutral cells of *row*, by column."""
    assert isinstance(row, SourceRow), row
    names = tuple(column.name for column in row.definition.schema().columns)
    image = image_of(row, (), names)
    assert all(column.type.declared for column in image.shape.columns)
    return {
        column.name: column.neutral((value,))[0]
        for column, value in zip(image.shape.columns, image.values, strict=True)
    }


@pytest.mark.parametrize(
    ("column", "value", "neutral"),
    [
        ("tinyint", "-128", -128),
        ("bigint unsigned", "18446744073709551615", 2**64 - 1),
        ("year", "2024", 2024),
        ("year", "0", 0),
        ("float", "1.1", 1.100000023841858),
        ("float", "16777217", 16777216.0),
        ("double", "0.30000000000000004e0", 0.1 + 0.2),
        ("double", "-1.7976931348623157e308", -1.7976931348623157e308),
        ("decimal(65,30)", f"'-{'9' * 35}.{'9' * 30}'", f"-{'9' * 35}.{'9' * 30}"),
        ("bit(64)", "x'ffffffffffffffff'", 2**64 - 1),
        ("bit(1)", "0", 0),
        ("date", "'0000-00-00'", "0000-00-00"),
        ("date", "'2024-00-00'", "2024-00-00"),
        ("datetime(6)", "'9999-12-31 23:59:59.999999'", "9999-12-31 23:59:59.999999"),
        ("datetime", "'0000-00-00'", "0000-00-00 00:00:00"),
        ("timestamp(3) NULL", "'2020-01-01 00:00:00.120'", "2020-01-01 00:00:00.120Z"),
        ("timestamp NULL", "'0000-00-00'", "0000-00-00 00:00:00"),
        ("time(6)", "'-838:59:59'", "-838:59:59.000000"),
        ("char(5)", "'a  '", "a"),
        ("varchar(5) CHARACTER SET gbk", "'中'", "中"),
        ("varchar(9)", "'😀 \\\\\\''", "😀 \\'"),
        ("longtext", "''", ""),
        ("binary(4)", "x'00ff'", b"\0\xff\0\0"),
        ("varbinary(4)", "x'00ff2700'", b"\0\xff'\0"),
        ("longblob", "x'80'", b"\x80"),
        ("enum('','b,c','d''e')", "3", 3),
        ("enum('','b')", "0", 0),
        ("enum('','b')", "1", 1),
        ("set(" + ",".join(f"'m{n}'" for n in range(64)) + ")", "9223372036854775809", 2**63 + 1),
        ("json", '\'{"a": [1, "ü"]}\'', '{"a": [1, "ü"]}'),
        ("varchar(3)", "NULL", None),
        ("blob", "NULL", None),
    ],
)
def test_every_type_comes_in_its_neutral_form(
    source: Connection, reader: SourceReader, database: str, column: str, value: str, neutral: Any
) -> None:
    table = create(source, database, "t", f"id int PRIMARY KEY, c {column}", f"1, {value}")
    [row] = read(reader, table, ("id",), (1,))
    assert cells(row) == {"id": 1, "c": neutral}


def test_odd_names_and_composite_keys_find_the_one_row(source: Connection, reader: SourceReader, database: str) -> None:
    columns = (
        "`k``%s` varbinary(9), `ключ` decimal(20,5), ts timestamp(3), v int AS (1) VIRTUAL, s int AS (2) STORED, w text"
    )
    rows = [f"x'00ff27', '1.5', '2020-01-01 00:00:00.12{digit}', DEFAULT, DEFAULT, '{digit}'" for digit in range(3)]
    key = "PRIMARY KEY (`k``%s`, `ключ`, ts)"
    table = create(source, database, "a`b%d 表", f"{columns}, {key}", *rows)
    wanted = [(b"\0\xff'", "2020-01-01 08:00:00.122", "1.50"), (b"\0\xff'", "2020-01-01 08:00:00.12", "1.5")]
    names = ("k`%s", "ts", "ключ")
    *found, missing = read(reader, table, names, *wanted, (b"", "2020-01-01 08:00:00", "1"))
    assert [cells(row)["w"] for row in found] == ["2", "0"]
    assert set(cells(found[0])) == {"k`%s", "ключ", "ts", "s", "w"}
    assert isinstance(missing, RowUnreadable)
    assert missing.reason == "source_row_missing"


@pytest.mark.parametrize(
    ("column", "value", "key", "other"),
    [
        ("float", "1.1", 1.1, 1.2),
        ("double", "0.1e0", 0.1, 0.2),
        ("enum('a','b')", "2", "b", "a"),
        ("set('a','b','c')", "5", 5, 4),
        ("bit(9)", "257", 257, 1),
        ("binary(4)", "x'01'", b"\1", b"\2"),
        ("varchar(9)", "'A'", "A", "a"),
        ("varchar(20)", "'x'' OR 1=1 -- '", "x' OR 1=1 -- ", "y"),
        ("time(2)", "'-12:00:00.50'", "-12:00:00.5", "12:00:00.5"),
        ("decimal(65,0)", "9" * 65, "9" * 65, "8" * 65),
        ("date", "'0000-00-00'", "0000-00-00", "0001-01-01"),
    ],
)
def test_a_key_of_any_type_finds_its_row_and_no_other(
    source: Connection, reader: SourceReader, database: str, column: str, value: str, key: Any, other: Any
) -> None:
    table = create(source, database, "t", f"k {column} PRIMARY KEY, v int", f"{value}, 7")
    found, missing = read(reader, table, ("k",), (key,), (other,))
    assert cells(found)["v"] == 7
    assert isinstance(missing, RowUnreadable)


@pytest.mark.parametrize(
    ("column", "key"),
    [
        ("binary(4)", "text"),
        ("decimal(5,1)", "x"),
        ("float", 1e300),
        ("timestamp", 5),
        ("enum('a')", "b"),
        ("int", "x"),
        ("int", 1.0),
        ("bigint", b"9007199254740992"),
        ("binary(16)", 2**62),
        ("char(9)", 2**62),
        ("varbinary(9)", "0"),
        ("varchar(9)", 0),
        ("date", 0),
        ("double", "inf"),
        ("double", float("nan")),
        ("decimal(5,1)", "NaN"),
        ("decimal(5,1)", "1e99999"),
        ("decimal(5,1)", 0.5),
        ("varchar(9) CHARACTER SET latin1", "😀"),
        ("datetime", "9999-99-99 00:00:00"),
    ],
)
def test_a_key_of_another_type_than_the_column_finds_no_row(
    source: Connection, reader: SourceReader, database: str, column: str, key: Any
) -> None:
    table = create(source, database, "t", f"k {column} PRIMARY KEY")
    [row] = read(reader, table, ("k",), (key,))
    assert row.reason == "source_row_missing"


def test_a_key_that_equals_many_rows_as_another_type_finds_none_and_stops_nothing(
    source: Connection, reader: SourceReader, database: str
) -> None:
    table = create(source, database, "t", "k varchar(9) PRIMARY KEY", "'a'", "'b'", "'0'")
    wrong, right = read(reader, table, ("k",), (0,), ("a",))
    assert (wrong.reason, cells(right)) == ("source_row_missing", {"k": "a"})


def test_a_value_that_the_server_refuses_concerns_its_own_row_alone(
    source: Connection, reader: SourceReader, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As MySQL refuses a date that is none, and MariaDB does not."""
    table = create(source, database, "t", "k varchar(9) PRIMARY KEY", "'a'", "'b'")
    select = source_statements.select_rows

    def refusing(definition: Any, key: Any, values: Any) -> Statement:
        if ("bad",) in values:
            return Statement("SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1525, MESSAGE_TEXT = 'Incorrect DATE value'")
        return select(definition, key, values)

    monkeypatch.setattr(source_statements, "select_rows", refusing)
    first, bad, last = read(reader, table, ("k",), ("a",), ("bad",), ("b",))
    assert (cells(first), bad.reason, cells(last)) == ({"k": "a"}, "source_row_missing", {"k": "b"})


@pytest.mark.parametrize("charset", ["latin1", "ascii", "gbk"])
def test_keys_that_their_column_s_character_set_lacks_stop_no_other_row(
    source: Connection, reader: SourceReader, database: str, charset: str
) -> None:
    table = create(source, database, "t", f"k varchar(9) CHARACTER SET {charset} PRIMARY KEY", "'a'")
    for wrong in ("😀🎉", "😀🎉🚀"):
        *missing, found = read(reader, table, ("k",), *wrong, ("a",))
        assert [row.reason for row in missing] == ["source_row_missing"] * len(wrong)
        assert cells(found) == {"k": "a"}


@pytest.mark.parametrize("code", [1270, 1271, 3854])
def test_an_error_of_several_values_stops_no_other_row(
    source: Connection, reader: SourceReader, database: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """As TiDB and MySQL refuse them, and MariaDB does not."""
    table = create(source, database, "t", "k varchar(9) PRIMARY KEY", "'a'")
    select = source_statements.select_rows

    def refusing(definition: Any, key: Any, values: Any) -> Statement:
        if ("bad",) in values:
            return Statement(f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'refused'")
        return select(definition, key, values)

    monkeypatch.setattr(source_statements, "select_rows", refusing)
    first, bad = read(reader, table, ("k",), ("a",), ("bad",))
    assert (cells(first), bad.reason) == ({"k": "a"}, "source_row_missing")


def test_a_table_that_the_login_may_not_read_is_said_of_its_rows(source: Connection) -> None:
    name = f"rights_{uuid4().hex[:8]}"
    mariadb.execute(
        source,
        f"CREATE DATABASE {name}",
        *(f"CREATE TABLE {name}.{each} (k int PRIMARY KEY, v int)" for each in ("open", "secret", "part")),
        f"INSERT INTO {name}.open VALUES (1, 7)",
        f"CREATE USER {name}@'127.0.0.1' IDENTIFIED BY 'x'",
        f"GRANT SELECT ON {name}.open TO {name}@'127.0.0.1'",
        f"GRANT SELECT (k) ON {name}.part TO {name}@'127.0.0.1'",
    )
    reader = SourceReader(Connection("up", "mysql", source.host, source.port, name, "x"), "UTC")
    tables = [TableName(name, each) for each in ("secret", "open", "part")]
    secret, found, part = reader.rows([RowRequest(table, TSO, ("k",), (1,)) for table in tables])
    assert cells(found) == {"k": 1, "v": 7}
    for refused in (secret, part):
        assert isinstance(refused, RowUnreadable)
        assert (refused.reason, refused.is_lasting) == ("source_refused", False)
        assert "SELECT on" in refused.detail
    with pytest.raises(AuthenticationError, match="SELECT on"):
        reader.check_safe_point(TSO)
    reader.close()


@pytest.mark.parametrize("name", ["a\0b", "a ", " ", "x" * 65, "😀"])
def test_a_name_that_no_table_has_is_said_of_the_row(reader: SourceReader, database: str, name: str) -> None:
    reasons = {
        row.reason
        for table in (TableName(database, name), TableName(name, "t"))
        for row in read(reader, table, ("id",), (1,))
    }
    assert reasons <= {"source_refused", "source_row_missing"}


@pytest.fixture
def queries(reader: SourceReader, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is really asked of the source."""
    asked: list[str] = []
    query = reader._query

    def recorded(statement: Statement) -> Any:
        asked.append(statement.sql)
        return query(statement)

    monkeypatch.setattr(reader, "_query", recorded)
    return asked


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("id int PRIMARY KEY, status int NOT NULL", "status"),
        ("id int, status int NOT NULL, KEY (status)", "status"),
        ("id int, status int, UNIQUE KEY (status)", "status"),
        ("id int NOT NULL, status int NOT NULL, UNIQUE KEY (id, status)", "status"),
        ("id int PRIMARY KEY, status int NOT NULL", "id status"),
        ("id int, status int NOT NULL", "status"),
    ],
)
def test_a_key_that_is_not_unique_is_not_asked_for(
    source: Connection, reader: SourceReader, database: str, queries: list[str], columns: str, key: str
) -> None:
    rows = [f"{n}, {n if 'UNIQUE' in columns else 7}" for n in range(50)]
    table = create(source, database, "orders", columns, *rows)
    names = tuple(key.split())
    [row] = read(reader, table, names, (7,) * len(names))
    assert isinstance(row, RowUnreadable)
    assert (row.reason, f"({', '.join(names)}) is neither its primary key" in row.detail) == ("source_refused", True)
    assert not [sql for sql in queries if sql.startswith("SELECT")]


@pytest.mark.parametrize("columns", ["id int NOT NULL, v int, UNIQUE KEY (ID)", "v int, Id int PRIMARY KEY"])
def test_every_unique_key_without_null_finds_its_row(
    source: Connection, reader: SourceReader, database: str, queries: list[str], columns: str
) -> None:
    table = create(source, database, "t", columns, *[f"{n}, {n}" for n in range(9)])
    assert [cells(row)["v"] for row in read(reader, table, ("iD",), (3,), (5,))] == [3, 5]
    assert [sql.rpartition(" ")[2] for sql in queries if sql.startswith("SELECT")] == ["3"]


@pytest.mark.parametrize(
    "schema", ["mysql", "MySQL", "INFORMATION_SCHEMA", "Performance_Schema", "sys", "METRICS_SCHEMA", "tidb_cdc"]
)
def test_system_schemas_are_not_read(reader: SourceReader, queries: list[str], schema: str) -> None:
    [row] = read(reader, TableName(schema, "user"), ("Host", "User"), ("localhost", "root"))
    assert isinstance(row, RowUnreadable)
    assert (row.reason, queries) == ("source_refused", [])


def test_a_second_row_for_a_key_is_an_error(
    source: Connection, reader: SourceReader, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that breaks its own unique key: here its definition has one that the rows do not keep."""
    table = create(source, database, "t", "id int NOT NULL, v int", "1, 1", "1, 2", "2, 3")
    claimed = Statement("SELECT 't', 'CREATE TABLE `t` (`id` int NOT NULL, `v` int, UNIQUE KEY `u` (`id`))'")
    monkeypatch.setattr(source_statements, "show_create", lambda name: claimed)
    with pytest.raises(PermanentError, match=r"`?\.?t at .* has several rows with one value of its unique key \(id\)"):
        read(reader, table, ("id",), (1,))
    with pytest.raises(PermanentError, match="several rows"):
        read(reader, table, ("id",), (1,), (2,))
    [row] = read(reader, table, ("id",), (2,))
    assert cells(row)["v"] == 3


def test_a_view_is_not_read(source: Connection, reader: SourceReader, database: str) -> None:
    table = create(source, database, "t", "id int PRIMARY KEY", "1")
    place = f"`{database.replace('`', '``')}`"
    mariadb.execute(source, f"CREATE VIEW {place}.w AS SELECT id FROM {place}.t")
    [row] = read(reader, TableName(table.schema, "w"), ("id",), (1,))
    assert isinstance(row, RowUnreadable)
    assert row.reason == "source_refused"


def test_many_rows_of_one_snapshot_come_in_the_order_asked_for(
    source: Connection, reader: SourceReader, database: str
) -> None:
    table = create(source, database, "t", "k int PRIMARY KEY, v int", *[f"{n}, {n * n}" for n in range(100)])
    rows = read(reader, table, ("k",), *[(n,) for n in reversed(range(100))])
    assert [cells(row)["v"] for row in rows] == [n * n for n in reversed(range(100))]


@pytest.mark.parametrize(
    ("column", "long"),
    [("varchar(700)", "x" * (20 << 20)), ("varbinary(3000)", b"\\" * (20 << 20)), ("date", "2" * (20 << 20))],
)
def test_a_key_longer_than_the_server_reads_is_no_row_and_stops_no_other(
    source: Connection, reader: SourceReader, database: str, column: str, long: Any
) -> None:
    table = create(source, database, "t", f"k {column} PRIMARY KEY", "'2020-01-01'")
    right = "2020-01-01" if isinstance(long, str) else b"2020-01-01"
    missing, found = read(reader, table, ("k",), (long,), (right,))
    assert (missing.reason, cells(found)) == ("source_row_missing", {"k": right})


def test_one_definition_is_read_once_however_many_statements_ask_for_its_rows(
    source: Connection, reader: SourceReader, database: str
) -> None:
    table = create(source, database, "t", "k int PRIMARY KEY", *map(str, range(100)))
    definitions = {id(row.definition) for row in read(reader, table, ("k",), *[(n,) for n in range(100)])}
    assert len(definitions) == 1


def test_a_table_or_a_key_column_that_the_snapshot_lacks_is_said_of_the_row(
    source: Connection, reader: SourceReader, database: str
) -> None:
    table = create(source, database, "t", "k int PRIMARY KEY", "1")
    [no_table] = read(reader, TableName(database, "gone"), ("k",), (1,))
    [no_column] = read(reader, table, ("old",), (1,))
    assert (no_table.reason, no_column.reason) == ("source_row_missing", "source_row_missing")


def test_a_snapshot_older_than_the_safe_point_is_said_of_the_row(
    source: Connection, reader: SourceReader, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(source, database, "t", "k int PRIMARY KEY", "1")
    gone = Statement("SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 8055, MESSAGE_TEXT = 'snapshot is older than GC'")
    monkeypatch.setattr(source_statements, "at_snapshot", lambda tso: gone)
    [row] = read(reader, table, ("k",), (1,))
    assert row.reason == "source_snapshot_gone"


def test_a_refused_login_and_a_server_that_is_away_are_told_apart(source: Connection) -> None:
    request = RowRequest(TableName("shop", "orders"), TSO, ("id",), (1,))
    refused = SourceReader(Connection("up", "mysql", source.host, source.port, "replay", "wrong"), "UTC")
    with pytest.raises(AuthenticationError, match="connection up"):
        refused.rows([request])
    away = SourceReader(Connection("up", "mysql", source.host, 1, "replay", "x"), "UTC")
    with pytest.raises(TransientError, match="connection up"):
        away.rows([request])


def test_a_session_that_was_cut_is_opened_again(source: Connection, reader: SourceReader, database: str) -> None:
    table = create(source, database, "t", "k int PRIMARY KEY", "1")
    read(reader, table, ("k",), (1,))
    mariadb.cut_sessions(source)
    [row] = read(reader, table, ("k",), (1,))
    assert cells(row) == {"k": 1}


def test_the_window_must_begin_after_the_safe_point(source: Connection, reader: SourceReader) -> None:
    mariadb.execute(source, "DROP TABLE IF EXISTS mysql.tidb")
    with pytest.raises(PermanentError, match="not a TiDB"):
        reader.check_safe_point(TSO)
    mariadb.execute(
        source,
        "CREATE TABLE mysql.tidb (VARIABLE_NAME varchar(64), VARIABLE_VALUE varchar(1024))",
        "INSERT INTO mysql.tidb VALUES ('tikv_gc_safe_point', '20260301-18:00:00.500 +0800')",
    )
    safe = tso.parse("2026-03-01T10:00:00.500Z")
    reader.check_safe_point(safe)
    with pytest.raises(PermanentError, match="GC safe point"):
        reader.check_safe_point(safe - 1)
