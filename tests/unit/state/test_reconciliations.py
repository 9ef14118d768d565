"""What is kept of reconciliations."""

import msgspec

from ticdc_replay.state import StateStore
from ticdc_replay.state.reconciliations import Reconciliation


def reconciliation(name: str, began_at_ms: int, store: str = "claims", **totals: int) -> Reconciliation:
    return Reconciliation(
        store=store,
        reconciliation_id=name,
        began_at_ms=began_at_ms,
        finished_at_ms=began_at_ms + 1,
        report=f"reconciliations/{name}/report.json",
        totals=totals,
    )


def test_reconciliations_come_back_oldest_first_with_their_totals(state: StateStore) -> None:
    later, first = reconciliation("a", 2, orphaned=2**40), reconciliation("b", 1)
    for done in (later, first, reconciliation("c", 1, store="other")):
        state.reconciliations.record(done)
    assert state.reconciliations.all("claims") == [first, later]


def test_a_reconciliation_that_is_published_again_replaces_itself(state: StateStore) -> None:
    again = msgspec.structs.replace(reconciliation("a", 1), totals={"orphaned": 1}, finished_at_ms=99)
    state.reconciliations.record(reconciliation("a", 1))
    state.reconciliations.record(again)
    assert state.reconciliations.all("claims") == [again]
