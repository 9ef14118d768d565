"""Messages that can still be read and whose object is missing: which they are, and where their rows can still be had."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.reconcile.rules import ReferenceClass
from ticdc_replay.storage.base import ObjectStore

_PLACE = ["topic", "partition", "offset", "ordinal"]
_TOLD = [
    *_PLACE,
    "pipeline",
    "object_name",
    "commit_ts",
    "schema",
    "table",
    "key_hash",
    "key",
    "class",
    "protecting",
    "other_object",
]
_VERSION = ["schema", "table", "key_hash", "commit_ts", "class", "object_name", "topic", "partition", "offset"]
_THERE = pa.array([ReferenceClass.PRESENT.value, ReferenceClass.DUPLICATE.value])
_READ_ROWS = 100_000


class LostRow(NamedTuple):
    """An event of a message whose object is missing. ``other_object``: another one that holds the same row version."""

    topic: str
    partition: int
    offset: int
    ordinal: int
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
    for batch in _batches(artifacts, files, _TOLD):
        lost = pc.and_(pc.equal(batch["class"], ReferenceClass.MISSING.value), batch["protecting"])
        for row in batch.filter(lost).select(LostRow._fields).to_pylist():
            event = LostRow(**row)
            place = event[: len(_PLACE)]
            known = found.get(place)
            # Of those who met the event, one may have known the row's key.
            if known is None or (known.key_hash is None and event.key_hash is not None):
                found[place] = event
        if len(found) > 2 * most:
            found = {place: found[place] for place in sorted(found)[:most]}
    return [found[place] for place in sorted(found)[:most]]


def later_versions(
    artifacts: ObjectStore, files: Sequence[str], lost: Sequence[LostRow]
) -> dict[LostRow, LaterVersion]:
    """Of each row of *lost* of which there is one, the next later version whose object is there; *files* as in ``lost_rows``."""
    waiting: dict[tuple[str, str, bytes | None], list[LostRow]] = {}
    for row in lost:
        if row.key_hash is not None and row.commit_ts is not None:
            waiting.setdefault(row.row, []).append(row)
    if not waiting:
        return {}
    hashes = pa.array(sorted({row[2] for row in waiting if row[2] is not None}), pa.binary(16))
    found: dict[LostRow, LaterVersion] = {}
    for batch in _batches(artifacts, files, _VERSION):
        wanted = pc.and_(pc.is_in(batch["class"], _THERE), pc.is_in(batch["key_hash"], hashes))
        for version in batch.filter(wanted).to_pylist():
            commit_ts = version["commit_ts"]
            for row in waiting.get((version["schema"], version["table"], version["key_hash"]), ()):
                if commit_ts is None or row.commit_ts is None or commit_ts <= row.commit_ts:
                    continue
                later = LaterVersion(commit_ts, version["object_name"])
                found[row] = min(found.get(row, later), later)
    return found


def _batches(artifacts: ObjectStore, files: Sequence[str], columns: list[str]) -> Iterator[pa.RecordBatch]:
    filesystem, root = artifacts.arrow_filesystem()
    for name in files:
        with pq.ParquetFile(f"{root}/{name}", filesystem=filesystem) as file:
            yield from file.iter_batches(_READ_ROWS, columns=columns)
