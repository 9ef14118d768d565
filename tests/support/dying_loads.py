"""A process that dies at a write: of a lake table, or of its ledger."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.storage.file import FileStore


class FaultError(Exception):
    """The process dies here: nothing in the library catches it."""


class Dying:
    """Strikes at the *number*-th write to the tables or the ledger: before it, or after it was done."""

    def __init__(self, number: int, *, after: bool) -> None:
        self.left = number
        self.after = after
        self.struck = False

    def write(self, do: Callable[[], Any]) -> Any:
        """*do*, which is a write."""
        self.left -= 1
        if self.left == 0 and not self.after:
            self.struck = True
            raise FaultError
        done = do()
        if self.left == 0:
            self.struck = True
            raise FaultError
        return done

    def patched(self, patch: pytest.MonkeyPatch) -> None:
        """Watch all writes."""
        run = SparkSql.run

        def statement(sql: SparkSql, text: str, settings: Mapping[str, str] = {}) -> Any:
            if text.startswith(("SELECT", "SHOW", "DESCRIBE")):
                return run(sql, text, settings)
            return self.write(lambda: run(sql, text, settings))

        patch.setattr(SparkSql, "run", statement)
        for name in ("put", "put_once", "update"):
            original = getattr(FileStore, name)

            def store(own: FileStore, object_name: str, *rest: Any, original: Any = original) -> Any:
                if "lease" in object_name or "ledger" not in own.root:
                    return original(own, object_name, *rest)
                return self.write(lambda: original(own, object_name, *rest))

            patch.setattr(FileStore, name, store)
