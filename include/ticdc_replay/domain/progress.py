"""How far a piece of work has come: reported by the code that does it, to whoever runs it."""

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

SECONDS_VARIABLE = "TICDC_REPLAY_PROGRESS_SECONDS"
"""Environment variable of a driver: seconds between two progress lines in a job's log; 10 by default."""

Batch = TypeVar("Batch", bound=Sized)

_listener: ContextVar[Callable[[int], None] | None] = ContextVar("ticdc_replay_progress", default=None)


@runtime_checkable
class Measured(Protocol):
    """A task that knows how much it has to do, and reports how much is done with ``report_done``."""

    units: ClassVar[str]
    """What is counted, such as files."""

    @property
    def size(self) -> int:
        """How many of them."""
        ...


def report_done(done: int) -> None:
    """Report that *done* units of the running task are done, from its beginning. 0.1 µs without a listener."""
    listener = _listener.get()
    if listener is not None:
        listener(done)


def reported(batches: Iterable[Batch]) -> Iterator[Batch]:
    """*batches*; each is reported as done when the next one is requested."""
    done = 0
    for batch in batches:
        yield batch
        done += len(batch)
        report_done(done)


@contextmanager
def heard_by(listener: Callable[[int], None]) -> Iterator[None]:
    """*listener* gets what ``report_done`` reports inside. It must be fast, and must not raise."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
