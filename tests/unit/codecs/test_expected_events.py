"""The comparison with expected events sees every kind of mistake."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.expected import compare
from ticdc_replay.captures import Capture
from ticdc_replay.cli.main import app

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def right(open_captures: Path) -> Lines:
    folder = str(open_captures / "classic" / "open-2part-index")
    return [json.loads(line) for line in CliRunner().invoke(app, ["decode", "--capture", folder]).stdout.splitlines()]


def first(lines: Lines, **members: Any) -> dict[str, Any]:
    return next(line for line in lines if all(line.get(name) == value for name, value in members.items()))


def lose_a_version(lines: Lines) -> None:
    """Drop every copy of one row version, and double another so that the counts still fit."""
    gone = first(lines, kind="row", type="update")
    for number, line in enumerate(lines):
        if line["kind"] == "row" and (line["commit_ts"], line["columns"]) == (gone["commit_ts"], gone["columns"]):
            lines[number] = first(lines, kind="row", type="delete")


MISTAKES: dict[str, Callable[[Lines], Any]] = {
    "a cell": lambda lines: first(lines, kind="row", type="insert", table="all_types")["columns"]["c_big"].update(
        value="7"
    ),
    "an old cell": lambda lines: first(lines, kind="row", type="update")["pre"]["id"].update(value="7"),
    "null for a value": lambda lines: first(lines, kind="row", type="delete")["pre"]["id"].update(value=None),
    "a column too few": lambda lines: first(lines, kind="row", type="insert")["columns"].popitem(),
    "a column too many": lambda lines: first(lines, kind="row", type="insert")["columns"].update(x={"value": "1"}),
    "the type": lambda lines: first(lines, kind="row", type="insert").update(type="upsert"),
    "the commitTs": lambda lines: first(lines, kind="row").update(commit_ts=1),
    "the table": lambda lines: first(lines, kind="row").update(table="x"),
    "no old image": lambda lines: first(lines, kind="row", type="update").update(pre=None),
    "partial": lambda lines: first(lines, kind="row").update(partial=True),
    "a row too few": lambda lines: lines.remove(first(lines, kind="row")),
    "a row twice": lambda lines: lines.append(first(lines, kind="row")),
    "a version lost": lose_a_version,
    "a DDL's type": lambda lines: first(lines, kind="ddl").update(type=99),
    "a DDL's table": lambda lines: first(lines, kind="ddl", type=3).update(table="x"),
    "a watermark too few": lambda lines: lines.remove(first(lines, kind="watermark")),
}


def test_right_lines_have_no_difference(open_captures: Path, right: Lines) -> None:
    folder = open_captures / "classic" / "open-2part-index"
    assert compare(right, folder, Capture(folder).changefeed(), {}) == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(open_captures: Path, right: Lines, mistake: str) -> None:
    folder = open_captures / "classic" / "open-2part-index"
    wrong = copy.deepcopy(right)
    MISTAKES[mistake](wrong)
    assert compare(wrong, folder, Capture(folder).changefeed(), {}) != []
