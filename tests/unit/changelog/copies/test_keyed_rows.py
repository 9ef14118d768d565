"""The versions of one row, found by the cells of its key, and the claim-check references of the row."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.changelogs import Changelog, Row, delete, put, table
from ticdc_replay.changelog.cells.written import written_cell
from ticdc_replay.changelog.copies.keyed_rows import KeyedRow, references_with_hash, rows_with_key
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.changelog.files.reading import file_name
from ticdc_replay.changelog.files.side_files import REFERENCES
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import ArtifactNotFoundError
from ticdc_replay.domain.messages import EventPlace
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.domain.window import Window
from ticdc_replay.storage import open_store

INT, TEXT = ColumnType("bigint", declared=True), ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})


def found(folder: Path, index: ChangelogIndex, schema: TableSchema, **key: str) -> list[KeyedRow]:
    """The rows with *key* in all files of *index*, which are of *schema*."""
    cells = {name: written_cell(text, schema.column(name).type, "UTC") for name, text in key.items()}  # type: ignore[union-attr]
    store = open_store(folder.as_uri())
    files = [file for version in index.tables for file in version.files]
    return [row for file in files for row in rows_with_key(store, index, file, cells)]


def test_every_version_of_the_row_and_of_no_other(tmp_path: Path) -> None:
    rows: list[Row] = [put(ts, id=ts % 5, v="x") for ts in range(10, 40)]
    index = Changelog(tmp_path, 0, 100).rows(ORDERS, [*rows, delete(50, id=3)], files=3).write()
    versions = sorted(found(tmp_path, index, ORDERS, id="3"), key=lambda row: row.commit_ts or 0)
    assert [(row.commit_ts, row.operation, row.is_put) for row in versions] == [
        *((ts, "insert", True) for ts in (13, 18, 23, 28, 33, 38)),
        (50, "delete", False),
    ]
    assert found(tmp_path, index, ORDERS, id="7") == []


def test_only_the_part_of_a_file_that_counts(tmp_path: Path) -> None:
    index = Changelog(tmp_path, 0, 100).rows(ORDERS, [put(ts, id=1, v="x") for ts in range(10, 40)]).write()
    (version,) = index.tables
    part = msgspec.structs.replace(version.files[0], only=Window(20, 22))
    narrow = msgspec.structs.replace(index, tables=(msgspec.structs.replace(version, files=(part,)),))
    assert [row.commit_ts for row in found(tmp_path, narrow, ORDERS, id="1")] == [20, 21]


def test_row_groups_that_can_not_hold_the_key_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Changelog(tmp_path, 0, 100).rows(ORDERS, [put(ts, id=ts, v="x") for ts in range(10, 40)]).write()
    read: list[int] = []
    whole = pq.ParquetFile.iter_batches

    def noted(self: Any, rows: int, row_groups: list[int], **options: Any) -> Any:
        read.extend(row_groups)
        return whole(self, rows, row_groups=row_groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    assert [row.commit_ts for row in found(tmp_path, index, ORDERS, id="15")] == [15]
    assert read == [1]  # of eight, with four rows each


@pytest.mark.parametrize(
    ("column_type", "value", "text"),
    [
        (ColumnType("varchar", declared=True), "Ada", "Ada"),
        (ColumnType("varbinary", declared=True), b"\0\xff", "0x00ff"),
        (ColumnType("decimal", length=10, scale=2, declared=True), Decimal("1.50"), "1.5"),
        (ColumnType("decimal"), "1.50", "1.5"),
        (ColumnType("bigint", unsigned=True, declared=True), 2**64 - 1, str(2**64 - 1)),
        (ColumnType("float", declared=True), 0.1, "0.1"),
    ],
    ids=str,
)
def test_keys_of_other_types(tmp_path: Path, column_type: ColumnType, value: Any, text: str) -> None:
    schema = table("shop.orders", {"id": column_type, "a.b": TEXT}, key=("a.b", "id"))
    other: dict[str, Any] = {"id": value, "a.b": "y"}
    rows = [Row("insert", 10, {"id": value, "a.b": "x"}), Row("insert", 11, other)]
    index = Changelog(tmp_path, 0, 100).rows(schema, rows).write()
    assert [row.commit_ts for row in found(tmp_path, index, schema, **{"id": text, "a.b": "x"})] == [10]


def test_a_key_that_no_typed_cell_holds(tmp_path: Path) -> None:
    schema = table("shop.orders", {"id": ColumnType("date", declared=True), "v": TEXT})
    rows = [Row("insert", ts, {"v": "x"}, {"id": day}) for ts, day in ((10, b"0000-00-00"), (11, b"2026-02-00"))]
    gone = Row("delete", 12, {}, {"id": b"0000-00-00"}, partial=True)
    index = Changelog(tmp_path, 0, 100).rows(schema, [*rows, gone]).write()
    assert [row.commit_ts for row in found(tmp_path, index, schema, id="0000-00-00")] == [10, 12]


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    index = Changelog(tmp_path, 0, 100).rows(ORDERS, [put(10, id=1, v="x")]).write()
    (tmp_path / file_name(index, index.tables[0].files[0])).unlink()
    with pytest.raises(ArtifactNotFoundError, match="is gone; decode the window again"):
        found(tmp_path, index, ORDERS, id="1")


def test_references_of_the_row(tmp_path: Path) -> None:
    index = msgspec.structs.replace(Changelog(tmp_path, 0, 100).write(), reference_files=("references/a.parquet",))
    path = tmp_path / changelog_root(index.run_hash) / "references" / "a.parquet"
    path.parent.mkdir(parents=True)
    hashes = {"one": b"1" * 16, "two": b"2" * 16}
    rows = [
        {
            "topic": "topic",
            "partition": 0,
            "offset": offset,
            "ordinal": 0,
            "commit_ts": 10,
            "schema": "shop",
            "table": of,
            "location": f"s3://b/{offset}.json",
            "object_name": f"{offset}.json",
            "status": "used",
            "key_hash": hashes.get(key),
        }
        for offset, of, key in ((1, "orders", "one"), (2, "orders", "two"), (3, "other", "one"), (4, "orders", ""))
    ]
    store, name = open_store(tmp_path.as_uri()), TableName("shop", "orders")
    with pytest.raises(ArtifactNotFoundError, match="claim-check references"):
        list(references_with_hash(store, index, name, {hashes["one"]}))
    pq.write_table(pa.Table.from_pylist(rows, REFERENCES), path)
    (reference,) = references_with_hash(store, index, name, {hashes["one"]})
    assert (reference.place, reference.object_name) == (EventPlace("topic", 0, 1, 0), "1.json")
