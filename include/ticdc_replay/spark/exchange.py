"""Record batches between Spark tasks: cut into one piece per bucket, sent through a shuffle, and put together again.

A piece is the bytes of an Arrow message without its schema. So a shuffle moves some hundred kilobytes at a time, and neither
Python nor the JVM ever looks at a row. Uses nothing that Spark Connect lacks.
"""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions

from ticdc_replay.domain.errors import TicdcReplayError
from ticdc_replay.drivers.runner import errors_as_values, raise_first
from ticdc_replay.reconcile.judge.counting import Counted
from ticdc_replay.spark.attempts import attempts_of, is_last_of
from ticdc_replay.spark.placement import one_per_partition
from ticdc_replay.spark.sealing import sealed
from ticdc_replay.spark.settings import with_settings

Task = TypeVar("Task")

PIECE_ROWS = 400
"""Rows of a piece, about: fewer make more headers than rows, and a worker holds up to a thousand pieces."""

_SENT_BYTES = 1024 * 1024
"""Of the pieces that a worker sends to the JVM at a time."""
_RECEIVED_PIECES = 16
"""That the JVM sends to a worker at a time: Spark's 10,000 could be a gigabyte."""
_BEGIN, _ERROR = "begin", "error"
"""Kinds of an exchange's own: every bucket has one piece to begin with, and an error of a task is in every bucket."""
_PIECES = "place int, kind string, rows binary"
_PIECES_SENT = pa.schema([("place", pa.int32()), ("kind", pa.string()), ("rows", pa.binary())])
_NUMBERS = "error binary, key array<string>, position int, number bigint"
_NUMBERS_SENT = pa.schema(
    [("error", pa.binary()), ("key", pa.list_(pa.string())), ("position", pa.int32()), ("number", pa.int64())]
)


class Piece(NamedTuple):
    """Rows of one kind for one bucket."""

    bucket: int
    kind: str
    rows: pa.Buffer | bytes


def pieces(kind: str, rows: pa.RecordBatch, buckets: np.ndarray[Any, Any]) -> Iterator[Piece]:
    """*rows* of the *kind*, each in its bucket of *buckets*."""
    if not len(buckets):
        return
    order = np.argsort(buckets, kind="stable")
    rows, buckets = rows.take(pa.array(order)), buckets[order]
    begins = np.flatnonzero(np.diff(buckets, prepend=buckets[0] + np.uint32(1)))
    for begin, end in zip(begins, [*begins[1:], len(buckets)], strict=True):
        yield Piece(int(buckets[begin]), kind, rows.slice(begin, end - begin).serialize())


def assembled(arrived: Iterable[Piece], schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
    """The tables of all kinds of *schemas* out of the pieces of one bucket."""
    batches: dict[str, list[pa.RecordBatch]] = {kind: [] for kind in schemas}
    for _, kind, rows in arrived:
        if kind in schemas:
            batches[kind].append(pa.ipc.read_record_batch(pa.py_buffer(rows), schemas[kind]))
    return {kind: pa.Table.from_batches(found, schemas[kind]) for kind, found in batches.items()}


class _Ways(NamedTuple):
    """What every task of an exchange knows, and how it sends and receives pieces."""

    name: str
    attempts: int
    places: list[int]
    """By bucket, a number that the shuffle puts into a partition of its own. Were it not, only memory would be lost."""

    @property
    def is_last_attempt(self) -> bool:
        """Of the running task."""
        return is_last_of(self.attempts)

    def settings(self) -> dict[str, str]:
        """Settings of the session for plans of exchanges."""
        return {
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(_RECEIVED_PIECES),
            # A join with fewer buckets than this would shuffle again what is in its buckets.
            "spark.sql.shuffle.partitions": str(len(self.places)),
            "spark.sql.adaptive.coalescePartitions.enabled": "false",
        }

    def sent(self, outcomes: Iterable[Piece | TicdcReplayError]) -> Iterator[pa.RecordBatch]:
        """*outcomes* as ``_PIECES``."""
        waiting: list[Piece] = []
        size = 0
        for outcome in outcomes:
            if isinstance(outcome, TicdcReplayError):
                error = pickle.dumps(outcome)
                waiting += [Piece(bucket, _ERROR, error) for bucket in range(len(self.places))]
                continue
            waiting.append(outcome)
            size += len(outcome.rows)
            if size >= _SENT_BYTES:
                yield self._batch(waiting)
                waiting, size = [], 0
        if waiting:
            yield self._batch(waiting)

    def arrived(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, list[Piece], list[Piece]]]:
        """Each bucket in *batches*, its pieces, and its errors."""
        bucket_of = {place: bucket for bucket, place in enumerate(self.places)}
        found: defaultdict[int, list[Piece]] = defaultdict(list)
        for batch in batches:
            places, kinds, rows = batch.columns
            for place, kind, row in zip(places.to_pylist(), kinds.to_pylist(), rows, strict=True):
                bucket = bucket_of[place]
                found[bucket].append(Piece(bucket, kind, row.as_buffer()))
        while found:
            bucket, of_bucket = found.popitem()
            errors = [piece for piece in of_bucket if piece.kind == _ERROR]
            yield bucket, [piece for piece in of_bucket if piece.kind not in (_BEGIN, _ERROR)], errors

    def _batch(self, sent: Sequence[Piece]) -> pa.RecordBatch:
        ends = np.cumsum([0, *(len(piece.rows) for piece in sent)], dtype=np.int32)
        rows = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(piece.rows for piece in sent))]
        columns = [
            pa.array([self.places[piece.bucket] for piece in sent], pa.int32()),
            pa.array([piece.kind for piece in sent], pa.string()),
            pa.Array.from_buffers(pa.binary(), len(sent), rows),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_PIECES_SENT)


