"""What a folder holds of a dump, and which dumps are refused."""

from pathlib import Path

import pytest

from tests.support.dumpling_files import Table, Variant, add_view, metadata, write_dump
from ticdc_replay.changefeed.rules import Dispatch
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.tables import TableName
from ticdc_replay.dumps.metadata import read_metadata
from ticdc_replay.dumps.names import read_name
from ticdc_replay.dumps.survey import Dump, survey
from ticdc_replay.storage import open_store

SNAPSHOT = 415195906970746880
CREATE = "CREATE TABLE `{}` (\n  `id` bigint NOT NULL,\n  PRIMARY KEY (`id`)\n) ENGINE=InnoDB"
ORDERS = Table("shop", "orders", CREATE.format("orders"), ["id"], ["number"], [(b"1",), (b"2",), (b"3",)])
EMPTY = Table("shop", "empty", CREATE.format("empty"), ["id"], ["number"], [])


def surveyed(folder: Path, *patterns: str) -> Dump:
    return survey(open_store(folder.as_uri()), TablePatterns(patterns or ("*.*",)), Dispatch())


@pytest.mark.parametrize(
    ("name", "kind", "table", "format", "compression"),
    [
        ("metadata", "metadata", None, None, ""),
        ("shop-schema-create.sql", "other", None, None, ""),
        ("shop.orders-schema.sql", "definition", "shop.orders", None, ""),
        ("shop.orders-schema.sql.gz", "definition", "shop.orders", None, "gzip"),
        ("shop.v-schema-view.sql", "view", "shop.v", None, ""),
        ("shop.s-schema-sequence.sql", "other", None, None, ""),
        ("shop.orders-schema-triggers.sql", "other", None, None, ""),
        ("shop.p-schema-post.sql", "other", None, None, ""),
        ("p-placement-policy-create.sql", "other", None, None, ""),
        ("shop.orders.000000000.csv", "data", "shop.orders", "csv", ""),
        ("shop.orders.0000000010000.csv", "data", "shop.orders", "csv", ""),
        ("shop.orders.000000001.sql.zst", "data", "shop.orders", "sql", "zstd"),
        ("shop.orders.000000001.csv.snappy", "data", "shop.orders", "csv", "snappy"),
        ("shop.orders.sql", "data", "shop.orders", "sql", ""),
        ("shop.orders.000000001.parquet", "data", "shop.orders", "parquet", ""),
        ("a%2Eb.c%2Fd%25.000000000.csv", "data", "a.b.c/d%", "csv", ""),
        ("shop.x%2Dschema.000000000.csv", "data", "shop.x-schema", "csv", ""),
        ("shop.x%2Dschema-schema.sql", "definition", "shop.x-schema", None, ""),
        ("dumpling.log", "other", None, None, ""),
    ],
)
def test_names(name: str, kind: str, table: str | None, format: str | None, compression: str) -> None:
    read = read_name(name)
    found = None if read.table is None else str(read.table)
    assert (read.kind, found, read.format, read.compression) == (kind, table, format, compression)


def test_a_dump_with_a_view_an_empty_table_and_other_files(tmp_path: Path) -> None:
    write_dump(tmp_path, [ORDERS, EMPTY], SNAPSHOT, Variant(file_rows=2))
    add_view(tmp_path, "shop", "recent")
    (tmp_path / "shop.s-schema-sequence.sql").write_text("CREATE SEQUENCE `s`;\n")
    (tmp_path / "dumpling.log").write_text("done")
    found = surveyed(tmp_path)
    assert found.metadata.snapshot_ts == SNAPSHOT
    assert [(str(table.name), table.format, len(table.files)) for table in found.tables] == [
        ("shop.empty", None, 0),
        ("shop.orders", "csv", 2),
    ]


def test_only_wanted_tables_are_looked_at(tmp_path: Path) -> None:
    write_dump(tmp_path, [ORDERS, EMPTY], SNAPSHOT)
    (tmp_path / "shop.empty-schema.sql").write_bytes(b"\xff")
    assert [table.name for table in surveyed(tmp_path, "shop.orders").tables] == [TableName("shop", "orders")]
    with pytest.raises(ConfigError, match="none of the tables"):
        surveyed(tmp_path, "other.*")


