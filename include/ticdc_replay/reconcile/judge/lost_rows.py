"""Readable messages whose object is missing, and where their rows are still available."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.reconcile.judge.rules import ReferenceClass
from ticdc_replay.storage.base import ObjectStore

_PLACE = 5
"""How many members of a ``LostRow`` are the place of its event."""
_VERSION = ["schema", "table", "key_hash", "commit_ts", "object_name"]
_THERE = (ReferenceClass.PRESENT.value, ReferenceClass.DUPLICATE.value)
_BATCH_ROWS = 10_000


class LostRow(NamedTuple):
    """An event of a message whose object is missing. ``other_object``: another one that holds the same row version."""

    topic: str
    partition: int
    offset: int
    ordinal: int
    topic_id: str
    pipeline: str
    object_name: str
    commit_ts: int | None
    schema: str
    table: str
    key_hash: bytes | None
    key: str | None
    other_object: str | None

    @property
    def row(self) -> tuple[str, str, bytes | None]:
        """The row, whatever its version."""
        return self.schema, self.table, self.key_hash


class LaterVersion(NamedTuple):
    """A later version of a row, which an object that is there holds. ``commit_ts``: TSO."""

    commit_ts: int
    object_name: str


def lost_rows(artifacts: ObjectStore, files: Sequence[str], most: int) -> list[LostRow]:
    """The first *most* rows, in order of topic, partition and offset, whose object is missing though their message can be read.

    *files* (``records.CLASSIFIED_REFERENCES``) are below *artifacts*, the store's. Memory grows with *most* only.
    """
    found: dict[tuple[Any, ...], LostRow] = {}
    for row in _rows(artifacts, files, ["class", "protecting"], _is_lost, LostRow._fields):
        event = LostRow(**row)
        place = event[:_PLACE]
        known = found.get(place)
        # Only some of those who met the event may have known the row's key.
        if known is None or (known.key_hash is None and event.key_hash is not None):
            found[place] = event
        if len(found) > 2 * most:
            found = {place: found[place] for place in sorted(found)[:most]}
    return [found[place] for place in sorted(found)[:most]]


def later_versions(
    artifacts: ObjectStore, files: Sequence[str], lost: Sequence[LostRow]
) -> dict[LostRow, LaterVersion]:
    """The next later version of each row of *lost* whose object is there, if any; *files* as in ``lost_rows``."""
    waiting: dict[tuple[str, str, bytes | None], list[LostRow]] = {}
    for row in lost:
        if row.key_hash is not None and row.commit_ts is not None:
            waiting.setdefault(row.row, []).append(row)
    if not waiting:
        return {}
    hashes = pa.array(
        sorted({row.key_hash for rows in waiting.values() for row in rows if row.key_hash}), pa.binary(16)
    )
    there = pa.array(_THERE)

    def may_be_one(table: pa.Table) -> pa.ChunkedArray:
        return pc.and_(pc.is_in(table["class"], there), pc.is_in(table["key_hash"], hashes))

    found: dict[LostRow, LaterVersion] = {}
    for version in _rows(artifacts, files, ["class", "key_hash"], may_be_one, _VERSION):
        commit_ts = version["commit_ts"]
        for row in waiting.get((version["schema"], version["table"], version["key_hash"]), ()):
            if commit_ts is None or row.commit_ts is None or commit_ts <= row.commit_ts:
                continue
            later = LaterVersion(commit_ts, version["object_name"])
            found[row] = min(found.get(row, later), later)
    return found


def references_to(
    artifacts: ObjectStore, files: Sequence[str], objects: Collection[str]
) -> dict[tuple[str, str], tuple[int, int]]:
    """How many references to missing *objects* there are, and how many of them are protecting, by schema and table; *files* as in
    ``lost_rows``."""
    if not objects:
        return {}
    names = pa.array(sorted(objects))

    def is_one(table: pa.Table) -> pa.ChunkedArray:
        return pc.and_(pc.equal(table["class"], ReferenceClass.MISSING.value), pc.is_in(table["object_name"], names))

    found: dict[tuple[str, str], tuple[int, int]] = {}
    for row in _rows(artifacts, files, ["class", "object_name"], is_one, ["schema", "table", "protecting"]):
        of = row["schema"], row["table"]
        references, protecting = found.get(of, (0, 0))
        found[of] = references + 1, protecting + bool(row["protecting"])
    return found


def _is_lost(table: pa.Table) -> pa.ChunkedArray:
    return pc.and_(pc.equal(table["class"], ReferenceClass.MISSING.value), table["protecting"])


def _rows(
    artifacts: ObjectStore,
    files: Sequence[str],
    asked: list[str],
    wanted: Callable[[pa.Table], pa.ChunkedArray],
    columns: Sequence[str],
) -> Iterator[dict[str, Any]]:
    """*columns* of the rows that are *wanted* by their *asked* columns; row groups without any are not read further."""
    filesystem, root = artifacts.arrow_filesystem()
    for name in files:
        with pq.ParquetFile(f"{root}/{name}", filesystem=filesystem) as file:
            for group in range(file.num_row_groups):
                mask = wanted(file.read_row_group(group, asked))
                if pc.any(mask).as_py():
                    rows = file.read_row_group(group, list(columns)).filter(mask)
                    for batch in rows.to_batches(_BATCH_ROWS):
                        yield from batch.to_pylist()
