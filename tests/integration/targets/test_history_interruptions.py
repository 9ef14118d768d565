"""An attempt that is lost at any statement, or stalls until another one has loaded its window, leaves each version once."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pymysql
import pytest
from pyspark.sql import SparkSession

from tests.integration.targets.conftest import SERVERS
from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.deaths import die_at_statements
from tests.support.dying_loads import KilledError, Stalling
from tests.support.examples import NIGHTLY
from tests.support.lost_sessions import MysqlFault, PostgresFault
from tests.support.target_rigs import LakeRig, MirrorRig, MysqlRig, PostgresRig
from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import CommitStateUnknownError, SupersededError, TransientError
from ticdc_replay.targets.mysql.session import MysqlSession

pytestmark = pytest.mark.integration

INT = ColumnType("int", declared=True)
BIG = ColumnType("bigint", declared=True)
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

    def attempt(number: int) -> int:
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
        if stalling.stalled:
            stalls.append(stalling.stalled.split()[0])
            assert history.rows(VERSIONS) == found([*BEFORE, *rows]), stalling.stalled
        history.load(other, generation=generation)
        assert history.rows(VERSIONS) == found([*BEFORE, *rows]), stalling.stalled
        assert {each.outcome for each in history.load(other, generation=generation).tables} == {"done_before"}
        return stalling.seen

    die_at_statements(attempt)
    assert "INSERT" in stalls or not NIGHTLY


IN_LEDGER = "SELECT count(*) FROM _ticdc_replay.ledger WHERE target_table = 'orders' AND from_ts = 100"
WIDER = table("shop.orders", {"id": BIG, "v": TEXT, "n": INT}, valid_from=105)


@pytest.fixture(params=["postgres", "mysql", "tidb"])
def make_database_history(request: pytest.FixtureRequest) -> Callable[[], MirrorRig]:
    """Makes empty histories in one kind of database; with an interval for each version."""

    def made() -> MirrorRig:
        if request.param == "postgres":
            rig: MirrorRig = PostgresRig(request.getfixturevalue("make_database")())
        else:
            rig = MysqlRig(request.getfixturevalue(SERVERS[request.param]))
        rig.section["mode"] = "scd2"
        return rig

    return made


@contextmanager
def losing(rig: MirrorRig, number: int, *, after: bool) -> Iterator[MysqlFault | PostgresFault]:
    """The load loses its connection at its *number*-th statement or commit, or after that was done."""
    if isinstance(rig, MysqlRig):
        mysql = MysqlFault(rig, number, after=after)
        with mysql.watching():
            yield mysql
    else:
        assert isinstance(rig, PostgresRig)
        postgres = PostgresFault(rig, number)
        with postgres.after_commits() if after else postgres.before_statements():
            yield postgres


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_connection_to_a_database_that_is_lost_at_any_statement(
    make_database_history: Callable[[], MirrorRig], tmp_path: Path, after: bool
) -> None:
    """A window that changes columns, replaces an older run and keeps its re-drive; then it is loaded again, or a newer run
    without rows of the table is."""
    rows = "SELECT id, v, _op, _commit_ts FROM shop.orders_history WHERE _ddl IS NULL ORDER BY _commit_ts, _op, id"
    current = "SELECT id, v, valid_from FROM shop.orders WHERE is_current ORDER BY id"
    redriven = [put(130, id=7, v="late")]

    def attempt(number: int) -> int:
        rig, artifacts = make_database_history(), tmp_path / str(number)
        rig.load(window(artifacts, BEFORE, from_ts=0))
        rig.load(window(artifacts, ROWS[:1], "older"), generation=1)
        first = Changelog(artifacts, 100, 200).rows(WIDER, [put(110, id=1, v="b", n=1), *ROWS[1:]])
        first.ddl(105, "ALTER TABLE orders MODIFY id BIGINT, ADD COLUMN n INT")
        redrive = window(artifacts, redriven, "redrive")
        redrive.redrives = first.run_hash
        with losing(rig, number, after=after) as fault:
            try:
                rig.load(first, generation=2)
                rig.load(redrive, generation=2)
                rig.load(first, generation=2, reload=True)
            except (TransientError, CommitStateUnknownError):
                assert fault.struck
        others = rig.rows("SELECT count(*) FROM _ticdc_replay.ledger WHERE from_ts = 100")
        found_rows = rig.rows(rows)
        whole = [found([*BEFORE, *ROWS[:1]]), found([*BEFORE, *ROWS]), found([*BEFORE, *ROWS, *redriven])]
        assert found_rows in whole
        assert others != [(0,)]
        for changelog in (first, redrive, first):
            rig.load(changelog, generation=2)
            rig.load(window(artifacts, BEFORE, from_ts=0), reload=True)
        assert rig.rows(rows) == found([*BEFORE, *ROWS, *redriven])
        assert rig.rows(current) == [(2, "b", 110), (7, "late", 130)]
        rig.load(Changelog(artifacts, 100, 200, "without"), generation=3)
        assert rig.rows(rows) == found(BEFORE)
        assert rig.rows(IN_LEDGER.replace("'orders'", "'orders_history'")) == [(0,)]
        assert rig.rows("SELECT count(*) FROM _ticdc_replay.staging") == [(0,)]
        return fault.seen

    assert die_at_statements(attempt, every=7) > 5  # a death takes seconds, also at night


def test_a_slice_in_parts_of_which_some_were_committed(mysql_mirror: MysqlRig, tmp_path: Path) -> None:
    """The load comes again, and brings each version once; or a newer run without rows of the table empties the slice."""
    many = [put(100 + at % 100, id=at, v="a") for at in range(2500)]
    for comes_again in (True, False):
        rig, artifacts = MysqlRig(mysql_mirror.server), tmp_path / str(comes_again)
        rig.section |= {"mode": "history", "rows_per_commit": 1000}
        rig.load(window(artifacts, BEFORE, from_ts=0))
        late, commits = window(artifacts, many), itertools.count(1)
        real = MysqlSession.commit_part

        def lost(session: MysqlSession, real: Any = real, commits: Any = commits) -> None:
            real(session)
            if next(commits) == 3:
                raise pymysql.err.OperationalError(2013, "lost")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MysqlSession, "commit_part", lost)
            with pytest.raises(TransientError):
                rig.load(late)
        ((applied,),) = rig.rows("SELECT count(*) FROM shop.orders")
        assert 1 < applied < 2501
        if comes_again:
            assert rig.load_table(late).outcome == "loaded"
            assert rig.rows("SELECT count(*), count(DISTINCT id) FROM shop.orders") == [(2501, 2500)]
        else:
            rig.load(Changelog(artifacts, 100, 200, "without"), generation=2)
            assert rig.rows("SELECT count(*) FROM shop.orders") == [(1,)]
            assert rig.rows(IN_LEDGER) == [(0,)]


@pytest.mark.parametrize("is_newer", [False, True], ids=["the same run", "a newer run"])
def test_two_loads_of_one_window_at_once(
    make_database_history: Callable[[], MirrorRig], tmp_path: Path, is_newer: bool
) -> None:
    rig = make_database_history()
    rig.load(window(tmp_path, BEFORE, from_ts=0))
    first = window(tmp_path, ROWS)
    other = window(tmp_path, REPAIRED, "newer") if is_newer else first
    ready = Barrier(2)

    def load(changelog: Changelog, generation: int) -> str:
        ready.wait(PATIENCE_S)
        try:
            return rig.load_table(changelog, generation=generation).outcome
        except (SupersededError, TransientError) as error:
            return type(error).__name__

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(load, (first, other), (1, 2 if is_newer else 1)))
    rig.load(other, generation=2 if is_newer else 1)
    rows = VERSIONS.replace("shop.orders", "shop.orders_history")
    assert rig.rows(rows) == found([*BEFORE, *(REPAIRED if is_newer else ROWS)]), outcomes
