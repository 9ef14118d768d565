"""Rows that travel between tasks come out of their buckets as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from ticdc_replay.spark.exchange import assembled, exchanged, pieces

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

    sent = spark.sparkContext.parallelize([0, 1000, 2000], 3).flatMap(send)
    arrived = exchanged(sent, 7)

    found = arrived.mapPartitionsWithIndex(
        lambda bucket, some: [(bucket, assembled(some, {"one": SCHEMA})["one"].to_pylist())]
    ).collect()

    assert [bucket for bucket, _ in found] == list(range(7))
    assert all(row["number"] % 7 == bucket for bucket, rows in found for row in rows)
    expected = [row for begin in (0, 1000, 2000) for row in batch(range(begin + 10, begin + 100)).to_pylist()]
    assert sorted((row for _, rows in found for row in rows), key=lambda row: row["number"]) == expected


def test_no_row_makes_no_piece() -> None:
    assert list(pieces("one", batch(range(0)), np.array([], np.uint32))) == []
    assert assembled([], {"one": SCHEMA})["one"].schema == SCHEMA
