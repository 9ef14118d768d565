"""Tables whose names are equal but for letter case have folders of their own."""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.support.changelogs import Changelog, put, table
from tests.support.in_process import in_process
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.targets.load import load

INT = ColumnType("int", declared=True)
OLD = table("shop.orders", {"id": INT})
NEW = table("shop.Orders", {"id": INT}, valid_from=160)
CREATE = "CREATE TABLE {} (id INT PRIMARY KEY)"
KNOWN_OLD, KNOWN_NEW = (
    definition_from_sql(TableName("shop", name), CREATE.format(name)) for name in ("orders", "Orders")
)


def loaded(lake: Path, windows: list[Changelog]) -> None:
    for window in windows:
        job = window.job({"type": "parquet", "name": "lake", "uri": lake.as_uri()})
        load(job, Connections(), in_process)


def entries(lake: Path, name: str) -> list[dict[str, Any]]:
    found = sorted(lake.glob(f"pipeline/current/schema=shop/table={name}/window=*.json"))
    return [json.loads(path.read_bytes()) for path in found]


def emptied_ts(lake: Path, name: str) -> int:
    return max((entry["emptied_ts"] for entry in entries(lake, name)), default=0)


def queries(lake: Path, name: str) -> list[str]:
    return [ddl["query"] for entry in entries(lake, name) for ddl in entry["ddl"]]


def told_to(lake: Path, name: str) -> list[tuple[int, str]]:
    """When and by what kind of change each entry of the folder was touched."""
    return [
        (changes["commit_ts"], change.get("kind", change["type"]))
        for entry in entries(lake, name)
        for changes in entry["changes"]
        for change in changes["changes"]
    ]


@pytest.mark.parametrize("order", [*permutations(range(4))], ids=str)
def test_rows_of_either_are_gone_when_their_table_was_emptied(tmp_path: Path, order: tuple[int, ...]) -> None:
    lake, artifacts = tmp_path / "lake", tmp_path / "artifacts"
    windows = [
        Changelog(artifacts, 0, 100).rows(OLD, [put(10, id=1)]),
        Changelog(artifacts, 100, 155).knows(KNOWN_OLD).ddl(150, "DROP TABLE orders"),
        Changelog(artifacts, 155, 200)
        .ddl(160, CREATE.format("Orders"), table="shop.Orders")
        .rows(NEW, [put(170, id=2)]),
        Changelog(artifacts, 200, 300)
        .knows(KNOWN_NEW)
        .ddl(250, "TRUNCATE TABLE orders", table="shop.Orders")
        .ddl(270, "ALTER TABLE orders ADD COLUMN n INT", table="shop.Orders")
        .rows(NEW, [put(260, id=3)]),
    ]
    loaded(lake, [windows[number] for number in order])
    assert emptied_ts(lake, "Orders") == 250
    assert emptied_ts(lake, "orders") >= 150
    assert {(160, "TableCreated"), (250, "truncated"), (270, "ColumnAdded")} <= set(told_to(lake, "Orders"))
    assert {kind for _, kind in told_to(lake, "orders")} <= {"dropped", "truncated", "TableCreated"}
    assert not any("ADD COLUMN" in query for query in queries(lake, "orders"))


@pytest.mark.parametrize("order", [*permutations(range(2))], ids=str)
def test_within_one_window(tmp_path: Path, order: tuple[int, ...]) -> None:
    lake, artifacts = tmp_path / "lake", tmp_path / "artifacts"
    both = Changelog(artifacts, 100, 200).knows(KNOWN_OLD).ddl(150, "DROP TABLE orders")
    both.ddl(160, CREATE.format("Orders"), table="shop.Orders").rows(NEW, [put(170, id=2)])
    windows = [Changelog(artifacts, 0, 100).rows(OLD, [put(10, id=1)]), both]
    loaded(lake, [windows[number] for number in order])
    assert emptied_ts(lake, "orders") == 160
    assert queries(lake, "orders") == ["DROP TABLE orders", CREATE.format("Orders")]
    assert emptied_ts(lake, "Orders") == 160
    assert (160, "TableCreated") in told_to(lake, "Orders")


@pytest.mark.parametrize("order", [*permutations(range(2))], ids=str)
def test_a_creation_leaves_no_row_of_either_though_nobody_saw_the_drop(tmp_path: Path, order: tuple[int, ...]) -> None:
    lake, artifacts = tmp_path / "lake", tmp_path / "artifacts"
    created = Changelog(artifacts, 100, 200).ddl(160, CREATE.format("Orders"), table="shop.Orders")
    windows = [Changelog(artifacts, 0, 100).rows(OLD, [put(10, id=1)]), created.rows(NEW, [put(170, id=2)])]
    loaded(lake, [windows[number] for number in order])
    assert emptied_ts(lake, "[oO]rders") == 160
    if order == (0, 1):
        assert emptied_ts(lake, "orders") == 160


def test_a_rename_of_letter_case_alone_is_told_under_both(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    rename = "RENAME TABLE orders TO Orders"
    window = Changelog(tmp_path / "artifacts", 100, 200).knows(KNOWN_OLD).ddl(150, rename, table="shop.Orders")
    loaded(lake, [window.rows(OLD, [put(110, id=1)]).rows(NEW, [put(170, id=2)])])
    assert emptied_ts(lake, "orders") == 150
    assert told_to(lake, "orders") == [(150, "renamed_away")]
    assert told_to(lake, "Orders") == [(150, "renamed_here")]
    assert queries(lake, "orders") == queries(lake, "Orders") == [rename]


def test_a_name_of_a_text_alone_is_that_of_the_table_that_is_there(tmp_path: Path) -> None:
    lake, artifacts = tmp_path / "lake", tmp_path / "artifacts"
    window = Changelog(artifacts, 100, 200)
    window.ddl(150, "ALTER TABLE parts EXCHANGE PARTITION p WITH TABLE ORDERS", table="shop.parts")
    loaded(lake, [Changelog(artifacts, 0, 100).rows(OLD, [put(10, id=1)]), window])
    assert told_to(lake, "orders") == [(150, "exchanged")]
    assert entries(lake, "ORDERS") == []
