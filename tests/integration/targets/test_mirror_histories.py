"""Random histories, cut into windows and files at random, applied in any order and more than once, give the table that the
versions give when each is applied once in order."""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.changelogs import Changelog, Row, table
from tests.support.examples import examples
from tests.support.target_rigs import MirrorRig, PostgresRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.targets import last_versions
from ticdc_replay.targets.lake import merge
from ticdc_replay.targets.mirror import load as mirror_load
from ticdc_replay.targets.mirror import staging

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"a": INT, "b": TEXT, "v": INT}, key=["a", "b"], unique=[["v"]])
LAST_TS = 12

VERSIONS = st.lists(
    st.builds(
        lambda ts, put, a, b, v: Row("update" if put else "delete", ts, {"a": a, "b": b, "v": v}),
        st.integers(1, LAST_TS),
        st.booleans(),
        st.integers(0, 2),
        st.sampled_from(["x", "X"]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=30,
    unique_by=lambda row: (row.commit_ts, row.op, row.cells["a"], row.cells["b"]),
)


class Plan(NamedTuple):
    """How a history is applied: the ends of the windows, the order of loads (some twice), files per window, tasks, whether the
    last versions are found in a round of their own, and whether windows are taken for small ones."""

    cuts: list[int]
    order: list[int]
    again: list[bool]
    files: int
    tasks: int
    own_round: bool
    is_small: bool


PLANS = st.integers(1, 4).flatmap(
    lambda windows: st.builds(
        Plan,
        st.lists(st.integers(2, LAST_TS), min_size=windows - 1, max_size=windows - 1, unique=True),
        st.permutations(range(windows)),
        st.lists(st.booleans(), min_size=windows, max_size=windows),
        st.integers(1, 3),
        st.integers(1, 3),
        st.booleans(),
        st.booleans(),
    )
)


def applied_in_order(versions: list[Row]) -> list[tuple[int, str, int, int, bool]]:
    """The last version of each row, and whether that is its delete."""
    rows = {}
    for version in sorted(versions, key=lambda row: (row.commit_ts, row.op != "delete")):
        key = (version.cells["a"], version.cells["b"])
        rows[key] = (version.cells["v"], version.commit_ts, version.op == "delete")
    return sorted((*key, *rest) for key, rest in rows.items())


SHARES = {"postgres": 0.2, "mysql": 0.1, "tidb": 0.1, "iceberg": 0.02, "delta": 0.01}
"""How many examples a kind of mirror has time for."""


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_any_cut_and_order_gives_one_table(
    make_mirror: Callable[[], MirrorRig],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
    deletes: str,
) -> None:
    @settings(max_examples=examples(SHARES[request.node.callspec.params["make_mirror"]]))
    @given(VERSIONS, PLANS, st.randoms())
    def holds(versions: list[Row], plan: Plan, shuffled: random.Random) -> None:
        mirror, folder = make_mirror(), tmp_path_factory.mktemp("history")
        mirror.section["deletes"] = deletes
        shuffled.shuffle(versions)
        windows = [
            Changelog(folder, start, end).rows(ORDERS, inside, files=plan.files)
            if (inside := [row for row in versions if start <= row.commit_ts < end])
            else Changelog(folder, start, end)
            for start, end in pairwise([0, *sorted(plan.cuts), LAST_TS + 1])
        ]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(staging, "MIN_TASK_BYTES", 1)
            patch.setattr(mirror_load, "SMALL_ROWS", 0 if plan.own_round else 1_000)
            patch.setattr(last_versions, "BUCKET_ROWS", 5)
            for limit in ("LISTED", "BROADCAST_ROWS"):
                patch.setattr(merge, limit, 1_000 if plan.is_small else 0)
            for number in plan.order:
                mirror.load(windows[number], parallelism=plan.tasks)
            for number, again in zip(plan.order, plan.again, strict=True):
                if again:
                    mirror.load(windows[number], reload=True)
        last = applied_in_order(versions)
        if deletes == "soft":
            assert mirror.rows("SELECT a, b, v, _commit_ts, _is_deleted FROM shop.orders ORDER BY a, b") == last
            return
        present = [row for *row, is_deleted in last if not is_deleted]
        assert [*map(list, mirror.rows("SELECT a, b, v, _commit_ts FROM shop.orders ORDER BY a, b"))] == present
        if isinstance(mirror, PostgresRig):
            tombstones = mirror.rows("SELECT tombstones FROM _ticdc_replay.tables")[0][0]
            both = f'SELECT count(*) FROM shop.orders JOIN _ticdc_replay."{tombstones}" USING (a, b)'
            assert mirror.rows(both) == [(0,)]

    holds()
