"""The join of a reconciliation: inventory and references in, both with their classes and a summary out.

Rows go through one shuffle, to the bucket of their object's name. There they are judged as columns (see
``reconcile.judge.judgement``). Row versions meet in a second one, with nothing but the names of their objects, and those that
have several come back in a third.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.reconcile.judge import records
from ticdc_replay.reconcile.judge.buckets import buckets_of, buckets_of_references, buckets_of_versions
from ticdc_replay.reconcile.judge.classified import ClassifiedFile
from ticdc_replay.reconcile.judge.counting import Counted, count_objects, count_references, summary_of
from ticdc_replay.reconcile.judge.judgement import FOR_OBJECTS, PLACE, JudgedBucket
from ticdc_replay.reconcile.judge.protection import Protections
from ticdc_replay.reconcile.judge.row_versions import COPIES, HOLDERS, VERSION, several, versions_of
from ticdc_replay.reconcile.judge.rules import Evidence
from ticdc_replay.reconcile.judge.summary import Summary
from ticdc_replay.spark.exchange import PIECE_ROWS, Exchange, Piece, assembled, pieces
from ticdc_replay.spark.parquet_files import GroupRange, Sources, plan_reading, read_parts, write_table
from ticdc_replay.targets.base import StoreAddress

log = logging.getLogger(__name__)

_BATCH_ROWS = (20_000, 200_000)
_BUCKET_ROWS, _BUCKET_BYTES = 300_000, 64 * 1024 * 1024
"""Of a task that judges; it takes about ten times these bytes."""
_PROTECTING = pa.field("protecting", pa.bool_())
_REFERENCES = pa.schema([*records.REFERENCES, _PROTECTING, VERSION])
_OF_OBJECTS = pa.schema([*(records.REFERENCES.field(name) for name in FOR_OBJECTS), _PROTECTING])
_READ_FOR_OBJECTS = pa.schema([records.REFERENCES.field(name) for name in (*FOR_OBJECTS, *PLACE)])


class Joined(NamedTuple):
    """What a join left: files, by their names in the store that it wrote to, and the counts of what is in them."""

    objects: tuple[ClassifiedFile, ...]
    """``records.CLASSIFIED_OBJECTS``."""
    references: tuple[ClassifiedFile, ...]
    """``records.CLASSIFIED_REFERENCES``; none of a join for the objects alone."""
    summary: Summary


_FILE = "file"
"""What was counted in a file: the key goes on with the kind of its rows and its name."""


class _Join(NamedTuple):
    """What every task of a join gets. ``read``: columns of references."""

    objects: Sources
    references: tuple[Sources, ...]
    evidence: Evidence
    read: pa.Schema
    buckets: int


def classify(
    spark: SparkSession,
    objects: Sources,
    references: Sequence[Sources],
    evidence: Evidence,
    out: StoreAddress,
    folder: str,
    parallelism: int,
) -> Joined:
    """Join *objects* (``records.OBJECTS``) with *references* (``records.REFERENCES``) and write both with their classes below
    *folder* of *out*. *parallelism*: how many tasks can run at a time.

    The driver holds names of files and the summary; nothing grows with objects or references there. Raises what ``read_parts``
    raises, and TransientError if a file can't be written.
    """
    join, arrived = _arrived(
        spark, objects, references, evidence, records.REFERENCES, parallelism, f"classify {folder}"
    )
    copies = arrived.then(partial(_hold, buckets=join.buckets)).then(partial(_find_copies, buckets=join.buckets))
    write = partial(_write_bucket, evidence=evidence, out=out, folder=folder)
    return _results(arrived.together_with(copies), write, f"classify {folder}")


def classify_objects(
    spark: SparkSession,
    objects: Sources,
    references: Sequence[Sources],
    evidence: Evidence,
    out: StoreAddress,
    folder: str,
    parallelism: int,
) -> Joined:
    """As ``classify``, without classes of *references*: to judge some objects again. *objects* may have more columns than
    ``records.OBJECTS``, as a plan's files do."""
    _, arrived = _arrived(spark, objects, references, evidence, _READ_FOR_OBJECTS, parallelism, f"classify {folder}")
    write = partial(_write_objects, evidence=evidence, out=out, folder=folder)
    return _results(arrived, write, f"classify {folder}")


