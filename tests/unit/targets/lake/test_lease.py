"""One attempt at a time commits to a lake table, and a dead one does not stop the next."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from ticdc_replay.domain.errors import LeaseHeldError, LeaseLostError, TransientError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.storage.file import FileStore
from ticdc_replay.targets.lake.lease import HeldLease
from ticdc_replay.targets.lake.ledger import LakeLedger
from ticdc_replay.targets.mirror.planning.tables import Relation

ORDERS = Relation("shop", "orders")
NAME = "tables/shop/orders/lease.json"


class PausedStore(FileStore):
    """A store that is away while ``away`` is set, as for a process whose network broke."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.away = threading.Event()

    def update(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        if self.away.is_set():
            raise TransientError("the store is away")
        super().update(name, change)


def ledger(folder: Path, *, lease_s: float = 30, wait_s: float = 20) -> LakeLedger:
    return LakeLedger(FileStore(folder), lease_s=lease_s, wait_s=wait_s)


def test_a_lease_is_held_by_one_attempt_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []
    most = 0

    def commit(number: int) -> None:
        nonlocal most
        with ledger(tmp_path, lease_s=3).hold(ORDERS, f"attempt {number}") as lease:
            inside.append(number)
            most = max(most, len(inside))
            time.sleep(0.01)
            lease.still_held()
            inside.remove(number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(commit, range(4)))
    assert most == 1
    assert json.loads(FileStore(tmp_path).get(NAME))["token"] == ""


def test_a_lease_of_another_table_is_free(tmp_path: Path) -> None:
    with ledger(tmp_path).hold(ORDERS, "a"), ledger(tmp_path, wait_s=0).hold(Relation("shop", "lines"), "b"):
        pass


def test_waiting_for_a_holder_that_lives_ends_with_its_name(tmp_path: Path) -> None:
    with ledger(tmp_path, lease_s=0.3).hold(ORDERS, "attempt a") as lease:
        waiter = ledger(tmp_path, lease_s=0.3, wait_s=0.6)  # longer than a lease: it beats
        with (
            pytest.raises(LeaseHeldError, match="attempt a commits to the same table"),
            waiter.hold(ORDERS, "attempt b"),
        ):
            pass
        lease.still_held()


def test_a_dead_holder_is_replaced_and_finds_out(tmp_path: Path) -> None:
    store = PausedStore(tmp_path)
    with ExitStack() as ended, ExitStack() as holds:
        dead = ended.enter_context(LakeLedger(store, lease_s=0.2).hold(ORDERS, "attempt a"))
        store.away.set()
        lease = holds.enter_context(ledger(tmp_path, lease_s=0.2).hold(ORDERS, "attempt b"))
        with pytest.raises(LeaseLostError, match="could not renew"):
            dead.still_held()
        store.away.clear()
        wait_for("a beat", lambda: lost_to(dead, "attempt b"), pause_s=0.01)
        ended.close()
        assert json.loads(FileStore(tmp_path).get(NAME))["holder"] == "attempt b", "it releases only what it holds"
        lease.still_held()


def lost_to(lease: HeldLease, other: str) -> bool:
    try:
        lease.still_held()
    except LeaseLostError as error:
        return f"to {other}" in str(error)
    return False


def test_a_lease_is_released_after_an_error_and_what_was_read_before_it_is_read_again(tmp_path: Path) -> None:
    first, second = ledger(tmp_path, wait_s=0), ledger(tmp_path, wait_s=0)
    assert second.state_of(ORDERS) is None
    with pytest.raises(ZeroDivisionError), first.hold(ORDERS, "a"):
        raise ZeroDivisionError
    first.add_table(
        ORDERS,
        source=TableName("shop", "orders"),
        pipeline="p",
        tombstones=ORDERS,
        newest_ts=0,
        floor_ts=0,
        form_floor_ts=0,
    )
    first.flush()
    with second.hold(ORDERS, "b"):
        assert second.state_of(ORDERS) is not None
