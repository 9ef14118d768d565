"""The page "From TiDB to Iceberg in ten minutes": its file loads a table, and its commands and queries are what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.changelogs import Changelog, delete, put, table
from tests.support.in_process import in_process
from ticdc_replay.cli import main
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.targets.load import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "iceberg.md").read_text(encoding="utf-8")
ORDERS = table(
    "shop.orders", {"id": ColumnType("bigint", declared=True), "status": ColumnType("varchar", length=9, declared=True)}
)
HOURS = (464626542182400000, 464627485900800000, 464628429619200000, 464629373337600000)
"""TSO of 2026-03-02 00:00 to 03:00 UTC."""


def blocks(language: str, folder: Path) -> list[str]:
    """The examples in *language*, with *folder* in place of the page's."""
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    return [text.replace("/srv", str(folder)) for text in found]


def pipeline_file(folder: Path) -> Path:
    (text,) = blocks("yaml", folder)
    file = folder / "shop.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_each_command_of_the_page_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_pipeline(pipeline_file(tmp_path)).warnings == ()
    (tmp_path / "connections.yaml").touch(mode=0o600)
    (commands,) = (text for text in blocks("sh", tmp_path) if "ticdc-replay" in text)
    used = [
        shlex.split(line)[1:] for line in commands.replace("\\\n", "").splitlines() if line.startswith("ticdc-replay ")
    ]
    assert [words[0] for words in used] == ["changefeed", "plan", "run"]
    for verb, *options in used:
        main.load(verb).make_context(verb, options)  # raises for an option or a value that it does not know


def test_the_queries_of_the_page_read_what_its_target_was_loaded_with(lake_spark: SparkSession, tmp_path: Path) -> None:
    target = load_pipeline(pipeline_file(tmp_path)).pipeline.targets[0].model_dump(by_alias=True)
    (tmp_path / "lakehouse").mkdir()
    sql = SparkSql(lake_spark)
    for from_ts, to_ts, rows in (
        (HOURS[0], HOURS[1], [put(HOURS[0] + 1, id=1, status="new"), put(HOURS[0] + 2, id=2, status="new")]),
        (HOURS[1], HOURS[2], [put(HOURS[1], id=1, status="paid", op="update")]),
        (HOURS[2], HOURS[3], [delete(HOURS[2], id=2), put(HOURS[2], id=3, status="new")]),
    ):
        changelog = Changelog(tmp_path / "artifacts", from_ts, to_ts).rows(ORDERS, rows)
        load(changelog.job(target), Connections(), in_process, 1, sql)
    count, find_snapshot, travel = blocks("sql", tmp_path)
    assert [tuple(row) for row in lake_spark.sql(count).collect()] == [("new", 1), ("paid", 1)]

    ((snapshot, to_ts),) = lake_spark.sql(find_snapshot).collect()
    assert int(to_ts) == HOURS[2]
    (number,) = re.findall(r"VERSION AS OF (\d+)", travel)
    past = lake_spark.sql(travel.replace(number, str(snapshot))).collect()
    assert sorted((row.id, row.status) for row in past) == [(1, "paid"), (2, "new")]

    (code,) = blocks("python", tmp_path)
    module: dict[str, Any] = {}
    exec(code, module)
    assert sorted(module["orders"].sql("SELECT id, status FROM orders").fetchall()) == [(1, "paid"), (3, "new")]
