"""Holding a lease: on a claim-check store while its objects are used, or deleted; on a mirror while one is built beside it."""

import logging
import os
import re
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ticdc_replay.domain.errors import LeaseLostError, TicdcReplayError, TransientError
from ticdc_replay.domain.handover import HandedOverError
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.state.leases import Lease, LeaseKind, Leases

log = logging.getLogger(__name__)

TTL_MS = 120_000
"""How long a lease outlives its last renewal."""
_RENEWALS = 3
"""Within one time to live: one may fail."""
_SUBJECT = re.compile(r"(?P<pipeline>[^/]+)/(?P<manifest>.+)@(?P<run_hash>[^@]+)")


class Replayed(NamedTuple):
    """What a replay's lease is for."""

    pipeline: str
    manifest: str
    """Name in the pipeline's artefacts."""
    run_hash: str
    """The changelog that is written."""

    @property
    def subject(self) -> str:
        """As the lease has it."""
        return f"{self.pipeline}/{self.manifest}@{self.run_hash}"


def replayed(lease: Lease) -> Replayed:
    """What the replay of *lease* decodes."""
    parts = _SUBJECT.fullmatch(lease.subject)
    assert parts is not None, lease.subject
    return Replayed(**parts.groupdict())


class Hold:
    """A lease that a thread renews. Thread-safe."""

    def __init__(self, leases: Leases, lease: Lease, ttl_ms: int) -> None:
        self._leases = leases
        self._lease = lease
        self._ttl_ms = ttl_ms
        self._failure: TicdcReplayError | None = None
        self._renewing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_regularly, name=f"lease of {lease.resource}", daemon=True)
        self._thread.start()

    def verify(self) -> None:
        """Check that the lease is held, and renew it. Raises LeaseLostError, and errors of the state store."""
        if self._failure is not None:
            raise self._failure
        with self._renewing:
            self._lease = self._leases.renew(self._lease, self._ttl_ms)

    @property
    def is_lost(self) -> bool:
        """Whether the lease has ended, as far as the thread that renews it knows."""
        return self._failure is not None

    def leave(self) -> None:
        """Renew the lease no more: it ends by itself."""
        self._ended.set()
        self._thread.join()

    def release(self) -> None:
        """End the lease."""
        self.leave()
        try:
            self._leases.release(self._lease)
        except TransientError as error:
            # What it was for is done or has failed by now, and that is what counts.
            log.warning("the lease of %s could not be released, it ends by itself: %s", self._lease.resource, error)

    def hand_over(self, holder: str) -> None:
        """Renew the lease no more: *holder* has it, and for one time to live if that is somebody else. Raises LeaseLostError,
        and errors of the state store."""
        self.leave()
        if holder != self._lease.holder:
            self._leases.hand_over(self._lease, holder, self._ttl_ms)

    def _renew_regularly(self) -> None:
        while not self._ended.wait(self._ttl_ms / _RENEWALS / 1000):
            try:
                self.verify()
            except LeaseLostError as error:
                self._failure = error
                log.error("%s", error)
                return
            except TransientError as error:
                log.warning("a lease could not be renewed, it is tried again: %s", error)
            except TicdcReplayError as error:
                self._failure = error
                log.error("a lease could not be renewed: %s", error)
                return


@contextmanager
def replaying(
    context: ReplayContext, manifest: str, run_hash: str, *, holder: str | None = None, ttl_ms: int = TTL_MS
) -> Iterator[list[Hold]]:
    """Hold the claim-check store of *context*, if its changefeed has one, while *manifest* is decoded into *run_hash*. Gives what
    is held.

    Never waits for a deletion. Enter it before the decode reads a message, and leave it after the run is recorded: it
    protects objects of messages that Kafka expires meanwhile. After an error the lease ends by itself: the decode may
    go on, or be complete and not recorded. After HandedOverError its holder has the lease, for one time to live; who goes on
    enters this as that *holder*.

    Raises LeaseLostError at the end if the lease was lost, and what the state store raises.
    """
    uri = context.changefeed.claim_check_uri
    if uri is None:
        yield []
        return
    subject = Replayed(context.pipeline.name, manifest, run_hash).subject
    lease = context.state.leases.acquire(uri, holder or unique("replay"), "replay", subject, ttl_ms)
    hold = Hold(context.state.leases, lease, ttl_ms)
    try:
        yield [hold]
        hold.verify()
    except HandedOverError as error:
        hold.hand_over(error.holder)
        raise
    except BaseException:
        hold.leave()
        raise
    hold.release()


@contextmanager
def holding_store(leases: Leases, uri: str, holder: str, plan_hash: str, *, ttl_ms: int = TTL_MS) -> Iterator[Hold]:
    """Hold the claim-check store at *uri* to execute a plan; *holder* is shown to people who find it held. Raises
    LeaseHeldError if another deletion holds it, and LeaseLostError at the end if the lease was lost."""
    with _holding(leases, uri, unique(holder), "deletion", plan_hash, ttl_ms) as hold:
        yield hold
        hold.verify()


@contextmanager
def holding_mirror(leases: Leases, place: str, purpose: str, *, ttl_ms: int = TTL_MS) -> Iterator[Hold]:
    """Hold the mirror at *place* (``TargetSection.place_of``), to work on what is built beside it; *purpose* is shown to people
    who find it held. Verify it before anything that another one could undo. Raises LeaseHeldError if somebody else holds it."""
    with _holding(leases, place, unique(purpose), "rebuild", purpose, ttl_ms) as hold:
        yield hold


@contextmanager
def _holding(leases: Leases, resource: str, holder: str, kind: LeaseKind, subject: str, ttl_ms: int) -> Iterator[Hold]:
    hold = Hold(leases, leases.acquire(resource, holder, kind, subject, ttl_ms), ttl_ms)
    try:
        yield hold
    finally:
        hold.release()


def unique(holder: str) -> str:
    """*holder*, unlike any other attempt under the same name."""
    return f"{holder} ({socket.gethostname()}, process {os.getpid()}, {uuid.uuid4().hex[:12]})"
