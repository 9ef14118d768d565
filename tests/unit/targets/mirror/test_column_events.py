"""What a column of an older definition is in the mirror, after DDL has dropped and renamed columns."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.changelogs import Changelog, put, table
from ticdc_replay.config.target_rules import MIRROR
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.changes import BreakingChange, ColumnDropped, ColumnRenamed, TableChanges
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.targets.lake.dialect import lake_dialect
from ticdc_replay.targets.mirror.planning.column_events import ColumnEvents, NameUse, Now, events_of, mapped, settled
from ticdc_replay.targets.mirror.planning.moved_columns import moves_to, refuse_mixed
from ticdc_replay.targets.mirror.planning.table_plan import TablePlan, plan_table
from ticdc_replay.targets.mirror.planning.tables import (
    ColumnEvent,
    ColumnMove,
    FillColumn,
    FoundColumn,
    FoundTable,
    KnownColumn,
    Observed,
    RecordedColumn,
    Relation,
    RemoveColumn,
    TableState,
)
from ticdc_replay.targets.mirror.planning.window_ddl import Floor

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)


def dropped(commit_ts: int, name: str, since: int = 0) -> ColumnEvent:
    return ColumnEvent(commit_ts, 0, name, None, since)


def renamed(commit_ts: int, name: str, to: str, since: int = 0) -> ColumnEvent:
    return ColumnEvent(commit_ts, 0, name, to, since)


@pytest.mark.parametrize(
    ("events", "name", "held_ts", "now"),
    [
        ([], "a", 10, Now("a")),
        ([dropped(20, "a")], "a", 10, Now(None)),
        ([dropped(20, "A")], "a", 19, Now(None)),
        ([dropped(20, "a")], "a", 20, Now("a")),
        ([dropped(20, "a")], "b", 10, Now("b")),
        ([renamed(20, "a", "b"), renamed(30, "b", "c", since=20)], "a", 10, Now("c")),
        ([renamed(30, "b", "c", since=20), renamed(20, "a", "b")], "b", 25, Now("c")),
        ([renamed(20, "a", "b"), dropped(30, "b", since=20)], "a", 10, Now(None)),
        ([renamed(20, "a", "A")], "a", 10, Now("A")),
        # Another column of the name: one was added in between, or took the name.
        ([dropped(30, "a", since=20)], "a", 10, Now(None, 20)),
        ([renamed(30, "b", "a")], "a", 10, Now(None, 30)),
        ([dropped(20, "a"), renamed(30, "b", "a")], "a", 10, Now(None)),
    ],
)
def test_a_column_is_followed_through_later_ddl(events: list[ColumnEvent], name: str, held_ts: int, now: Now) -> None:
    assert ColumnEvents(events).now(name, held_ts) == now


def test_a_renamed_column_is_as_old_as_it_was_under_its_first_name() -> None:
    events = ColumnEvents([renamed(20, "a", "b", since=5), renamed(30, "b", "c", since=20)])
    assert [events.since("c", 30), events.since("b", 20), events.since("c", 25), events.since("c", 0)] == [5, 5, 25, 0]


def test_the_events_of_ddl_leave_out_keys_and_what_only_a_person_follows() -> None:
    changes = [
        TableChanges(table("s.t", {}).name, 20, (ColumnDropped("a", 7), ColumnRenamed("b", "c"), ColumnDropped("ID"))),
        TableChanges(table("s.t", {}).name, 30, (BreakingChange("the column d was dropped", "column_dropped"),)),
    ]
    assert events_of(changes, [("id",)]) == (ColumnEvent(20, 0, "a", None, 7), ColumnEvent(20, 1, "b", "c", 0))


def test_rows_of_one_version_are_divided_at_a_ddl_between_them(tmp_path: Path) -> None:
    schema = table("s.t", {"id": INT, "a": TEXT, "b": TEXT})
    changelog = Changelog(tmp_path, 100, 200)
    changelog.rows(schema, [put(110, id=1, a="x", b="y"), put(180, id=2, a="x", b="y")])
    changelog.rows(schema, [put(120, id=3, a="x", b="y")])
    index = changelog.write()
    (version,) = index.tables
    events = ColumnEvents([dropped(150, "a"), renamed(160, "b", "c")])
    first, second = mapped(index, version, events, [])[:1], mapped(index, version, events, [])[1:]
    assert [each.sources for each in first] == [{"id": "id", "c": "b"}]
    assert [each.sources for each in second if each.version.files and each.version.files[0].max_commit_ts == 180] == [
        {"id": "id", "a": "a", "b": "b"}
    ]
    parts = [each.version for each in (*first, *second)]
    assert sum(part.rows for part in parts) == 3
    assert len({part.version for part in parts}) == len(parts)
    spans = [(file.name, file.only.from_ts, file.only.to_ts) for part in parts for file in part.files if file.only]
    assert sorted(spans)[0][1:] == (110, 151)
    assert sorted(spans)[-1][2] == 181


def test_a_part_in_which_a_column_had_another_name_has_no_rows(tmp_path: Path) -> None:
    schema = table("s.t", {"id": INT, "a": TEXT})
    changelog = Changelog(tmp_path, 100, 200)
    changelog.ddl(120, "ALTER TABLE t RENAME COLUMN a TO c", table="s.t")
    changelog.ddl(130, "ALTER TABLE t RENAME COLUMN c TO a", table="s.t")
    index = changelog.rows(schema, [put(110, id=1, a="x"), put(140, id=2, a="z")]).write()
    (version,) = index.tables
    events = ColumnEvents(events_of(index.changes, [("id",)]))
    parts = mapped(index, version, events, index.changes)
    assert [(part.sources, part.unseen) for part in parts] == [({"id": "id", "a": "a"}, ())] * 2
    assert [file.only for part in parts for file in part.version.files] == [Window(110, 121), Window(131, 141)]


def test_columns_and_fills_of_the_ledger_follow() -> None:
    columns = {"a": KnownColumn("text", 10, True, False), "b": KnownColumn("text", 30, True, False, since=20)}
    added = {"a": RecordedColumn(5, "'x'"), "b": RecordedColumn(25, "'y'")}
    gone = ColumnMove(dropped(20, "a"), "a", None)
    assert (gone.columns(columns, ()), gone.added(added)) == ({"b": columns["b"]}, {"b": added["b"]})
    later = ColumnMove(dropped(20, "b"), "b", None)
    assert (later.columns(columns, ()), later.added(added)) == (columns, added), "the one that came later stays"
    moved = ColumnMove(renamed(20, "a", "c"), "a", "c")
    assert moved.columns(columns, ())["c"] == columns["a"]
    assert moved.added(added) == {"c": added["a"], "b": added["b"]}
    met = ColumnMove(renamed(20, "a", "b", since=3), "a", "b")
    assert met.columns(columns, ()) == {"b": KnownColumn("text", 30, True, False, since=3)}


def state_of(columns: dict[str, KnownColumn], added: dict[str, RecordedColumn], *events: ColumnEvent) -> TableState:
    source, tombstones = table("s.t", {}).name, Relation("_ticdc_replay", "tombstones_t")
    return TableState(source, "p", 0, 200, 0, tombstones, None, added, columns, 140, 0, events)


def test_a_chain_of_renames_leads_to_the_first_name_in_any_order() -> None:
    """Else the column stays younger than rows of its first name, which could never be loaded."""
    first, second = renamed(120, "a", "c"), renamed(130, "c", "d", since=120)
    newest = state_of({"d": KnownColumn("text", 140, True, False, since=130)}, {})
    moves = [ColumnMove(first, "a", "c"), ColumnMove(second, "c", "d")]
    assert newest.after(moves[0]).after(moves[1]).columns["d"].since == 0
    assert newest.after(moves[1]).after(ColumnMove(first, None, "d")).columns["d"].since == 0


def test_a_column_that_ended_before_another_one_took_its_name_leaves_nothing_behind() -> None:
    ended = state_of({"c": KnownColumn("text", 107, False, False, since=107)}, {"c": RecordedColumn(107, "'x'")})
    after = ended.after(ColumnMove(renamed(119, "a", "c"), "a", "c"))
    assert (after.columns, after.added_columns) == ({}, {})


def kept(commit_ts: int, name: str, since: int = 0) -> ColumnEvent:
    return ColumnEvent(commit_ts, 0, name, name, since)


def test_a_kept_column_is_found_by_its_name_until_another_one_takes_it() -> None:
    events = (renamed(20, "a", "b"), kept(30, "b"))
    assert ColumnEvents(events).now("a", 10) == Now("b")
    assert ColumnEvents(events).now("b", 25) == Now("b")
    for later in (renamed(40, "c", "B"), renamed(40, "b", "c"), kept(40, "b", since=35)):
        assert ColumnEvents((*events, later)).now("a", 10) == Now(None)
        assert ColumnEvents((*events, later)).now("b", 30) != Now(None)


def test_a_kept_column_goes_with_the_first_use_of_its_name_after_it() -> None:
    events = (kept(30, "b"), kept(50, "c"))
    assert settled(events, [NameUse("b", 30), NameUse("c", 20)]) == events
    gone = settled(events, [NameUse("B", 31)])
    assert gone == (ColumnEvent(30, 0, "b", None, 0), events[1])
    assert not gone[0].is_in(events)
    assert gone[0].is_in(gone)
    assert events[0].is_in(gone), "a DDL that was followed stays as it was followed"


def plan_of(changelog: Changelog, *events: ColumnEvent) -> TablePlan:
    load = SimpleNamespace(index=changelog.write(), stopping=frozenset(), drop_column=None)
    config = SimpleNamespace(
        names_of=lambda table: (table.schema, table.table),
        rules=MIRROR,
        commit_ts_column="_commit_ts",
        place_column="_place",
        marker=None,
    )
    source = table("s.t", {}).name
    return plan_table(cast(Any, load), cast(Any, config), lake_dialect("Test"), source, Floor(0, 0), events)


def observed_of(columns: list[str], state: TableState) -> Observed:
    found = tuple(FoundColumn(name, "string", False, False, False) for name in columns)
    return Observed(FoundTable(True, found, ("id",), {}), state, lambda: False)


@pytest.mark.parametrize("with_old", [True, False])
def test_rows_from_before_an_added_column_have_its_fill_under_the_name_that_newer_rows_brought(
    tmp_path: Path, with_old: bool
) -> None:
    plan = plan_of(Changelog(tmp_path, 125, 135).ddl(130, "ALTER TABLE t RENAME COLUMN b2 TO b", table="s.t"))
    columns = {"b2": KnownColumn("string", 110, False, False, 110), "b": KnownColumn("string", 140, True, False, 130)}
    state = state_of(columns, {"b2": RecordedColumn(110, "'n'")})
    (move,), after = moves_to(plan, observed_of(["id", "b", *(["b2"] if with_old else [])], state))
    assert move.fills[0].action == FillColumn("b", "'n'", "_commit_ts", 110)
    assert (move.step and move.step.action) == (RemoveColumn("b2") if with_old else None)
    assert after.found is not None
    assert [column.name for column in after.found.columns] == ["id", "b"]


def test_values_under_both_names_stop_a_rename(tmp_path: Path) -> None:
    plan = plan_of(Changelog(tmp_path, 125, 135).ddl(130, "ALTER TABLE t RENAME COLUMN b2 TO b", table="s.t"))
    columns = {"b2": KnownColumn("string", 115, True, False, 110), "b": KnownColumn("string", 140, True, False, 130)}
    with pytest.raises(PolicyStopError, match=r"values in both b2 and b: rebuild its mirror"):
        moves_to(plan, observed_of(["id", "b", "b2"], state_of(columns, {})))


def test_a_window_shows_what_became_of_a_column_whose_name_another_one_has_later(tmp_path: Path) -> None:
    changelog = Changelog(tmp_path, 107, 116).ddl(109, "ALTER TABLE t RENAME COLUMN b TO c", table="s.t")
    plan = plan_of(changelog.ddl(115, "ALTER TABLE t DROP COLUMN c", table="s.t"))
    columns = {"b": KnownColumn("string", 106, True, False), "c": KnownColumn("string", 117, False, False, 117)}
    moves, after = moves_to(plan, observed_of(["id", "b", "c"], state_of(columns, {})))
    assert [move.step and move.step.action for move in moves] == [RemoveColumn("b"), None]
    assert after.state is not None
    assert set(after.state.columns) == {"c"}


def test_a_default_waits_for_the_ddl_that_says_which_column_has_it(tmp_path: Path) -> None:
    later = renamed(149, "c", "a", since=146)
    filled = Changelog(tmp_path / "1", 125, 135).ddl(130, "ALTER TABLE t ADD COLUMN a INT DEFAULT 5", table="s.t")
    (line,) = plan_of(filled, later).unseen
    assert "the column a was added, and a DDL up to 149" in line
    assert plan_of(filled, renamed(146, "a", "c", since=130), later).unseen == ()
    plain = Changelog(tmp_path / "2", 125, 135).ddl(130, "ALTER TABLE t ADD COLUMN a INT", table="s.t")
    assert plan_of(plain, later).unseen == ()


def test_a_newer_column_of_unknown_origin_holds_no_values_of_the_one_that_was_dropped(tmp_path: Path) -> None:
    """The mirror has older rows, or the newer column came after the DROP."""
    plan = plan_of(Changelog(tmp_path, 115, 200).ddl(150, "ALTER TABLE t DROP COLUMN v", table="s.t"))
    state = state_of({"v": KnownColumn("string", 210, True, False)}, {})
    moves, after = moves_to(plan, observed_of(["id", "v"], state))
    with pytest.raises(PolicyStopError, match=r"at 150 .*v was dropped, .* values of both in v: rebuild its mirror"):
        refuse_mixed(plan, moves, lambda after_ts, before_ts: after_ts < 110 < before_ts)
    refuse_mixed(plan, moves, lambda after_ts, before_ts: after_ts < 210 < before_ts)
    assert after.state is not None
    assert after.state.columns["v"].since == 150
    known = state_of({"v": KnownColumn("string", 210, True, False, since=170)}, {})
    assert not any(move.stays for move in moves_to(plan, observed_of(["id", "v"], known))[0])


@pytest.mark.parametrize("event", [renamed(120, "id", "id2"), dropped(120, "id")])
def test_rows_whose_key_was_moved_by_a_window_without_rows_say_what_to_do(tmp_path: Path, event: ColumnEvent) -> None:
    changelog = Changelog(tmp_path, 100, 115).rows(table("s.t", {"id": INT, "a": TEXT}), [put(110, id=1, a="x")])
    plan = plan_of(changelog, event)
    (line,) = plan.conflicts
    assert "dropped or renamed id: give its mirror this primary key" in line
    assert plan.key == ()


@pytest.mark.parametrize("statement", ["DROP COLUMN c", "RENAME COLUMN c TO d"])
def test_windows_by_offset_stop_where_columns_move(tmp_path: Path, statement: str) -> None:
    schema = table("s.t", {"id": INT, "c": TEXT})
    changelog = Changelog(tmp_path, 0, 100, order="place").rows(schema, [put(10, id=1, c="x")])
    changelog.knows(definition_from_sql(schema.name, "CREATE TABLE t (id INT PRIMARY KEY, c TEXT)"))
    assert plan_of(changelog.ddl(50, f"ALTER TABLE t {statement}", table="s.t")).stops
