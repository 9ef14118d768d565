"""Which copy of a row version stays, and how the others leave the files.

Workers write what they read, and drop only copies whose bytes they have seen already. Copies that met in different splits,
or differ, are found through the narrow keys files (see ``keys``); then only the files that hold a copy too many are written anew
(docs/decisions.md, "Where duplicates are dropped").
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.index import DataFile
from ticdc_replay.changelog.keys import Copy

TABLE_METADATA = b"ticdc_replay.table"
"""Member of a data file's schema metadata: JSON of the table's ``name`` and ``handle_key``."""


class Loser(NamedTuple):
    """A copy that must leave its file. ``conflict``: its content differs from the copy that stays."""

    file: str
    position: int
    conflict: bool


class CopyReader:
    """Reads single rows of a changelog's data files, to compare copies. Keeps the files it used last."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._filesystem = filesystem
        self._root = root
        self._table = lru_cache(maxsize=4)(self._read)

    def _read(self, file: str) -> pa.Table:
        return pq.read_table(f"{self._root}/{file}", filesystem=self._filesystem, partitioning=None)

    def content(self, copy: Copy) -> tuple[Any, Any]:
        """What must be equal for rows to be copies of one row version, and what two copies must agree on."""
        table = self._table(copy.file)
        row = table.slice(copy.position, 1).to_pylist()[0]
        side = "before" if row["after"] is None else "after"
        exact = {name: value for name, value in row["_exact"] or () if name.startswith(f"{side}.")}
        absent = sorted(name for name in row["_absent"] or () if name.startswith(f"{side}."))
        about = json.loads(table.schema.metadata[TABLE_METADATA])
        key = [(name, row[side][name], exact.get(f"{side}.{name}")) for name in about["handle_key"]]
        identity = (about["name"], key, row["_commit_ts"], side)
        return identity, (row[side], exact, absent) if side == "after" else ()


def losers(copies: Sequence[Copy], reader: CopyReader) -> list[Loser]:
    """The copies that go, given all *copies* whose identity hashes are equal.

    Where fingerprints differ, whole rows of data files are read: different content is a conflict; different keys are a
    collision of the hash, and then both stay.
    """
    ordered = sorted(copies, key=lambda copy: copy.order)
    kept: list[Copy] = []
    going: list[Loser] = []
    for copy in ordered:
        for other in kept:
            if other.fingerprint == copy.fingerprint:
                going.append(Loser(copy.file, copy.position, False))
                break
            if copy.quarantined or not (other.whole and copy.whole):
                going.append(Loser(copy.file, copy.position, False))
                break
            (identity, content), (other_identity, other_content) = reader.content(copy), reader.content(other)
            if identity == other_identity:
                going.append(Loser(copy.file, copy.position, content != other_content))
                break
        else:
            kept.append(copy)
    return going


def drop_rows(filesystem: Any, root: str, file: str, positions: pa.ChunkedArray) -> tuple[DataFile | None, pa.Table]:
    """Write *file* anew, under another name, without the rows at *positions*; the new file and the rows that left.

    The new file is None where no row stayed. The old file stays where it is: it leaves the changelog by not being in its index.
    """
    table = pq.read_table(f"{root}/{file}", filesystem=filesystem, partitioning=None)
    going = pc.is_in(pa.array(range(table.num_rows), pa.int64()), value_set=positions.combine_chunks())
    left, dropped = table.filter(pc.invert(going)), table.filter(going)
    if left.num_rows == 0:
        return None, dropped
    name = f"{file.removesuffix('.parquet')}-{uuid4().hex[:8]}.parquet"
    pq.write_table(left, f"{root}/{name}", filesystem=filesystem, compression="zstd", compression_level=1)
    return describe_file(filesystem, root, name, left), dropped


def describe_file(filesystem: Any, root: str, name: str, table: pa.Table) -> DataFile:
    """The index entry of the file *name*, which holds *table*."""
    times = "_commit_ts" if "_commit_ts" in table.column_names else "commit_ts"
    extremes = pc.min_max(table[times]).as_py()
    topic = table["_topic"][0].as_py() if "_topic" in table.column_names else ""
    return DataFile(
        name=name,
        rows=table.num_rows,
        bytes=filesystem.get_file_info(f"{root}/{name}").size,
        min_commit_ts=extremes["min"] or 0,
        max_commit_ts=extremes["max"] or 0,
        topic=topic,
    )
