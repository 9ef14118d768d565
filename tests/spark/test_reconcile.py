"""The join of a reconciliation from files to files."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import s3_client_of
from ticdc_replay.changelog.files import side_files
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import ArtifactCorruptError, ArtifactNotFoundError
from ticdc_replay.reconcile.judge import records
from ticdc_replay.reconcile.judge.classified import ClassifiedFile
from ticdc_replay.reconcile.judge.rules import (
    REPLACED,
    UNREADABLE,
    Evidence,
    ObjectClass,
    PartitionBounds,
    ReferenceClass,
)
from ticdc_replay.reconcile.judge.summary import ObjectsOfDay, ObjectsOfTable, ReferencesOfTable
from ticdc_replay.spark.parquet_files import DecodedBy, GroupRange, Sources, plan_reading, read_parts
from ticdc_replay.spark.reconcile import Joined, classify, classify_objects
from ticdc_replay.targets.base import StoreAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.s3 import VersityGateway

pytestmark = pytest.mark.spark

DAY = 86_400_000
NOW = 20_000 * DAY  # 2024-10-04
EVIDENCE = Evidence(
    bounds_ms=NOW,
    listed_ms=NOW,
    partitions=(PartitionBounds("t", "id", 0, 10, 20, NOW - 5 * DAY),),
    young_ms=DAY,
    skew_ms=0,
    grace_ms=2 * DAY,
    owners_complete=True,
    unread_offsets=0,
)
NAMES = [f"{uuid.UUID(int=number)}.json" for number in range(6)]


def reference(name: str, offset: int, key: bytes, **changes: Any) -> dict[str, Any]:
    return {
        "object_name": name, "pipeline": "p", "topic": "t", "topic_id": "id", "partition": 0, "offset": offset, "ordinal": 0,
        "timestamp_ms": NOW - DAY, "commit_ts": tso.from_ms(NOW - 2 * DAY), "schema": "shop", "table": "orders",
        "key_hash": key * 16, "key": '{"id":1}', "status": records.SEEN, "source": "scan", **changes,
    }  # fmt: skip


def write(folder: Path, name: str, schema: pa.Schema, rows: list[dict[str, Any]]) -> str:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / name, row_group_size=2)
    return name


def rows_of(folder: Path, found: Joined, kind: str) -> list[dict[str, Any]]:
    files = getattr(found, kind)
    tables = [pq.read_table(folder / file.name) for file in files]
    assert [table.num_rows for table in tables] == [file.rows for file in files]
    schema = {"objects": records.CLASSIFIED_OBJECTS, "references": records.CLASSIFIED_REFERENCES}[kind]
    assert all(table.schema.equals(schema) for table in tables)
    return [row for table in tables for row in table.to_pylist()]


def test_files_of_several_places_become_files_with_classes_and_a_summary(spark: SparkSession, tmp_path: Path) -> None:
    days = [1, 3, 3, 3, 0, 9]
    objects = [
        {"name": name, "size": 100 + number, "etag": "e", "last_modified_ms": NOW - days[number] * DAY}
        for number, name in enumerate(NAMES)
    ]
    here, there, out = tmp_path / "here", tmp_path / "there", tmp_path / "out"
    inventory = Sources(StoreAddress(here.as_uri(), None), (write(here, "objects.parquet", records.OBJECTS, objects),))
    scanned = write(
        here,
        "scan.parquet",
        records.REFERENCES,
        [reference(NAMES[0], 10, b"a"), reference(NAMES[1], 11, b"a"), reference("x", 12, b"b")],
    )
    decoded = write(
        there, "decode.parquet", records.REFERENCES, [reference(NAMES[2], 9, b"c", status="used", etag="e", size=102)]
    )
    sources = [
        Sources(StoreAddress(here.as_uri(), None), (scanned,)),
        Sources(StoreAddress(there.as_uri(), None), (decoded,)),
    ]

    found = classify(spark, inventory, sources, EVIDENCE, StoreAddress(out.as_uri(), None), "run/1", 2)

    classes = {
        row["name"]: (row["class"], row["references"], row["table"], row["deletable"])
        for row in rows_of(out, found, "objects")
    }
    assert classes == {
        NAMES[0]: ("referenced", 1, "orders", False),
        NAMES[1]: ("referenced", 1, "orders", False),
        NAMES[2]: ("expired", 1, "orders", True),
        NAMES[3]: ("orphaned", 0, None, True),
        NAMES[4]: ("too_young", 0, None, False),
        NAMES[5]: ("expired", 0, None, True),
    }
    references = {row["object_name"]: row for row in rows_of(out, found, "references")}
    assert {name: (row["class"], row["protecting"], row["other_object"]) for name, row in references.items()} == {
        NAMES[0]: ("duplicate", True, NAMES[1]),
        NAMES[1]: ("duplicate", True, NAMES[0]),
        NAMES[2]: ("present", False, None),
        "x": ("missing", True, None),
    }
    assert references["x"]["key_hash"] == b"b" * 16
    assert all(file.name.startswith("run/1/") for file in (*found.objects, *found.references))

    summary = found.summary
    assert summary.by_day == (
        ObjectsOfDay(ObjectClass.EXPIRED, "2024-09-25", 1, 105, 1, 105),
        ObjectsOfDay(ObjectClass.EXPIRED, "2024-10-01", 1, 102, 1, 102),
        ObjectsOfDay(ObjectClass.ORPHANED, "2024-10-01", 1, 103, 1, 103),
        ObjectsOfDay(ObjectClass.REFERENCED, "2024-10-01", 1, 101, 0, 0),
        ObjectsOfDay(ObjectClass.REFERENCED, "2024-10-03", 1, 100, 0, 0),
        ObjectsOfDay(ObjectClass.TOO_YOUNG, "2024-10-04", 1, 104, 0, 0),
    )
    assert ObjectsOfTable(ObjectClass.EXPIRED, "shop", "orders", 1, 102) in summary.objects_by_table
    assert summary.references_by_table == (
        ReferencesOfTable(ReferenceClass.DUPLICATE, "shop", "orders", 2, 2),
        ReferencesOfTable(ReferenceClass.MISSING, "shop", "orders", 1, 1),
        ReferencesOfTable(ReferenceClass.PRESENT, "shop", "orders", 1, 0),
    )
    assert (summary.deletable, summary.lost_rows, summary.bytes(ObjectClass.EXPIRED)) == (3, 1, 207)


def test_a_store_without_any_reference(spark: SparkSession, tmp_path: Path) -> None:
    place = StoreAddress(tmp_path.as_uri(), None)
    rows = [{"name": NAMES[0], "size": 1, "etag": "e", "last_modified_ms": NOW - 3 * DAY}]
    objects = Sources(place, (write(tmp_path, "objects.parquet", records.OBJECTS, rows),))
    found = classify(spark, objects, [], EVIDENCE, place, "run", 2)
    assert [row["class"] for row in rows_of(tmp_path, found, "objects")] == ["orphaned"]
    assert found.references == ()
    assert found.summary.references_by_table == ()


def test_what_a_decode_left_is_read_with_its_pipeline_and_the_ids_of_its_topics(tmp_path: Path) -> None:
    rows = [reference(NAMES[0], 10, b"a"), reference(NAMES[1], 11, b"b", topic="other")]
    files = [
        write(tmp_path, f"{number}.parquet", side_files.REFERENCES, [{**row, "location": "s3://x", "status": "used"}])
        for number, row in enumerate(rows)
    ]
    place = StoreAddress(tmp_path.as_uri(), None)
    decoded = DecodedBy("shop", {"t": "id", "other": "id2", "third": "id3"})
    sources = [Sources(place, tuple(files), decoded)]
    (parts,) = plan_reading(sources).tasks
    found = [row for batch in read_parts(sources, parts, records.REFERENCES, 10) for row in batch.to_pylist()]
    assert found == [
        {**dict.fromkeys(records.REFERENCES.names), **row, "pipeline": "shop", "topic_id": topic_id, "source": "decode",
         "status": "used"}
        for row, topic_id in zip(rows, ["id", "id2"], strict=True)
    ]  # fmt: skip


def test_a_decode_s_file_with_a_topic_that_it_did_not_read_is_refused(tmp_path: Path) -> None:
    row = {**reference(NAMES[0], 10, b"a"), "location": "s3://x", "status": "used"}
    name = write(tmp_path, "references.parquet", side_files.REFERENCES, [row])
    sources = [Sources(StoreAddress(tmp_path.as_uri(), None), (name,), DecodedBy("shop", {"other": "id"}))]
    with pytest.raises(ArtifactCorruptError, match="references from t, which its run did not read"):
        list(read_parts(sources, [GroupRange(0, name, 0, 1)], records.REFERENCES, 10))


def test_a_file_that_is_gone_or_damaged_is_named(tmp_path: Path) -> None:
    place = StoreAddress(tmp_path.as_uri(), None)
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(ArtifactNotFoundError, match=r"gone\.parquet is gone: reconcile again"):
        plan_reading([Sources(place, ("gone.parquet",))])
    with pytest.raises(ArtifactCorruptError, match=r"damaged\.parquet is no longer a Parquet file"):
        plan_reading([Sources(place, ("damaged.parquet",))])


def test_tasks_read_about_equally_much(tmp_path: Path) -> None:
    rows = [{"name": NAMES[0], "size": 1, "etag": "e", "last_modified_ms": 0}] * 3
    names = tuple(write(tmp_path, f"{number}.parquet", records.OBJECTS, rows) for number in range(200))
    sources = [Sources(StoreAddress(tmp_path.as_uri(), None), names)]
    plan = plan_reading(sources)
    assert (len(plan.tasks), plan.rows) == (4, 600)
    assert plan.bytes > 0
    assert plan.tasks[0][0] == GroupRange(0, "0.parquet", 0, 2)
    assert [part.name for parts in plan.tasks for part in parts] == list(names)


def test_the_objects_of_a_plan_are_judged_again_without_judging_references(spark: SparkSession, tmp_path: Path) -> None:
    objects = [
        {"name": name, "size": 1, "etag": "e", "last_modified_ms": NOW - 3 * DAY, "class": "orphaned"}
        for name in NAMES[:2]
    ]
    of_plan = pa.schema([pa.field("class", pa.string()), *records.OBJECTS])
    place, out = StoreAddress(tmp_path.as_uri(), None), tmp_path / "out"
    plan = Sources(place, (write(tmp_path, "plan.parquet", of_plan, objects),))
    rows = [reference(NAMES[1], 11, b"a"), reference(NAMES[2], 12, b"b")]
    sources = [Sources(place, (write(tmp_path, "scan.parquet", records.REFERENCES, rows),))]

    found = classify_objects(spark, plan, sources, EVIDENCE, StoreAddress(out.as_uri(), None), "rechecks/1", 2)

    judged = {row["name"]: (row["class"], row["deletable"]) for row in rows_of(out, found, "objects")}
    assert judged == {NAMES[0]: ("orphaned", True), NAMES[1]: ("referenced", False)}
    assert [(day.kind, day.objects, day.deletable) for day in found.summary.by_day] == [
        (ObjectClass.ORPHANED, 1, 1),
        (ObjectClass.REFERENCED, 1, 0),
    ]
    assert [path.name for path in (out / "rechecks/1").iterdir()] == ["objects"]


def test_a_plan_is_judged_again_as_the_reconciliation_judges_whatever_became_of_a_reference(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each object with two references of different statuses, as of a decode and a later re-drive, to it as it is or was."""
    statuses = [
        "used",
        "not_needed",
        records.SEEN,
        UNREADABLE,
        REPLACED,
        "claim_check_missing",
        "claim_check_too_large",
    ]
    pairs = [*itertools.product(statuses, statuses, ("e", "f", None), (11, 1))]
    names = [f"{uuid.UUID(int=number)}.json" for number in range(len(pairs))]
    objects = [{"name": name, "size": 1, "etag": "e", "last_modified_ms": NOW - 3 * DAY} for name in names]
    rows = [
        reference(name, offset, b"a", status=status, etag=etag, size=None if etag is None else 1)
        for name, (first, last, etag, offset) in zip(names, pairs, strict=True)
        for status in (first, last)
    ]
    place, out = StoreAddress(tmp_path.as_uri(), None), tmp_path / "out"
    inventory = Sources(place, (write(tmp_path, "objects.parquet", records.OBJECTS, objects),))
    sources = [Sources(place, (write(tmp_path, "scan.parquet", records.REFERENCES, rows),))]

    full = classify(spark, inventory, sources, EVIDENCE, StoreAddress(out.as_uri(), None), "reconciliations/1", 2)
    again = classify_objects(spark, inventory, sources, EVIDENCE, StoreAddress(out.as_uri(), None), "rechecks/1", 2)

    judged = {row["name"]: row for row in rows_of(out, full, "objects")}
    assert {row["name"]: row for row in rows_of(out, again, "objects")} == judged
    assert {row["class"] for row in judged.values()} == {"malformed", "referenced", "expired"}
    assert again.summary.by_day == full.summary.by_day


