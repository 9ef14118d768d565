"""What is kept of the places of targets."""

from typing import Any

import msgspec

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.state import StateStore
from ticdc_replay.state.coverage import Coverage, CoveredTable
from ticdc_replay.state.quarantine import Redrive

NOON = Window(1000, 2000)


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
