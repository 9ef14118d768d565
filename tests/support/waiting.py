"""Waiting in tests: one patience for everything, and a failure that says what was waited for."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 600.0
"""The limit of every wait for what must come. No machine is that slow, and a wait that succeeds costs nothing more.

pytest's own timeout (pyproject.toml) is longer: it only stops what hangs without a limit.
"""

Found = TypeVar("Found")


def wait_for(what: str, look: Callable[[], Found], *, patience_s: float = PATIENCE_S, pause_s: float = 0.1) -> Found:
    """Return the first true result of *look*. Raises AssertionError, which names *what*, after *patience_s* seconds."""
    started = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - started
        assert waited < patience_s, f"waited {waited:.0f} s for {what}; the last look gave {found!r}"
        time.sleep(pause_s)
    return found
