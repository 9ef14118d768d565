"""Folds of all windows, combined as docs/targets.md says, are the upstream's tables, wherever DDL stands in a history."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ddl_histories import STEPS, TABLES, History, Step, changelogs, happened
from tests.examples import examples
from ticdc_replay.domain.connections import Connections
from ticdc_replay.targets.load import in_process, load


def entries(lake: Path, history: History, name: str) -> list[dict[str, Any]]:
    found = lake.glob(f"pipeline/current/schema={history.database}/table={name}/window=*.json")
    return [json.loads(path.read_bytes()) for path in found]


def fills(windows: list[dict[str, Any]]) -> Iterator[tuple[int, str, Any]]:
    """When each column was added, and what rows from before show in it."""
    for entry in windows:
        for changes in entry["changes"]:
            for change in changes["changes"]:
                if change["type"] == "ColumnAdded":
                    assert change["fill_known"]
                    yield changes["commit_ts"], change["column"]["name"], change["fill"]


def combined(lake: Path, history: History, name: str) -> dict[int, dict[str, Any]]:
    """The rows of the table *name*, as text."""
    windows = entries(lake, history, name)
    emptied_ts = max((entry["emptied_ts"] for entry in windows), default=0)
    newest: dict[int, tuple[int, bool, dict[str, Any]]] = {}
    for entry in windows:
        for file in entry["fold"]:
            for row in pq.read_table(lake / file["name"], partitioning=None).to_pylist():
                image = row["after"] or row["before"]
                version = (row["_commit_ts"], row["_op"] != "delete", image)
                if version[0] > emptied_ts and version[:2] >= newest.get(image["id"], version)[:2]:
                    newest[image["id"]] = version
    rows = {}
    for key, (commit_ts, is_put, image) in newest.items():
        if is_put:
            rows[key] = {column: as_text(cell) for column, cell in image.items()}
            for added_ts, column, fill in fills(windows):
                if commit_ts <= added_ts > emptied_ts:
                    rows[key].setdefault(column, as_text(fill))
    return rows


def as_text(cell: object) -> str | None:
    """A cell, a number without its zeros."""
    if cell is None:
        return None
    try:
        return format(Decimal(str(cell)).normalize(), "f")
    except ArithmeticError:
        return str(cell)


@settings(max_examples=examples(0.3))
@given(known=st.lists(st.sampled_from(TABLES), unique=True), steps=STEPS, data=st.data())
def test_folds_of_windows_in_any_order_are_the_tables_of_the_upstream(
    tmp_path_factory: pytest.TempPathFactory, known: list[str], steps: list[Step], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("history")
    lake = folder / "lake"
    history = happened("shop", known, steps)
    cuts = data.draw(st.lists(st.integers(101, max(101, history.end_ts)), max_size=5))
    windows = changelogs(history, folder / "artifacts", cuts)
    again = data.draw(st.lists(st.sampled_from(windows), max_size=2))
    for window in (*data.draw(st.permutations(windows)), *again):
        job = window.job({"type": "parquet", "name": "lake", "uri": lake.as_uri()}, reload=window in again)
        load(job, Connections(), in_process)
    for name in TABLES:
        there = history.tables.get(name)
        rows = there.rows if there is not None else {}
        expected = {key: {column: as_text(cell) for column, cell in row.items()} for key, row in rows.items()}
        assert combined(lake, history, name) == expected
