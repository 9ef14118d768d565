"""The state store, on SQLite and on PostgreSQL."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from tests.processes import at_once
from tests.topics import identity
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.definition import DefinedColumn, TableDefinition
from ticdc_replay.domain.errors import AuthenticationError, ConfigError, PermanentError, TransientError
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.domain.window import Window
from ticdc_replay.state import StateStore, open_state
from ticdc_replay.state.coverage import Coverage, CoveredTable
from ticdc_replay.state.database import Database
from ticdc_replay.state.ddl import DdlScan, KnownDdl
from ticdc_replay.state.manifests import WindowManifest
from ticdc_replay.state.quarantine import AcceptedLoss, Redrive
from ticdc_replay.state.references import ReferenceFile
from ticdc_replay.state.runs import Run
from ticdc_replay.state.sparse_index import Stretch
from ticdc_replay.state.tables import metadata

NOON = Window(1000, 2000)
TOPIC = identity()
ZERO = "AAAAAAAAAAAAAAAAAAAAAA"


def pinned(input_hash: str, at_ms: int = 1, window: Window = NOON, pipeline: str = "shop") -> WindowManifest:
    return WindowManifest(pipeline, window, input_hash, f"manifests/{input_hash}.json", at_ms)


def test_a_window_keeps_the_manifest_that_came_first(state: StateStore) -> None:
    assert state.manifests.of_window("shop", NOON) is None
    assert state.manifests.register(pinned("a")) == pinned("a")
    assert state.manifests.register(pinned("b", at_ms=2)) == pinned("a")
    assert state.manifests.of_window("shop", NOON) == pinned("a")


def test_windows_and_pipelines_are_told_apart(state: StateStore) -> None:
    later, other = pinned("b", window=Window(2000, 3000)), pinned("c", pipeline="other")
    for manifest in (pinned("a"), later, other):
        assert state.manifests.register(manifest) == manifest
    assert state.manifests.of_window("shop", NOON) == pinned("a")
    assert state.manifests.of_window("other", NOON) == other


def test_pinning_anew_replaces_the_manifest_only_if_nobody_else_has(state: StateStore) -> None:
    state.manifests.register(pinned("a", at_ms=1))
    assert state.manifests.register(pinned("b", at_ms=2), replaces=pinned("a", at_ms=1)) == pinned("b", at_ms=2)
    assert state.manifests.register(pinned("c", at_ms=3), replaces=pinned("a", at_ms=1)) == pinned("b", at_ms=2)
    assert state.manifests.register(pinned("a", at_ms=4), replaces=pinned("b", at_ms=2)) == pinned("a", at_ms=4)


def test_the_last_manifest_is_the_one_pinned_last_of_any_window(state: StateStore) -> None:
    assert state.manifests.last("shop") is None
    state.manifests.register(pinned("a", at_ms=5))
    state.manifests.register(pinned("b", at_ms=4, window=Window(2000, 3000)))
    assert state.manifests.last("shop") == pinned("a", at_ms=5)


def test_of_runs_that_register_at_the_same_time_all_see_one_winner(url: str) -> None:
    open_state(url).close()

    def register(number: int) -> WindowManifest:
        store = open_state(url)
        try:
            return store.manifests.register(pinned(f"hash{number}", at_ms=number))
        finally:
            store.close()

    with ThreadPoolExecutor(8) as pool:
        winners = set(pool.map(register, range(16)))
    assert len(winners) == 1


def open_and_read(_: int, url: str) -> int:
    store = open_state(url)
    runs = len(store.runs.all("shop"))
    store.close()
    return runs


def test_processes_that_open_a_new_store_at_the_same_time_migrate_it_once(url: str) -> None:
    assert at_once(4, open_and_read, url) == [0] * 4


def test_migrations_and_tables_agree(url: str) -> None:
    database = Database(url)
    database.migrate()
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    database.close()


def test_a_store_that_a_newer_version_has_migrated_is_left_alone(url: str) -> None:
    database = Database(url)
    database.migrate()
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(PermanentError, match=r"9999.*newer"):
        open_state(url)


def test_a_run_is_recorded_again_as_it_goes_on(state: StateStore) -> None:
    run = Run(
        pipeline="shop",
        run_hash="r",
        window=NOON,
        input_hash="a",
        status="running",
        started_at_ms=1,
        counts={"rows": 1},
    )
    done = Run(
        pipeline="shop", run_hash="r", window=NOON, input_hash="a", status="done", started_at_ms=1, finished_at_ms=9,
        index="runs/r/index.json", counts={"rows": 2**40},
    )  # fmt: skip
    state.runs.record(run)
    assert state.runs.get("shop", "r") == run
    state.runs.record(done)
    assert state.runs.get("shop", "r") == done
    assert state.runs.all("shop") == [done]
    assert state.runs.get("shop", "other") is None


def covered(run_hash: str, *tables: CoveredTable, target: str = "pg", **values: Any) -> Coverage:
    known: dict[str, Any] = {"window": NOON, "selection": ("s.*", "x.y"), "grade": "proven", "quality": "complete"}
    known |= {"loaded_at_ms": 2**42, "place": f"place of {target}", **values}
    return Coverage(pipeline="shop", target=target, run_hash=run_hash, tables=tables, **known)


T, U = TableName("s", "t"), TableName("s", "u")


def test_coverage_is_kept_per_target_and_run_with_its_tables(state: StateStore) -> None:
    first = covered("r1", CoveredTable(T, "quarantine"), CoveredTable(U, "left_out"), grade="unproven")
    later = covered("r2", CoveredTable(T, "complete"), window=Window(2000, 3000), quality="quarantine")
    lake = covered("r1", target="lake")
    state.coverage.record([later, first])
    state.coverage.record([lake])
    assert state.coverage.all("shop") == [lake, first, later]
    assert state.coverage.all("nothing") == []


def test_coverage_of_a_run_that_was_loaded_again_replaces_what_was_known(state: StateStore) -> None:
    state.coverage.record([covered("r1", CoveredTable(T, "quarantine"), CoveredTable(U, "complete"))])
    again = covered("r1", CoveredTable(T, "complete"), loaded_at_ms=2**43)
    state.coverage.record([again])
    assert state.coverage.all("shop") == [again]


def test_coverage_is_that_of_a_place_whatever_its_target_is_called(state: StateStore) -> None:
    here = covered("r1", CoveredTable(T, "quarantine"), place="here")
    there = covered("r1", CoveredTable(T, "complete"), place="there")
    state.coverage.record([here, there])
    assert state.coverage.all("shop") == [here, there]
    renamed = covered("r1", CoveredTable(T, "complete"), target="lake", place="here")
    state.coverage.record([renamed])
    assert state.coverage.all("shop") == [renamed, there]
    state.coverage.forget("shop", "there", T, [])
    forgotten = covered("r1", CoveredTable(T, "forgotten"), place="there")
    assert state.coverage.all("shop") == [renamed, forgotten]


def test_what_has_no_place_gets_that_of_its_target(state: StateStore) -> None:
    old = covered("r1", CoveredTable(T, "complete"), place="")
    gone = covered("r2", CoveredTable(T, "complete"), target="gone", place="")
    state.coverage.record([old, gone])
    state.quarantine.record_redrive(Redrive("shop", "r1", "b", "", 1))
    state.quarantine.record_redrive(Redrive("shop", "r1", "b", "pg", 2))
    for _ in range(2):
        state.coverage.settle_places("shop", {"pg": "here", "lake": "there"})
        state.coverage.settle_places("other", {"gone": "there"})
        assert state.coverage.all("shop") == [gone, msgspec.structs.replace(old, place="here")]
        assert [redrive.place for redrive in state.quarantine.redrives("shop", "r1")] == ["", "here"]


def test_ddl_is_kept_once_in_order_of_commit_ts(state: StateStore) -> None:
    late = KnownDdl(identity(), DdlEvent(0, 2**62, "s", "t", "ALTER … ☃", "ALTER", rounded=True))
    early = KnownDdl(identity(), DdlEvent(0, 5, "s", "t", "CREATE …", 3))
    twin = KnownDdl(identity(), DdlEvent(0, 5, "s", "u", "CREATE …", 3))
    other = KnownDdl(identity(made="again"), early.event)
    state.ddl.record("shop", [late, early, early])
    state.ddl.record("shop", [early, twin, other])
    state.ddl.record("other", [late])
    found = state.ddl.all("shop")
    assert [known.event.commit_ts for known in found] == [5, 5, 5, 2**62]
    assert all(known in found for known in (late, early, twin, other))


def test_a_scan_for_ddl_does_not_take_the_place_of_what_another_showed(state: StateStore) -> None:
    far = DdlScan(topic=identity(), partition=0, start=0, end=9, known_from=0, resolved_ts=7)
    near = msgspec.structs.replace(far, known_from=5, resolved_ts=0)
    state.ddl.record_scans("shop", [far])
    state.ddl.record_scans("shop", [near, far])
    assert state.ddl.scans("shop") == [far, near]
    assert state.ddl.scans("other") == []


def test_the_topics_that_decodes_have_read_are_known_by_their_identity(state: StateStore) -> None:
    one, again, old = identity(), identity(made="again"), identity(cluster="")
    for each in (one, again, old):
        state.sparse_index.record("shop", [Stretch(each, number, 0, 10, 5, 5) for number in range(2)])
    state.sparse_index.record("other", [Stretch(identity("another"), 0, 0, 10, 5, 5)])
    assert state.sparse_index.topics("shop") == sorted([one, again])


def test_known_stretches_end_where_an_event_is_needed(state: StateStore) -> None:
    def stretch(start: int, newest: int | None, topic: TopicIdentity = TOPIC) -> Stretch:
        return Stretch(topic, 0, start, start + 10, newest, newest)

    state.sparse_index.record(
        "shop", [stretch(start, newest) for start, newest in ((0, 5), (10, None), (20, 7), (30, 9))]
    )
    state.sparse_index.record("shop", [stretch(0, 99, identity(made="again"))])
    state.sparse_index.record("shop", [stretch(0, 99, identity(cluster="other")), stretch(0, 99, identity("other"))])
    before = state.stretches_before
    assert before("shop", TOPIC, {0: 5}, commit_ts=9) == {0: [stretch(0, 5), stretch(10, None), stretch(20, 7)]}
    assert before("shop", TOPIC, {0: 20}, commit_ts=100) == {0: [stretch(20, 7), stretch(30, 9)]}
    assert before("shop", TOPIC, {0: 0}, commit_ts=5) == {}
    assert before("shop", TOPIC, {1: 0}, commit_ts=5) == {}


@pytest.mark.parametrize("shared", [ZERO, identity().topic_id])
def test_what_was_found_in_one_topic_says_nothing_of_another_with_its_id(state: StateStore, shared: str) -> None:
    one, other = (TopicIdentity("cluster", name, shared) for name in ("one", "other"))
    state.sparse_index.record("shop", [Stretch(one, 0, 0, 10, 5, 5)])
    assert state.sparse_index.before("shop", other, {0: 0}, commit_ts=9) == {}
    usable = shared != ZERO
    assert bool(state.sparse_index.before("shop", one, {0: 0}, commit_ts=9)) is usable


def test_what_is_of_no_known_cluster_or_topic_keeps_nobody_from_reading(state: StateStore) -> None:
    for unknown in (identity(cluster=""), identity("")):
        state.sparse_index.record("shop", [Stretch(unknown, 0, 0, 10, 5, 5)])
        assert state.sparse_index.before("shop", unknown, {0: 0}, commit_ts=9) == {}
        assert state.sparse_index.before("shop", identity(), {0: 0}, commit_ts=9) == {}


def test_known_stretches_of_thousands_of_partitions_are_asked_for_at_once(state: StateStore) -> None:
    state.sparse_index.record("shop", [Stretch(TOPIC, at, 0, 10 + at, 1, 1) for at in range(2_500)])
    state.sparse_index.record("shop", [Stretch(TOPIC, 7, 17, 20, 5, 5)])
    found = state.sparse_index.before("shop", TOPIC, dict.fromkeys(range(2_500), 12), commit_ts=5)
    assert found == {at: [Stretch(TOPIC, at, 0, 10 + at, 1, 1)] for at in range(3, 2_500)}


def test_many_records_are_kept_in_one_go(state: StateStore) -> None:
    state.sparse_index.record("shop", [Stretch(TOPIC, 0, at, at + 1, at, at) for at in range(2_500)])
    assert len(state.sparse_index.before("shop", TOPIC, {0: 0}, commit_ts=2_500)[0]) == 2_500


def test_reference_files_are_noted_once(state: StateStore) -> None:
    files = [
        ReferenceFile("shop", "r", "runs/r/references/1.parquet"),
        ReferenceFile("shop", "r", "runs/r/references/2.parquet"),
    ]
    state.references.record_files(files)
    state.references.record_files(files)
    assert state.references.files("shop") == files


def test_a_locked_file_is_a_transient_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticdc_replay.state.database._LOCK_TIMEOUT_S", 0.1)
    path = tmp_path / "state.db"
    store = open_state(f"sqlite:///{path}")
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TransientError, match="locked"):
            store.manifests.register(pinned("a"))
        assert store.manifests.of_window("shop", NOON) is None
        other.execute("ROLLBACK")
    assert store.manifests.register(pinned("a")) == pinned("a")
    store.close()


@pytest.mark.parametrize("url", ["mysql://u:hidden@h/d", "sqlite://", "not a url", "sqlite:///:memory:"])
def test_another_kind_of_database_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_state(url)
    assert "hidden" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PermanentError, match=r"file/state\.db"):
        open_state(f"sqlite:///{tmp_path}/file/state.db")


def test_a_server_that_is_away_is_transient() -> None:
    with pytest.raises(TransientError) as caught:
        open_state("postgresql://u:hidden@127.0.0.1:9/d")
    assert "hidden" not in str(caught.value)


@pytest.mark.integration
def test_a_missing_database_is_a_configuration_error(make_database) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=r"no_such_database.*does not exist"):
        open_state(make_database().rpartition("/")[0] + "/no_such_database")


@pytest.mark.integration
def test_a_wrong_password_is_an_authentication_error(make_database) -> None:  # type: ignore[no-untyped-def]
    url: str = make_database()
    with pytest.raises(AuthenticationError) as caught:
        open_state(
            url.replace("://", "://nobody:hidden@", 1)
            if "@" not in url
            else "postgresql://nobody:hidden@" + url.split("@")[1]
        )
    assert "hidden" not in str(caught.value)


def test_table_versions_come_back_by_table_and_version(state: StateStore) -> None:
    found = [
        TableDefinition(TableName("shop", table), (), valid_from=version)
        for table, version in (("t", 1 << 60), ("t", 5), ("orders", 9))
    ]
    state.table_versions.record("p", found)
    state.table_versions.record("p", found)
    state.table_versions.record("other", found[:1])
    assert state.table_versions.all("p") == [found[2], found[1], found[0]]


def test_table_versions_with_types_of_no_table_do_not_come_back(state: StateStore) -> None:
    wrong = DefinedColumn("d", ColumnType("decimal", length=10, scale=20, declared=True))
    state.table_versions.record("p", [TableDefinition(TableName("shop", "t"), (wrong,), valid_from=5)])
    assert state.table_versions.all("p") == []


def test_several_table_versions_of_one_number_are_kept_in_their_order(state: StateStore) -> None:
    plain, other = (
        TableDefinition(TableName("shop", "t"), (), binary=binary, valid_from=5) for binary in (False, True)
    )
    later = TableDefinition(TableName("shop", "t"), (), valid_from=6)
    state.table_versions.record("p", [plain])
    state.table_versions.record("p", [later, plain, other])
    assert state.table_versions.all("p") == [plain, other, later]


def test_re_drives_are_told_in_order_and_forgotten_by_place(state: StateStore) -> None:
    made = [
        Redrive("shop", "run", "b", "", 1),
        Redrive("shop", "run", "b", "lake", 2, "here"),
        Redrive("shop", "run", "a", "", 3),
        Redrive("shop", "run", "b", "lake", 4, "there"),
    ]
    for redrive in (*reversed(made), Redrive("shop", "other", "c", "lake", 1, "here")):
        state.quarantine.record_redrive(redrive)
    assert state.quarantine.redrives("shop", "run") == made
    state.quarantine.forget_redrives("shop", "here", [made[1].redrive_hash])
    assert state.quarantine.redrives("shop", "run") == [made[0], *made[2:]]
    assert len(state.quarantine.redrives("shop", "other")) == 1


def test_the_first_acceptance_of_an_entry_stays(state: StateStore) -> None:
    first = AcceptedLoss("shop", TOPIC, 0, 7, -1, "bad_value", "run", "Ada", "why", "accepted/a.json", 1)
    later = msgspec.structs.replace(first, person="Bob", accepted_at_ms=2)
    other = msgspec.structs.replace(later, reason="bad_key")
    state.quarantine.record_accepted_losses([first])
    state.quarantine.record_accepted_losses([later, other])
    assert state.quarantine.accepted_losses("shop") == [other, first]
    assert state.quarantine.accepted_losses("billing") == []


HOSTILE = "a\0b\ud800c\udfff\uffffd\uffff0000 \U0001f600"


def test_text_of_any_characters_comes_back(state: StateStore) -> None:
    wire = HOSTILE.encode(errors="ignore").decode()  # codecs refuse what is not Unicode
    ddl = [
        KnownDdl(TOPIC, DdlEvent(0, at, wire, name, f"ALTER TABLE t COMMENT '{wire}'", 3))
        for at, name in ((1, "\0"), (2, ""))
    ]
    state.ddl.record("shop", ddl)
    assert state.ddl.all("shop") == ddl
    definition = TableDefinition(TableName("s", "a\0b\uffff"), (), valid_from=7)
    state.table_versions.record("shop", [definition])
    state.table_versions.record("shop", [definition])
    assert state.table_versions.all("shop") == [definition]
    state.references.record_files([ReferenceFile(HOSTILE, "run", "file")])
    assert state.references.files(HOSTILE) == [ReferenceFile(HOSTILE, "run", "file")]


def test_what_is_larger_than_the_database_takes_is_a_permanent_error(state: StateStore) -> None:
    name = "".join(map(str, range(40_000)))
    record = ReferenceFile("shop", "run", name)
    if state._database.dialect == "postgresql":
        with pytest.raises(PermanentError, match="index row"):
            state.references.record_files([record])
    else:
        state.references.record_files([record])
        assert state.references.files("shop") == [record]
