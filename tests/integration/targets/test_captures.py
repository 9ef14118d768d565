"""Real messages of a changefeed, decoded and mirrored in windows of any order, give the rows that the upstream had at the end."""

import base64
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from psycopg import sql

from tests.expected import read_lines
from tests.integration.targets.conftest import TARGET, Mirror
from tests.support.decoded_captures import DecodedCapture
from tests.support.in_process import in_process
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.changes import BreakingChange
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration

Json = dict[str, Any]
Key = tuple[str, ...]
SameCell = Callable[[str | None, Json], bool]


def last_rows(events: list[Json]) -> dict[TableName, dict[Key, Json]]:
    """The columns of each row at the end, by table and key."""
    tables: dict[TableName, dict[Key, Json]] = defaultdict(dict)
    for event in events:
        if event["type"] == "ddl":
            continue
        rows = tables[TableName(event["schema"], event["table"])]
        for image in (event.get("pre"), event.get("columns")):
            if image is not None:
                rows.pop(key_of(image, event["handle_key"]), None)
        if event.get("columns") is not None:
            rows[key_of(event["columns"], event["handle_key"])] = event["columns"]
    return tables


def key_of(image: Json, names: list[str]) -> Key:
    return tuple(str(image[name]["value"]) for name in sorted(names))


def same(shown: str | None, cell: Json) -> bool:
    """Whether the mirror's *shown* is the value of an expected *cell*."""
    value = cell["value"]
    if value is None or shown is None:
        return shown is value
    base = re.match(r"\w+", cell["mysql_type"])
    assert base is not None
    if cell.get("is_binary"):
        return bytes.fromhex(shown.removeprefix("\\x")) == base64.b64decode(value)
    match base[0]:
        case "json":
            return bool(json.loads(shown) == json.loads(value))
        case "float":
            return bool(np.float32(shown) == np.float32(value))
        case "double":
            return float(shown) == float(value)
        case "decimal":
            return Decimal(shown) == Decimal(value)
        case "timestamp":
            return without_zeros(shown.removesuffix("+00")) == without_zeros(cell.get("value_utc", value))
        case "datetime" | "time":
            return without_zeros(shown) == without_zeros(value)
    return shown == value


def without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def assert_same_rows(mirror: Mirror, table: TableName, expected: list[Json], equal: SameCell = same) -> None:
    """The mirror of *table* has each of *expected* once, and no other row; *equal* tells of a cell."""
    names = [name for name, cell in expected[0].items() if not cell.get("virtual")] if expected else []
    columns = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
    query = sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier(table.schema, table.table)).as_string()
    left = mirror.rows(query)
    for image in expected:
        nearest = min(left, key=lambda row: len(differences(names, row, image, equal)), default=())
        assert nearest != ()
        assert differences(names, nearest, image, equal) == [], table
        left.remove(nearest)
    assert left == []


def differences(
    names: list[str], row: tuple[str | None, ...], image: Json, equal: SameCell
) -> list[tuple[str, str | None, Json]]:
    shown = zip(names, row, strict=True)
    return [(name, text, image[name]) for name, text in shown if not equal(text, image[name])]


CAPTURES = ["open-default", "open-delete-handle-key", "open-raw-change", "open-no-old-value", "open-updated-columns"]


@pytest.mark.parametrize("architecture", ["classic", "new"])
@pytest.mark.parametrize("capture", CAPTURES)
def test_rows_of_a_capture_end_as_the_upstream_had_them(
    mirror: Mirror, open_captures: Path, artifacts: Path, architecture: str, capture: str
) -> None:
    decoded = DecodedCapture(open_captures / architecture / capture, artifacts)
    whole = decoded.decode(Window(0, 1 << 62))
    with pytest.raises(
        PolicyStopError, match=r"devdb.part_r at \d+ .*: rows went without events: truncate partition p1"
    ):
        load(decoded.load_job(whole, TARGET), mirror.connections, in_process)
    breaking = [entry for entry in whole.changes if any(isinstance(change, BreakingChange) for change in entry.changes)]
    left_out = {entry.table for entry in breaking} | {
        version.schema.name for version in whole.tables if not version.schema.handle_key
    }
    tables = [name for name in whole.table_names() if name not in left_out]
    windows = [decoded.decode(window) for window in cut(whole, 6)]
    random.Random(7).shuffle(windows)
    refused: set[tuple[str, str]] = set()
    for index in windows:
        job = decoded.load_job(index, TARGET, [str(name) for name in tables])
        report = load(job, mirror.connections, in_process)
        for name in report.quarantine_files:
            refused |= {(row["table"], row["key"]) for row in pq.read_table(artifacts / name).to_pylist()}

    assert refused == {("all_types", f'{{"id": {key}}}') for key in (4, 5, 6)}  # NUL, zero date, partial date
    end = last_rows(read_lines(open_captures / "expected" / "main.jsonl"))
    mirror.execute("DELETE FROM devdb.all_types WHERE id IN (4, 5, 6)")
    for key in ("4", "5", "6"):
        end[TableName("devdb", "all_types")].pop((key,), None)
    for table in tables:
        if table in end:
            assert_same_rows(mirror, table, list(end[table].values()))


def cut(index: ChangelogIndex, parts: int) -> list[Window]:
    """Consecutive windows that have some rows each."""
    times = sorted({file.min_commit_ts for version in index.tables for file in version.files})
    ends = [0, *times[:: -(-len(times) // parts)][1:], index.window.to_ts]
    return [Window(*pair) for pair in pairwise(ends)]
