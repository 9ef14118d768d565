"""Fetching claim-check objects: many at a time, with bounds on their number and their bytes.

A fault of one object is a value that goes with its message. A fault of the store is an error, as it says nothing about a
message.
"""

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from tenacity import (
    Retrying,
    retry,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    wait_exponential_jitter,
)

from ticdc_replay.domain.errors import (
    ArtifactNotFoundError,
    ObjectAlteredError,
    ObjectTooLargeError,
    TransientError,
)
from ticdc_replay.storage.base import ObjectInfo, ObjectStore

_Call = TypeVar("_Call", bound=Callable[..., Any])

BAD_NAME = "claim_check_bad_name"
"""The reason of a row whose location names no object."""
_ATTEMPTS = 3
_WAIT = wait_exponential_jitter(multiplier=0.1, jitter=0.1)


def _retried(*errors: type[Exception]) -> Callable[[_Call], _Call]:
    """Repeat a call that raises one of *errors*."""
    return retry(  # type: ignore[return-value]
        retry=retry_if_exception_type(errors), stop=stop_after_attempt(_ATTEMPTS), wait=_WAIT, reraise=True
    )


class Expected(NamedTuple):
    """What an object is known to be before it is fetched: ``size`` in bytes, ``sha256`` (hex) where it was read before."""

    size: int
    etag: str
    sha256: str | None = None


class Fetched(NamedTuple):
    """What one reference gave: ``content``, or the reason why there is none (``claim_check_…``, with a text for people).

    ``etag``, ``size`` (bytes) and ``sha256`` (hex) are of the object that was really read.
    """

    content: bytes | None
    reason: str = ""
    detail: str = ""
    etag: str | None = None
    size: int | None = None
    sha256: str | None = None

    @classmethod
    def failed(cls, reason: str, detail: str, found: Expected | None = None) -> "Fetched":
        """No content, because of *reason*."""
        if found is None:
            return cls(None, reason, detail)
        return cls(None, reason, detail, found.etag, found.size)


