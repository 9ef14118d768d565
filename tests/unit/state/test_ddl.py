"""DDL, and where it was searched."""

import msgspec

from tests.support.topics import identity
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.state import StateStore
from ticdc_replay.state.ddl import DdlScan, KnownDdl


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
