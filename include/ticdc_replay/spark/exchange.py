"""Record batches between Spark tasks: cut into one piece per bucket, sent through a shuffle, and put together again.

A piece is the bytes of an Arrow message without its schema. So a shuffle moves some hundred kilobytes at a time, and neither
Python nor the JVM ever looks at a row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import RDD, StorageLevel
from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")
Key = TypeVar("Key")
Count = TypeVar("Count")

Piece = tuple[int, tuple[str, bytes]]
"""A bucket; the kind of rows, and the rows."""

PIECE_ROWS = 400
"""Rows of a piece, about: fewer make more headers than rows, and a worker holds up to a thousand pieces."""


def pieces(kind: str, rows: pa.RecordBatch, buckets: np.ndarray[Any, Any]) -> Iterator[Piece]:
    """*rows* of the *kind*, each in its bucket of *buckets*."""
    if not len(buckets):
        return
    order = np.argsort(buckets, kind="stable")
    rows, buckets = rows.take(pa.array(order)), buckets[order]
    begins = np.flatnonzero(np.diff(buckets, prepend=buckets[0] + np.uint32(1)))
    for begin, end in zip(begins, [*begins[1:], len(buckets)], strict=True):
        yield int(buckets[begin]), (kind, rows.slice(begin, end - begin).serialize().to_pybytes())


def assembled(arrived: Iterable[Piece], schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
    """The tables of all kinds of *schemas* out of the pieces of one bucket."""
    batches: dict[str, list[pa.RecordBatch]] = {kind: [] for kind in schemas}
    for _, (kind, piece) in arrived:
        if kind in schemas:
            batches[kind].append(pa.ipc.read_record_batch(pa.py_buffer(piece), schemas[kind]))
    return {kind: pa.Table.from_batches(found, schemas[kind]) for kind, found in batches.items()}


class Exchange:
    """Pieces that have arrived in their buckets: a task has all pieces of one bucket, and bucket *n* is that of task *n*."""

    def __init__(self, arrived: "RDD[Piece]", buckets: int) -> None:
        self._arrived = arrived
        self._buckets = buckets

    @classmethod
    def of(
        cls, spark: SparkSession, tasks: Sequence[Task], spread: Callable[[Task], Iterable[Piece]], buckets: int
    ) -> "Exchange":
        """What *spread* makes of *tasks*, in *buckets* buckets."""
        read = spark.sparkContext.parallelize(tasks, max(1, len(tasks)))
        return cls(read.flatMap(spread).partitionBy(buckets, _partition), buckets)

    def then(self, work: Callable[[Iterable[Piece]], Iterable[Piece]]) -> "Exchange":
        """What *work* makes of each bucket, in as many buckets."""
        return Exchange(self._arrived.mapPartitions(work).partitionBy(self._buckets, _partition), self._buckets)

    def together_with(self, other: "Exchange") -> "Exchange":
        """The pieces of both, where they are: every bucket has the same number in both, so nothing moves."""
        met = self._arrived.context.union([self._arrived, other._arrived])
        assert met.getNumPartitions() == self._buckets
        return Exchange(met, self._buckets)

    def gather(
        self,
        work: Callable[[int, Iterable[Piece]], tuple[Result, Iterable[tuple[Key, Count]]]],
        added: Callable[[Count, Count], Count],
        name: str,
    ) -> tuple[list[Result], list[tuple[Key, Count]]]:
        """What *work* gives for each bucket and its number: all results, and the counts of each key, which *added* adds up.

        They are added up where they are: of many buckets they are not small.
        """
        context = self._arrived.context
        context.setJobDescription(name)
        worked = self._arrived.mapPartitionsWithIndex(lambda bucket, arrived: [work(bucket, arrived)])
        worked.persist(StorageLevel.MEMORY_AND_DISK)
        results = worked.map(lambda pair: pair[0]).collect()
        counts = worked.flatMap(lambda pair: pair[1]).reduceByKey(added, context.defaultParallelism).collect()
        worked.unpersist()
        return results, counts


def _partition(bucket: int) -> int:
    return bucket