class ClaimCheckResolver:
    """Fetches objects of the configured store, and of no other.

    At most *connections* objects are fetched at a time; what was fetched and not taken yet stays below *in_flight_bytes*
    together (a single larger object is let through alone). Objects over *max_bytes* are not fetched.
    """

    def __init__(self, store: ObjectStore, *, max_bytes: int, in_flight_bytes: int, connections: int) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._in_flight_bytes = in_flight_bytes
        self._connections = connections

    def fetch(self, names: Sequence[str], expected: Mapping[str, Expected] | None = None) -> Iterator[Fetched]:
        """The object of each of *names*, in their order, while later ones are being fetched.

        A name is what ``locations.object_name`` made of a location, empty for a location that names no object. An object that
        is *expected* takes one request and must be as it is known; of the others the sizes are asked for first, so that the bytes
        in flight are bounded without holding answers open. Those that are missing are looked for again twice, after short pauses
        that they share. Raises TransientError when the store is away, AuthenticationError when it refuses the credentials,
        PermanentError when it can't be read at all.
        """
        if not names:
            return
        pinned = expected or {}
        budget = _Budget(self._in_flight_bytes)
        executor = ThreadPoolExecutor(min(self._connections, len(names)), "claim-check")
        try:
            known = {**self._look_up(executor, {name for name in names if name} - pinned.keys()), **pinned}
            futures: deque[Future[Fetched]] = deque(
                executor.submit(self._fetch_one, ticket, name, known.get(name), name in pinned, budget)
                for ticket, name in enumerate(names)
            )
            while futures:
                fetched = futures.popleft().result()
                yield fetched
                budget.give_back(len(fetched.content or b""))
        finally:
            budget.close()
            executor.shutdown(cancel_futures=True)

    def _fetch_one(
        self, ticket: int, name: str, found: Expected | None, is_expected: bool, budget: "_Budget"
    ) -> Fetched:
        """Runs in a thread of the pool. Every ticket passes the budget exactly once, or later ones would wait for ever."""
        reserved = 0
        passed = False
        try:
            if not name:
                return Fetched.failed(BAD_NAME, "the location does not end in <uuid>.json")
            if found is None:
                return Fetched.failed("claim_check_missing", f"{self._store.uri(name)} does not exist")
            if found.size > self._max_bytes:
                return self._too_large(name, found)
            passed = True
            budget.reserve(ticket, found.size)
            reserved = found.size
            if budget.closed:
                raise CancelledError
            fetched = self._read(name, found, is_expected=is_expected)
            if fetched.content is not None:
                reserved = 0  # given back by the taker
            return fetched
        finally:
            if not passed:
                budget.reserve(ticket, 0)
            budget.give_back(reserved)

    def _look_up(self, executor: ThreadPoolExecutor, names: set[str]) -> dict[str, Expected]:
        """What the store says of those of *names* that it has. They pause together: a message may name any number of objects."""
        found: dict[str, Expected] = {}

        def look() -> set[str]:
            missing = names - found.keys()
            for name, info in zip(missing, executor.map(self._info, missing), strict=True):
                if info is not None:
                    found[name] = Expected(info.size, info.etag)
            return names - found.keys()

        Retrying(
            retry=retry_if_result(bool),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=_WAIT,
            retry_error_callback=lambda state: None,
        )(look)
        return found

    @_retried(TransientError)
    def _info(self, name: str) -> ObjectInfo | None:
        """Runs in a thread of the pool."""
        return self._store.info(name)

    def _read(self, name: str, found: Expected, *, is_expected: bool) -> Fetched:
        """The object as it is *found*: known from before where *is_expected*, else as the store just said."""
        uri = self._store.uri(name)
        try:
            content = self._content(name, found)
        except ArtifactNotFoundError:
            return Fetched.failed("claim_check_missing", f"{uri} no longer exists", found)
        except ObjectTooLargeError:
            return self._too_large(name, found)
        except ObjectAlteredError as error:
            if not is_expected:
                raise TransientError(f"{uri} changed while it was read; a repeat reads it as it is then") from error
            return Fetched.failed(
                "claim_check_altered", f"{error}: it was replaced since the window was pinned or read"
            )
        sha256 = hashlib.sha256(content).hexdigest()
        if found.sha256 not in (None, sha256):
            detail = f"{uri} has SHA-256 {sha256}, an earlier run of this input read {found.sha256}"
            return Fetched.failed("claim_check_altered", detail)
        return Fetched(content, "", "", found.etag, len(content), sha256)

    @_retried(TransientError, ArtifactNotFoundError)
    def _content(self, name: str, found: Expected) -> bytes:
        return self._store.fetch(name, self._max_bytes, found.etag)

    def _too_large(self, name: str, found: Expected) -> Fetched:
        uri = self._store.uri(name)
        return Fetched.failed("claim_check_too_large", f"{uri}: {found.size} bytes, {self._max_bytes} allowed", found)


class _Budget:
    """Bytes in flight, handed out in the order of tickets: what is taken first is fetched first, so nothing blocks for ever."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._next = 0
        self.closed = False
        self._changed = threading.Condition()

    def reserve(self, ticket: int, size: int) -> None:
        """Wait until it is *ticket*'s turn and *size* bytes fit; after ``close``, wait for nothing."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self.closed
                    or (self._next == ticket and (size == 0 or self._used == 0 or self._used + size <= self._limit))
                )
            )
            self._used += size
            self._next = max(self._next, ticket + 1)
            self._changed.notify_all()

    def give_back(self, size: int) -> None:
        """Return *size* bytes."""
        if size:
            with self._changed:
                self._used -= size
                self._changed.notify_all()

    def close(self) -> None:
        """Let every waiting ticket through: nobody takes the results any more."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
