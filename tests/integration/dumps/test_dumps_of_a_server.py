"""The rows of dumps are those of the server, in every variant of Dumpling's files."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.support import mariadb
from tests.support.dumpling_files import Variant, read_table, write_dump
from tests.support.replayed_windows import pipeline_for, rows_of
from tests.support.seeds import read_dump, request_of
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.dumps.dialect import Dialect
from ticdc_replay.dumps.records import WrongRowError

pytestmark = pytest.mark.integration

SNAPSHOT = 460000000000000000
EVERY_TYPE = """
CREATE TABLE shop.`every.type` (
  `id` bigint unsigned NOT NULL, `tiny` tinyint, `utiny` tinyint unsigned, `small` smallint, `usmall` smallint unsigned,
  `medium` mediumint, `umedium` mediumint unsigned, `i` int, `ui` int unsigned, `big` bigint, `flag` bool,
  `f` float, `d` double, `dec` decimal(38,10), `dec65` decimal(65,30), `ub` bit(1), `b` bit(64), `y` year,
  `date` date, `t` time(6), `dt` datetime(6), `dt0` datetime, `ts` timestamp(6) NULL, `c` char(10), `v` varchar(300),
  `text` longtext, `bin` binary(4), `varb` varbinary(300), `blob` longblob, `e` enum('a','b "c"','é'), `s` set('x','y','z'),
  `vg` bigint AS (length(v)) VIRTUAL, PRIMARY KEY (`id`)
) CHARACTER SET utf8mb4
"""
ROWS: list[tuple[Any, ...]] = [
    (
        1, -128, 255, -32768, 65535, -8388608, 16777215, -(2**31), 2**32 - 1, -(2**63), True,
        1.5, 0.1, Decimal("-1234567890123456789012345678.0123456789"), Decimal("0.5"), 1, 2**64 - 1, 2155,
        "2026-02-28", "-838:59:59.000001", "0001-01-01 00:00:00.000001", "9999-12-31 23:59:59", "2038-01-19 03:14:07.999999",
        "a b", "quote \" ' and \\ back", "line\r\nand\tnul\0 \x1a é😀", b"\0\xff", bytes(range(256)),
        bytes(range(255, -1, -1)), 'b "c"', "x,z",
    ),
    (2, *[None] * 30),
    (
        3, 0, 0, 0, 0, 0, 0, 0, 0, 0, False, -0.25, -1e300, 0, 0, 0, 0, 0, "0000-00-00", "00:00:00", "0000-00-00 00:00:00",
        None, None, "", "", "", b"", b"", b"", "é", "",
    ),
    (2**64 - 1, *[None] * 22, "\\N", "NULL", "x'41'", b"NULL", b"\\N", b"'", None, None),
]  # fmt: skip
VARIANTS = {
    "csv": Variant(),
    "csv-chunks-gzip": Variant(file_rows=1, compression="gzip"),
    "csv-sizes-zstd": Variant(file_rows=2, file_size_too=True, compression="zstd"),
    "csv-snappy-no-header": Variant(dialect=Dialect(header=False, line_terminator="\n"), compression="snappy"),
    "csv-no-escapes": Variant(dialect=Dialect(escape_backslash=False)),
    "csv-other-marks": Variant(dialect=Dialect(separator="|+|", delimiter="'", null_value="")),
    "csv-no-delimiter": Variant(dialect=Dialect(delimiter="", separator="\t")),
    "csv-hex": Variant(dialect=Dialect(binary="hex")),
    "csv-base64": Variant(dialect=Dialect(binary="base64", escape_backslash=False)),
    "parquet": Variant("parquet"),
    "parquet-chunks": Variant("parquet", file_rows=1),
    "sql": Variant("sql"),
    "sql-complete-gzip": Variant("sql", complete_insert=True, compression="gzip", file_rows=2),
    "sql-no-escapes": Variant("sql", dialect=Dialect(escape_backslash=False), statement_rows=1),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, mariadb_programs: mariadb.Programs) -> Iterator[Connection]:
    with mariadb.running(tmp_path_factory.mktemp("mariadb"), mariadb_programs) as connection:
        mariadb.execute(connection, "CREATE DATABASE shop CHARACTER SET utf8mb4", EVERY_TYPE)
        session = opened(connection)
        with session, session.cursor() as cursor:
            cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
            for row in ROWS:
                cursor.execute(
                    f"INSERT INTO shop.`every.type` VALUES ({', '.join(['%s'] * len(row))}, DEFAULT)",
                    row,
                )
            session.commit()
        yield connection


def opened(server: Connection) -> Any:
    return pymysql.connect(
        host=server.host or "",
        port=server.port or 0,
        user=server.login,
        password=server.password or "",
        charset="utf8mb4",
    )


def expected(server: Connection) -> list[dict[str, Any]]:
    """What a client of the server sees."""
    session = opened(server)
    with session, session.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute("SELECT * FROM shop.`every.type` ORDER BY id")
        found = [dict(row) for row in cursor.fetchall()]
    for row in found:
        del row["vg"]
        for name in ("ub", "b"):
            row[name] = None if row[name] is None else int.from_bytes(row[name], "big")
        row["t"] = None if row["t"] is None else row["t"] // datetime.timedelta(microseconds=1)
        row["ts"] = None if row["ts"] is None else row["ts"].replace(tzinfo=datetime.UTC)
        row["dec65"] = None if row["dec65"] is None else f"{row['dec65']:f}"
    return found


def cells_of(row: dict[str, Any]) -> dict[str, Any]:
    """The cells of a row of the changelog; a value that its column can't hold as the text."""
    exact = {name: text.decode() for name, text in row["_exact"] or []}
    return {name: exact.get(f"after.{name}", value) for name, value in row["after"].items()}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_dump_has_the_rows_of_the_server(server: Connection, tmp_path: Path, name: str) -> None:
    variant = VARIANTS[name]
    table = read_table(server, "shop", "every.type")
    dump = write_dump(tmp_path / "dump", [table], SNAPSHOT, variant)
    with pipeline_for(tmp_path, "unused:9092", "topic") as context:
        index = read_dump(context, request_of(dump, variant.dialect))
        found = sorted((row for _, row in rows_of(context, index)), key=lambda row: row["after"]["id"])
    wanted = expected(server)
    if variant.format == "parquet":
        wanted[2]["dt"] = None  # 0000-00-00: Dumpling has no date for it
    assert [cells_of(row) for row in found] == wanted
    assert {(row["_op"], row["_commit_ts"], row["_partition"]) for row in found} == {("upsert", SNAPSHOT, 0)}
    assert {row["_topic"].split(".")[0] for row in found} == {"shop"}
    assert all(row["_key"] is not None for row in found)
    (version,) = index.tables
    assert version.declared
    assert version.schema.handle_key == ("id",)


