"""How far a piece of work has come: told by the code that does it, heard by whoever runs it, if anybody cares."""

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

PROGRESS_PROPERTY = "spark.ticdcReplay.progressSeconds"
"""Spark property: seconds between two lines of a job's log that tell its progress; 10 where it is not set."""

Batch = TypeVar("Batch", bound=Sized)

_listener: ContextVar[Callable[[int], None] | None] = ContextVar("ticdc_replay_progress", default=None)


@runtime_checkable
class Measured(Protocol):
    """A task that knows how much it has to do, and says how much is done with ``report_done``."""

    units: ClassVar[str]
    """What is counted, such as files."""

    @property
    def size(self) -> int:
        """How many of them."""
        ...


def report_done(done: int) -> None:
    """Tell that *done* units of the running task are done, counted from its beginning. 0.1 µs where nobody listens."""
    listener = _listener.get()
    if listener is not None:
        listener(done)


def told(batches: Iterable[Batch]) -> Iterator[Batch]:
    """*batches*; of each it is told that it is done when the next one is asked for."""
    done = 0
    for batch in batches:
        yield batch
        done += len(batch)
        report_done(done)


@contextmanager
def heard_by(listener: Callable[[int], None]) -> Iterator[None]:
    """*listener* hears what ``report_done`` is told inside. It must be fast, and must not raise."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