class Exchange:
    """Pieces that have arrived in their buckets: a task has all pieces of one bucket. Nothing runs before ``totals``."""

    def __init__(self, spark: SparkSession, ways: _Ways, sent: DataFrame) -> None:
        """*sent*: ``_PIECES``, wherever they are."""
        self._spark, self._ways = spark, ways
        self._arrived = sent

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        tasks: Sequence[Task],
        spread: Callable[[Task], Iterable[Piece]],
        buckets: int,
        name: str,
    ) -> "Exchange":
        """What *spread* makes of *tasks*, one Spark task each, in *buckets* buckets. *name* is that of the step, for errors."""
        ways = _Ways(name, attempts_of(spark), one_per_partition(buckets))
        # Bytes, so that a worker makes its own task alone out of them.
        packed = [pickle.dumps(task) for task in tasks]
        numbers = spark.range(0, len(tasks), 1, max(1, len(tasks)))
        return cls(spark, ways, _shuffled(numbers, sealed(spark, partial(_spread, spread, packed, ways)), ways))

    def then(self, work: Callable[[Iterable[Piece]], Iterable[Piece]]) -> "Exchange":
        """What *work* makes of each bucket, in as many buckets."""
        worked = sealed(self._spark, partial(_work, work, self._ways))
        return Exchange(self._spark, self._ways, _shuffled(self._arrived, worked, self._ways))

    def together_with(self, other: "Exchange") -> "Exchange":
        """The pieces of both, in as many buckets; those of *self* do not move, and *other* should be the smaller one.

        A union would not keep what is in one bucket together. In this join the piece that begins a bucket, and no other piece,
        meets all of the same bucket of *other*, and gives way to them.
        """
        mine, others = self._arrived.alias("mine"), other._arrived.hint("shuffle_hash").alias("others")
        meet = (functions.col("mine.place") == functions.col("others.place")) & (functions.col("mine.kind") == _BEGIN)
        met = mine.join(others, meet, "left").select(
            "mine.place",
            *(functions.coalesce(f"others.{name}", f"mine.{name}").alias(name) for name in ("kind", "rows")),
        )
        return Exchange(self._spark, self._ways, met)

    def totals(self, work: Callable[[int, Iterable[Piece]], Iterable[Counted]]) -> list[Counted]:
        """What *work* counts in each bucket, given its number and its pieces: numbers of equal keys added up.

        They are added up where they are: of many buckets they are not small. Raises the errors of the library that the work of
        any bucket or task raised, as ``TaskRunner.run`` does.
        """
        count = sealed(self._spark, partial(_count, work, self._ways))
        counted = self._arrived.mapInArrow(count, _NUMBERS)
        added = counted.groupBy("error", "key", "position").agg(functions.sum("number").alias("number"))
        with with_settings(self._spark, self._ways.settings()):
            rows = added.collect()
        raise_first(pickle.loads(row.error) for row in rows if row.error is not None)
        numbers: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: row.position):
            numbers[tuple(row.key)].append(row.number)
        return [(key, tuple(found)) for key, found in numbers.items()]


def _shuffled(
    source: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], ways: _Ways
) -> DataFrame:
    # With a number of partitions of its own, Spark neither merges nor splits them when it adapts a plan.
    return source.mapInArrow(work, _PIECES).repartition(len(ways.places), "place")


def _spread(
    spread: Callable[[Any], Iterable[Piece]], tasks: Sequence[bytes], ways: _Ways, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for number in chain.from_iterable(batch.column(0).to_pylist() for batch in numbers):
        begins = [Piece(bucket, _BEGIN, b"") for bucket in range(len(ways.places))] if number == 0 else []
        task = pickle.loads(tasks[number])
        yield from ways.sent(
            chain(begins, errors_as_values(partial(spread, task), ways.name, is_last_attempt=ways.is_last_attempt))
        )


def _work(
    work: Callable[[Iterable[Piece]], Iterable[Piece]], ways: _Ways, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for bucket, arrived, errors in ways.arrived(batches):
        outcomes = errors or errors_as_values(
            partial(work, arrived), ways.name, is_last_attempt=is_last_of(ways.attempts)
        )
        yield from ways.sent(chain([Piece(bucket, _BEGIN, b"")], outcomes))


def _count(
    work: Callable[[int, Iterable[Piece]], Iterable[Counted]], ways: _Ways, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for bucket, arrived, errors in ways.arrived(batches):
        rows: list[tuple[Any, ...]] = [(bytes(error.rows), None, None, None) for error in errors]
        outcomes = (
            ()
            if errors
            else errors_as_values(partial(work, bucket, arrived), ways.name, is_last_attempt=ways.is_last_attempt)
        )
        for outcome in outcomes:
            if isinstance(outcome, TicdcReplayError):
                rows.append((pickle.dumps(outcome), None, None, None))
            else:
                key, numbers = outcome
                rows += [(None, key, position, number) for position, number in enumerate(numbers)]
        if rows:
            columns = zip(*rows, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, _NUMBERS_SENT, strict=True)],
                schema=_NUMBERS_SENT,
            )
