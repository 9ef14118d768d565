"""Whatever breaks, and whenever: a lake table is whole before and after, and the next load brings it to the same end state."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.changelogs import Changelog, delete, put, table
from tests.support.deaths import die_at_statements
from tests.support.dying_loads import LAST_LOOK, Dying, FaultError, KilledError, Stalling
from tests.support.in_process import in_process
from tests.support.target_rigs import LakeRig
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import (
    CommitStateUnknownError,
    PolicyStopError,
    SupersededError,
    TargetMismatchError,
    TransientError,
)
from ticdc_replay.domain.tables import TableName
from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.targets.base import StoppingDdl
from ticdc_replay.targets.iceberg.table_format import Iceberg
from ticdc_replay.targets.lake.session import LakeSession
from ticdc_replay.targets.load import load
from ticdc_replay.targets.sql import SqlError

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
ITEMS = table("shop.items", {"id": INT})
BEFORE = [(1, "old", 10), (2, "old", 10)]
AFTER = [(1, "new", 110), (3, "new", 120)]
ORDERS_NOW = "SELECT id, v, _commit_ts FROM shop.orders ORDER BY id"


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, lake_spark: SparkSession, tmp_path: Path) -> LakeRig:
    return LakeRig(request.param, lake_spark, tmp_path)


@pytest.fixture
def changelog(lake: LakeRig, artifacts: Path) -> Changelog:
    return window(lake, artifacts)


def window(lake: LakeRig, artifacts: Path) -> Changelog:
    """A window that replaces, deletes and inserts rows of one table, which *lake* has now, and makes another."""
    lake.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="old"), put(10, id=2, v="old")]))
    changelog = Changelog(artifacts, 100, 200)
    changelog.rows(ORDERS, [put(110, id=1, v="new"), delete(115, id=2), put(120, id=3, v="new")], files=2)
    return changelog.rows(ITEMS, [put(130, id=7)])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_load_that_dies_at_any_write_leaves_nothing_half_applied(
    lake: LakeRig, lake_spark: SparkSession, tmp_path: Path, after: bool
) -> None:
    kind = lake.kind
    if kind == "delta" and not after:
        pytest.skip(
            "the writes are those of Iceberg; what Delta does with a commit whose answer is lost is the other case"
        )

    def attempt(number: int) -> int:
        lake, dying = LakeRig(kind, lake_spark, tmp_path), Dying(number, after=after)
        changelog = window(lake, lake.folder / "artifacts")
        with pytest.MonkeyPatch.context() as patch:
            dying.patched(patch)
            with suppress(FaultError):
                lake.load(changelog)
        assert lake.rows(ORDERS_NOW) in (BEFORE, AFTER)
        lake.load(changelog)
        reports = lake.load(changelog).tables
        assert {report.outcome for report in reports} == {"done_before"}
        assert {(report.upserted, report.tombstones, report.superseded) for report in reports} == {(2, 1, 0), (1, 0, 0)}
        assert lake.rows(ORDERS_NOW) == AFTER
        assert lake.rows("SELECT id FROM shop.items") == [(7,)]
        late = lake.load_table(Changelog(lake.folder / "late", 50, 100).rows(ORDERS, [put(60, id=2, v="late")]))
        assert (late.superseded, lake.rows(ORDERS_NOW)) == (1, AFTER)
        return dying.seen

    assert die_at_statements(attempt, few=1) > 4


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize("only", ["MERGE", pytest.param("", marks=pytest.mark.nightly)], ids=["MERGE", "any write"])
@pytest.mark.parametrize("killed", [False, True], ids=["goes on", "killed"])
def test_an_attempt_that_stalls_while_a_newer_run_loads_the_window_changes_nothing(
    lake_spark: SparkSession, tmp_path: Path, only: str, killed: bool, kind: str
) -> None:
    def attempt(number: int) -> int:
        lake = LakeRig(kind, lake_spark, tmp_path)
        artifacts = lake.folder / "artifacts"
        lake.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="old"), put(10, id=2, v="old")]))
        broken = Changelog(artifacts, 100, 200).rows(ORDERS, [put(110, id=1, v="broken"), put(120, id=3, v="broken")])
        newer = Changelog(artifacts, 100, 200, "newer").rows(ORDERS, [put(110, id=1, v="new"), delete(130, id=2)])
        stalling = Stalling(lake, number, partial(lake.load, newer, generation=2), killed=killed, only=only)
        with pytest.MonkeyPatch.context() as patch:
            stalling.patched(patch)
            with suppress(KilledError, TransientError, SupersededError):
                lake.load(broken, generation=1)
        if stalling.stalled:
            found = {row[0]: row[1] for row in lake.rows(ORDERS_NOW)}
            assert (found[1], 2 in found) == ("new", False), stalling.stalled
        return stalling.seen

    die_at_statements(attempt, few=1)


def test_a_conflict_after_the_rows_were_published_brings_them_once(
    lake_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = LakeRig("iceberg", lake_spark, tmp_path)
    lake.load(Changelog(tmp_path, 0, 100).rows(ORDERS, [put(10, id=1, v="old")]))
    publish, published = Iceberg.publish, []

    def conflicting(table_format: Iceberg, *where: Any) -> None:
        publish(table_format, *where)
        published.append(where)
        raise SqlError("org.apache.iceberg.exceptions.CommitFailedException: the lock is held")

    monkeypatch.setattr(Iceberg, "publish", conflicting)
    report = lake.load_table(Changelog(tmp_path, 100, 200).rows(ORDERS, [put(110, id=2, v="new")]))
    assert (report.upserted, report.superseded, len(published)) == (1, 0, 1)
    assert lake.rows(f"SELECT count(*) FROM {lake.catalog}.shop.orders.history") == [(2,)]


def test_a_branch_that_could_not_be_dropped_fails_no_load(
    lake_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, run = LakeRig("iceberg", lake_spark, tmp_path), SparkSql.run

    def failing(sql: SparkSql, text: str, settings: Mapping[str, str] = {}) -> Any:
        if " DROP BRANCH " in text:
            raise SqlError("org.apache.iceberg.exceptions.CommitFailedException: the lock is held")
        return run(sql, text, settings)

    monkeypatch.setattr(SparkSql, "run", failing)
    report = lake.load_table(Changelog(tmp_path, 0, 100).rows(ORDERS, [put(10, id=1, v="a")]))
    assert (report.upserted, lake.rows(ORDERS_NOW)) == (1, [(1, "a", 10)])


def test_a_commit_whose_answer_was_lost_is_found_by_its_mark_and_counts(
    lake: LakeRig, changelog: Changelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SparkSql.run

    def losing(sql: SparkSql, text: str, settings: Mapping[str, str] = {}) -> Any:
        done = run(sql, text, settings)
        if text.startswith("MERGE"):
            monkeypatch.undo()
            raise SqlError.of("", "org.apache.iceberg.exceptions.CommitStateUnknownException: no answer")
        return done

    monkeypatch.setattr(SparkSql, "run", losing)
    if lake.kind == "iceberg":  # which has an error for it, and looks at once
        lake.load(changelog)
    else:
        with pytest.raises(TransientError):
            lake.load(changelog)
        lake.load(changelog)
    assert lake.rows(ORDERS_NOW) == AFTER
    reports = {report.table.table: report for report in lake.load(changelog).tables}
    assert (reports["orders"].upserted, reports["orders"].deleted, reports["orders"].tombstones) == (2, 1, 1)


def test_a_row_that_came_after_a_newer_delete_goes_when_the_load_is_repeated(
    lake: LakeRig, changelog: Changelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load stalls before its MERGE, loses its lease, and another one, with a delete of the row, commits meanwhile."""
    older = Changelog(lake.folder / "older", 20, 30).rows(ORDERS, [put(25, id=9, v="old")])
    newer = Changelog(lake.folder / "newer", 200, 300).rows(ORDERS, [delete(210, id=9)])
    run = SparkSql.run

    def stalling(sql: SparkSql, text: str, settings: Mapping[str, str] = {}) -> Any:
        if text.startswith("MERGE"):
            monkeypatch.undo()
            for lease in lake.ledger.rglob("lease.json"):
                lease.unlink()
            lake.load(newer)
        return run(sql, text, settings)

    monkeypatch.setattr(SparkSql, "run", stalling)
    with pytest.raises(TransientError):
        lake.load(older)
    lake.load(older)
    assert lake.rows("SELECT id FROM shop.orders WHERE id = 9") == []


