"""Progress of running tasks: workers send their counts to the driver, and the driver logs a line now and then.

That a task has ended is too late a news for the few long tasks of a decode. So each task sends the driver a datagram with its
count, at most one in a second. A datagram never waits and never fails a task: one that is lost is made up for by the next, and
where a firewall drops all of them the driver goes by the tasks that have ended.
"""

import contextlib
import hmac
import logging
import os
import secrets
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from ticdc_replay.domain.progress import SECONDS_VARIABLE, heard_by

log = logging.getLogger(__name__)

DEFAULT_SECONDS = 10.0

_REPORTED_EVERY_S = 1.0
_LISTEN_S = 0.2
_RATE_OVER_S = 30.0
_COUNT = struct.Struct("!IQ")
_SIGNATURE_BYTES = 16


class Channel(NamedTuple):
    """Where tasks of one run send their counts, and the key that shows the driver that they are its own tasks."""

    host: str
    port: int
    key: bytes


@contextlib.contextmanager
def telling(channel: Channel | None, number: int, size: int) -> Iterator[None]:
    """Inside, counts of ``report_done`` go to *channel* as task *number*; at the end, if all went well, all of *size*."""
    if channel is None:
        yield
        return
    teller = _Teller(channel, number)
    try:
        with heard_by(teller.heard):
            yield
        teller.tell(size)
    finally:
        teller.close()


class _Teller:
    """Sends the count of one task."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel = channel
        self._number = number
        self._reported = time.monotonic()
        self._socket: socket.socket | None = None

    def heard(self, done: int) -> None:
        now = time.monotonic()
        if now - self._reported >= _REPORTED_EVERY_S:
            self._reported = now
            self.tell(done)

    def tell(self, done: int) -> None:
        with contextlib.suppress(OSError):  # the driver goes by finished tasks then
            if self._socket is None:
                family, address = _resolved(self._channel.host, self._channel.port)
                self._socket = socket.socket(family, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
                self._socket.connect(address)
            self._socket.send(_signed(self._channel.key, _COUNT.pack(self._number, done)))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


class Progress:
    """Says every few seconds how far the tasks of one run are. A context manager around the run: no line after its end.

    *sizes* is the number of *units* of each task; *address* the host that tasks send to, and the one to listen at, the first
    where that is empty.
    """

    def __init__(self, name: str, sizes: Sequence[int], units: str, address: tuple[str, str]) -> None:
        self.tasks_ended: Callable[[], int] = int
        """How many tasks have ended: what counts where no task can send anything."""
        self._line = ProgressLine(name, sum(sizes), units)
        self._sizes = sizes
        self._done = [0] * len(sizes)
        self._seconds = float(os.environ.get(SECONDS_VARIABLE) or DEFAULT_SECONDS)
        self._key = secrets.token_bytes(_SIGNATURE_BYTES)
        self._ended = threading.Event()
        self._host, listen_at = address
        self._socket = _bound(listen_at or self._host)
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    @property
    def channel(self) -> Channel | None:
        """Where tasks send their counts; None if the driver can't listen."""
        if self._socket is None:
            return None
        return Channel(self._host, self._socket.getsockname()[1], self._key)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):  # the thread, which waits for counts, then ends a little later
                self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        if self._socket is not None:
            self._socket.close()

    def _run(self) -> None:
        due = time.monotonic() + self._seconds
        while not self._ended.is_set():
            self._listen(min(_LISTEN_S, self._seconds))
            if time.monotonic() >= due and not self._ended.is_set():
                due = time.monotonic() + self._seconds
                log.info("%s", self._line.at(time.monotonic(), sum(self._done) or self._finished()))

    def _listen(self, seconds: float) -> None:
        """Take in counts of tasks for *seconds*, or until the end."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._ended.is_set():
            if self._socket is None:
                self._ended.wait(left)
                return
            self._socket.settimeout(left)
            try:
                self._take(self._socket.recv(256))
            except OSError:  # nothing came in time, or a sender of something else is gone
                continue

    def _take(self, datagram: bytes) -> None:
        count = datagram[: _COUNT.size]
        if not hmac.compare_digest(datagram, _signed(self._key, count)):
            return
        number, done = _COUNT.unpack(count)
        if number < len(self._done):
            # The most that any attempt of the task has sent: of two at a time, the one that is ahead counts.
            self._done[number] = max(self._done[number], min(done, self._sizes[number]))

    def _finished(self) -> int:
        """By the tasks that have ended, each as good as any other."""
        return sum(self._sizes) * self.tasks_ended() // len(self._sizes)


class ProgressLine:
    """The line: share done, rate over the last half minute, and the time left at that rate."""

    def __init__(self, name: str, total: int, units: str) -> None:
        self._name = name
        self._total = total
        self._units = units
        self.begin = time.monotonic()
        self._seen: deque[tuple[float, int]] = deque([(self.begin, 0)])

    def at(self, now: float, done: int) -> str:
        """The line for *done* of all units at *now*, of the monotonic clock."""
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _RATE_OVER_S:
            self._seen.popleft()
        before, done_before = self._seen[0]
        rate = max(0.0, (done - done_before) / (now - before)) if now > before else 0.0
        parts = [f"{100 * done // max(1, self._total)} % of {brief(self._total)} {self._units}"]
        if rate:
            parts.append(f"{brief(rate)}/s")
        if done >= self._total:
            parts.append("finishing")
        elif rate:
            parts.append(f"{_duration((self._total - done) / rate)} left")
        return f"{self._name}: {', '.join(parts)}"


def brief(number: float) -> str:
    """*number* with two or three digits that count: 12, 1.2 k, 105 k, 1.2 M."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            scaled = number / size
            return f"{scaled:.1f}{letter}" if scaled < 9.95 else f"{scaled:.0f}{letter}"
    return f"{number:.1f}" if 0 < number < 9.95 and number != int(number) else f"{number:.0f}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _signed(key: bytes, count: bytes) -> bytes:
    return count + hmac.digest(key, count, "sha256")[:_SIGNATURE_BYTES]


def _resolved(host: str, port: int) -> tuple[int, tuple[Any, ...]]:
    """Family and address of *port* of *host*."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    return family, address


def _bound(host: str) -> socket.socket | None:
    """A socket at any free port of *host*; None, and a line in the log, where there can't be one."""
    try:
        family, address = _resolved(host, 0)
        listening = socket.socket(family, socket.SOCK_DGRAM)
        try:
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        log.info("progress goes by finished tasks alone: nothing can listen at %s: %s", host or "no address", error)
        return None
    return listening
