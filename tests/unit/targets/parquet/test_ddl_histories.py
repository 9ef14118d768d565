"""Files of all windows, combined as docs/targets.md says, are the upstream's tables, wherever DDL stands in a history."""

import json
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.ddl_histories import STEPS_WITH_RENAMES, TABLES, History, Step, changelogs, happened
from tests.support.examples import examples
from tests.support.in_process import in_process
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.tso import MAX_TSO
from ticdc_replay.targets.load import load


def entries(lake: Path, history: History, name: str) -> list[dict[str, Any]]:
    found = lake.glob(f"pipeline/current/schema={history.database}/table={name}/window=*.json")
    return [json.loads(path.read_bytes()) for path in found]


Rows = dict[int, dict[str, Any]]
BEGINS = ("TableCreated", "truncated", "dropped", "renamed_away", "renamed_here")
"""What begins a table: of its older rows it has none, or after a RENAME to this name those of another name."""


def combined(lake: Path, history: History, name: str) -> tuple[bool, Rows]:
    """The rows of the table *name*, as text, and whether its entries say that these are all of it."""
    windows = entries(lake, history, name)
    emptied_ts = max((entry["emptied_ts"] for entry in windows), default=0)
    untold_ts = max((entry["untold_ts"] for entry in windows), default=0)
    return untold_ts == 0 or untold_ts < emptied_ts, continued(lake, history, name, "fold", {}, emptied_ts, MAX_TSO)


def traced(lake: Path, history: History, name: str, until: int) -> Rows:
    """The rows of the table *name* just before the DDL of *until*, also those that it got by a RENAME."""
    found = told(entries(lake, history, name), 0, until)
    begins = [(commit_ts, change) for commit_ts, change in found if change.get("kind", change["type"]) in BEGINS]
    begin, change = max(begins, key=itemgetter(0), default=(0, {}))
    rows = {}
    if change.get("kind") == "renamed_here":
        rows = traced(lake, history, change["what"].rpartition(".")[2], begin)
    return continued(lake, history, name, "changelog", rows, begin, until)


def continued(lake: Path, history: History, name: str, kind: str, rows: Rows, after: int, until: int) -> Rows:
    """The table *name*, which had *rows* at *after*, just before the DDL of *until*."""
    windows = entries(lake, history, name)
    newest: dict[int, tuple[int, bool, dict[str, Any]]] = {}
    for file in (file for entry in windows for file in entry[kind]):
        for row in pq.read_table(lake / file["name"], partitioning=None).to_pylist():
            image = row["after"] or row["before"]
            version = (row["_commit_ts"], row["_op"] != "delete", image)
            if after < version[0] <= until and version[:2] >= newest.get(image["id"], version)[:2]:
                newest[image["id"]] = version
    now = {key: (after, row) for key, row in rows.items() if key not in newest}
    for key, (commit_ts, is_put, image) in newest.items():
        if is_put:
            now[key] = commit_ts, {column: as_text(cell) for column, cell in image.items()}
    for added_ts, change in told(windows, after, until):
        if change["type"] == "ColumnAdded":
            assert change["fill_known"]
            for commit_ts, row in now.values():
                if commit_ts <= added_ts:
                    row.setdefault(change["column"]["name"], as_text(change["fill"]))
    return {key: row for key, (_, row) in now.items()}


def told(windows: list[dict[str, Any]], after: int, until: int) -> list[tuple[int, dict[str, Any]]]:
    """What DDL after *after*, and before *until*, did."""
    return [
        (changes["commit_ts"], change)
        for entry in windows
        for changes in entry["changes"]
        for change in changes["changes"]
        if after < changes["commit_ts"] < until
    ]


def as_text(cell: object) -> str | None:
    """A cell, a number without its zeros."""
    if cell is None:
        return None
    try:
        return format(Decimal(str(cell)).normalize(), "f")
    except ArithmeticError:
        return str(cell)


@settings(max_examples=examples(0.3))
@given(known=st.lists(st.sampled_from(TABLES), unique=True), steps=STEPS_WITH_RENAMES, data=st.data())
def test_files_of_windows_in_any_order_are_the_tables_of_the_upstream(
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
        whole, found = combined(lake, history, name)
        assert whole != is_of_another_name(history, name)
        if whole:
            assert found == expected
        assert traced(lake, history, name, MAX_TSO) == expected


def is_of_another_name(history: History, name: str) -> bool:
    """Whether the table *name* has had another one, and may have rows from then."""
    began = [event.sql for event in history.events if event.sql.startswith(("RENAME", "CREATE", "DROP", "TRUNCATE"))]
    own = [sql for sql in began if f"`{name}`" in sql]
    return bool(own) and own[-1].endswith(f" TO `{name}`")