def test_a_delete_is_respected_while_a_drop_of_the_table_is_half_done(
    lake: LakeRig, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.load(Changelog(artifacts, 0, 50).rows(ORDERS, [put(10, id=1, v="a"), put(10, id=2, v="a")]))
    lake.load(Changelog(artifacts, 60, 100).rows(ORDERS, [delete(70, id=2), put(80, id=3, v="a")]))
    drop = Changelog(artifacts, 100, 200).ddl(150, "DROP TABLE orders")

    def die(*_: object) -> None:
        raise FaultError

    with monkeypatch.context() as patch, suppress(FaultError):
        patch.setattr(LakeSession, "drop_table", die)
        lake.load(drop, drop="apply")
    late = lake.load_table(Changelog(artifacts, 50, 60).rows(ORDERS, [put(55, id=2, v="late"), delete(56, id=3)]))
    assert lake.rows(ORDERS_NOW) == [(1, "a", 10), (3, "a", 80)]
    assert (late.keys, late.upserted, late.tombstones, late.superseded) == (2, 0, 0, 2)
    lake.load(drop, drop="apply")
    assert not lake.has_table("shop.orders")


def test_loads_of_two_windows_at_once_take_turns(lake: LakeRig, artifacts: Path, changelog: Changelog) -> None:
    later = Changelog(artifacts, 200, 300).rows(ORDERS, [put(210, id=1, v="newest")])

    def with_another_load(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        if name.startswith("stage"):
            lake.load(later)
        return results

    report = load(changelog.job(lake.section), lake.connections, with_another_load, 1, lake.sql)
    assert lake.rows(ORDERS_NOW) == [(1, "newest", 210), (3, "new", 120)]
    assert [each.superseded for each in report.tables] == [0, 1]


def wait_at(gate: str, read: Callable[[Any], Iterator[pa.RecordBatch]], task: Any) -> Iterator[pa.RecordBatch]:
    """In a worker: *read*, once the gate is open."""
    Path(f"{gate}.reached").touch()
    wait_for("the gate to open", lambda: os.path.exists(gate))
    yield from read(task)


class Gated(SparkSql):
    """Reads staged rows only once a gate is open."""

    gate = ""
    merges = 0

    def run(self, statement: str, settings: Mapping[str, str] = {}) -> list[dict[str, Any]]:
        self.merges += statement.startswith("MERGE")
        return super().run(statement, settings)

    def view(self, name: str, read: Any, tasks: Any, layout: str) -> Any:
        return super().view(name, partial(wait_at, self.gate, read), tasks, layout)


def test_a_commit_of_another_program_while_a_load_reads_its_rows_is_respected(
    lake: LakeRig, changelog: Changelog, tmp_path: Path
) -> None:
    sql = Gated(lake.spark)
    sql.gate = str(tmp_path / "gate")
    errors: list[BaseException] = []

    def run() -> None:
        try:
            load(changelog.job(lake.section), lake.connections, in_process, 1, sql)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for("a worker at the gate", lambda: Path(f"{sql.gate}.reached").exists() or not thread.is_alive())
    lake.execute("UPDATE shop.orders SET v = 'other' WHERE id = 1")
    Path(sql.gate).touch()
    thread.join(PATIENCE_S)
    assert errors == []
    assert lake.rows(ORDERS_NOW) == AFTER
    assert sql.merges >= 2


def test_two_ledgers_do_not_write_one_table(lake: LakeRig, artifacts: Path, changelog: Changelog) -> None:
    other = {"ledger": (lake.folder / "other-ledger").as_uri()}
    with pytest.raises(TargetMismatchError, match="is kept by the ledger"):
        lake.load(changelog, other)
    assert lake.rows(ORDERS_NOW) == BEFORE


def test_a_table_of_another_pipeline_is_refused(lake: LakeRig, artifacts: Path, changelog: Changelog) -> None:
    changelog.pipeline = "another"
    with pytest.raises(TargetMismatchError, match="is a mirror of pipeline pipeline"):
        lake.load(changelog)


def test_a_forgotten_mirror_that_was_not_dropped_is_refused(lake: LakeRig, changelog: Changelog) -> None:
    lake.forget("shop.orders")
    with pytest.raises(TargetMismatchError, match=r"no longer knows.*Drop the table"):
        lake.load(changelog)


def test_an_error_of_the_catalog_is_told_without_a_stack(lake: LakeRig, changelog: Changelog) -> None:
    away = {"settings": {"type": "rest", "uri": "http://127.0.0.1:9/"}, "catalog": "away"}
    if lake.kind == "delta":
        pytest.skip("a folder is never away")
    with pytest.raises(TransientError, match="cannot look at the target") as raised:
        lake.load(changelog, away)
    assert "\tat " not in str(raised.value)
    assert not isinstance(raised.value, CommitStateUnknownError)


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_commit_that_the_table_takes_for_an_old_one_fails_the_load(
    lake: LakeRig, changelog: Changelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document of the lease was lost, and the machine of the last load has a clock that is ahead."""
    now = time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now() + 3600 * 10**9)
        lake.load(changelog)
    for lease in lake.ledger.rglob("lease.json"):
        lease.unlink()
    with pytest.raises(TransientError, match="has a commit of a later term of its lease"):
        lake.load(changelog, reload=True)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now() + 7200 * 10**9)
        lake.load(changelog, reload=True)
    assert lake.rows(ORDERS_NOW) == AFTER


@pytest.mark.parametrize("has_rows", [True, False], ids=["rows", "no rows"])
@pytest.mark.parametrize("by", ["load", "follow"])
def test_an_attempt_that_stalls_while_its_table_is_truncated_brings_no_rows(
    lake: LakeRig, artifacts: Path, by: str, has_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is merged with the TRUNCATE, and of a table without rows there is nothing to delete."""
    rules = {"truncate": "apply"} if by == "load" else {"ddl": "stop"}
    options = {"tables": ("shop.*",), **rules}
    old = [put(10, id=1, v="old")]
    lake.load(Changelog(artifacts, 0, 100).rows(ORDERS, old if has_rows else [*old, delete(20, id=1)]), **options)
    late = Changelog(artifacts, 100, 110).rows(ORDERS, [put(105, id=5, v="late")])
    truncated = Changelog(artifacts, 110, 151).ddl(150, "TRUNCATE TABLE orders", table="shop.orders")

    def meanwhile() -> None:
        if by == "load":
            lake.load(truncated, **options)
            return
        with pytest.raises(PolicyStopError, match="end the window"):
            lake.load(truncated, **options)
        ddl = StoppingDdl(TableName("shop", "orders"), 150, truncated.write().changes, ("shop.*",))
        lake.changeable().follow("pipeline", ddl)

    stalling = Stalling(lake, 1, meanwhile, killed=False, only=LAST_LOOK[lake.kind])
    with monkeypatch.context() as patch, suppress(TransientError, SupersededError):
        stalling.patched(patch)
        lake.load(late, **options)
    assert stalling.stalled
    lake.load(late, **options)
    assert lake.rows(ORDERS_NOW) == []
