"""Record batches between Spark tasks: cut into one piece per bucket, sent through a shuffle, and put together again.

A piece is the bytes of an Arrow message without its schema. So a shuffle moves some hundred kilobytes at a time, and neither
Python nor the JVM ever looks at a row.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import RDD

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


def exchanged(sent: "RDD[Piece]", buckets: int) -> "RDD[Piece]":
    """*sent* with every bucket in a partition of its own, that of its number."""
    return sent.partitionBy(buckets, _partition)


def assembled(arrived: Iterable[Piece], schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
    """The tables of all kinds of *schemas* out of the pieces of one bucket."""
    batches: dict[str, list[pa.RecordBatch]] = {kind: [] for kind in schemas}
    for _, (kind, piece) in arrived:
        if kind in schemas:
            batches[kind].append(pa.ipc.read_record_batch(pa.py_buffer(piece), schemas[kind]))
    return {kind: pa.Table.from_batches(found, schemas[kind]) for kind, found in batches.items()}


def _partition(bucket: int) -> int:
    return bucket
