"""Spark's expressions say of every object and reference what the rules say."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ticdc_replay.domain import tso
from ticdc_replay.reconcile import records
from ticdc_replay.reconcile.rules import (
    UNREADABLE,
    Evidence,
    Found,
    ObjectClass,
    ObjectFacts,
    PartitionBounds,
    Protection,
    ReferenceClass,
    ReferenceFacts,
    ReplayableRange,
    classify_object,
    classify_reference,
    deletable,
)
from ticdc_replay.spark.classification import classified_objects, classified_references

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOW = 1_800_000_000_000
SEEDS = (0, 1, 3)


class Row(msgspec.Struct, frozen=True):
    """One row of ``records.REFERENCES``."""

    object_name: str
    pipeline: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    ordinal: int
    timestamp_ms: int | None
    commit_ts: int | None
    schema: str
    table: str
    key_hash: bytes | None
    key: str | None
    etag: str | None
    size: int | None
    sha256: str | None
    status: str
    source: str

    @property
    def version(self) -> tuple[object, ...] | None:
        if self.key_hash is None or self.commit_ts is None:
            return None
        return self.schema, self.table, self.key_hash, self.commit_ts


def random_evidence(choose: random.Random) -> Evidence:
    first_ms = choose.choice([None, NOW - 400, NOW - 400, NOW - 400])
    return Evidence(
        bounds_ms=NOW,
        listed_ms=NOW - choose.choice([0, 50]),
        partitions=tuple(
            PartitionBounds(topic, topic_id, number, choose.choice([0, 5, 10]), 20, first_ms)
            for topic, topic_id in (("a", "1"), ("b", "2"))
            for number in range(2)
        ),
        gone_topics=choose.choice([(), ("gone",)]),
        replayable=tuple(
            ReplayableRange(
                topic, choose.choice("12"), number, start := choose.randrange(12), start + choose.randrange(3)
            )
            for topic, number in (("a", 0), ("a", 0), ("a", 1), ("b", 1), ("gone", 0))
            if choose.random() < 0.6
        ),
        young_ms=100,
        skew_ms=10,
        grace_ms=choose.choice([0, 150]),
        owners_complete=choose.random() < 0.8,
        unread_offsets=choose.choice([0, 0, 0, 3]),
    )


def random_objects(choose: random.Random, evidence: Evidence) -> list[tuple[Any, ...]]:
    moments = [
        evidence.judged_before_ms, evidence.deletable_before_ms, evidence.lost_before_ms, NOW, NOW - 350, NOW - 900
    ]  # fmt: skip
    names = [f"{uuid.UUID(int=number)}.json" for number in range(300)]
    odd = [
        "",
        "notes.txt",
        f"sub/{names[0]}",
        f"{names[1]}\n",
        f"\n{names[1]}",
        names[255].upper(),
        "é\x00.json",
        "a" * 41,
        "\U0001f600",
    ]
    return [
        (
            name,
            choose.choice([0, 7, 7, 7]),
            choose.choice("ef"),
            choose.choice(moments) + choose.choice([-1, 0, 1]),
            choose.choice([None, "v"]),
        )
        for name in [*names, *odd]
    ]


def random_references(choose: random.Random, evidence: Evidence) -> list[Row]:
    moments = [None, evidence.listed_before_ms, evidence.listed_before_ms + 1]
    return [
        Row(
            object_name=f"{uuid.UUID(int=choose.randrange(100, 400))}.json" if choose.random() < 0.97 else "",
            pipeline="p",
            topic=choose.choice(["a", "a", "b", "gone", "unknown"]),
            topic_id=choose.choice("12"),
            partition=choose.randrange(3),
            offset=choose.randrange(22),
            ordinal=choose.randrange(2),
            timestamp_ms=choose.choice(moments),
            commit_ts=choose.choice([None, *(tso.from_ms(found) + choose.randrange(2) for found in moments if found)]),
            schema=choose.choice("st"),
            table=choose.choice("uv"),
            key_hash=choose.choice([None, bytes(15) + bytes([choose.randrange(20)])]),
            key=None,
            etag=choose.choice([None, None, "e", "f"]),
            size=choose.choice([None, 7]),
            sha256=None,
            status=choose.choice(["used", "seen", "seen", "seen", "not_needed", "claim_check_altered", UNREADABLE]),
            source="scan",
        )
        for _ in range(250)
    ]


def expected_objects(objects: list[tuple[Any, ...]], references: list[Row], evidence: Evidence) -> set[tuple[Any, ...]]:
    protection = Protection(evidence)
    expected = set()
    for row in objects:
        name, size, _, modified, _ = row
        own = [found for found in references if found.object_name == name]
        protecting = sum(
            protection.protects(found.topic, found.topic_id, found.partition, found.offset) for found in own
        )
        facts = ObjectFacts(len(own), protecting, any(found.status == UNREADABLE for found in own))
        verdict = classify_object(evidence, name, size, modified, facts)
        table = min(((found.schema, found.table) for found in own), default=(None, None))
        expected.add(
            (
                *row,
                verdict.kind,
                verdict.reason,
                len(own),
                protecting,
                *table,
                deletable(evidence, verdict.kind, modified),
            )
        )
    return expected


def expected_references(
    objects: list[tuple[Any, ...]], references: list[Row], evidence: Evidence
) -> list[tuple[Any, ...]]:
    protection = Protection(evidence)
    there = {name: Found(etag, size) for name, size, etag, _, _ in objects}
    copies: dict[Any, set[str]] = {}
    for row in references:
        if row.object_name in there:
            copies.setdefault(row.version, set()).add(row.object_name)
    expected = []
    for row in references:
        same = copies.get(row.version, set()) if row.version else {row.object_name} & set(there)
        facts = ReferenceFacts(row.status, row.etag, row.size, row.timestamp_ms, row.commit_ts)
        kind = classify_reference(evidence, facts, there.get(row.object_name), len(same))
        protects = protection.protects(row.topic, row.topic_id, row.partition, row.offset)
        expected.append((*msgspec.structs.astuple(row), kind, protects, same - {row.object_name}))
    return expected


@pytest.fixture
def few_partitions(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


@pytest.mark.usefixtures("few_partitions")
@pytest.mark.parametrize("seed", SEEDS)
def test_spark_says_what_the_rules_say(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    evidence = random_evidence(choose)
    objects, references = random_objects(choose, evidence), random_references(choose, evidence)
    write(tmp_path / "objects.parquet", records.OBJECTS, objects)
    write(tmp_path / "references.parquet", records.REFERENCES, [msgspec.structs.astuple(row) for row in references])
    frames = [spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("objects", "references")]

    found_objects = {tuple(row) for row in classified_objects(*frames, evidence).collect()}
    assert found_objects == expected_objects(objects, references, evidence)

    found = [
        tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row)
        for row in classified_references(*frames, evidence).collect()
    ]
    expected = expected_references(objects, references, evidence)
    assert Counter(row[:-1] for row in found) == Counter(row[:-1] for row in expected)
    others = {row[:-1]: row[-1] for row in expected}
    assert all(row[-1] in others[row[:-1]] if others[row[:-1]] else row[-1] is None for row in found)


def test_the_random_data_meets_every_class() -> None:
    kinds: set[str] = set()
    for seed in SEEDS:
        choose = random.Random(seed)
        evidence = random_evidence(choose)
        objects, references = random_objects(choose, evidence), random_references(choose, evidence)
        kinds |= {row[5] for row in expected_objects(objects, references, evidence)}
        kinds |= {row[18] for row in expected_references(objects, references, evidence)}
    assert kinds == {*ObjectClass, *ReferenceClass}


def write(path: Path, schema: pa.Schema, rows: list[tuple[Any, ...]]) -> None:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path)
