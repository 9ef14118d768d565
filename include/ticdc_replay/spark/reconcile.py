"""The join of a reconciliation: inventory and references in, both with their classes and a summary out."""

import logging
import time
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ticdc_replay.reconcile import records
from ticdc_replay.reconcile.rules import Evidence
from ticdc_replay.reconcile.summary import ObjectsOfDay, ObjectsOfTable, ReferencesOfTable, Summary
from ticdc_replay.spark.classification import classified_objects, classified_references
from ticdc_replay.spark.parquet_files import Place, Sources, WrittenFile, read_parquet, write_parquet

log = logging.getLogger(__name__)

Counts = TypeVar("Counts", ObjectsOfDay, ObjectsOfTable, ReferencesOfTable)

_DAY_MS = 86_400_000
_FOR_OBJECTS = ("object_name", "topic", "topic_id", "partition", "offset", "schema", "table", "status")
"""What the class of an object needs to know of its references."""


class Classified(msgspec.Struct, frozen=True):
    """What a join left: names of files relative to the place where it wrote, and the counts."""

    objects: tuple[WrittenFile, ...]
    """``records.CLASSIFIED_OBJECTS``."""
    references: tuple[WrittenFile, ...]
    """``records.CLASSIFIED_REFERENCES``."""
    summary: Summary


class ClassifiedObjects(msgspec.Struct, frozen=True):
    """What a join for the objects alone left."""

    objects: tuple[WrittenFile, ...]
    """``records.CLASSIFIED_OBJECTS``."""
    by_day: tuple[ObjectsOfDay, ...]


def classify(
    spark: SparkSession,
    objects: Sources,
    references: Sequence[Sources],
    evidence: Evidence,
    out: Place,
    folder: str,
) -> Classified:
    """Join *objects* (``records.OBJECTS``) with *references* (``records.REFERENCES``) and write both with their classes below
    *folder* of *out*.

    The driver holds names of files and the summary; nothing grows with objects or references there.
    """
    object_files = _classify_objects(spark, objects, references, evidence, out, folder)
    begin = time.perf_counter()
    judged = classified_references(
        read_parquet(spark, [objects], records.OBJECTS, ("name", "etag", "size")),
        read_parquet(spark, references, records.REFERENCES, records.REFERENCES.names),
        evidence,
    )
    reference_files = write_parquet(judged, out, f"{folder}/references", records.CLASSIFIED_REFERENCES)
    log.info("%d references in %.1f s", sum(file.rows for file in reference_files), time.perf_counter() - begin)
    return Classified(object_files, reference_files, _summary(spark, out, object_files, reference_files))


def classify_objects(
    spark: SparkSession,
    objects: Sources,
    references: Sequence[Sources],
    evidence: Evidence,
    out: Place,
    folder: str,
) -> ClassifiedObjects:
    """As ``classify``, but says nothing of *references*: to look at some objects again. Of *objects* only the columns of
    ``records.OBJECTS`` are read, so that files with more columns, such as a plan's, will do."""
    files = _classify_objects(spark, objects, references, evidence, out, folder)
    return ClassifiedObjects(files, _by_day(_written_objects(spark, out, files)))


def _classify_objects(
    spark: SparkSession,
    objects: Sources,
    references: Sequence[Sources],
    evidence: Evidence,
    out: Place,
    folder: str,
) -> tuple[WrittenFile, ...]:
    begin = time.perf_counter()
    inventory = read_parquet(spark, [objects], records.OBJECTS, records.OBJECTS.names)
    judged = classified_objects(inventory, read_parquet(spark, references, records.REFERENCES, _FOR_OBJECTS), evidence)
    files = write_parquet(judged, out, f"{folder}/objects", records.CLASSIFIED_OBJECTS)
    log.info("%d objects in %.1f s", sum(file.rows for file in files), time.perf_counter() - begin)
    return files


def _summary(
    spark: SparkSession, out: Place, object_files: Sequence[WrittenFile], reference_files: Sequence[WrittenFile]
) -> Summary:
    """Counted from what was written, so that the numbers are those of the files."""
    objects = _written_objects(spark, out, object_files)
    references = read_parquet(
        spark,
        [Sources(out, tuple(file.name for file in reference_files))],
        records.CLASSIFIED_REFERENCES,
        ("class", "schema", "table", "protecting"),
    )
    kind = F.col("class").alias("kind")
    table = [F.coalesce(name, F.lit("")).alias(name) for name in ("schema", "table")]
    return Summary(
        by_day=_by_day(objects),
        objects_by_table=_counts(
            objects.groupBy(kind, *table).agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes")),
            ObjectsOfTable,
        ),
        references_by_table=_counts(
            references.groupBy(kind, *table).agg(
                F.count(F.lit(1)).alias("references"), F.count_if("protecting").alias("protecting")
            ),
            ReferencesOfTable,
        ),
    )


def _written_objects(spark: SparkSession, out: Place, files: Sequence[WrittenFile]) -> DataFrame:
    columns = ("size", "last_modified_ms", "class", "schema", "table", "deletable")
    return read_parquet(spark, [Sources(out, tuple(file.name for file in files))], records.CLASSIFIED_OBJECTS, columns)


def _by_day(objects: DataFrame) -> tuple[ObjectsOfDay, ...]:
    kind = F.col("class").alias("kind")
    day = F.date_add(F.lit("1970-01-01").cast("date"), F.floor(F.col("last_modified_ms") / _DAY_MS).cast("int"))
    deletable = F.col("deletable")
    return _counts(
        objects.groupBy(kind, day.cast("string").alias("day")).agg(
            F.count(F.lit(1)).alias("objects"),
            F.sum("size").alias("bytes"),
            F.count_if(deletable).alias("deletable"),
            F.sum(F.when(deletable, F.col("size")).otherwise(0)).alias("deletable_bytes"),
        ),
        ObjectsOfDay,
    )


def _counts(frame: DataFrame, kind: type[Counts]) -> tuple[Counts, ...]:
    return tuple(sorted(msgspec.convert(row.asDict(), kind) for row in frame.collect()))
