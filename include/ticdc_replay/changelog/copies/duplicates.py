"""Which copy of a row version stays, and how the others leave the files.

Workers write what they read, and drop only copies whose bytes they have seen already. Copies that met in different splits,
or differ, are found through the narrow keys files (see ``keys``); then only the files that hold a copy too many are rewritten
(docs/decisions.md, "Where duplicates are dropped").
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_replay.changelog.cells.columnar import halves_of
from ticdc_replay.changelog.files.data_file import ENCODING, TABLE_METADATA
from ticdc_replay.changelog.files.index import DataFile
from ticdc_replay.changelog.files.keys import Copy
from ticdc_replay.changelog.files.layout import in_quarantine
from ticdc_replay.changelog.files.parts import group_starts
from ticdc_replay.changelog.files.side_files import QUARANTINE_ENCODING, shared_bytes

SURPLUS = pa.schema([("file", pa.string()), ("position", pa.int64()), ("conflict", pa.bool_())])
"""A copy that must leave its file. ``conflict``: its content differs from the copy that stays, and it is the first with it."""

_Mask = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]


def surplus(copies: pa.Table, filesystem: Any, root: str) -> pa.Table:
    """Of *copies* (``keys.SCHEMA``), which hold all copies of their row versions, those that go (``SURPLUS``).

    Where fingerprints differ, whole rows of data files are read: different content is a conflict; different keys are a
    collision of the hash, and then both stay. Conflicts are counted by row version and fingerprint: of copies that are equal,
    it depends on how the work was divided which are still here. Takes about 9 µs a copy.
    """
    if copies.num_rows == 0:
        return SURPLUS.empty_table()
    copies = _in_order(copies)
    ids, prints = halves_of(copies["id"]), halves_of(copies["fingerprint"])
    is_head = np.concatenate([[True], (ids[1:] != ids[:-1]).any(axis=1)])
    head = np.maximum.accumulate(np.where(is_head, np.arange(len(ids)), 0))
    whole = copies["whole"].to_numpy()
    needs_no_look = (prints == prints[head]).all(axis=1) | _quarantined(copies) | ~(whole & whole[head])
    going, conflict = ~is_head & needs_no_look, np.zeros(len(ids), np.bool_)
    looked_at = np.flatnonzero(~is_head & ~needs_no_look)
    if len(looked_at):
        reader = _Reader(filesystem, root)
        same, equal = reader.compare(copies, head[looked_at], looked_at)
        going[looked_at], conflict[looked_at] = same, same & ~equal
        for start in np.unique(head[looked_at[~same]]):
            _settle_collision(copies, np.flatnonzero(head == start), reader, going, conflict)
    conflicting = np.flatnonzero(conflict)
    _, firsts = np.unique(np.hstack([ids, prints])[conflicting], axis=0, return_index=True)
    conflict[conflicting] = False
    conflict[conflicting[firsts]] = True
    found = copies.filter(pa.array(going))
    columns = [found["file"].cast(pa.string()), found["position"], pa.array(conflict[going])]
    return pa.Table.from_arrays(columns, schema=SURPLUS).sort_by([("file", "ascending"), ("position", "ascending")])


def _settle_collision(copies: pa.Table, members: _Numbers, reader: "_Reader", going: _Mask, conflict: _Mask) -> None:
    """Decide on *members*, copies of one hash but of several row versions, one by one."""
    kept: list[tuple[int, Copy]] = []
    going[members] = conflict[members] = False
    listed = copies.take(pa.array(members)).drop_columns(["commit_ts"]).to_pylist()
    for at, copy in zip(members.tolist(), (Copy(**each) for each in listed), strict=True):
        for other_at, other in kept:
            if other.fingerprint == copy.fingerprint or copy.quarantined or not (other.whole and copy.whole):
                going[at] = True
                break
            same, equal = reader.compare(copies, np.array([other_at]), np.array([at]))
            if same[0]:
                going[at], conflict[at] = True, not equal[0]
                break
        else:
            kept.append((at, copy))


def _in_order(copies: pa.Table) -> pa.Table:
    """*copies* grouped by identity; within a group in a fixed total order, whose first copy stays.

    Usable copies before quarantined ones, whole before partial (a key-only delete), then by place in Kafka.
    """
    copies = copies.unify_dictionaries().combine_chunks()
    topics = copies["topic"].chunk(0)
    rank = np.argsort(np.argsort(np.array(topics.dictionary.to_pylist(), object)))
    ids = halves_of(copies["id"])
    columns = [copies[name].to_numpy() for name in ("half", "ordinal", "offset", "partition")]
    columns += [
        rank[topics.indices.to_numpy()],
        ~copies["whole"].to_numpy(),
        _quarantined(copies),
        ids[:, 1],
        ids[:, 0],
    ]
    return copies.take(pa.array(np.lexsort(columns))).combine_chunks()


def _quarantined(copies: pa.Table) -> _Mask:
    files = copies["file"].chunk(0)
    there = np.array([in_quarantine(name) for name in files.dictionary.to_pylist()], np.bool_)
    found: _Mask = there[files.indices.to_numpy()]
    return found


class _Reader:
    """Reads rows of a changelog's data files, to compare copies. Holds at most one row group of each of two files."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._filesystem = filesystem
        self._root = root

    def compare(self, copies: pa.Table, ones: _Numbers, others: _Numbers) -> tuple[_Mask, _Mask]:
        """Per pair of rows of *copies*: whether they are copies of one row version, and whether they say the same."""
        same, equal = np.zeros(len(ones), np.bool_), np.zeros(len(ones), np.bool_)
        files = copies["file"].chunk(0)
        names, of = files.dictionary.to_pylist(), files.indices.to_numpy()
        positions = copies["position"].to_numpy()
        for run in _alike(of[ones], of[others]):
            with self._open(names[of[ones[run[0]]]]) as left, self._open(names[of[others[run[0]]]]) as right:
                one, other = _RowGroups(left), _RowGroups(right)
                lefts, rights = positions[ones[run]], positions[others[run]]
                for part in _alike(one.of(lefts), other.of(rights)):
                    pairs = run[part]
                    same[pairs], equal[pairs] = _compared(one.rows(lefts[part]), other.rows(rights[part]))
        return same, equal

    def _open(self, name: str) -> pq.ParquetFile:
        return pq.ParquetFile(f"{self._root}/{name}", filesystem=self._filesystem)


