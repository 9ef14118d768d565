"""A mirror of any kind holds the tables of the upstream, whatever happened there and however it was sent."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.targets.conftest import TARGET
from tests.support.decoded_splits import decode
from tests.support.examples import examples
from tests.support.in_process import in_process
from tests.support.target_rigs import MirrorRig
from tests.support.upstream import FIRST_TS, LAST_TS, STEPS, Step, delivered, deliveries, happened
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import LoadJob
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration


SHARES = {"postgres": 0.06, "mysql": 0.04, "tidb": 0.04, "iceberg": 0.04, "delta": 0.01}
"""Of the examples of a profile: a lake takes seconds for each, and Delta has its turn at night."""


def job(folder: str, index: ChangelogIndex, target: dict[str, object] = TARGET) -> LoadJob:
    return LoadJob(
        library_version="test",
        pipeline="p",
        artifacts=folder,
        artifacts_connection=None,
        index=f"{changelog_root(index.run_hash)}/{INDEX}",
        run_hash=index.run_hash,
        window=index.window,
        target=target,
        tables=("*.*",),
        target_value="stop",
        ddl="apply",
    )


def test_windows_of_any_delivery_in_any_order_give_the_tables_of_the_upstream(
    make_mirror: Callable[[], MirrorRig], tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    @settings(max_examples=examples(SHARES[request.node.callspec.params["make_mirror"]]))
    @given(STEPS, st.data())
    def holds(steps: list[Step], data: st.DataObject) -> None:
        mirror, root, history = make_mirror(), tmp_path_factory.mktemp("run"), happened(steps)
        events = [event for _, event in history.events]
        cut = data.draw(st.integers(FIRST_TS + 1, LAST_TS - 1))
        windows = [Window(start, end) for start, end in pairwise([FIRST_TS, cut, LAST_TS])]
        for window in data.draw(st.permutations(windows)):
            index, _ = decode(root, delivered(events, data.draw(deliveries(len(events)))), window=window)
            load(job(f"file://{root}", index, mirror.section), mirror.connections, in_process, 2, mirror.sql)
        for table, rows in history.tables.items():
            found = dict(mirror.rows(f"SELECT id, v FROM s.{table}")) if mirror.has_table(f"s.{table}") else {}
            assert found == rows

    holds()
