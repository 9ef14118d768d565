"""Whatever happened upstream, however it is sent, cut, sent again and divided into windows: the same rows and tables."""

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.decoded_splits import decode
from tests.support.examples import examples
from tests.support.upstream import (
    FIRST_TS,
    LAST_TS,
    STEPS,
    Delivery,
    Event,
    Step,
    Tables,
    delivered,
    deliveries,
    happened,
)
from ticdc_replay.changelog.copies.fold import is_put, last_versions, narrow
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.window import Window


def versions(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What each row says, without where it stood."""
    return sorted(
        (
            row["_commit_ts"],
            row["_op"] == "delete",
            (row["after"] or row["before"])["id"],
            (row["after"] or {}).get("v"),
        )
        for row in rows
    )


def folded(root: Any, indexes: list[ChangelogIndex]) -> Tables:
    """The tables that the changelogs in *root* give together."""
    found: Tables = {"t": {}, "u": {}}
    for name in found:
        parts = [
            pq.read_table(root / changelog_root(index.run_hash) / file.name, partitioning=None)
            for index in indexes
            for table in index.tables
            if table.schema.name.table == name
            for file in table.files
        ]
        if parts:
            rows = pa.concat_tables(parts)
            last = rows.take(last_versions(narrow(rows, ["id"], is_put(rows)))).to_pylist()
            found[name] = {row["after"]["id"]: row["after"]["v"] for row in last if row["_op"] != "delete"}
    return found


@settings(max_examples=examples(0.25))
@given(STEPS, st.data())
def test_windows_of_any_delivery_give_the_tables_of_the_upstream(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], data: st.DataObject
) -> None:
    history = happened(steps)
    events = [event for _, event in history.events]
    cuts = sorted(data.draw(st.sets(st.integers(FIRST_TS + 1, LAST_TS - 1), max_size=2)))
    windows = [Window(start, end) for start, end in pairwise([FIRST_TS, *cuts, LAST_TS])]
    root = tmp_path_factory.mktemp("run")
    indexes = []
    for window in data.draw(st.permutations(windows)):
        splits = delivered(events, data.draw(deliveries(len(events))))
        index, rows = decode(root, splits, bucket_rows=data.draw(st.integers(1, 20)), window=window)
        once, expected = decode(root / "once", delivered_once(events), window=window)
        assert versions(rows) == versions(expected)
        assert index.report.events.conflicts == once.report.events.duplicates == 0
        indexes.append(index)
    assert folded(root, indexes) == history.tables


def delivered_once(events: list[Event]) -> list[list[RawMessage]]:
    return delivered(events, Delivery([], list(range(len(events))), [0], [4], []))
