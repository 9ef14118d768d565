"""Maintenance of lake tables changes no row, forgets nothing that a load needs, and gives way to loads."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.support.dying_loads import KilledError
from tests.support.in_process import in_process
from tests.support.target_rigs import LakeRig
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.jobspec import MaintainJob
from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.storage import open_store
from ticdc_replay.targets.iceberg.table_format import Iceberg
from ticdc_replay.targets.iceberg.upkeep import IcebergUpkeep
from ticdc_replay.targets.lake import commits
from ticdc_replay.targets.lake.document_store import DocumentStore
from ticdc_replay.targets.lake.documents import TableDocument, report_name, state_name
from ticdc_replay.targets.lake.history_ledger import HistoryLedger
from ticdc_replay.targets.lake.ledger import LakeLedger
from ticdc_replay.targets.lake.maintain import ATTEMPTS, has_no_report, maintain
from ticdc_replay.targets.lake.mirror import format_of
from ticdc_replay.targets.lake.table_format import Commit, load_name
from ticdc_replay.targets.lake.upkeep import MaintainedTable, MaintenanceReport, Removed, TableUpkeep
from ticdc_replay.targets.load import load
from ticdc_replay.targets.mirror.planning.tables import Relation
from ticdc_replay.targets.sql import SqlError

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
TARGET = Relation("shop", "orders")
LATER = timedelta(days=30)


class Lake(LakeRig):
    """One table of a lake, its ledger and its changelogs."""

    sql: SparkSql

    def __init__(self, kind: str, spark: SparkSession, folder: Path, **section: object) -> None:
        super().__init__(kind, spark, folder, **section)
        self.store = open_store(self.ledger.as_uri(), None)
        config = read_section(self.section)
        self.format = format_of(config)  # type: ignore[arg-type]
        self.name = self.format.name_of(TARGET)
        upkeep = resolve_name(config.table_upkeep)  # type: ignore[attr-defined]
        self.upkeep: TableUpkeep = upkeep(self.sql, self.format)

    def window(self, number: int, rows: Sequence[Row], run: str = "run") -> Changelog:
        """The changelog of the window from *number* x 100."""
        return Changelog(self.folder / "artifacts", 100 * number, 100 * number + 100, run=run).rows(ORDERS, list(rows))

    def maintain(self, *, dry_run: bool = False) -> tuple[MaintenanceReport, MaintainedTable]:
        report = self.maintain_all("*.*", dry_run=dry_run)
        (line,) = report.tables
        return report, line

    def maintain_all(self, pattern: str, *, dry_run: bool = False) -> MaintenanceReport:
        job = MaintainJob(
            library_version="1",
            pipeline="pipeline",
            artifacts=(self.folder / "artifacts").as_uri(),
            artifacts_connection=None,
            target=self.section,
            tables=(pattern,),
            dry_run=dry_run,
            asked_at_ms=0,
        )
        return maintain(job, self.connections, in_process, self.sql)

    def expire(self) -> Removed:
        """Remove snapshots as a maintenance in 30 days would."""
        now = datetime.now(UTC)
        is_open = partial(has_no_report, LakeLedger(self.store), TARGET)
        return self.upkeep.remove(TARGET, now + LATER, now - LATER, is_open, dry_run=False)

    def orders(self, of: str = "") -> list[tuple[Any, ...]]:
        return self.rows(f"SELECT id, v FROM {self.name} {of} ORDER BY id")

    def commits(self) -> list[str]:
        """Newest last."""
        if self.kind == "iceberg":
            found = self.sql.run(f"SELECT snapshot_id AS id FROM {self.name}.snapshots ORDER BY committed_at")
        else:
            found = [{"id": row["version"]} for row in reversed(self.sql.run(f"DESCRIBE HISTORY {self.name}"))]
        return [str(row["id"]) for row in found]

    def lose_report(self, changelog: Changelog) -> str:
        """Remove the ledger's report of *changelog*, as if the attempt had broken after its commit; the commit's mark."""
        index = changelog.job(self.section)
        report = report_name(TARGET, index.window, index.run_hash)
        assert self.store.info(report) is not None
        self.store.delete(report)
        return load_name(index.run_hash, index.window, self.document().incarnation)

    def find(self, mark: str) -> Commit:
        found = self.format.find_commit(self.sql, TARGET, mark)
        assert found is not None
        return found

    def load_again(self, changelog: Changelog, mark: str) -> None:
        """Load *changelog*, and check that no second commit was made."""
        before = self.find(mark)
        (line,) = self.load(changelog).tables
        assert (line.outcome, line.upserted) == ("loaded", before.counts.inserted + before.counts.updated)
        assert self.find(mark) == before
        assert self.load(changelog).tables[0].outcome == "done_before"

    def drop_by_hand(self) -> None:
        if self.kind == "iceberg":
            self.sql.run(f"DROP TABLE {self.name} PURGE")
        else:
            shutil.rmtree(self.folder / "tables" / "shop" / "orders")

    def document(self) -> TableDocument:
        found = DocumentStore(self.store).read_now(state_name(TARGET), TableDocument)
        assert found is not None
        return found

    def age(self, name: str) -> None:
        """Make a file of the ledger's folder old."""
        old = time.time() - LATER.total_seconds()
        os.utime(self.folder / "ledger" / name, (old, old))


