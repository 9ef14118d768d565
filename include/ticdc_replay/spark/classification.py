"""The rules of ``reconcile.rules`` as column expressions, and the two joins that apply them.

No Python runs per row. Objects meet references in shuffles by name, copies of a row version meet in one by version; what is
broadcast is as small as the number of partitions of all topics.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from ticdc_replay.domain import tso
from ticdc_replay.reconcile import records
from ticdc_replay.reconcile.rules import (
    REPLACED,
    UNREADABLE,
    Evidence,
    ObjectClass,
    Reason,
    ReferenceClass,
    Verdict,
    merged,
)

_CLAIM_CHECK_NAME = r"\A[0-9a-f-]{36}\.json\z"
"""``large_messages.locations.object_name``, for Java."""
_BOUNDS = "topic string, partition int, bounds_topic_id string, low bigint"
_RANGES = "pinned_topic string, pinned_topic_id string, pinned_partition int, start bigint, end bigint"


def classified_objects(objects: DataFrame, references: DataFrame, evidence: Evidence) -> DataFrame:
    """*objects* (``records.OBJECTS``) with what *references* (``records.REFERENCES``) say of them:
    ``records.CLASSIFIED_OBJECTS``."""
    facts = (
        with_protecting(references, evidence)
        .groupBy("object_name")
        .agg(
            F.count(F.lit(1)).alias("references"),
            F.sum(F.col("protecting").cast("long")).alias("protecting"),
            F.max(F.col("status") == UNREADABLE).alias("unreadable"),
            F.min(F.struct("schema", "table")).alias("of"),
        )
    )
    joined = objects.join(facts, F.col("name") == F.col("object_name"), "left").withColumns(
        {
            "references": F.coalesce("references", F.lit(0)),
            "protecting": F.coalesce("protecting", F.lit(0)),
            "schema": F.col("of.schema"),
            "table": F.col("of.table"),
        }
    )
    verdicts = _verdicts(evidence)
    return (
        joined.withColumn("class", _first(verdicts, lambda verdict: verdict.kind))
        .withColumn("reason", _first(verdicts, lambda verdict: verdict.reason))
        .withColumn("deletable", _deletable(evidence))
        .select(*records.CLASSIFIED_OBJECTS.names)
    )


def classified_references(objects: DataFrame, references: DataFrame, evidence: Evidence) -> DataFrame:
    """*references* (``records.REFERENCES``) with what became of their *objects* (``records.OBJECTS``):
    ``records.CLASSIFIED_REFERENCES``."""
    found = objects.select("name", F.col("etag").alias("found_etag"), F.col("size").alias("found_size"))
    joined = with_protecting(references, evidence).join(
        found.hint("shuffle_hash"), F.col("object_name") == F.col("name"), "left"
    )
    # Rows of which the version is not known are spread by their object, and find no other one.
    known = F.col("key_hash").isNotNull() & F.col("commit_ts").isNotNull()
    copies = Window.partitionBy(
        "commit_ts",
        "key_hash",
        F.when(known, F.col("schema")).otherwise(F.col("object_name")),
        F.when(known, F.col("table")),
    )
    return (
        joined.withColumn("first", F.min("name").over(copies))
        .withColumn("last", F.max("name").over(copies))
        .withColumn("class", _reference_class(evidence))
        .withColumn(
            "other_object",
            F.when(F.col("first") != F.col("object_name"), F.col("first")).when(
                F.col("last") != F.col("object_name"), F.col("last")
            ),
        )
        .select(*records.CLASSIFIED_REFERENCES.names)
    )


def with_protecting(references: DataFrame, evidence: Evidence) -> DataFrame:
    """*references* with the column ``protecting``: what ``rules.Protection.protects`` says."""
    spark = references.sparkSession
    bounds = _small(
        spark, [(found.topic, found.partition, found.topic_id, found.low) for found in evidence.partitions], _BOUNDS
    )
    bounded = references.join(F.broadcast(bounds), ["topic", "partition"], "left")
    held = F.col("low").isNull() | ((F.col("bounds_topic_id") == F.col("topic_id")) & (F.col("offset") >= F.col("low")))
    protecting = held & ~F.col("topic").isin(list(evidence.gone_topics))
    if ranges := merged(evidence.replayable):
        rows = [(part.topic, part.topic_id, part.partition, part.start, part.end) for part in ranges]
        bounded = bounded.join(
            F.broadcast(_small(spark, rows, _RANGES)),
            (F.col("topic") == F.col("pinned_topic"))
            & (F.col("topic_id") == F.col("pinned_topic_id"))
            & (F.col("partition") == F.col("pinned_partition"))
            & (F.col("offset") >= F.col("start"))
            & (F.col("offset") < F.col("end")),
            "left",
        )
        protecting |= F.col("start").isNotNull()
    return bounded.select(*references.columns, protecting.alias("protecting"))


def _verdicts(evidence: Evidence) -> list[tuple[Column, Verdict]]:
    """``rules.classify_object``: the first condition that holds gives the class and the reason."""
    modified = F.col("last_modified_ms")
    young = modified > evidence.judged_before_ms
    return [
        (~F.col("name").rlike(_CLAIM_CHECK_NAME), Verdict(ObjectClass.FOREIGN, Reason.FOREIGN)),
        (F.coalesce("unreadable", F.lit(False)), Verdict(ObjectClass.MALFORMED, Reason.UNREADABLE)),
        ((F.col("size") == 0) & ~young, Verdict(ObjectClass.MALFORMED, Reason.EMPTY)),
        (F.col("protecting") > 0, Verdict(ObjectClass.REFERENCED, Reason.REFERENCED)),
        (young, Verdict(ObjectClass.TOO_YOUNG, Reason.TOO_YOUNG)),
        (F.col("references") > 0, Verdict(ObjectClass.EXPIRED, Reason.REFERENCES_EXPIRED)),
        (modified <= evidence.lost_before_ms, Verdict(ObjectClass.EXPIRED, Reason.OLDER_THAN_KAFKA)),
        (F.lit(True), Verdict(ObjectClass.ORPHANED, Reason.ORPHANED)),
    ]


def _deletable(evidence: Evidence) -> Column:
    """``rules.deletable``."""
    if not evidence.complete:
        return F.lit(False)
    return F.col("class").isin(ObjectClass.ORPHANED.value, ObjectClass.EXPIRED.value) & (
        F.col("last_modified_ms") <= evidence.deletable_before_ms
    )


def _reference_class(evidence: Evidence) -> Column:
    """``rules.classify_reference``; ``first`` and ``last`` are names of objects that are there for the same row version."""
    written = F.coalesce("timestamp_ms", F.shiftright("commit_ts", tso.LOGICAL_BITS))
    altered = [
        F.col("status") == REPLACED,
        F.col("etag") != F.col("found_etag"),
        F.col("size") != F.col("found_size"),
    ]
    cases = [
        (F.col("name").isNull() & (written > evidence.listed_before_ms), ReferenceClass.TOO_YOUNG),
        (F.col("name").isNull(), ReferenceClass.MISSING),
        (reduce(Column.__or__, altered), ReferenceClass.ALTERED),
        (F.col("first") != F.col("last"), ReferenceClass.DUPLICATE),
        (F.lit(True), ReferenceClass.PRESENT),
    ]
    return _first(cases, lambda kind: kind)


def _first(cases: Sequence[tuple[Column, Any]], text_of: Any) -> Column:
    """The text of the first of *cases* whose condition is true; null counts as false."""
    (condition, first), *rest = cases
    chosen = F.when(condition, F.lit(str(text_of(first))))
    for condition, value in rest:
        chosen = chosen.when(condition, F.lit(str(text_of(value))))
    return chosen


def _small(spark: SparkSession, rows: list[tuple[Any, ...]], schema: str) -> DataFrame:
    return spark.createDataFrame(rows, StructType.fromDDL(schema))
