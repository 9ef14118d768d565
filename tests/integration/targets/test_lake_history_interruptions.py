"""An attempt that stalls until another one has loaded its window, and is killed whenever, leaves each version once."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.dying_loads import KilledError, Stalling
from tests.support.examples import NIGHTLY, counted
from tests.support.target_rigs import LakeRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import SupersededError, TransientError

pytestmark = pytest.mark.integration

INT = ColumnType("int", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
BEFORE = [put(10, id=1, v="a")]
ROWS = [put(110, id=1, v="b"), put(110, id=2, v="b"), delete(120, id=1)]
REPAIRED = [put(110, id=1, v="repaired"), delete(120, id=1)]
VERSIONS = "SELECT id, v, _op, _commit_ts FROM shop.orders ORDER BY _commit_ts, _op, id"


def window(artifacts: Path, rows: Sequence[Row], run: str = "a", from_ts: int = 100) -> Changelog:
    return Changelog(artifacts, from_ts, from_ts + 100, run).rows(ORDERS, rows)


def found(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """What ``VERSIONS`` gives if the history has *rows*."""
    ordered = sorted(rows, key=lambda row: (row.commit_ts, row.op, row.cells["id"]))
    return [(row.cells["id"], row.cells.get("v"), row.op, row.commit_ts) for row in ordered]


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize(
    ("is_newer", "killed"), [(False, True), (True, False)], ids=["a retry, then killed", "a newer run, then goes on"]
)
def test_an_attempt_that_stalls_while_another_one_loads(
    lake_spark: SparkSession, artifacts: Path, tmp_path: Path, kind: str, is_newer: bool, killed: bool
) -> None:
    first, rows = window(artifacts, ROWS), REPAIRED if is_newer else ROWS
    other = window(artifacts, REPAIRED, "newer") if is_newer else first
    generation = 2 if is_newer else 1
    stalls = []
    for number in counted(3 if killed else 5, first=3 if killed else 2):
        history = LakeRig(kind, lake_spark, tmp_path, mode="history")
        history.load(window(artifacts, BEFORE, from_ts=0))
        stalling = Stalling(history, number, partial(history.load, other, generation=generation), killed=killed)
        with pytest.MonkeyPatch.context() as patch:
            stalling.patched(patch)
            try:
                history.load(first, generation=1)
            except KilledError:
                assert killed
            except TransientError:
                assert not killed, stalling.stalled
            except SupersededError:
                assert is_newer, stalling.stalled
        if not stalling.stalled:
            break
        stalls.append(stalling.stalled.split()[0])
        assert history.rows(VERSIONS) == found([*BEFORE, *rows]), stalling.stalled
        history.load(other, generation=generation)
        assert history.rows(VERSIONS) == found([*BEFORE, *rows]), stalling.stalled
        assert {each.outcome for each in history.load(other, generation=generation).tables} == {"done_before"}
    assert len(stalls) > 1
    assert "INSERT" in stalls or not NIGHTLY
