"""Signals while a job is started and waited for: none of them may leave it behind."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def ended_by(*signals: signal.Signals) -> Iterator[None]:
    """Inside, each of *signals* ends this process by an exception, as SIGINT does, so that nothing is left behind."""
    with _handled(_leave, signals):
        yield


@contextmanager
def held_back(*signals: signal.Signals) -> Iterator[None]:
    """Inside, *signals* have no effect; those that came have it at the end."""
    came: list[int] = []
    try:
        with _handled(lambda number, frame: came.append(number), signals):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Inside, *handler* is called for each of *signals* but those that are ignored, as SIGHUP is below nohup."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may say what a signal does
        yield
        return
    before = {number: signal.getsignal(number) for number in signals}
    before = {number: earlier for number, earlier in before.items() if earlier != signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
