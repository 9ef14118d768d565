"""Real messages of a changefeed, mirrored in a lake in windows of any order, give the rows that the upstream had at the end."""

import base64
import datetime
import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.expected import read_lines
from tests.integration.targets.test_captures import Json, cut, last_rows, same
from tests.support.decoded_captures import DecodedCapture
from tests.support.examples import NIGHTLY
from tests.support.in_process import in_process
from tests.support.target_rigs import LakeRig
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.changes import BreakingChange
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration
EVERY_TYPE = TableName("devdb", "all_types")


def text_of(value: Any, cell: Json) -> str | None:
    """A cell of Spark as a person sees it in MySQL."""
    base = cell["mysql_type"].partition("(")[0].split()[0]
    if value is None:
        return None
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if base == "time":
        sign, value = ("-" if value < 0 else ""), abs(value)
        seconds, micros = divmod(value, 1_000_000)
        return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    return str(value)


def is_same(value: Any, cell: Json) -> bool:
    if cell.get("is_binary") and isinstance(value, str):
        return value.encode() == base64.b64decode(cell["value"])
    text = text_of(value, cell)
    if text is not None and cell["mysql_type"].startswith("json"):
        return bool(json.loads(text) == json.loads(cell["value"]))
    return same(text, cell)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_rows_of_a_capture_end_in_a_lake_as_the_upstream_had_them(
    lake_spark: SparkSession, open_captures: Path, artifacts: Path, tmp_path: Path, kind: str
) -> None:
    lake = LakeRig(kind, lake_spark, tmp_path)
    decoded = DecodedCapture(open_captures / "new" / "open-default", artifacts)
    whole = decoded.decode(Window(0, 1 << 62))
    breaking = {
        entry.table for entry in whole.changes if any(isinstance(change, BreakingChange) for change in entry.changes)
    }
    keyless = {version.schema.name for version in whole.tables if not version.schema.handle_key}
    tables = [name for name in whole.table_names() if name not in breaking | keyless]
    if not NIGHTLY:  # a lake takes a second for each table and window
        tables = [name for at, name in enumerate(tables) if at % 4 == 0 or name == EVERY_TYPE]
    windows = [decoded.decode(window) for window in cut(whole, 3)]
    random.Random(7).shuffle(windows)
    quarantined = 0
    for index in windows:
        job = decoded.load_job(index, lake.section, [str(name) for name in tables])
        report = load(job, lake.connections, in_process, 1, lake.sql)
        quarantined += sum(table.quarantined for table in report.tables)
    assert quarantined == 2, "a zero date and a partial one"
    end = last_rows(read_lines(open_captures / "expected" / "main.jsonl"))
    for key in ("5", "6"):
        end[EVERY_TYPE].pop((key,), None)
    compared = 0
    for table in (name for name in tables if name in end):
        place = f"{table.schema}.{table.table}"
        found = {
            tuple(str(row[name]) for name in sorted(key_names(whole, table))): row.asDict()
            for row in lake.spark.sql(lake.named(f"SELECT * FROM {place}")).collect()
        }
        expected = end[table]
        assert len(found) == len(expected), table
        left = list(found.values())
        for image in expected.values():
            cells = {name: cell for name, cell in image.items() if not cell.get("virtual")}
            match = [row for row in left if all(is_same(row[name], cell) for name, cell in cells.items())]
            assert match, (table, image, left[:3])
            left.remove(match[0])
            compared += len(cells)
    assert compared > 300


def key_names(whole: Any, table: TableName) -> tuple[str, ...]:
    """The handle key of *table*."""
    return next(version.schema.handle_key for version in whole.tables if version.schema.name == table)
