"""Rows that travel between tasks come out of their buckets as they were."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark import TaskContext

from ticdc_replay.domain.errors import ArtifactNotFoundError, TransientError
from ticdc_replay.reconcile.judge.counting import Counted
from ticdc_replay.spark import exchange as exchange_module
from ticdc_replay.spark.exchange import Exchange, Piece, assembled, pieces
from ticdc_replay.spark.settings import with_settings

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
    def send(begin: int) -> Iterator[Piece]:
        rows = batch(range(begin, begin + 100)).slice(10)
        for kind in ("one", "other"):
            yield from pieces(kind, rows, rows["number"].to_numpy().astype(np.uint32) % 7)

    def receive(bucket: int, arrived: Iterable[Piece]) -> Iterator[Counted]:
        rows = assembled(arrived, {"one": SCHEMA})["one"].to_pylist()
        yield ("rows",), (len(rows), 1)
        for row in rows:
            yield (f"bucket {bucket}", repr(row)), (1,)

    arrived = Exchange.of(spark, [0, 1000, 2000], send, 7, "receive").then(lambda some: some)
    found = dict(arrived.totals(receive))

    assert found.pop(("rows",)) == (270, 7)
    expected = [row for begin in (0, 1000, 2000) for row in batch(range(begin + 10, begin + 100)).to_pylist()]
    assert found == {(f"bucket {row['number'] % 7}", repr(row)): (1,) for row in expected}


def kinds(bucket: int, arrived: Iterable[Piece]) -> Iterator[Counted]:
    for piece in arrived:
        yield (str(bucket), piece.kind), (1,)
    yield (str(bucket), "met"), (1,)


def test_pieces_of_several_exchanges_meet_in_their_bucket(spark: SparkSession) -> None:
    def exchange(kind: str, buckets: list[int]) -> Exchange:
        return Exchange.of(spark, buckets, lambda bucket: [Piece(bucket, kind, b"")], 5, "meet")

    met = exchange("one", [0, 1, 1, 2]).together_with(exchange("other", [2, 1, 3]))
    assert sorted(met.totals(kinds)) == [
        (("0", "met"), (1,)),
        (("0", "one"), (1,)),
        (("1", "met"), (1,)),
        (("1", "one"), (2,)),
        (("1", "other"), (1,)),
        (("2", "met"), (1,)),
        (("2", "one"), (1,)),
        (("2", "other"), (1,)),
        (("3", "met"), (1,)),
        (("3", "other"), (1,)),
        (("4", "met"), (1,)),
    ]
    again = met.together_with(exchange("other", [0, 1])).together_with(exchange("one", []))
    numbers = dict(again.totals(kinds))
    assert numbers["1", "one"] == (2,)
    assert numbers["1", "other"] == (2,)
    assert numbers["0", "other"] == (1,)


def test_of_pieces_that_are_used_twice_the_tasks_run_once(spark: SparkSession, tmp_path: Path) -> None:
    def send(task: int) -> Iterator[Piece]:
        (tmp_path / f"{task}-{uuid.uuid4()}").touch()
        yield Piece(task, "one", b"")

    def work(arrived: Iterable[Piece]) -> Iterator[Piece]:
        yield from (piece._replace(kind="other") for piece in arrived)

    arrived = Exchange.of(spark, [0, 1, 2], send, 3, "reuse")
    with with_settings(spark, {"spark.sql.shuffle.partitions": "200"}):  # more than there are buckets
        found = dict(arrived.together_with(arrived.then(work)).totals(kinds))
    assert found == {(str(bucket), kind): (1,) for bucket in range(3) for kind in ("one", "other", "met")}
    assert len(list(tmp_path.iterdir())) == 3


def test_buckets_that_share_a_partition_are_kept_apart(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they would where Spark's hash differs from the one that chooses their places."""
    monkeypatch.setattr(exchange_module, "one_per_partition", lambda partitions: list(range(partitions)))
    one = Exchange.of(spark, [*range(20)], lambda bucket: [Piece(bucket, "one", b"")], 20, "share")
    other = Exchange.of(spark, [*range(20)], lambda bucket: [Piece(bucket, "other", b"")], 20, "share")
    found = dict(one.together_with(other).totals(kinds))
    assert found == {(str(bucket), kind): (1,) for bucket in range(20) for kind in ("one", "other", "met")}


def test_an_error_of_the_library_is_raised_as_what_it_is_and_no_other_work_begins(
    spark: SparkSession, tmp_path: Path
) -> None:
    def send(task: int) -> Iterator[Piece]:
        yield Piece(task, "one", b"")
        if task == 1:
            raise ArtifactNotFoundError("a.parquet is gone")
        if task == 2:
            raise TransientError("the store is away")

    def work(arrived: Iterable[Piece]) -> Iterable[Piece]:
        (tmp_path / "worked").touch()
        return arrived

    def count(bucket: int, arrived: Iterable[Piece]) -> Iterator[Counted]:
        (tmp_path / "counted").touch()
        yield from ()

    arrived = Exchange.of(spark, range(4), send, 4, "fail")
    with pytest.raises(ArtifactNotFoundError, match=r"^a\.parquet is gone$"):
        arrived.together_with(arrived.then(work)).totals(count)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["spread", "then", "totals"])
def test_a_step_is_tried_again_after_a_transient_error(spark: SparkSession, step: str) -> None:
    def attempt(now: str) -> None:
        running = TaskContext.get()
        assert running is not None
        if now == step and running.attemptNumber() == 0:
            raise OSError("disk full")

    def send(task: int) -> Iterator[Piece]:
        yield Piece(task, "one", b"")
        attempt("spread")

    def work(arrived: Iterable[Piece]) -> Iterator[Piece]:
        attempt("then")
        yield from arrived

    def count(bucket: int, arrived: Iterable[Piece]) -> Iterator[Counted]:
        yield from kinds(bucket, arrived)
        attempt("totals")

    found = dict(Exchange.of(spark, range(2), send, 2, "repeat").then(work).totals(count))
    assert found == {(str(bucket), kind): (1,) for bucket in range(2) for kind in ("one", "met")}


def test_a_disk_that_stays_full_is_a_transient_error(spark: SparkSession) -> None:
    def count(bucket: int, arrived: Iterable[Piece]) -> Iterator[Counted]:
        raise OSError("disk full")

    with pytest.raises(TransientError, match="write: disk full; is a disk full"):
        Exchange.of(spark, [0], lambda _: [], 2, "write").totals(count)


def test_settings_of_the_session_stay_as_they_were(spark: SparkSession) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    Exchange.of(spark, [0], lambda _: [], 1, "count").totals(kinds)
    assert spark.conf.get(name) == before


def test_no_task_means_no_bucket(spark: SparkSession) -> None:
    assert Exchange.of(spark, [], lambda _: [], 3, "count").totals(kinds) == []


def test_no_row_makes_no_piece() -> None:
    assert list(pieces("one", batch(range(0)), np.array([], np.uint32))) == []
    assert assembled([], {"one": SCHEMA})["one"].schema == SCHEMA
