"""What a lake mirror's ledger remembers, over several sessions at once and after each interruption."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.changelogs import Changelog
from tests.support.examples import examples
from ticdc_replay.domain.errors import PermanentError, TransientError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.storage.file import FileStore
from ticdc_replay.targets.base import HeldTable, Load, Outcome, StoppedLoad, StoreAddress, TableReport
from ticdc_replay.targets.generations import Mark
from ticdc_replay.targets.lake.documents import REGISTRY, BegunChange, TombstoneFile, state_name
from ticdc_replay.targets.lake.ledger import LakeLedger
from ticdc_replay.targets.mirror.ledger import MirrorPlaces, NotedDrop
from ticdc_replay.targets.mirror.planning.tables import (
    ColumnEvent,
    ColumnMove,
    KnownColumn,
    MirrorStep,
    RecordedColumn,
    Relation,
    RemoveColumn,
    RenameColumn,
)

SOURCE = TableName("shop", "orders.v2")
ORDERS = Relation("Läden/a", "orders.v2")
LINES = Relation("shop", "lines")
TOMBSTONES = Relation("_ticdc_replay", "tombstones_orders")
WINDOW = Window(10, 20)


class KilledError(TransientError):
    """The process died, or the store was away."""


class BrittleStore(FileStore):
    """Fails before the write number *fails_at* (from 1), once."""

    fails_at = 0

    def _count(self) -> None:
        self.fails_at -= 1
        if self.fails_at == 0:
            raise KilledError("no further write")

    def put(self, name: str, content: bytes) -> None:
        self._count()
        super().put(name, content)

    def update(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        self._count()
        super().update(name, change)

    def delete(self, name: str) -> None:
        self._count()
        super().delete(name)


@pytest.fixture
def store(tmp_path: Path) -> BrittleStore:
    return BrittleStore(tmp_path)


@pytest.fixture
def ledger(store: BrittleStore) -> LakeLedger:
    return LakeLedger(store)


@pytest.fixture
def other(store: BrittleStore) -> LakeLedger:
    """Another session."""
    return LakeLedger(store)


def load_of(
    folder: Path, window: Window = WINDOW, run: str = "a", *, pipeline: str = "pipeline", generation: int = 1
) -> Load:
    changelog = Changelog(folder / "artifacts", window.from_ts, window.to_ts, run)
    changelog.pipeline = pipeline
    return Load(
        index=changelog.write(),
        selection=("shop.*",),
        tables=(SOURCE,),
        named=frozenset(),
        artifacts=StoreAddress("file:///artifacts", None),
        target="lake",
        attempt=f"attempt of {run}",
        quarantine_values=False,
        stopping=frozenset(),
        reload=False,
        generation=generation,
    )


def report(outcome: Outcome = "loaded", keys: int = 1, commit: str = "") -> TableReport:
    return TableReport(table=SOURCE, outcome=outcome, destination=str(ORDERS), keys=keys, commit=commit)


def add(ledger: LakeLedger, target: Relation = ORDERS, floor_ts: int = 0, **changes: Any) -> None:
    details: dict[str, Any] = {
        "source": SOURCE,
        "pipeline": "pipeline",
        "tombstones": TOMBSTONES,
        "newest_ts": 0,
        "floor_ts": floor_ts,
        "form_floor_ts": floor_ts,
    }
    ledger.add_table(target, **{**details, **changes})


def added(ledger: LakeLedger, target: Relation = ORDERS, **changes: Any) -> None:
    """Add a mirror and write it."""
    add(ledger, target, **changes)
    ledger.flush()


def known(ledger: LakeLedger, target: Relation = ORDERS) -> Any:
    """The state of *target* in the store."""
    ledger.discard()
    state = ledger.state_of(target)
    assert state is not None
    return state


def test_a_mirror_is_known_to_others_once_it_is_flushed(ledger: LakeLedger, other: LakeLedger) -> None:
    assert (ledger.state_of(ORDERS), ledger.incarnation_of(ORDERS), ledger.mirrors()) == (None, None, [])
    add(ledger, floor_ts=7, newest_ts=5)
    assert ledger.mirrors() == [(SOURCE, ORDERS, "pipeline")]
    assert (other.state_of(ORDERS), other.mirrors()) == (None, [])
    ledger.flush()
    state = known(other)
    assert (state.source, state.pipeline, state.tombstones) == (SOURCE, "pipeline", TOMBSTONES)
    assert (state.floor_ts, state.form_floor_ts, state.newest_ts, state.schema_ts, state.whole_ts) == (7, 7, 5, 0, 0)
    assert (state.topic_id, state.added_columns, state.columns) == (None, {}, {})
    assert other.mirrors() == [(SOURCE, ORDERS, "pipeline")]
    assert other.incarnation_of(ORDERS) == ledger.incarnation_of(ORDERS) is not None


def test_what_is_discarded_was_never_there(ledger: LakeLedger, tmp_path: Path) -> None:
    added(ledger)
    load = load_of(tmp_path)
    ledger.raise_marks(ORDERS, schema_ts=1, whole_ts=2, newest_ts=3)
    ledger.note_done(load, ORDERS, report())
    add(ledger, LINES)
    assert ledger.state_of(ORDERS).newest_ts == 3  # type: ignore[union-attr]
    ledger.discard()
    ledger.flush()
    assert known(ledger).newest_ts == 0
    assert ledger.state_of(LINES) is None
    assert ledger.report_of(ORDERS, WINDOW, load.index.run_hash) is None


def test_floors_and_marks_only_rise(ledger: LakeLedger) -> None:
    added(ledger, floor_ts=5)
    ledger.raise_marks(ORDERS, schema_ts=4, whole_ts=6, newest_ts=8)
    ledger.raise_marks(ORDERS, schema_ts=3, whole_ts=5, newest_ts=7)
    ledger.raise_floor(ORDERS, 4, 3)
    ledger.flush()
    state = known(ledger)
    assert (state.schema_ts, state.whole_ts, state.newest_ts) == (4, 6, 8)
    assert (state.floor_ts, state.form_floor_ts) == (5, 5)


def test_a_higher_floor_forgets_what_was_known_below_it(ledger: LakeLedger) -> None:
    added(ledger)
    ledger.note_added_column(ORDERS, "old", 9, "'x'")
    ledger.note_added_column(ORDERS, "new", 10, None)
    ledger.note_form(ORDERS, {name: KnownColumn("int", ts, True, False) for name, ts in (("a", 7), ("b", 8), ("c", 8))})
    ledger.raise_marks(ORDERS, schema_ts=0, whole_ts=7, newest_ts=0)
    assert ledger.state_of(ORDERS).forgotten_by(10) == ["old"]
    ledger.raise_floor(ORDERS, 10, 8)
    ledger.flush()
    state = known(ledger)
    assert (state.floor_ts, state.form_floor_ts, state.whole_ts) == (10, 8, 0)
    assert state.added_columns == {"new": RecordedColumn(10, None)}
    assert list(state.columns) == ["b", "c"]


def test_fills_of_rows_ordered_by_place_stay_above_any_floor(ledger: LakeLedger) -> None:
    added(ledger)
    ledger.note_topic(ORDERS, "topic")
    ledger.note_added_column(ORDERS, "old", 9, "'x'")
    assert ledger.state_of(ORDERS).forgotten_by(10) == []
    ledger.raise_floor(ORDERS, 10, 10)
    ledger.flush()
    assert known(ledger).added_columns == {"old": RecordedColumn(9, "'x'")}
    assert known(ledger).topic_id == "topic"


def test_of_each_column_the_newest_definition_stays(ledger: LakeLedger) -> None:
    added(ledger)
    ledger.note_form(ORDERS, {"z": KnownColumn("int", 5, True, True), "a": KnownColumn("int", 6, False, True)})
    ledger.note_form(ORDERS, {"z": KnownColumn("bigint", 7, False, False), "a": KnownColumn("text", 5, True, False)})
    ledger.flush()
    assert list(known(ledger).columns.items()) == [  # oldest first
        ("a", KnownColumn("int", 6, True, True)),
        ("z", KnownColumn("bigint", 7, True, False)),
    ]


def test_two_sessions_lose_nothing_of_each_other(ledger: LakeLedger, other: LakeLedger) -> None:
    added(ledger)
    for session, ts, name in ((ledger, 20, "a"), (other, 10, "b")):
        session.raise_floor(ORDERS, ts, ts)
        session.raise_marks(ORDERS, schema_ts=ts, whole_ts=ts, newest_ts=ts)
        session.note_form(ORDERS, {name: KnownColumn("int", 30, True, False), "c": KnownColumn(name, ts, True, False)})
        session.add_tombstones(ORDERS, [TombstoneFile(name, 1, 30)])
    ledger.flush()
    other.flush()
    state = known(ledger)
    assert (state.floor_ts, state.form_floor_ts, state.newest_ts, state.schema_ts) == (20, 20, 20, 20)
    assert {name: column.type for name, column in state.columns.items()} == {"a": "int", "b": "int", "c": "a"}
    assert [file.name for file in ledger.tombstones_of(ORDERS)] == ["a", "b"]


@pytest.mark.parametrize("ledger_file", [REGISTRY, state_name(ORDERS)])
def test_what_a_newer_version_has_written_is_neither_read_nor_lost(
    ledger: LakeLedger, store: BrittleStore, ledger_file: str
) -> None:
    added(ledger)
    newer = msgspec.json.encode({**msgspec.json.decode(store.get(ledger_file)), "fact": 1})
    store.put(ledger_file, newer)
    ledger.discard()
    with pytest.raises(PermanentError, match=r"unknown field `fact`. A newer version has written it"):
        added(ledger, LINES) if ledger_file == REGISTRY else ledger.raise_floor(ORDERS, 9, 9)
    assert store.get(ledger_file) == newer


def test_a_mirror_that_another_session_made_or_forgot_meanwhile_is_not_written(
    ledger: LakeLedger, other: LakeLedger
) -> None:
    add(ledger)
    added(other)
    with pytest.raises(TransientError, match="made by another load"):
        ledger.flush()
    ledger.discard()
    ledger.raise_floor(ORDERS, 9, 9)
    other.forget(ORDERS, TOMBSTONES)
    with pytest.raises(TransientError, match="forgotten"):
        ledger.flush()
    added(other)
    with pytest.raises(TransientError, match="made by another load"):
        ledger.flush()
    assert known(other).floor_ts == 0
    ledger.discard()
    with pytest.raises(TransientError, match="not known"):
        ledger.raise_floor(LINES, 9, 9)


def test_the_registry_follows_the_document_after_two_loads_made_one_mirror(
    ledger: LakeLedger, other: LakeLedger, tmp_path: Path
) -> None:
    add(ledger)
    added(other)
    with pytest.raises(TransientError):
        ledger.flush()  # the registry has its incarnation by now
    other.note_done(load_of(tmp_path), ORDERS, report())
    other.flush()
    assert other.other_runs(load_of(tmp_path, run="b")) == (HeldTable(load_of(tmp_path).index.run_hash, SOURCE),)


def test_a_forgotten_mirror_starts_again(ledger: LakeLedger, store: BrittleStore, tmp_path: Path) -> None:
    added(ledger, floor_ts=9)
    load, before = load_of(tmp_path), ledger.incarnation_of(ORDERS)
    store.put("deletes/x.parquet", b"")
    ledger.add_tombstones(ORDERS, [TombstoneFile("deletes/x.parquet", 1, 10)])
    ledger.note_done(load, ORDERS, report())
    ledger.flush()
    ledger.forget(ORDERS, TOMBSTONES)
    assert (ledger.state_of(ORDERS), ledger.mirrors(), ledger.tombstones_of(ORDERS)) == (None, [], ())
    assert store.info("deletes/x.parquet") is None
    added(ledger)
    assert ledger.incarnation_of(ORDERS) not in (None, before)
    assert known(ledger).floor_ts == 0
    assert ledger.report_of(ORDERS, WINDOW, load.index.run_hash) is None
    assert ledger.other_runs(load_of(tmp_path, run="b")) == ()


def test_a_forgetting_that_broke_anywhere_is_ended_by_a_repeat(tmp_path: Path) -> None:
    for fails_at in (1, 2, 3):
        store = BrittleStore(tmp_path / str(fails_at))
        ledger = LakeLedger(store)
        added(ledger)
        ledger.add_tombstones(ORDERS, [TombstoneFile("deletes/x.parquet", 1, 10)])
        ledger.flush()
        store.fails_at = fails_at
        with pytest.raises(KilledError):
            ledger.forget(ORDERS, TOMBSTONES)
        LakeLedger(store).forget(ORDERS, TOMBSTONES)
        assert (LakeLedger(store).state_of(ORDERS), LakeLedger(store).mirrors()) == (None, [])


def test_the_report_of_a_window_is_of_its_run_and_has_its_commit(
    ledger: LakeLedger, other: LakeLedger, store: BrittleStore, tmp_path: Path
) -> None:
    load = load_of(tmp_path)
    run = load.index.run_hash
    added(ledger)
    ledger.note_done(load, ORDERS, report(keys=3, commit="snapshot 1"))
    assert ledger.report_of(ORDERS, WINDOW, run) == report(keys=3, commit="snapshot 1")
    assert other.report_of(ORDERS, WINDOW, run) is None
    ledger.flush()
    other.discard()
    assert other.find_done(ORDERS, WINDOW, run) == report("done_before", keys=3, commit="snapshot 1")
    assert other.find_stopped(ORDERS, WINDOW, run) is None
    assert other.report_of(ORDERS, WINDOW, "0" * 64) is None
    assert other.report_of(ORDERS, Window(10, 21), run) is None
    (written,) = [info.name for info in store.list() if "/windows/" in info.name]
    assert b'"commit":"snapshot 1"' in store.get(written), "with the report"
    ledger.note_done(load, ORDERS, report(keys=4))
    ledger.flush()
    assert ledger.report_of(ORDERS, WINDOW, run) == report(keys=4), "a reload replaces it"


def test_a_stopped_load_is_known_until_one_of_its_run_ends(
    ledger: LakeLedger, store: BrittleStore, tmp_path: Path
) -> None:
    first, second = load_of(tmp_path), load_of(tmp_path, Window(20, 30), "b")
    foreign = load_of(tmp_path, Window(30, 40), "c", pipeline="foreign")
    added(ledger)
    for load in (first, second, foreign, first):
        ledger.note_done(load, ORDERS, report("stopped"))
        ledger.flush()
    assert ledger.stopped_loads(ORDERS, "pipeline") == tuple(
        StoppedLoad(load.index.run_hash, load.index.window, report("stopped")) for load in (second, first)
    ), "oldest first; a repeat is the last one"
    assert ledger.find_done(ORDERS, WINDOW, first.index.run_hash) is None
    assert ledger.find_stopped(ORDERS, WINDOW, first.index.run_hash) == report("stopped")
    assert ledger.other_runs(load_of(tmp_path, run="d")) == (), "its window is not done"
    ledger.note_done(first, ORDERS, report())
    ledger.flush()
    ledger.note_done(first, ORDERS, report("stopped"))
    ledger.flush()
    assert ledger.report_of(ORDERS, WINDOW, first.index.run_hash) == report(), "one that was stopped replaces none"
    assert [load.run_hash for load in ledger.stopped_loads(ORDERS, "pipeline")] == [second.index.run_hash]
    (document,) = [store.get(info.name) for info in store.list() if info.name.endswith("state.json")]
    assert first.index.run_hash.encode() not in document, "what no longer counts does not pile up"


def test_other_runs_are_those_of_the_window_and_pipeline(ledger: LakeLedger, tmp_path: Path) -> None:
    own, foreign = load_of(tmp_path), load_of(tmp_path, run="b", pipeline="foreign")
    late = load_of(tmp_path, Window(20, 30))
    added(ledger)
    added(ledger, LINES, pipeline="foreign")
    for target in (ORDERS, LINES):  # LINES is a mirror that this pipeline may load, too
        for load in (own, late, foreign):
            source = SOURCE if target == ORDERS else TableName("shop", "lines")
            ledger.note_done(load, target, msgspec.structs.replace(report(), table=source))
            ledger.flush()
    run = own.index.run_hash
    assert ledger.other_runs(own) == ()
    assert ledger.other_runs(load_of(tmp_path, run="d")) == (
        HeldTable(run, TableName("shop", "lines")),
        HeldTable(run, SOURCE),
    )


def test_tombstones_below_the_floor_no_longer_count(ledger: LakeLedger, other: LakeLedger) -> None:
    old, new, more = (TombstoneFile(name, 2, ts) for name, ts in (("old", 9), ("new", 10), ("more", 12)))
    added(ledger)
    ledger.add_tombstones(ORDERS, [new, old])
    assert ledger.tombstones_of(ORDERS) == (new, old)
    ledger.flush()
    ledger.raise_floor(ORDERS, 10, 0)
    assert ledger.tombstones_of(ORDERS) == (new,)
    ledger.flush()
    other.add_tombstones(ORDERS, [more])
    ledger.replace_tombstones(ORDERS, ["old", "new"], [TombstoneFile("both", 4, 10)])
    other.flush()
    with pytest.raises(TransientError, match="replaced meanwhile"):
        other.replace_tombstones(ORDERS, ["new", "more"], [TombstoneFile("again", 4, 12)])
    assert [file.name for file in other.tombstones_of(ORDERS)] == ["both", "more"]
    assert ledger.tombstones_of(LINES) == ()


def test_a_table_that_is_being_dropped_may_be_gone(ledger: LakeLedger, other: LakeLedger) -> None:
    added(ledger, newest_ts=50)
    assert known(other).needs_table
    ledger.begin_dropping(ORDERS, 60)
    other.discard()
    assert not known(other).needs_table, "at once, for everybody: the next attempt may find no table"
    ledger.raise_marks(ORDERS, schema_ts=0, whole_ts=0, newest_ts=55)
    ledger.flush()
    assert not known(ledger).needs_table, "rows of a late window, which the DROP ends as well"
    assert known(ledger).newest_ts == 55, "older rows are late, whether or not they are about to go"
    ledger.raise_floor(ORDERS, 60, 0)
    ledger.flush()
    assert (known(ledger).newest_ts, known(ledger).floor_ts, known(ledger).needs_table) == (55, 60, False)
    ledger.begin_dropping(ORDERS, 70)
    ledger.raise_marks(ORDERS, schema_ts=0, whole_ts=0, newest_ts=80)
    ledger.flush()
    assert known(ledger).needs_table, "rows from after the DROP are no leftovers"


@dataclass(frozen=True)
class Marked:
    """The marks of a ledger, seen from a load."""

    ledger: LakeLedger
    folder: Path

    def put(self, place: str, window: Window, generation: int, run: str, *patterns: str) -> Mark:
        mark = Mark(window, patterns or ("shop.*",), generation, run)
        self.ledger.put_mark(load_of(self.folder, window), place, mark)
        return mark

    def newer(self, generation: int, window: Window = WINDOW, pipeline: str = "pipeline") -> list[Any]:
        return self.ledger.newer_marks(load_of(self.folder, window, pipeline=pipeline), generation)


def test_newer_marks_are_those_of_overlapping_windows_by_place(ledger: LakeLedger, tmp_path: Path) -> None:
    marks = Marked(ledger, tmp_path)
    wide = marks.put("", Window(5, 100), 3, "wide")
    own = marks.put("", WINDOW, 2, "own")
    placed = marks.put("lake", WINDOW, 2, "placed")
    marks.put("", Window(0, 10), 9, "before")
    marks.put("", Window(20, 30), 9, "after")
    assert marks.newer(1) == [(wide, ""), (own, ""), (placed, "lake")]
    assert marks.newer(2) == [(wide, "")]
    assert marks.newer(1, pipeline="foreign") == []


def test_of_marks_with_equal_patterns_the_newest_stays(ledger: LakeLedger, tmp_path: Path) -> None:
    marks = Marked(ledger, tmp_path)
    for generation, run in ((2, "a"), (2, "b"), (1, "c")):
        marks.put("", WINDOW, generation, run)
    some = marks.put("", WINDOW, 1, "d", "shop.orders")
    assert [mark.run_hash for mark, _ in marks.newer(0)] == ["b", some.run_hash]


def places(mirror: Relation = ORDERS, place: Sequence[str] = ("",)) -> MirrorPlaces:
    return MirrorPlaces(str(mirror), list(place), ["shop", ""])


def noted(ledger: LakeLedger, load: Load, window_run: str = "", mirror: MirrorPlaces | None = None) -> list[int]:
    """The floors that count for a mirror in the window of *load*."""
    index = load.index
    window = (index.pipeline, index.window.from_ts, index.window.to_ts)
    ledger.discard()
    drops = ledger.noted_drops(mirror or places(), [index.pipeline], window, window_run or index.run_hash)
    return [drop.floor_ts for drop in drops]


def replace(ledger: LakeLedger, load: Load, floors: Mapping[str, int], window_run: str = "", place: str = "") -> None:
    ledger.replace_drops(load, place, window_run or load.index.run_hash, floors)


def test_a_noted_drop_counts_for_the_mirrors_that_its_load_may_write_to(ledger: LakeLedger, tmp_path: Path) -> None:
    load, later = load_of(tmp_path), load_of(tmp_path, Window(20, 30), "b")
    replace(ledger, load, {"shop": 15, "": 12, "stock": 19})
    replace(ledger, later, {"shop": 25}, place="lake")
    assert noted(ledger, load) == [15, 12]
    assert noted(ledger, load, mirror=places(place=("", "lake"))) == [25, 15, 12]
    assert noted(ledger, load, "another run") == [], "of the own window, only those of the own run"
    assert noted(ledger, load_of(tmp_path, pipeline="foreign")) == []
    replace(ledger, load, {})
    assert noted(ledger, load) == []


def test_a_newer_run_replaces_the_drops_of_its_window_and_a_redrive_keeps_them(
    ledger: LakeLedger, tmp_path: Path
) -> None:
    run, redrive, rerun = (load_of(tmp_path, run=name, generation=at) for at, name in enumerate("abc", 1))
    replace(ledger, run, {"shop": 15})
    replace(ledger, redrive, {"": 12}, run.index.run_hash)
    assert noted(ledger, run) == [15, 12]
    replace(ledger, run, {})  # again, without: its note has the re-drive's generation by now
    assert noted(ledger, run) == [15, 12]
    replace(ledger, rerun, {})
    assert noted(ledger, rerun) == noted(ledger, run) == []


def test_newer_loads_of_the_window_are_named_beside_a_drop(ledger: LakeLedger, tmp_path: Path) -> None:
    load, later = load_of(tmp_path), load_of(tmp_path, Window(20, 30))
    replace(ledger, load, {"shop": 15})
    for place, generation, pattern in (("", 1, "a.*"), ("", 2, "b.*"), ("lake", 2, "c.*")):
        ledger.put_mark(load, place, Mark(WINDOW, (pattern,), generation, "run"))
    ledger.put_mark(later, "", Mark(later.index.window, ("d.*",), 9, "run"))
    found = ledger.noted_drops(places(), ["pipeline"], ("pipeline", 0, 0), "")
    assert found == [NotedDrop(15, ("shop.*",), [("b.*",)])]


def test_a_forgotten_mirror_ignores_drops_until_their_window_is_loaded_again(
    ledger: LakeLedger, tmp_path: Path
) -> None:
    load = load_of(tmp_path)
    replace(ledger, load, {"shop": 15})
    ledger.forget_drops(places())
    assert noted(ledger, load) == []
    assert noted(ledger, load, mirror=places(LINES)) == [15]
    replace(ledger, load, {"shop": 15})
    assert noted(ledger, load) == [15]


def test_a_mirror_is_not_added_if_a_drop_was_noted_meanwhile(
    ledger: LakeLedger, other: LakeLedger, tmp_path: Path
) -> None:
    ledger.share_drops()
    add(ledger)
    replace(other, load_of(tmp_path), {"shop": 15})
    with pytest.raises(TransientError, match="dropped databases"):
        ledger.flush()
    other.discard()
    assert (other.state_of(ORDERS), other.mirrors()) == (None, [])
    ledger.discard()
    assert ledger.mirrors() == []
    replace(other, load_of(tmp_path), {"shop": 16})
    ledger.share_drops()
    assert [drop.floor_ts for drop in ledger.noted_drops(places(), ["pipeline"], ("pipeline", 0, 0), "")] == [16]
    added(ledger, floor_ts=16)
    replace(other, load_of(tmp_path), {"shop": 17})
    assert other.mirrors() == [(SOURCE, ORDERS, "pipeline")], "a drop that is noted later finds the mirror"


def interrupted(tmp_path: Path, fails_at: int, *, again: bool) -> tuple[bool, LakeLedger, Load]:
    """A load of two mirrors whose ``flush`` fails before write *fails_at*, and is repeated, or, if *again*, done again by
    another session, as its next attempt does. Whether it failed."""
    store = BrittleStore(tmp_path)
    load = load_of(tmp_path / "load")
    first = LakeLedger(store)
    added(first, LINES)
    first.note_done(load, LINES, report("stopped"))
    first.flush()

    def change(session: LakeLedger) -> None:
        if session.state_of(ORDERS) is None:
            add(session)
        for target in (ORDERS, LINES):
            session.raise_floor(target, 10, 10)
            session.note_added_column(target, "c", 12, "'x'")
            session.note_form(target, {"c": KnownColumn("int", 12, True, False)})
            session.raise_marks(target, schema_ts=12, whole_ts=12, newest_ts=19)
            if session.find_done(target, WINDOW, load.index.run_hash) is None:
                session.note_done(load, target, report())

    change(first)
    store.fails_at = fails_at
    try:
        first.flush()
        failed = False
    except KilledError:
        failed = True
        for target in (ORDERS, LINES):
            seen = LakeLedger(store)
            if seen.find_done(target, WINDOW, load.index.run_hash) is not None:
                assert seen.state_of(target).newest_ts == 19  # type: ignore[union-attr]
        second = LakeLedger(store) if again else first
        if again:
            change(second)
        second.flush()
    store.fails_at = 0
    return failed, LakeLedger(store), load


@pytest.mark.parametrize("again", [False, True])
def test_a_flush_that_breaks_between_any_two_writes_ends_the_same_when_repeated(tmp_path: Path, again: bool) -> None:
    failures = 0
    for fails_at in range(1, 10):
        failed, ledger, load = interrupted(tmp_path / str(fails_at), fails_at, again=again)
        failures += failed
        for target in (ORDERS, LINES):
            state = ledger.state_of(target)
            assert state is not None
            assert (state.floor_ts, state.form_floor_ts, state.schema_ts, state.newest_ts) == (10, 10, 12, 19)
            assert state.added_columns == {"c": RecordedColumn(12, "'x'")}
            assert list(state.columns) == ["c"]
            assert ledger.report_of(target, WINDOW, load.index.run_hash) == report()
            assert ledger.stopped_loads(target, "pipeline") == ()
        assert sorted(str(target) for _, target, _ in ledger.mirrors()) == sorted(map(str, (ORDERS, LINES)))
        assert len(ledger.other_runs(load_of(tmp_path / "other", run="b"))) == 2
    assert failures == 6, "registry, two documents, two reports, and the stopped load that ended"


Operation = Callable[[LakeLedger], object]


@dataclass
class Session:
    """A session, and what it has done since its last flush."""

    ledger: LakeLedger
    done: list[Operation] = field(default_factory=list)


TS = st.integers(1, 30)
NAMES = st.sampled_from("abc")


def operations() -> st.SearchStrategy[Operation]:
    def floor(ts: int, form_ts: int) -> Operation:
        return lambda ledger: ledger.raise_floor(ORDERS, ts, form_ts)

    def marks(schema_ts: int, whole_ts: int, newest_ts: int) -> Operation:
        return lambda ledger: ledger.raise_marks(ORDERS, schema_ts=schema_ts, whole_ts=whole_ts, newest_ts=newest_ts)

    def form(name: str, ts: int, in_rows: bool) -> Operation:
        return lambda ledger: ledger.note_form(ORDERS, {name: KnownColumn(f"type {ts}", ts, in_rows, False)})

    def column(name: str, ts: int) -> Operation:
        return lambda ledger: ledger.note_added_column(ORDERS, name, ts, f"'{ts}'")

    def tombstones(name: str, ts: int) -> Operation:
        return lambda ledger: ledger.add_tombstones(ORDERS, [TombstoneFile(name, 1, ts)])

    return st.one_of(
        st.builds(floor, TS, TS),
        st.builds(marks, TS, TS, TS),
        st.builds(form, NAMES, TS, st.booleans()),
        st.builds(column, NAMES, TS),
        st.builds(tombstones, NAMES, TS),
    )


@settings(max_examples=examples(0.15))
@given(st.lists(st.tuples(st.integers(0, 1), operations() | st.none(), st.integers(0, 3)), max_size=12))
def test_sessions_that_interleave_end_as_if_each_flush_had_been_alone(
    steps: list[tuple[int, Operation | None, int]],
) -> None:
    with TemporaryDirectory() as folder:
        store, alone = BrittleStore(Path(folder) / "a"), LakeLedger(FileStore(Path(folder) / "b"))
        sessions = [Session(LakeLedger(store)), Session(LakeLedger(store))]
        added(sessions[0].ledger)
        added(alone)
        for number, operation, fails_at in [*steps, (0, None, 0), (1, None, 0)]:
            session = sessions[number]
            if operation is not None:
                operation(session.ledger)
                session.done.append(operation)
                continue
            store.fails_at = fails_at
            try:
                session.ledger.flush()
            except KilledError:
                session.ledger.flush()
            store.fails_at = 0
            for each in session.done:
                each(alone)
            alone.flush()
            session.done.clear()
        assert known(sessions[0].ledger) == known(alone)
        assert sessions[0].ledger.tombstones_of(ORDERS) == alone.tombstones_of(ORDERS)


def test_a_dropped_column_is_known_to_others_at_once_and_its_statement_until_it_is_done(
    ledger: LakeLedger, other: LakeLedger
) -> None:
    event = ColumnEvent(15, 0, "a", "b", 0)
    move = ColumnMove(event, "a", "b", MirrorStep(RenameColumn("a", "b")))
    added(ledger)
    ledger.note_form(ORDERS, {"a": KnownColumn("int", 5, True, False)})
    ledger.note_added_column(ORDERS, "a", 3, "1")
    ledger.flush()
    ledger.note_column_event(ORDERS, move)
    ledger.discard()  # the process dies here
    for _ in range(2):
        state = known(other)
        assert (state.events, list(state.columns), state.added_columns) == (
            (event,),
            ["b"],
            {"b": RecordedColumn(3, "1")},
        )
        assert other.begun_changes(ORDERS) == (BegunChange("a", "b", commit_ts=15),)
        other.note_column_event(ORDERS, move)  # as the next attempt does
    other.end_change(ORDERS, BegunChange("a", "b"))
    other.discard()
    assert other.begun_changes(ORDERS) == ()
    ledger.raise_floor(ORDERS, 16, 16)
    ledger.flush()
    assert known(other).events == ()


def test_a_floor_ends_what_older_ddl_has_begun(ledger: LakeLedger) -> None:
    """A table that a person built again has the columns of its time."""
    added(ledger)
    ledger.note_form(ORDERS, {name: KnownColumn("int", 5, True, False) for name in "ac"})
    ledger.flush()
    for at, name in ((15, "a"), (25, "c")):
        event = ColumnEvent(at, 0, name, None, 0)
        ledger.note_column_event(ORDERS, ColumnMove(event, name, None, MirrorStep(RemoveColumn(name))))
    ledger.begin_change(ORDERS, BegunChange("n", adds=True))
    ledger.raise_floor(ORDERS, 20, 10)
    assert [change.column for change in ledger.begun_changes(ORDERS)] == ["a", "c"]
    ledger.raise_floor(ORDERS, 20, 20)
    assert ledger.begun_changes(ORDERS) == (BegunChange("c", commit_ts=25),)


def test_an_added_column_has_begun_until_its_fill_is_known(ledger: LakeLedger, other: LakeLedger) -> None:
    begun = BegunChange("n", adds=True)
    added(ledger)
    ledger.begin_change(ORDERS, begun)
    assert other.begun_changes(ORDERS) == (begun,)
    ledger.end_change(ORDERS, begun)
    ledger.note_added_column(ORDERS, "n", 12, "5")
    other.discard()
    assert other.begun_changes(ORDERS) == (begun,), "not written yet"
    ledger.flush()
    assert (known(other).added_columns, other.begun_changes(ORDERS)) == ({"n": RecordedColumn(12, "5")}, ())
