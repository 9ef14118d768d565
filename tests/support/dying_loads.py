"""A process that dies or stalls at a write: of a lake table, or of its ledger."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.support.target_rigs import LakeRig
from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.storage.file import FileStore


class FaultError(Exception):
    """The process dies here: nothing in the library catches it."""


class Dying:
    """Strikes at the *number*-th write to the tables or the ledger: before it, or after it was done."""

    def __init__(self, number: int, *, after: bool) -> None:
        self.number, self.after = number, after
        self.seen = 0
        self.struck = False

    def write(self, do: Callable[[], Any]) -> Any:
        """*do*, which is a write."""
        self.seen += 1
        if self.seen == self.number and not self.after:
            self.struck = True
            raise FaultError
        done = do()
        if self.seen == self.number:
            self.struck = True
            raise FaultError
        return done

    def patched(self, patch: pytest.MonkeyPatch) -> None:
        """Watch all writes."""
        watch_writes(patch, lambda _, do: self.write(do), ("put", "put_once", "update"))


class KilledError(Exception):
    """The process dies here: nothing in the library catches it."""


LAST_LOOK = {"iceberg": "CALL", "delta": "MERGE"}
"""How the statement begins that brings a mirror's rows, before which a load looks at its lease for the last time."""


class Stalling:
    """An attempt that stalls before its *number*-th write after it took the lease, of those that begin with *only*, until
    *meanwhile* is done. Its lease has ended by then. It is killed right after that write, or, if not *killed*, goes on."""

    def __init__(
        self, lake: LakeRig, number: int, meanwhile: Callable[[], object], *, killed: bool, only: str = ""
    ) -> None:
        self.lake, self.number, self.meanwhile, self.killed, self.only = lake, number, meanwhile, killed, only
        self.seen = 0
        self.stalled = ""

    def write(self, what: str, do: Callable[[], Any]) -> Any:
        """*do*, which is the write *what*."""
        leases = list(self.lake.ledger.rglob("lease.json"))
        is_held = any('"token":""' not in lease.read_text() for lease in leases)
        if self.stalled or not is_held or not what.startswith(self.only):
            return do()
        self.seen += 1
        if self.seen != self.number:
            return do()
        self.stalled = what
        for lease in leases:
            lease.unlink()
        self.meanwhile()
        done = do()
        if self.killed:
            raise KilledError
        return done

    def patched(self, patch: pytest.MonkeyPatch) -> None:
        """Watch all writes."""
        watch_writes(patch, self.write, ("put", "update", "delete"))


def watch_writes(
    patch: pytest.MonkeyPatch, write: Callable[[str, Callable[[], Any]], Any], methods: Sequence[str]
) -> None:
    """Have *write* do the statements that change tables, and what *methods* of a store do to a ledger, but for leases."""
    run = SparkSql.run

    def statement(sql: SparkSql, text: str, settings: Mapping[str, str] = {}) -> Any:
        if text.startswith(("SELECT", "SHOW", "DESCRIBE")):
            return run(sql, text, settings)
        return write(text, lambda: run(sql, text, settings))

    patch.setattr(SparkSql, "run", statement)
    for name in methods:
        original = getattr(FileStore, name)

        def store(own: FileStore, object_name: str, *rest: Any, original: Any = original) -> Any:
            if "lease" in object_name or "ledger" not in own.root:
                return original(own, object_name, *rest)
            return write(object_name, lambda: original(own, object_name, *rest))

        patch.setattr(FileStore, name, store)
