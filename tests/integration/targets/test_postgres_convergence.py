"""A mirror in PostgreSQL holds the tables of the upstream, whatever happened there and however it was sent."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.targets.conftest import TARGET, Mirror
from tests.support.decoded_splits import decode
from tests.support.examples import examples
from tests.support.in_process import in_process
from tests.support.upstream import FIRST_TS, LAST_TS, STEPS, Step, delivered, deliveries, happened
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import INDEX, changelog_root
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import LoadJob
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration


def job(folder: str, index: ChangelogIndex) -> LoadJob:
    return LoadJob(
        library_version="test",
        pipeline="p",
        artifacts=folder,
        artifacts_connection=None,
        index=f"{changelog_root(index.run_hash)}/{INDEX}",
        run_hash=index.run_hash,
        window=index.window,
        target=TARGET,
        tables=("*.*",),
        target_value="stop",
        ddl="apply",
    )


@settings(max_examples=examples(0.06), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.data())
def test_windows_of_any_delivery_in_any_order_give_the_tables_of_the_upstream(
    make_database: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[Step],
    data: st.DataObject,
) -> None:
    mirror, root, history = Mirror(make_database()), tmp_path_factory.mktemp("run"), happened(steps)
    events = [event for _, event in history.events]
    cut = data.draw(st.integers(FIRST_TS + 1, LAST_TS - 1))
    windows = [Window(start, end) for start, end in pairwise([FIRST_TS, cut, LAST_TS])]
    for window in data.draw(st.permutations(windows)):
        index, _ = decode(root, delivered(events, data.draw(deliveries(len(events)))), window=window)
        load(job(f"file://{root}", index), mirror.connections, in_process, 2)
    for table, rows in history.tables.items():
        there = mirror.rows(f"SELECT to_regclass('s.{table}') IS NOT NULL")[0][0]
        found = dict(mirror.rows(f"SELECT id, v FROM s.{table}")) if there else {}
        assert found == rows