def test_timestamps_are_read_in_the_zone_of_the_session(server: Connection, tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump", [read_table(server, "shop", "every.type", "+08:00")], SNAPSHOT)
    with pipeline_for(tmp_path, "unused:9092", "topic") as context:
        with pytest.raises(ConfigError, match=r"--timezone: shop\.every\.type\.ts is a TIMESTAMP"):
            read_dump(context, request_of(dump, zone=None))
        with pytest.raises(ConfigError, match="--timezone: 'Moon/Base'"):
            read_dump(context, request_of(dump, zone="Moon/Base"))
        index = read_dump(context, request_of(dump, zone="+08:00"))
        found = sorted((row for _, row in rows_of(context, index)), key=lambda row: row["after"]["id"])
    assert [row["after"]["ts"] for row in found] == [row["ts"] for row in expected(server)]


def test_dates_that_parquet_has_lost_are_an_error_where_they_can_be_seen(server: Connection, tmp_path: Path) -> None:
    mariadb.execute(
        server,
        "CREATE OR REPLACE TABLE shop.dated (id INT PRIMARY KEY, dt DATETIME NOT NULL)",
        "INSERT INTO shop.dated VALUES (1, '2026-01-01'), (2, '0000-00-00')",
    )
    dump = write_dump(tmp_path / "dump", [read_table(server, "shop", "dated")], SNAPSHOT, Variant("parquet"))
    with (
        pipeline_for(tmp_path, "unused:9092", "topic") as context,
        pytest.raises(WrongRowError, match=r"dated\.000000000\.parquet, row 2: dt is NULL, and NOT NULL"),
    ):
        read_dump(context, request_of(dump))


def test_stored_generated_columns_that_a_dump_lacks_are_an_error(server: Connection, tmp_path: Path) -> None:
    mariadb.execute(
        server,
        "CREATE OR REPLACE TABLE shop.stored (id INT PRIMARY KEY, doubled INT AS (id * 2) STORED)",
        "INSERT INTO shop.stored (id) VALUES (1)",
    )
    table = read_table(server, "shop", "stored")
    dump = write_dump(tmp_path / "dump", [table], SNAPSHOT)
    with_it = table._replace(columns=["id", "doubled"], kinds=["number", "number"], rows=[(b"1", b"2")])
    again = write_dump(tmp_path / "again", [with_it], SNAPSHOT, Variant(dialect=Dialect(header=False)))
    with pipeline_for(tmp_path, "unused:9092", "topic") as context:
        with pytest.raises(ConfigError, match="stored generated columns doubled"):
            read_dump(context, request_of(dump))
        index = read_dump(context, request_of(again, Dialect(header=False)))
        assert [row["after"] for _, row in rows_of(context, index)] == [{"id": 1, "doubled": 2}]


def test_a_value_of_another_type_names_file_and_row(server: Connection, tmp_path: Path) -> None:
    mariadb.execute(
        server,
        "CREATE OR REPLACE TABLE shop.numbers (id INT PRIMARY KEY, n INT)",
        "INSERT INTO shop.numbers VALUES (1, 1), (2, 2), (3, 3)",
    )
    table = read_table(server, "shop", "numbers")
    rows = [*table.rows[:2], (b"3", b"3.5")]
    dump = write_dump(tmp_path / "dump", [table._replace(rows=rows)], SNAPSHOT)
    with (
        pipeline_for(tmp_path, "unused:9092", "topic") as context,
        pytest.raises(
            WrongRowError, match=r"shop\.numbers\.000000000\.csv, row 3: n is int in shop\.numbers: a text of 3 char"
        ),
    ):
        read_dump(context, request_of(dump))


def test_the_header_option_must_be_that_of_the_dump(server: Connection, tmp_path: Path) -> None:
    table = read_table(server, "shop", "every.type")
    with pipeline_for(tmp_path, "unused:9092", "topic") as context:
        with_header = write_dump(tmp_path / "with", [table], SNAPSHOT)
        with pytest.raises(WrongRowError, match="without --no-header"):
            read_dump(context, request_of(with_header, Dialect(header=False)))
        without = write_dump(tmp_path / "without", [table], SNAPSHOT, Variant(dialect=Dialect(header=False)))
        with pytest.raises(WrongRowError, match="taken with --no-header"):
            read_dump(context, request_of(without))