class Gate(msgspec.Struct, frozen=True):
    """Files by which a worker says that it reads, and waits until it may go on."""

    reading: Path
    go_on: Path

    def pass_through(self) -> None:
        self.reading.touch()
        wait_for("the compaction", self.go_on.exists)


class GatedRead(msgspec.Struct, frozen=True):
    """Reads staged rows once *gate* is open. Runs in a worker of Spark."""

    read: Callable[..., Iterator[pa.RecordBatch]]
    gate: Gate

    def __call__(self, task: object) -> Iterator[pa.RecordBatch]:
        self.gate.pass_through()
        yield from self.read(task)


class GatedSql:
    """The session of a load whose views are read once *gate* is open."""

    def __init__(self, sql: SparkSql, gate: Gate) -> None:
        self._sql = sql
        self._gate = gate
        self.merges = 0
        self.set, self.columns = sql.set, sql.columns

    def run(self, statement: str, settings: Mapping[str, str] = {}) -> list[dict[str, Any]]:
        self.merges += statement.startswith("MERGE")
        return self._sql.run(statement, settings)

    def view(self, name: str, read: Any, tasks: Any, layout: str) -> Any:
        return self._sql.view(name, GatedRead(read, self._gate), tasks, layout)


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, lake_spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(request.param, lake_spark, tmp_path)


WINDOWS = {
    number: [
        put(100 * number + 10, id=number, v="x"),
        put(100 * number + 10, id=10 + number, v="x"),
        delete(100 * number + 20, id=number - 1),
    ]
    for number in (1, 2, 4, 5)
}
"""Two new rows each, and a delete of a row of the window before. Window 3 comes late."""


def test_many_small_loads_are_compacted_and_late_windows_stay_exact(lake: Lake) -> None:
    for number, rows in WINDOWS.items():
        lake.load(lake.window(number, rows))
    before = lake.orders()
    version = lake.commits()[-1]
    staged = lake.store.root.removeprefix("file://")
    Path(staged, "staging", "stage_dead_0_0").mkdir(parents=True)
    for name in (
        "staging/stage_dead_0_0/1.parquet",
        "deletes/stage_dead_0_0-1.parquet",
        "deletes/stage_young-1.parquet",
    ):
        lake.store.put(name, b"rows of an attempt that died")
    lake.age("staging/stage_dead_0_0/1.parquet")
    lake.age("deletes/stage_dead_0_0-1.parquet")
    broken = lake.window(2, WINDOWS[2])
    mark = lake.lose_report(broken)
    listed = {file.name for file in lake.document().tombstone_files}
    for name in listed:
        lake.age(name)

    planned, would = lake.maintain(dry_run=True)
    assert (planned.ledger_files, would.outcome, would.before) == (2, "dry_run", would.after)
    assert lake.commits()[-1] == version
    assert lake.store.info("staging/stage_dead_0_0/1.parquet") is not None

    report, line = lake.maintain()
    assert line.outcome == "maintained", line.error
    assert line.before is not None
    assert line.after is not None
    assert line.after.files == 1 < line.before.files
    assert (line.tombstone_files, line.tombstone_files_after, line.tombstones, line.tombstones_after) == (4, 1, 4, 4)
    assert (line.is_compacted, line.conflicts, line.removed.snapshots, line.removed.kept) == (True, 0, 0, ())
    assert report.ledger_files == 2
    assert lake.store.info("deletes/stage_young-1.parquet") is not None
    assert lake.orders() == before
    assert lake.orders(f"VERSION AS OF {version}") == before, "time travel within keep_days"

    # A load that read the old list may be reading the replaced files: they are old, but were replaced just now.
    assert {info.name for info in lake.store.list("deletes/")} >= listed
    (note,) = [info.name for info in lake.store.list("deletes/replaced-")]
    lake.age(note)
    only_the_ledger = lake.maintain_all("other.*")
    assert (only_the_ledger.tables, only_the_ledger.ledger_files) == ((), 1 + len(listed))
    assert not {info.name for info in lake.store.list("deletes/")} & listed

    lake.load_again(broken, mark)
    # Window 4 has deleted 3: a put of it that comes now is older.
    late = [put(310, id=3, v="late"), put(310, id=20, v="late"), delete(320, id=2)]
    lake.load(lake.window(3, late))
    assert lake.orders() == [row for row in before if row[0] != 2] + [(20, "late")]
    lake.drop_by_hand()
    assert lake.maintain()[1].outcome == "missing"


