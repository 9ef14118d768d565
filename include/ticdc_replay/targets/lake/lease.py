"""A lease that lets one attempt at a time commit to a table. Needs no clocks that agree.

Its document has a counter that the holder raises. A waiter that sees no change of it for the whole duration of a lease,
by its own clock, takes the holder for dead and replaces it. A holder that was paused can find itself replaced at any
moment, so ``still_held`` is asked before each commit, and the table's own detection of conflicts is the fence. ``term``
orders holdings for a table that can compare numbers.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import LeaseHeldError, LeaseLostError, TicdcReplayError, TransientError
from ticdc_replay.storage import ObjectStore

log = logging.getLogger(__name__)

LEASE_S = 60.0
"""How long a lease outlives its holder."""
WAIT_S = 15 * 60.0
"""How long to wait for a lease that others hold."""
_BEATS = 6
"""Within one duration: some may fail."""
_LOOKS = 60
"""At a lease that is held, within one duration."""


class LeaseDocument(msgspec.Struct, frozen=True):
    """Who holds the lease; an empty ``token`` for nobody."""

    holder: str = ""
    token: str = ""
    """Unlike that of any other holding."""
    beat: int = 0
    term: int = 0
    """Of this holding, or the last one: see ``HeldLease.term``."""


class HeldLease:
    """A lease that a thread keeps alive."""

    def __init__(self, store: ObjectStore, name: str, own: LeaseDocument, lease_s: float, taken_at: float) -> None:
        self._store = store
        self._name = name
        self._own = own
        self._lease_s = lease_s
        self._beaten_at = taken_at
        self._failure: TicdcReplayError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_regularly, name=f"lease {name}", daemon=True)
        self._thread.start()

    @property
    def term(self) -> int:
        """Larger than that of any holding before."""
        return self._own.term

    def still_held(self) -> None:
        """Check that nobody can have taken the lease over. Raises LeaseLostError, which is transient, or why no beat can be
        written."""
        if self._failure is not None:
            raise self._failure
        silent_s = time.monotonic() - self._beaten_at
        if silent_s > self._lease_s:
            raise LeaseLostError(
                f"{self._own.holder} could not renew its lease {self._store.uri(self._name)} for {silent_s:.0f} s, so others "
                "may have taken it for dead. Was the machine paused, or the store away? Try again"
            )

    def verify(self) -> None:
        """As ``still_held``, by a look at the document: what was done before this was done under the lease."""
        self.still_held()
        content = self._store.get(self._name)
        if not self._is_own(msgspec.json.decode(content, type=LeaseDocument)):
            raise LeaseLostError(
                f"{self._own.holder} has lost its lease {self._store.uri(self._name)}: another attempt may have committed "
                "meanwhile. Try again"
            )

    def release(self) -> None:
        """End the lease, if it is still held."""
        self._ended.set()
        self._thread.join()
        try:
            free = LeaseDocument(term=self._own.term)
            _update(self._store, self._name, lambda found: free if self._is_own(found) else found)
        except TransientError as error:
            # What it was for is done or has failed by now, and that is what counts.
            log.warning("the lease %s could not be released, it ends by itself: %s", self._store.uri(self._name), error)

    def _beat_regularly(self) -> None:
        while not self._ended.wait(self._lease_s / _BEATS):
            began_at = time.monotonic()
            try:
                _update(self._store, self._name, self._beaten)
            except TransientError as error:
                if isinstance(error, LeaseLostError):
                    self._failure = error
                    return
                log.warning("a lease could not be renewed, it is tried again: %s", error)
            except TicdcReplayError as error:
                self._failure = error
                return
            else:
                self._own = self._next()
                self._beaten_at = began_at

    def _beaten(self, found: LeaseDocument) -> LeaseDocument:
        if not self._is_own(found):
            raise LeaseLostError(
                f"{self._own.holder} has lost its lease {self._store.uri(self._name)} to {found.holder or 'another attempt'}, "
                "which took it for dead. Was the machine paused, or the store away? Try again"
            )
        return self._next()

    def _next(self) -> LeaseDocument:
        return msgspec.structs.replace(self._own, beat=self._own.beat + 1)

    def _is_own(self, found: LeaseDocument) -> bool:
        return found.token == self._own.token


@contextmanager
def holding(store: ObjectStore, name: str, attempt: str, lease_s: float, wait_s: float) -> Iterator[HeldLease]:
    """Hold the lease *name* for *attempt*, which errors of others name, and release it at the end.

    Raises LeaseHeldError, which is transient and names the holder, after waiting for *wait_s* seconds.
    """
    own = LeaseDocument(attempt, uuid.uuid4().hex)
    began_at = time.monotonic()
    seen, seen_at = LeaseDocument(), began_at
    while True:
        asked_at = time.monotonic()
        dead = seen if asked_at - seen_at >= lease_s else None
        found = _take(store, name, own, dead)
        if found.token == own.token:
            break
        now = time.monotonic()
        if found != seen:
            seen, seen_at = found, now
        if now - began_at >= wait_s:
            raise LeaseHeldError(
                f"{found.holder} commits to the same table: it has held the lease {store.uri(name)} for all of the "
                f"{wait_s:.0f} s that {attempt} has waited. Try again after its end; if it died, its lease ends by itself"
            )
        time.sleep(lease_s / _LOOKS)
    lease = HeldLease(store, name, found, lease_s, asked_at)
    try:
        yield lease
    finally:
        lease.release()


def _take(store: ObjectStore, name: str, own: LeaseDocument, dead: LeaseDocument | None) -> LeaseDocument:
    """Make the lease *own*, if it is free or still what *dead* says; whose it is then."""

    def taken(found: LeaseDocument) -> LeaseDocument:
        if found.token not in ("", own.token) and found != dead:
            return found
        # A time, so that a document which was lost and made again does not fall below what tables have.
        return msgspec.structs.replace(own, term=max(found.term + 1, time.time_ns() // 1_000_000))

    return _update(store, name, taken)


def _update(store: ObjectStore, name: str, change: Callable[[LeaseDocument], LeaseDocument]) -> LeaseDocument:
    """Replace the document by *change* of it; what it is then."""
    written = LeaseDocument()

    def changed(found: bytes | None) -> bytes:
        nonlocal written
        written = change(LeaseDocument() if found is None else msgspec.json.decode(found, type=LeaseDocument))
        return canonical.encode(written)

    store.update(name, changed)
    return written
