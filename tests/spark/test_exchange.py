"""Rows that travel between tasks come out of their buckets as they were."""

from __future__ import annotations

from collections.abc import Iterable
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from ticdc_replay.spark.exchange import Exchange, Piece, assembled, pieces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("text", pa.string()), pa.field("hash", pa.binary(2))])


def batch(numbers: range) -> pa.RecordBatch:
    rows = [
        {"number": number, "text": None if number % 3 else str(number), "hash": None if number % 5 else bytes(2)}
        for number in numbers
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def test_every_row_comes_out_of_its_bucket_once(spark: SparkSession) -> None:
    def send(begin: int) -> list[tuple[int, tuple[str, bytes]]]:
        rows = batch(range(begin, begin + 100)).slice(10)
        return [
            piece
            for kind in ("one", "other")
            for piece in pieces(kind, rows, rows["number"].to_numpy().astype(np.uint32) % 7)
        ]

    def receive(
        bucket: int, arrived: Iterable[Piece]
    ) -> tuple[tuple[int, list[dict[str, Any]]], list[tuple[str, int]]]:
        rows = assembled(arrived, {"one": SCHEMA})["one"].to_pylist()
        return (bucket, rows), [("rows", len(rows)), (f"rows of bucket {bucket}", len(rows))]

    arrived = Exchange.of(spark, [0, 1000, 2000], send, 7).then(lambda some: some)
    found, counts = arrived.gather(receive, add, "receive")

    assert [bucket for bucket, _ in found] == list(range(7))
    assert all(row["number"] % 7 == bucket for bucket, rows in found for row in rows)
    expected = [row for begin in (0, 1000, 2000) for row in batch(range(begin + 10, begin + 100)).to_pylist()]
    assert sorted((row for _, rows in found for row in rows), key=lambda row: row["number"]) == expected
    assert dict(counts) == {"rows": 270, **{f"rows of bucket {bucket}": len(rows) for bucket, rows in found}}


def test_pieces_of_two_exchanges_meet_in_the_bucket_of_their_number(spark: SparkSession) -> None:
    def send(bucket: int) -> list[Piece]:
        return [(bucket, ("one", b""))]

    met = Exchange.of(spark, [0, 1, 2], send, 3).together_with(Exchange.of(spark, [2, 1], send, 3))
    found, _ = met.gather(lambda bucket, arrived: ((bucket, len(list(arrived))), []), add, "meet")
    assert sorted(found) == [(0, 1), (1, 2), (2, 2)]


def test_no_row_makes_no_piece() -> None:
    assert list(pieces("one", batch(range(0)), np.array([], np.uint32))) == []
    assert assembled([], {"one": SCHEMA})["one"].schema == SCHEMA