def test_a_folder_without_metadata_is_refused(tmp_path: Path) -> None:
    write_dump(tmp_path, [ORDERS], SNAPSHOT)
    (tmp_path / "metadata").unlink()
    with pytest.raises(ConfigError, match="there is no file metadata"):
        surveyed(tmp_path)


def test_rows_without_a_definition_are_refused(tmp_path: Path) -> None:
    write_dump(tmp_path, [ORDERS], SNAPSHOT)
    (tmp_path / "shop.orders-schema.sql").unlink()
    with pytest.raises(ConfigError, match=r"rows of shop\.orders, and no file …-schema\.sql"):
        surveyed(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "orders.000000000.csv",
        "csv/shop.orders.000000000.csv",
        "orders_0.sql.gz",
        "shop.orders.part-0.csv",
        "a/b.parquet",
        "a/shop.orders.000000000.csv.bz2",
    ],
)
def test_a_file_of_rows_that_is_not_named_by_the_default_template_is_refused(tmp_path: Path, name: str) -> None:
    write_dump(tmp_path, [EMPTY, ORDERS], SNAPSHOT)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / "shop.orders.000000000.csv").rename(tmp_path / name)
    with pytest.raises(ConfigError, match=r"--output-filename-template"):
        surveyed(tmp_path, "shop.*")


def test_a_file_of_rows_that_is_empty_is_refused(tmp_path: Path) -> None:
    write_dump(tmp_path, [ORDERS], SNAPSHOT, Variant(file_rows=2))
    (tmp_path / "shop.orders.000000001.csv").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"shop\.orders\.000000001\.csv is empty"):
        surveyed(tmp_path)


def test_a_view_with_rows_is_refused(tmp_path: Path) -> None:
    write_dump(tmp_path, [ORDERS], SNAPSHOT)
    add_view(tmp_path, "shop", "orders")
    with pytest.raises(ConfigError, match=r"shop\.orders has rows and is a view"):
        surveyed(tmp_path)


def test_tables_without_rows_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_dump(tmp_path, [ORDERS, EMPTY], SNAPSHOT)
    surveyed(tmp_path)
    assert "no file has rows of shop.empty:" in caplog.text


def test_two_dumps_in_a_folder_are_refused(tmp_path: Path) -> None:
    write_dump(tmp_path, [ORDERS], SNAPSHOT)
    write_dump(tmp_path, [ORDERS], SNAPSHOT, Variant("sql"))
    with pytest.raises(ConfigError, match=r"several formats \(csv, sql\)"):
        surveyed(tmp_path)


def test_parquet_that_is_compressed_as_a_whole_is_refused(tmp_path: Path) -> None:
    write_dump(tmp_path, [EMPTY], SNAPSHOT)
    (tmp_path / "shop.empty.000000000.parquet.gz").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match="Parquet and compressed as a whole"):
        surveyed(tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (metadata(SNAPSHOT, finished=False), "no line 'Finished dump at'"),
        ("Started dump at: 2026-03-01 12:00:00\nFinished dump at: 2026-03-01 12:05:00\n", "no 'SHOW MASTER STATUS'"),
        (metadata(7502, "ON.000001"), "Log is 'ON.000001'"),
        (metadata("2026-03-01 12:00:00"), "Pos is '2026-03-01 12:00:00', which is not a TSO"),
        (metadata(""), "Pos is ''"),
        (metadata(0), "Pos is '0'"),
    ],
)
def test_metadata_without_a_snapshot_are_refused(content: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        read_metadata(content.encode(), "s3://dump/metadata")
    assert str(refused.value).startswith("s3://dump/metadata: ")


def test_metadata_of_newer_terms_are_read() -> None:
    content = metadata(SNAPSHOT).replace("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
    assert read_metadata(content.encode(), "metadata").snapshot_ts == SNAPSHOT
