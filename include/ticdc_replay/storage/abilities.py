"""What a store must be able to do, and that it was tried.

Attempts that run at the same time agree by writes that only one of them can make. A store that ignores the condition of such a
write lets both believe that they won, and each then deletes the other's files. So the first write of a process that relies on an
ability tries it with an object of its own, once per store; what was tried is remembered for the life of the process.
"""

import threading
from collections.abc import Callable
from enum import StrEnum

from ticdc_replay.domain.errors import MissingAbilityError

PROBE_PREFIX = ".ticdc-replay-probe-"
"""How the names of objects begin that try a store; no listing of a store has them."""


class Ability(StrEnum):
    """One thing that is relied upon."""

    CREATE = "conditional put of a new object"
    REPLACE = "conditional put over an object"
    READ_AFTER_WRITE = "read after write"
    LIST_AFTER_WRITE = "list after write"
    DELETE = "conditional delete"
    LINK = "hard links"
    LOCK = "locks that all machines see"


def is_probe(name: str) -> bool:
    """Whether *name* is that of an object that tries a store."""
    return name.rpartition("/")[2].startswith(PROBE_PREFIX)


def missing(ability: Ability, root: str, found: str) -> MissingAbilityError:
    """The error of the store at *root* that lacks *ability*; *found* says what it did instead."""
    return MissingAbilityError(
        f"the store {root} lacks an ability that is relied upon: {ability} ({found}). Attempts that run at the same time could "
        "destroy each other's files there. Use another store, or a version or setting of this one that has it; what is asked "
        'of a store is in docs/guarantees.md, "What is asked of Kafka, stores and databases"'
    )


class Tried:
    """Which stores have shown what, in this process. Thread-safe: of several threads one tries, the others wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: set[tuple[str, ...]] = set()
        self._lacking: dict[tuple[str, ...], str] = {}

    def once(self, store: tuple[str, ...], ability: Ability, attempt: Callable[[], None]) -> None:
        """Call *attempt* unless it has succeeded before. *store* names it, with the way there.

        Raises what *attempt* raises: a MissingAbilityError each time from then on, without another attempt.
        """
        key = (*store, ability)
        if key in self._shown:
            return
        with self._lock:
            if key in self._lacking:
                raise MissingAbilityError(self._lacking[key])
            if key in self._shown:
                return
            try:
                attempt()
            except MissingAbilityError as error:
                self._lacking[key] = str(error)
                raise
            self._shown.add(key)


TRIED = Tried()