def test_a_compaction_while_a_load_merges_loses_nothing(lake: Lake, tmp_path: Path) -> None:
    lake.load(lake.window(1, [put(110, id=number, v="x") for number in (1, 2, 11, 12)]))
    lake.load(lake.window(2, [put(210, id=13, v="x"), delete(210, id=1)]))
    gate = Gate(tmp_path / "reading", tmp_path / "go_on")
    sql = GatedSql(lake.sql, gate)
    changelog = lake.window(4, [put(410, id=2, v="new"), put(410, id=3, v="new"), delete(420, id=11)])
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, changelog.job(lake.section), lake.connections, in_process, 1, sql)
        try:
            wait_for("the load to merge", gate.reading.exists)
            lake.upkeep.compact(TARGET)
        finally:
            gate.go_on.touch()
        report = loading.result(PATIENCE_S)
    assert (report.tables[0].outcome, report.tables[0].upserted) == ("loaded", 2)
    assert sql.merges == 2, "the first one was refused, as the compaction came before it"
    assert lake.orders() == [(2, "new"), (3, "new"), (12, "x"), (13, "x")]


def test_a_compaction_that_loads_come_before_is_tried_again_and_then_left(
    lake_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake("iceberg", lake_spark, tmp_path)
    lake.load(lake.window(1, [put(110, id=1, v="x")]))
    compact, refused = IcebergUpkeep.compact, []

    def conflicting(upkeep: IcebergUpkeep, target: Relation) -> None:
        if len(refused) <= ATTEMPTS:
            refused.append(target)
            raise SqlError("org.apache.iceberg.exceptions.ValidationException: Missing required files to delete")
        compact(upkeep, target)

    monkeypatch.setattr(IcebergUpkeep, "compact", conflicting)
    report, left = lake.maintain()
    assert (left.outcome, left.conflicts, left.is_compacted) == ("maintained", ATTEMPTS, False)
    assert report.counts["conflicts"] == ATTEMPTS
    _, done = lake.maintain()
    assert (done.outcome, done.conflicts, done.is_compacted) == ("maintained", 1, True)


def test_a_compaction_that_fails_keeps_nothing_from_being_removed(
    lake_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake("iceberg", lake_spark, tmp_path)
    lake.load(lake.window(1, [put(110, id=1, v="x")]))
    lake.load(lake.window(2, [put(210, id=1, v="y")]))
    remove = IcebergUpkeep.remove

    def in_a_month(upkeep: IcebergUpkeep, target: Relation, expired: datetime, *others: Any, dry_run: bool) -> Removed:
        return remove(upkeep, target, expired + LATER, *others, dry_run=dry_run)

    def failing(*_: object) -> None:
        raise SqlError("java.lang.OutOfMemoryError")

    monkeypatch.setattr(IcebergUpkeep, "compact", failing)
    monkeypatch.setattr(IcebergUpkeep, "remove", in_a_month)
    _, line = lake.maintain()
    assert line.outcome == "failed"
    assert "OutOfMemoryError" in line.error
    assert len(lake.commits()) == 1
    assert lake.orders() == [(1, "y")]


@pytest.mark.nightly
def test_a_load_that_the_ledger_has_no_report_of_is_found_when_its_snapshot_is_old(
    lake_spark: SparkSession, tmp_path: Path
) -> None:
    """A Delta table keeps each load as a transaction; see above."""
    lake = Lake("iceberg", lake_spark, tmp_path)
    changelog = lake.window(2, [put(210, id=2, v="x")])
    for each in (lake.window(1, [put(110, id=1, v="x")]), changelog, lake.window(3, [delete(310, id=1)])):
        lake.load(each)
    mark = lake.lose_report(changelog)
    committed = lake.find(mark)

    assert lake.expire().kept == (mark,)
    assert len(lake.commits()) == 2, "that of the load, and the newest"
    assert lake.find(mark) == committed
    lake.load_again(changelog, mark)

    assert lake.expire().kept == ()
    assert len(lake.commits()) == 1, "nothing holds the snapshot any more"
    assert lake.orders() == [(2, "x")]


def test_what_a_killed_load_left_on_its_branch_is_not_kept_and_does_not_count(
    lake_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake("iceberg", lake_spark, tmp_path)
    lake.load(lake.window(1, [put(110, id=1, v="x")]))
    changelog = lake.window(2, [put(210, id=2, v="x")])

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Iceberg, "publish", killed)
        with pytest.raises(KilledError):
            lake.load(changelog)
    assert lake.orders() == [(1, "x")]
    assert lake.expire().kept == ()
    (line,) = lake.load(changelog).tables
    assert (line.outcome, line.upserted) == ("loaded", 1)
    assert lake.orders() == [(1, "x"), (2, "x")]


HISTORY = "SELECT id, v, _op, _commit_ts FROM shop.orders ORDER BY _commit_ts, id"
KEPT = {number: [put(100 * number + 10, id=number, v="x"), delete(100 * number + 20, id=number)] for number in range(6)}


def history_of(*windows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """What ``HISTORY`` gives if these windows were loaded."""
    return [(row.cells["id"], row.cells.get("v"), row.op, row.commit_ts) for rows in windows for row in rows]


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.nightly
def test_slices_of_a_history_stay_exact_when_it_is_compacted_and_old_snapshots_go(
    lake_spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(kind, lake_spark, tmp_path, mode="history")
    for number in range(5):  # so many files are compacted
        lake.load(lake.window(number, KEPT[number]))
    before, version = history_of(*(KEPT[number] for number in range(5))), lake.commits()[-1]

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Iceberg, "publish", killed)
        patch.setattr(HistoryLedger, "note_done", killed)  # of Delta, whose commit is there by then
        patch.setattr(commits, "time", SimpleNamespace(time=lambda: time.time() - 2 * LATER.total_seconds()))
        with pytest.raises(KilledError):
            lake.load(lake.window(5, KEPT[5]))

    _, line = lake.maintain()
    assert (line.outcome, line.removed.kept) == ("maintained", ())
    assert line.after is not None
    assert line.after.files == 1
    whole = before if kind == "iceberg" else [*before, *history_of(KEPT[5])]
    assert lake.rows(HISTORY) == whole
    then = HISTORY.replace("shop.orders", f"shop.orders VERSION AS OF {version}")
    assert lake.rows(then) == before, "time travel within keep_days"
    assert lake.expire().kept == ()
    if kind == "iceberg":
        refs = lake.rows(f"SELECT name FROM {lake.name}.refs")
        assert refs == [("main",)], "the branch of the load that was killed is old"
        assert len(lake.commits()) == 1

    again = lake.window(1, KEPT[1], run="again")
    lake.load(again)
    lake.load(lake.window(5, KEPT[5]))
    lake.load(lake.window(0, KEPT[0]), reload=True)
    assert lake.rows(HISTORY) == history_of(*KEPT.values())
    assert lake.load_table(again).outcome == "done_before"


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_compaction_while_a_load_replaces_a_slice_loses_nothing(
    lake_spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    lake = Lake(kind, lake_spark, tmp_path, mode="history")
    for number in (0, 1, 2):
        lake.load(lake.window(number, KEPT[number]))
    newer = [put(110, id=1, v="newer"), put(130, id=4, v="newer")]
    gate = Gate(tmp_path / "reading", tmp_path / "go_on")
    with ThreadPoolExecutor(1) as pool:
        job = lake.window(1, newer, run="newer").job(lake.section, generation=2)
        loading = pool.submit(load, job, lake.connections, in_process, 1, GatedSql(lake.sql, gate))
        try:
            wait_for("the load to insert", gate.reading.exists)
            lake.upkeep.compact(TARGET)
        finally:
            gate.go_on.touch()
        assert loading.result(PATIENCE_S).tables[0].outcome == "loaded"
    assert lake.rows(HISTORY) == history_of(KEPT[0], newer, KEPT[2])