@pytest.mark.integration
def test_files_on_s3_are_read_and_written_with_the_connection_and_spark_is_told_nothing_of_it(
    spark: SparkSession, versitygw: VersityGateway, tmp_path: Path
) -> None:
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    s3_client_of(versitygw).create_bucket(Bucket=bucket)
    extra = {"endpoint_url": versitygw.endpoint, "region_name": versitygw.region}
    connection = Connection("s3", "aws", login=versitygw.access_key, password=versitygw.secret_key, extra=extra)
    place = StoreAddress(f"s3://{bucket}/reconciliation", connection)
    store = place.open()
    objects = [{"name": name, "size": 1, "etag": "e", "last_modified_ms": NOW - 3 * DAY} for name in NAMES[:3]]
    decoded = {**reference(NAMES[1], 9, b"b"), "location": "s3://x", "status": "used", "etag": "f"}
    for name, schema, rows in (
        ("objects.parquet", records.OBJECTS, objects),
        ("scan.parquet", records.REFERENCES, [reference(NAMES[0], 11, b"a"), reference(NAMES[5], 12, b"c")]),
        ("decode.parquet", side_files.REFERENCES, [decoded]),
    ):
        store.put(name, (tmp_path / write(tmp_path, name, schema, rows)).read_bytes())
    inventory = Sources(place, ("objects.parquet",))
    references = [
        Sources(place, ("scan.parquet",)),
        Sources(place, ("decode.parquet",), DecodedBy("shop", {"t": "id"})),
    ]

    found = classify(spark, inventory, references, EVIDENCE, place, "run", 2)
    again = classify_objects(spark, inventory, references, EVIDENCE, place, "again", 2)

    filesystem, root = store.arrow_filesystem()

    def classes(files: Sequence[ClassifiedFile], name: str) -> dict[str, str]:
        tables = [pq.read_table(f"{root}/{file.name}", filesystem=filesystem) for file in files]
        return {row[name]: row["class"] for table in tables for row in table.to_pylist()}

    judged = {NAMES[0]: "referenced", NAMES[1]: "expired", NAMES[2]: "orphaned"}
    assert classes(found.objects, "name") == classes(again.objects, "name") == judged
    assert classes(found.references, "object_name") == {
        NAMES[0]: "present",
        NAMES[1]: "altered",
        NAMES[5]: "missing",
    }
    names = {entry.name for entry in store.list()}
    assert len(names) == 3 + len(found.objects) + len(found.references) + len(again.objects), "no object for a folder"
    assert versitygw.secret_key not in str(spark.sparkContext.getConf().getAll())