def _arrived(
    spark: SparkSession,
    objects: Sources,
    references: Sequence[Sources],
    evidence: Evidence,
    read: pa.Schema,
    parallelism: int,
    name: str,
) -> tuple[_Join, Exchange]:
    """All rows, each in the bucket of its object's name."""
    of_objects, of_references = plan_reading([objects]), plan_reading(references)
    rows = of_objects.rows + of_references.rows
    size = of_objects.bytes + of_references.bytes
    buckets = max(parallelism, -(-rows // _BUCKET_ROWS), -(-size // _BUCKET_BYTES))
    bare = tuple(source._replace(names=()) for source in references)
    join = _Join(objects._replace(names=()), bare, evidence, read, buckets)
    tasks = [("objects", parts) for parts in of_objects.tasks] + [
        ("references", parts) for parts in of_references.tasks
    ]
    log.info(
        "%d objects, %d references: %d tasks, %d buckets", of_objects.rows, of_references.rows, len(tasks), buckets
    )
    return join, Exchange.of(spark, tasks, partial(_spread, join=join), buckets, name)


def _spread(task: tuple[str, list[GroupRange]], join: _Join) -> Iterator[Piece]:
    kind, parts = task
    rows = min(max(_BATCH_ROWS[0], PIECE_ROWS * join.buckets), _BATCH_ROWS[1])
    if kind == "objects":
        for batch in read_parts([join.objects], parts, records.OBJECTS, rows):
            yield from pieces("objects", batch, buckets_of(batch.column("name"), join.buckets))
        return
    protections = Protections(join.evidence)
    whole = join.read.equals(records.REFERENCES)
    for batch in read_parts(join.references, parts, join.read, rows):
        names = batch.column("object_name")
        sent = batch.append_column(_PROTECTING, pa.array(protections.of(batch)))
        if whole:
            versions = versions_of(batch)
            buckets = buckets_of_references(names, versions, join.buckets)
            yield from pieces("references", sent.append_column(VERSION, versions), buckets)
        else:
            yield from pieces("references", sent.select(_OF_OBJECTS.names), buckets_of(names, join.buckets))


def _hold(arrived: Iterable[Piece], buckets: int) -> Iterator[Piece]:
    tables = assembled(arrived, {"objects": records.OBJECTS, "references": _REFERENCES})
    if tables["references"].num_rows:
        holders = JudgedBucket(tables["objects"], tables["references"]).holders()
        yield from pieces("holders", holders, buckets_of_versions(holders.column("version"), buckets))


def _find_copies(arrived: Iterable[Piece], buckets: int) -> Iterator[Piece]:
    holders = assembled(arrived, {"holders": HOLDERS})["holders"]
    if not holders.num_rows:
        return
    names, copies = several(holders)
    if len(names):
        batch = copies.combine_chunks().to_batches()[0]
        of_names = buckets_of_references(names.combine_chunks(), batch.column("version"), buckets)
        yield from pieces("copies", batch, of_names)


def _write_bucket(
    bucket: int, arrived: Iterable[Piece], evidence: Evidence, out: StoreAddress, folder: str
) -> Iterator[Counted]:
    tables = assembled(arrived, {"objects": records.OBJECTS, "references": _REFERENCES, "copies": COPIES})
    judge = JudgedBucket(tables["objects"], tables["references"])
    objects = judge.objects(evidence)
    yield from _write("objects", objects, out, folder, bucket)
    yield from count_objects(objects)
    del objects
    references = judge.references(evidence, tables["copies"])
    yield from _write("references", references, out, folder, bucket)
    yield from count_references(references)


def _write_objects(
    bucket: int, arrived: Iterable[Piece], evidence: Evidence, out: StoreAddress, folder: str
) -> Iterator[Counted]:
    tables = assembled(arrived, {"objects": records.OBJECTS, "references": _OF_OBJECTS})
    objects = JudgedBucket(tables["objects"], tables["references"]).objects(evidence)
    yield from _write("objects", objects, out, folder, bucket)
    yield from count_objects(objects)


def _write(kind: str, table: pa.Table, out: StoreAddress, folder: str, bucket: int) -> Iterator[Counted]:
    """Write *table*, and count the rows of its file."""
    file = write_table(table, out, f"{folder}/{kind}", bucket)
    if file is not None:
        yield (_FILE, kind, file.name), (file.rows,)


def _results(arrived: Exchange, write: Callable[[int, Iterable[Piece]], Iterable[Counted]], name: str) -> Joined:
    """The files that *write* leaves of objects and of references, and all counts added up."""
    begin = time.perf_counter()
    totals = arrived.totals(write)
    log.info("%s: %.1f s", name, time.perf_counter() - begin)
    files: dict[str, list[ClassifiedFile]] = {"objects": [], "references": []}
    counts: list[Counted] = []
    for key, numbers in totals:
        if key[0] == _FILE:
            files[key[1]].append(ClassifiedFile(key[2], *numbers))
        else:
            counts.append((key, numbers))
    joined = Joined(tuple(sorted(files["objects"])), tuple(sorted(files["references"])), summary_of(counts))
    _require_whole(joined, name)
    return joined


def _require_whole(joined: Joined, name: str) -> None:
    """Raise TransientError unless the files have as many rows as were counted.

    A task that wrote a file names it once. But where an executor is lost while these names are added up, Spark may run the task
    again, whose file has another name, after some had the first one.
    """
    summary = joined.summary
    counted = {"objects": sum(found.objects for found in summary.by_day)}
    if joined.references:
        counted["references"] = sum(found.references for found in summary.references_by_table)
    for kind, rows in counted.items():
        files = joined.objects if kind == "objects" else joined.references
        found = sum(file.rows for file in files)
        if found != rows:
            raise TransientError(
                f"{name}: files of {kind} have {found} rows, and {rows} were counted: an executor was lost meanwhile"
            )
