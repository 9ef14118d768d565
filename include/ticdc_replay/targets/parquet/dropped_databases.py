"""Databases that the upstream dropped, remembered for tables that the target gets later: one file for the pipeline.

A DROP DATABASE names no table: the tables are told of it that have entries when its window is loaded. A table whose first rows
come with an older window that is loaded after it finds it here.
"""

from collections.abc import Mapping

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.errors import ArtifactNotFoundError, TransientError
from ticdc_replay.storage import ObjectStore
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.database_ddl import dropped_databases, told_of_dropped


class DroppedDatabase(msgspec.Struct, frozen=True):
    """A database by its name as the upstream compares names, ``""`` for all, and when (TSO) it was dropped last."""

    name: str
    commit_ts: int


class DroppedDatabases:
    """What the loads of a pipeline, up to *load*, met of DROP DATABASE."""

    def __init__(self, store: ObjectStore, load: Load) -> None:
        """Notes what the window of *load* drops, before the tables are looked up that are told of it."""
        self._store = store
        self._name = f"{load.index.pipeline}/dropped_databases.json"
        own = dropped_databases(load.index)
        if own:

            def noted(found: bytes | None) -> bytes:
                before = _decoded(found)
                latest = {name: max(own.get(name, 0), before.get(name, 0)) for name in {*own, *before}}
                return canonical.encode(tuple(DroppedDatabase(*each) for each in sorted(latest.items())))

            store.update(self._name, noted)
        self._known = self._read()

    def told(self, load: Load) -> Load:
        """*load* with its tables told of what was dropped at or after its window's start."""
        return told_of_dropped(load, self._known)

    def look_again(self, load: Load) -> None:
        """Raise TransientError where a database was dropped that *load*, as ``told`` gave it, does not know of; once its tables
        have their entries, by which another load finds them."""
        if told_of_dropped(load, self._read()) != load:
            raise TransientError(
                f"target {load.target}: the database of a table was dropped by a window that was loaded while this load wrote "
                "its files; try again"
            )

    def _read(self) -> Mapping[str, int]:
        try:
            return _decoded(self._store.get(self._name))
        except ArtifactNotFoundError:
            return {}


def _decoded(content: bytes | None) -> dict[str, int]:
    if content is None:
        return {}
    return {each.name: each.commit_ts for each in msgspec.json.decode(content, type=tuple[DroppedDatabase, ...])}