def _alike(ones: _Numbers, others: _Numbers) -> list[_Numbers]:
    """The places of pairs, those of equal pairs together."""
    order = np.lexsort((others, ones))
    borders = np.flatnonzero((np.diff(ones[order]) != 0) | (np.diff(others[order]) != 0)) + 1
    return np.split(order, borders)


class _RowGroups:
    """The row groups of a data file. Holds the one that was read last."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        self._starts = group_starts(file.metadata)
        self._held = -1
        self._table: pa.Table | None = None

    def of(self, positions: _Numbers) -> _Numbers:
        """In which row group each of *positions* is."""
        found: _Numbers = np.searchsorted(self._starts, positions, "right") - 1
        return found

    def rows(self, positions: _Numbers) -> pa.Table:
        """The rows at *positions*, which are in one row group, in that order."""
        group = int(self.of(positions[:1])[0])
        if self._table is None or group != self._held:
            self._table = None
            self._held, self._table = group, self._file.read_row_group(group)
        return self._table.take(pa.array(positions - self._starts[group]))


def _compared(one: pa.Table, other: pa.Table) -> tuple[Any, Any]:
    if one.schema.equals(other.schema, check_metadata=True) and all(
        one[name].equals(other[name]) for name in ("_commit_ts", "after", "_exact", "_absent")
    ):
        deletes = pc.is_null(one["after"])
        if one["before"].filter(deletes).equals(other["before"].filter(deletes)):
            return True, True
    same, equal = [], []
    for left, right in zip(_contents(one), _contents(other), strict=True):
        same.append(left[0] == right[0])
        equal.append(left[1] == right[1])
    return same, equal


def _contents(rows: pa.Table) -> list[tuple[Any, Any]]:
    """Per row, what must be equal for rows to be copies of one row version, and what two copies must agree on."""
    about = json.loads(rows.schema.metadata[TABLE_METADATA])
    found = []
    for row in rows.to_pylist():
        side = "before" if row["after"] is None else "after"
        exact = {name: value for name, value in row["_exact"] or () if name.startswith(f"{side}.")}
        absent = sorted(name for name in row["_absent"] or () if name.startswith(f"{side}."))
        key = [(name, row[side][name], exact.get(f"{side}.{name}")) for name in about["handle_key"]]
        identity = (about["name"], key, row["_commit_ts"], side)
        found.append((identity, (row[side], exact, absent) if side == "after" else ()))
    return found


def drop_rows(filesystem: Any, root: str, file: str, positions: _Numbers) -> tuple[DataFile | None, dict[str, int]]:
    """Write *file* again, under another name, without the rows at *positions* (ascending); None if no row is left.

    And the reasons of the dropped rows, for a quarantine file. The old file stays, but not in the index. Holds one row group at a
    time.
    """
    name = f"{file.removesuffix('.parquet')}-{uuid4().hex[:8]}.parquet"
    kept = _Kept(filesystem, root, name)
    reasons = Counter[str]()
    with pq.ParquetFile(f"{root}/{file}", filesystem=filesystem) as source:
        start = 0
        for number in range(source.num_row_groups):
            table = source.read_row_group(number)
            low, high = np.searchsorted(positions, [start, start + table.num_rows])
            leaving = np.zeros(table.num_rows, np.bool_)
            leaving[positions[low:high] - start] = True
            start += table.num_rows
            if "reason" in table.column_names:
                reasons.update(table["reason"].filter(pa.array(leaving)).to_pylist())
            staying = table.filter(pa.array(~leaving))
            kept.write(
                shared_bytes(staying) if in_quarantine(file) else staying,
                source.metadata.row_group(number).sorting_columns,
            )
    return kept.close(), dict(reasons)


class _Kept:
    """The new file, and its entry in the index."""

    def __init__(self, filesystem: Any, root: str, name: str) -> None:
        self._filesystem = filesystem
        self._path = f"{root}/{name}"
        self._name = name
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self._times: list[int] = []
        self._topic = ""

    def write(self, table: pa.Table, sorted_by: Sequence[Any]) -> None:
        if table.num_rows == 0:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path,
                table.schema,
                filesystem=self._filesystem,
                **(QUARANTINE_ENCODING if in_quarantine(self._name) else ENCODING),
                sorting_columns=list(sorted_by) or None,
            )
            self._topic = table["_topic"][0].as_py() if "_topic" in table.column_names else ""
        self._writer.write_table(table)
        self._rows += table.num_rows
        times = pc.min_max(table["_commit_ts" if "_commit_ts" in table.column_names else "commit_ts"]).as_py()
        self._times += [time for time in times.values() if time is not None]

    def close(self) -> DataFile | None:
        if self._writer is None:
            return None
        self._writer.close()
        return DataFile(
            name=self._name,
            rows=self._rows,
            bytes=self._filesystem.get_file_info(self._path).size,
            min_commit_ts=min(self._times, default=0),
            max_commit_ts=max(self._times, default=0),
            topic=self._topic,
        )
