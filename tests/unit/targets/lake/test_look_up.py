"""How a person looks for a row in a lake table: the query, without Spark; that it runs is in ``integration/targets``."""

from pathlib import Path

import pytest

from ticdc_replay.changelog.cells.written import WrittenCell, written_cell
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.tables import TableName
from ticdc_replay.targets.base import FoundRow
from ticdc_replay.targets.load import open_target

ORDERS = TableName("shop", "orders")
LOOK = "its tables can be looked at with Spark only; run: "


def find(folder: Path, key: dict[str, WrittenCell], **section: object) -> FoundRow:
    declared = {"type": "iceberg", "name": "lake", "catalog": "lake", "ledger": folder.as_uri(), **section}
    return open_target(read_section(declared), Connections()).find_row("shop", ORDERS, key)


@pytest.fixture
def key() -> dict[str, WrittenCell]:
    """Of an integer and a text with a quote."""
    texts = {"id": ("7", ColumnType("bigint")), "by`": ("it's", ColumnType("varchar"))}
    return {name: written_cell(text, type_, "UTC") for name, (text, type_) in texts.items()}


ROW = "WHERE `id` = CAST('7' AS bigint) AND `by``` = 'it\\'s'"


def test_a_mirror(tmp_path: Path, key: dict[str, WrittenCell]) -> None:
    query = f"SELECT `_commit_ts` FROM `lake`.`shop`.`orders` {ROW}"
    assert find(tmp_path, key) == FoundRow(where='"shop"."orders"', not_looked=LOOK + query)


def test_a_mirror_with_deleted_rows(tmp_path: Path, key: dict[str, WrittenCell]) -> None:
    found = find(tmp_path, key, deletes="soft", schema="copies")
    assert found.not_looked == f"{LOOK}SELECT `_commit_ts`, `_is_deleted` FROM `lake`.`copies`.`orders` {ROW}"


def test_a_history(tmp_path: Path, key: dict[str, WrittenCell]) -> None:
    found = find(tmp_path, key, mode="scd2")
    assert (found.where, found.keeps) == ('"shop"."orders_history"', "all")
    assert found.not_looked == f"{LOOK}SELECT `_commit_ts`, `_op` FROM `lake`.`shop`.`orders_history` {ROW}"


@pytest.mark.parametrize("mode", ["mirror", "history"])
def test_a_key_that_no_table_can_hold(tmp_path: Path, mode: str) -> None:
    found = find(tmp_path, {"id": written_cell("0000-00-00", ColumnType("date"), "UTC")}, mode=mode)
    assert (found.not_looked, found.version) == ("", None)
