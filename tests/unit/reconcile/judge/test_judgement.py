"""Whole columns are judged as the rules judge one object and one reference."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.support.reconciliation_rules import (
    Found,
    ObjectFacts,
    Protection,
    ReferenceFacts,
    classify_object,
    classify_reference,
    deletable,
    reads,
)
from ticdc_replay.domain import tso
from ticdc_replay.reconcile.judge import records
from ticdc_replay.reconcile.judge.buckets import buckets_of, buckets_of_references, buckets_of_versions
from ticdc_replay.reconcile.judge.judgement import FOR_OBJECTS, JudgedBucket
from ticdc_replay.reconcile.judge.protection import Protections
from ticdc_replay.reconcile.judge.row_versions import COPIES, VERSION, several, versions_of
from ticdc_replay.reconcile.judge.rules import (
    REPLACED,
    UNREADABLE,
    Evidence,
    ObjectClass,
    PartitionBounds,
    ReferenceClass,
    ReplayableRange,
    SurveyedOffsets,
)

NOW = 1_800_000_000_000


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
            for topic, topic_id in (("a", "1"), ("b", "2"), *choose.choice([(), [("a", "2")]]))
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


def first_found(objects: list[tuple[Any, ...]]) -> dict[str, Found]:
    return {name: Found(etag, size) for name, size, etag, _, _ in reversed(objects) if name}


def said(row: Row) -> ReferenceFacts:
    return ReferenceFacts(row.status, row.etag, row.size, row.timestamp_ms, row.commit_ts)


def message_of(row: Row) -> tuple[object, ...]:
    return row.object_name, row.topic, row.topic_id, row.partition, row.offset


def expected_objects(objects: list[tuple[Any, ...]], references: list[Row], evidence: Evidence) -> set[tuple[Any, ...]]:
    protection = Protection(evidence)
    there = first_found(objects)
    expected = set()
    for row in objects:
        name, size, _, modified, _ = row
        own = [found for found in references if found.object_name == name != ""]
        protecting = sum(
            protection.protects(found.topic, found.topic_id, found.partition, found.offset) for found in own
        )
        unreadable = any(found.status == UNREADABLE for found in own)
        read = any(reads(said(found), there.get(name)) for found in own)
        facts = ObjectFacts(len(own), protecting, unreadable and not read)
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
    there = first_found(objects)
    read = {message_of(row) for row in references if reads(said(row), there.get(row.object_name))}
    copies: dict[Any, set[str]] = {}
    for row in references:
        if row.object_name in there:
            copies.setdefault(row.version, set()).add(row.object_name)
    expected = []
    for row in references:
        same = copies.get(row.version, set()) if row.version else {row.object_name} & set(there)
        surveyed = SurveyedOffsets(evidence).has(row.topic, row.topic_id, row.partition, row.offset)
        facts = said(row)._replace(surveyed=surveyed, read_since=message_of(row) in read)
        kind = classify_reference(evidence, facts, there.get(row.object_name), len(same))
        protects = protection.protects(row.topic, row.topic_id, row.partition, row.offset)
        expected.append((*msgspec.structs.astuple(row), kind, protects, same - {row.object_name}))
    return expected


def table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def parts_of(rows: pa.RecordBatch, numbers: np.ndarray[Any, Any], count: int) -> list[pa.Table]:
    return [pa.Table.from_batches([rows.filter(pa.array(numbers == number))]) for number in range(count)]


def judged(
    objects: list[tuple[Any, ...]], references: list[Row], evidence: Evidence, count: int
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Both sides with their classes, by way of *count* buckets."""
    inventory = table(records.OBJECTS, objects)
    rows = table(records.REFERENCES, [msgspec.structs.astuple(row) for row in references])
    rows = rows.append_column("protecting", pa.array(Protections(evidence).of(rows)))
    rows = rows.append_column(VERSION, versions_of(rows))
    of_objects = parts_of(inventory, buckets_of(inventory["name"], count), count)
    numbers = buckets_of_references(rows["object_name"], rows["version"], count)
    of_references = parts_of(rows, numbers, count)
    buckets = [JudgedBucket(*tables) for tables in zip(of_objects, of_references, strict=True)]

    holders = pa.Table.from_batches([bucket.holders() for bucket in buckets]).combine_chunks().to_batches()
    copies: list[list[pa.Table]] = [[] for _ in buckets]
    for batch in holders:
        for part in parts_of(batch, buckets_of_versions(batch["version"], count), count):
            names, found = several(part)
            numbers = buckets_of_references(names.combine_chunks(), found["version"].combine_chunks(), count)
            for number, some in enumerate(found.filter(pa.array(numbers == number)) for number in range(count)):
                copies[number].append(some)
    known = [pa.concat_tables([COPIES.empty_table(), *parts]) for parts in copies]
    judged_objects = [bucket.objects(evidence) for bucket in buckets]
    # A recheck of a plan reads only this much of references.
    needed = [part.select([*FOR_OBJECTS, "protecting"]) for part in of_references]
    again = [JudgedBucket(*tables).objects(evidence) for tables in zip(of_objects, needed, strict=True)]
    assert again == judged_objects
    judged_references = [bucket.references(evidence, part) for bucket, part in zip(buckets, known, strict=True)]
    assert {part.schema for part in judged_objects} == {records.CLASSIFIED_OBJECTS}
    assert {part.schema for part in judged_references} == {records.CLASSIFIED_REFERENCES}
    return tuples(pa.concat_tables(judged_objects)), tuples(pa.concat_tables(judged_references))


def tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows.to_pylist()]


@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 5))
def test_columns_are_judged_as_the_rules_say(seed: int, count: int) -> None:
    choose = random.Random(seed)
    evidence = random_evidence(choose)
    objects, references = random_objects(choose, evidence), random_references(choose, evidence)
    references = references[: choose.choice([0, 1, 250])]
    objects = objects[: choose.choice([0, 1, 350, 350])]

    found_objects, found = judged(objects, references, evidence, count)

    assert Counter(found_objects) == Counter(expected_objects(objects, references, evidence))
    expected = expected_references(objects, references, evidence)
    assert Counter(row[:-1] for row in found) == Counter(row[:-1] for row in expected)
    others = {row[:-1]: row[-1] for row in expected}
    assert all(row[-1] in others[row[:-1]] if others[row[:-1]] else row[-1] is None for row in found)


def test_the_random_data_meets_every_class() -> None:
    kinds: set[str] = set()
    for seed in range(5):
        choose = random.Random(seed)
        evidence = random_evidence(choose)
        objects, references = random_objects(choose, evidence), random_references(choose, evidence)
        kinds |= {row[5] for row in expected_objects(objects, references, evidence)}
        kinds |= {row[18] for row in expected_references(objects, references, evidence)}
    assert kinds == {*ObjectClass, *ReferenceClass}


def test_a_re_drive_that_read_the_object_settles_what_was_said_of_it_before() -> None:
    evidence = random_evidence(random.Random(0))
    name = f"{uuid.UUID(int=7)}.json"
    before = msgspec.structs.replace(
        random_references(random.Random(0), evidence)[0],
        object_name=name, topic="unknown", ordinal=-1, status=REPLACED, etag="old", size=7,
    )  # fmt: skip
    unreadable = msgspec.structs.replace(before, status=UNREADABLE)
    after = msgspec.structs.replace(before, ordinal=0, status="used", etag="e")
    objects = [(name, 7, "e", NOW - 900, None)]

    def classes(*references: Row) -> tuple[list[Any], list[Any]]:
        found_objects, found = judged(objects, list(references), evidence, 1)
        return [row[5] for row in found_objects], [row[18] for row in found]

    assert classes(before, unreadable) == ([ObjectClass.MALFORMED], [ReferenceClass.ALTERED] * 2)
    assert classes(before, unreadable, after) == ([ObjectClass.REFERENCED], [ReferenceClass.PRESENT] * 3)
    of_another = msgspec.structs.replace(after, offset=after.offset + 1)
    assert classes(before, of_another)[1] == [ReferenceClass.ALTERED, ReferenceClass.PRESENT]
    replaced_again = msgspec.structs.replace(after, etag="f")
    assert classes(before, unreadable, replaced_again) == ([ObjectClass.MALFORMED], [ReferenceClass.ALTERED] * 3)


def test_an_object_that_an_inventory_has_twice_is_referenced_both_times() -> None:
    evidence = random_evidence(random.Random(0))
    name = f"{uuid.UUID(int=7)}.json"
    objects = [(name, 7, etag, NOW - 900, None) for etag in "ef"]
    referring = msgspec.structs.replace(
        random_references(random.Random(0), evidence)[0],
        object_name=name,
        topic="unknown",
        status="seen",
        etag="e",
        size=7,
    )
    found_objects, found = judged(objects, [referring], evidence, 2)
    assert [row[5] for row in found_objects] == [ObjectClass.REFERENCED] * 2
    assert [row[18] for row in found] == [ReferenceClass.PRESENT]
