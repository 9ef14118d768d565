"""The classes of all objects and references of one bucket, as columns.

Hot: 20 million references and 10 million objects pass through here in a minute. ``tests/support/reconciliation_rules.py`` is the
same for one object and one reference; a test compares the two.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_replay.domain import tso
from ticdc_replay.reconcile.judge import records
from ticdc_replay.reconcile.judge.row_versions import distinct_holders
from ticdc_replay.reconcile.judge.rules import (
    DELETABLE,
    REPLACED,
    UNREADABLE,
    USED,
    Evidence,
    ObjectClass,
    Reason,
    ReferenceClass,
    SurveyedOffsets,
    Verdict,
)

_CLAIM_CHECK_NAME = r"\A[0-9a-f-]{36}\.json\z"
"""``large_messages.locations.object_name``, for RE2."""
PLACE = ("topic", "topic_id", "partition", "offset")
FOR_OBJECTS = ("object_name", "schema", "table", "status", "etag", "size")
"""The columns of ``records.REFERENCES`` that ``JudgedBucket.objects`` asks for."""

_Bools = np.ndarray[Any, np.dtype[np.bool_]]


class JudgedBucket:
    """All objects and all references of the same names. *objects*: ``records.OBJECTS``; *references*: ``protecting``
    (``protection.Protections``) and, for ``objects``, ``FOR_OBJECTS``, for all else ``records.REFERENCES`` and
    ``row_versions.VERSION``."""

    def __init__(self, objects: pa.Table, references: pa.Table) -> None:
        self._objects, self._references = objects, references
        names = objects["name"].combine_chunks().dictionary_encode()
        self._codes: np.ndarray[Any, Any] = names.indices.to_numpy()
        self._count = len(names.dictionary)
        found = pc.index_in(references["object_name"], value_set=names.dictionary)
        # An empty name means no object, whatever the store has at its root.
        found = pc.if_else(pc.equal(references["object_name"], ""), pa.scalar(-1, pa.int32()), found.fill_null(-1))
        self._found: np.ndarray[Any, Any] = found.to_numpy()

    def objects(self, evidence: Evidence) -> pa.Table:
        """``records.CLASSIFIED_OBJECTS``."""
        modified = self._objects["last_modified_ms"].to_numpy()
        references, protecting = self._counts()
        young = modified > evidence.judged_before_ms
        named = pc.match_substring_regex(self._objects["name"], _CLAIM_CHECK_NAME).to_numpy()
        verdicts = [
            (~named, Verdict(ObjectClass.FOREIGN, Reason.FOREIGN)),
            (self._unreadable(), Verdict(ObjectClass.MALFORMED, Reason.UNREADABLE)),
            ((self._objects["size"].to_numpy() == 0) & ~young, Verdict(ObjectClass.MALFORMED, Reason.EMPTY)),
            (protecting > 0, Verdict(ObjectClass.REFERENCED, Reason.REFERENCED)),
            (young, Verdict(ObjectClass.TOO_YOUNG, Reason.TOO_YOUNG)),
            (references > 0, Verdict(ObjectClass.EXPIRED, Reason.REFERENCES_EXPIRED)),
            (modified <= evidence.lost_before_ms, Verdict(ObjectClass.EXPIRED, Reason.OLDER_THAN_KAFKA)),
            (np.ones(len(modified), bool), Verdict(ObjectClass.ORPHANED, Reason.ORPHANED)),
        ]
        chosen = _first([condition for condition, _ in verdicts])
        can_go = np.array([verdict.kind in DELETABLE for _, verdict in verdicts])[chosen]
        schemas, tables = self._tables()
        columns = {
            **{name: self._objects[name] for name in records.OBJECTS.names},
            "class": _texts([verdict.kind for _, verdict in verdicts], chosen),
            "reason": _texts([verdict.reason for _, verdict in verdicts], chosen),
            "references": references,
            "protecting": protecting,
            "schema": schemas,
            "table": tables,
            "deletable": can_go & evidence.complete & (modified <= evidence.deletable_before_ms),
        }
        return pa.table(columns, schema=records.CLASSIFIED_OBJECTS)

    def holders(self) -> pa.RecordBatch:
        """``row_versions.HOLDERS`` of all references."""
        versions, names = (self._references[name].combine_chunks() for name in ("version", "object_name"))
        return distinct_holders(versions, names, self._found)

    def references(self, evidence: Evidence, copies: pa.Table) -> pa.Table:
        """``records.CLASSIFIED_REFERENCES``. *copies*: ``row_versions.COPIES`` of all row versions that have another
        object than the one that a reference names."""
        references = self._references
        missing = self._found < 0
        at = self._at()
        copy = pc.index_in(references["version"], value_set=copies["version"].combine_chunks())
        first, last = copies["first"].combine_chunks().take(copy), copies["last"].combine_chunks().take(copy)
        cases: list[tuple[_Bools, ReferenceClass]] = [
            (self._too_young(evidence, missing), ReferenceClass.TOO_YOUNG),
            (missing, ReferenceClass.MISSING),
            (self._altered(at), ReferenceClass.ALTERED),
            (_true(pc.not_equal(first, last)), ReferenceClass.DUPLICATE),
            (np.ones(len(missing), bool), ReferenceClass.PRESENT),
        ]
        names = references["object_name"]
        other = pc.if_else(
            pc.not_equal(first, names), first, pc.if_else(pc.not_equal(last, names), last, pa.scalar(None, pa.string()))
        )
        columns = {
            **{name: references[name] for name in records.REFERENCES.names},
            "class": _texts([kind for _, kind in cases], _first([condition for condition, _ in cases])),
            "protecting": references["protecting"],
            "other_object": other,
        }
        return pa.table(columns, schema=records.CLASSIFIED_REFERENCES)

    def _counts(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Of each object, how many references name it, and how many of these protect it."""
        found = self._found[self._found >= 0]
        protecting = self._found[(self._found >= 0) & self._references["protecting"].to_numpy()]
        counts = [np.bincount(some, minlength=self._count) for some in (found, protecting)]
        return counts[0][self._codes], counts[1][self._codes]

    def _unreadable(self) -> _Bools:
        marks: _Bools = np.zeros(self._count, bool)
        found = self._found[_true(pc.equal(self._references["status"], UNREADABLE))]
        marks[found[found >= 0]] = True
        if marks.any():
            marks[self._found[self._reads(self._at())]] = False
        of_rows: _Bools = marks[self._codes]
        return of_rows

    def _tables(self) -> tuple[pa.Array, pa.Array]:
        """Of each object the first (schema, table) of its references, by name."""
        schemas, tables = (self._references[name].combine_chunks().dictionary_encode() for name in ("schema", "table"))
        pairs = schemas.indices.to_numpy() * np.int64(len(tables.dictionary)) + tables.indices.to_numpy()
        used, numbers = np.unique(pairs, return_inverse=True)
        schema_of, table_of = np.divmod(used, max(1, len(tables.dictionary)))
        names = list(
            zip(
                schemas.dictionary.take(pa.array(schema_of)).to_pylist(),
                tables.dictionary.take(pa.array(table_of)).to_pylist(),
                strict=True,
            )
        )
        order = sorted(range(len(names)), key=names.__getitem__)
        ranks = np.empty(len(names), np.int64)
        ranks[order] = np.arange(len(names))
        best = np.full(self._count, len(names), np.int64)
        there = self._found >= 0
        np.minimum.at(best, self._found[there], ranks[numbers][there])
        ranked = [names[number] for number in order]
        chosen = pa.array(best[self._codes], mask=best[self._codes] == len(names))
        return (
            pa.array([schema for schema, _ in ranked], pa.string()).take(chosen),
            pa.array([table for _, table in ranked], pa.string()).take(chosen),
        )

    def _too_young(self, evidence: Evidence, missing: _Bools) -> _Bools:
        """Which of the *missing* may have been written after the inventory. Few have a time that allows it."""
        young: _Bools = missing & (self._written_ms() > evidence.listed_before_ms)
        if evidence.surveyed_before_listing and young.any():
            rows = np.flatnonzero(young)
            surveyed = SurveyedOffsets(evidence)
            columns = (self._references[name].take(rows).to_pylist() for name in PLACE)
            young[rows] = [not surveyed.has(*place) for place in zip(*columns, strict=True)]
        return young

    def _written_ms(self) -> np.ndarray[Any, Any]:
        """When the message of each reference was written, at the latest; -1 where that is not known."""
        commit_ms = pc.shift_right(self._references["commit_ts"], tso.LOGICAL_BITS)
        written: np.ndarray[Any, Any] = pc.coalesce(self._references["timestamp_ms"], commit_ms, -1).to_numpy()
        return written

    def _at(self) -> pa.Array:
        """The first row of the inventory with the object of each reference; null where it is missing."""
        rows = np.zeros(self._count, np.int64)
        rows[self._codes[::-1]] = np.arange(len(self._codes))[::-1]
        return pa.array(rows[self._found] if self._count else self._found, mask=self._found < 0)

    def _reads(self, at: pa.Array) -> _Bools:
        """Whether a decode has read, at each reference, what the inventory has in the row *at*: then nothing is wrong with the
        object, whatever other decodes found."""
        etags, sizes = (self._objects[name].combine_chunks().take(at) for name in ("etag", "size"))
        used = _true(pc.equal(self._references["status"], USED))
        same_etag = _true(pc.equal(self._references["etag"], etags))
        return used & same_etag & ~_true(pc.not_equal(self._references["size"], sizes))

    def _altered(self, at: pa.Array) -> _Bools:
        """Whether what is known of the object of each reference is not what the inventory has in the row *at*, and nobody has
        read that for the same message."""
        altered = self._differs(at) & (self._found >= 0)
        if altered.any():
            concerned: _Bools = np.zeros(self._count, bool)
            concerned[self._found[altered]] = True
            reads = self._reads(at)
            reads[reads] = concerned[self._found[reads]]
            rows = np.flatnonzero(altered)
            read = set(self._messages(np.flatnonzero(reads)))
            altered[rows] = [message not in read for message in self._messages(rows)]
        return altered

    def _messages(self, rows: np.ndarray[Any, Any]) -> Iterator[tuple[Any, ...]]:
        """The object and the message of the references *rows*."""
        columns = (self._references[name].take(rows).to_pylist() for name in ("object_name", *PLACE))
        return zip(*columns, strict=True)

    def _differs(self, at: pa.Array) -> _Bools:
        etags, sizes = (self._objects[name].combine_chunks().take(at) for name in ("etag", "size"))
        replaced = _true(pc.equal(self._references["status"], REPLACED))
        other_etag = _true(pc.not_equal(self._references["etag"], etags))
        return replaced | other_etag | _true(pc.not_equal(self._references["size"], sizes))


def _first(conditions: Sequence[_Bools]) -> np.ndarray[Any, Any]:
    """The number of the first of *conditions* that holds, of each row."""
    chosen: np.ndarray[Any, Any] = np.select(list(conditions), [np.int8(number) for number in range(len(conditions))])
    return chosen


def _texts(choices: Sequence[StrEnum], chosen: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array([choice.value for choice in choices], pa.string()).take(pa.array(chosen))


def _true(column: pa.ChunkedArray) -> _Bools:
    """Null counts as false."""
    result: _Bools = column.fill_null(False).to_numpy()
    return result
