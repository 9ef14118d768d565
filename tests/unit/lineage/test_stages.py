"""What lineage says of a run, from what the run left behind."""

from functools import partial

from msgspec import structs

from ticdc_replay.changelog.files.index import (
    ChangelogIndex,
    DataFile,
    DecodeReport,
    EventCounts,
    MessageCounts,
    TableVersion,
)
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.dataset_names import DatasetName, kafka_namespace, of_table, of_uri
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.domain.window import Window
from ticdc_replay.lineage.datasets import (
    ClaimChecks,
    Dataset,
    Rows,
    TopicRanges,
)
from ticdc_replay.lineage.stages import DecodedRun
from ticdc_replay.snapshot.manifest import Manifest, ManifestSource, PartitionPin, PinnedFile, SharedInput, TopicPin
from ticdc_replay.targets import base

WINDOW = Window(1000, 2000)
ORDERS = TableName("shop", "orders")
POSTGRES = Connection("warehouse", "postgres", host="db", port=5432, schema="sales", password="hunter2")
IN_POSTGRES = partial(
    read_section({"name": "warehouse", "type": "postgres", "connection": "warehouse"}).dataset_names, POSTGRES
)
IN_FILES = partial(
    read_section({"name": "lake", "type": "parquet", "uri": "s3://lake", "connection": "s3"}).dataset_names, None
)
IN_ICEBERG = partial(
    read_section(
        {
            "name": "iceberg",
            "type": "iceberg",
            "catalog": "lakehouse",
            "connection": "lakehouse",
            "ledger": "file:///ledger",
        }
    ).dataset_names,
    Connection("lakehouse", "generic", extra={"type": "hadoop", "warehouse": "s3a://lake/tables/"}),
)

MANIFEST = Manifest(
    pipeline="shop",
    changefeed_hash="c",
    window=WINDOW,
    grade="proven",
    topics=(
        TopicPin(
            "shop",
            "topic-id",
            (
                PartitionPin(OffsetRange("shop", 0, 10, 25), live=True, resolved_ts=2000, start_margin_ms=1),
                PartitionPin(OffsetRange("shop", 1, 7, 7), live=False, resolved_ts=None, start_margin_ms=None),
            ),
        ),
    ),
    inventory=PinnedFile("s3://lake/replay/shop/inventories/abc.parquet", "abc", 9),
    pinned_at_ms=5,
)
INDEX = ChangelogIndex(
    pipeline="shop",
    run_hash="run1",
    input_hash=MANIFEST.input_hash,
    library_version="1.0",
    window=WINDOW,
    ranges=tuple(MANIFEST.ranges()),
    tables=(
        TableVersion(
            TableSchema(ORDERS, ()),
            "v1",
            declared=True,
            files=(DataFile("a", 30, 300, 1000, 1999), DataFile("b", 12, 120, 1000, 1999)),
            rows=42,
        ),
    ),
    ddl=(),
    changes=(),
    quarantine_files=(),
    reference_files=(),
    sparse_index_files=(),
    report=DecodeReport(
        messages=MessageCounts(consumed=15),
        events=EventCounts(rows=50, duplicates=8, written=42, claim_checks_resolved=3, claim_check_bytes=7000),
        quarantine_reasons={},
        watermark=2000,
        undeclared_tables=(),
    ),
)
LOAD = base.LoadReport(
    pipeline="shop",
    run_hash="run1",
    input_hash=MANIFEST.input_hash,
    window=WINDOW,
    target="warehouse",
    type="postgres",
    attempt="a1",
    selection=("*.*",),
    tables=(
        base.TableReport(
            table=ORDERS,
            outcome="loaded",
            destination="shop.orders",
            fields=(base.TargetColumn("id", "bigint"), base.TargetColumn("total", "numeric(10,2)")),
            upserted=20,
            deleted=5,
            superseded=3,
        ),
        base.TableReport(table=TableName("shop", "audit"), outcome="without_key", destination="shop.audit"),
    ),
)


SOURCE = DecodedRun(
    manifest=MANIFEST,
    index=INDEX,
    artifacts_uri="s3://lake/replay/shop",
    bootstrap_servers="broker-1:9092,broker-2:9092",
    claim_check_uri="s3://claims/shop",
)
TOPIC = Dataset(
    namespace="kafka://broker-1:9092",
    name="shop",
    topic=TopicRanges("topic-id", (OffsetRange("shop", 0, 10, 25),)),
)
CLAIMS = Dataset(
    namespace="s3://claims", name="shop", claim_checks=ClaimChecks(inventory="abc", listed=9, resolved=3, bytes=7000)
)
MIRROR = Dataset(
    namespace="postgres://db:5432",
    name="sales.shop.orders",
    fields=(base.TargetColumn("id", "bigint"), base.TargetColumn("total", "numeric(10,2)")),
    written=Rows(25),
)


def test_a_decode_reads_offsets_and_claim_checks_and_writes_a_version_of_the_changelog():
    lineage = SOURCE.decoded()
    assert lineage.inputs == (TOPIC, CLAIMS)
    assert lineage.outputs == (
        Dataset(namespace="s3://lake", name="replay/shop/runs", version="run1", written=Rows(42, 420, 2)),
    )


def test_a_load_goes_from_the_changelog_to_the_tables_it_wrote():
    lineage = SOURCE.loaded(LOAD, IN_POSTGRES)
    assert lineage.inputs == (Dataset(namespace="s3://lake", name="replay/shop/runs", version="run1"),)
    assert lineage.outputs == (MIRROR,)


def test_publishing_joins_kafka_with_the_tables():
    lineage = SOURCE.published([(LOAD, IN_POSTGRES)])
    assert (lineage.inputs, lineage.outputs) == ((TOPIC, CLAIMS), (MIRROR,))


def test_the_run_can_be_read_again_from_its_lineage():
    run = SOURCE.decoded().run
    assert (run.from_ts, run.to_ts, run.grade) == (1000, 2000, "proven")
    assert run.manifest == f"s3://lake/replay/shop/manifests/{MANIFEST.input_hash}.json"
    assert (run.input_hash, run.run_hash) == (MANIFEST.input_hash, "run1")
    assert (run.messages, run.events, run.duplicates) == (15, 50, 8)


def test_a_changefeed_without_claim_check_has_its_topic_as_only_input():
    source = DecodedRun(
        manifest=MANIFEST, index=INDEX, artifacts_uri="file:///a", bootstrap_servers="b:9092", claim_check_uri=None
    )
    assert [dataset.name for dataset in source.decoded().inputs] == ["shop"]


def test_names_follow_openlineage_s_conventions():
    assert kafka_namespace(" broker-1:9092 , broker-2:9092") == "kafka://broker-1:9092"
    assert of_uri("s3://bucket/a/b/") == DatasetName("s3://bucket", "a/b")
    assert of_uri("s3a://bucket") == DatasetName("s3://bucket", "/")
    assert of_uri("file:///var/lake%20house/") == DatasetName("file", "/var/lake house")
    assert of_uri("s3://bucket").below("a", "b") == DatasetName("s3://bucket", "a/b")
    assert of_uri("file:///").below("a") == DatasetName("file", "/a")
    assert of_table(POSTGRES, '"shop"."a ""b"".c"') == DatasetName("postgres://db:5432", 'sales.shop.a "b".c')
    assert of_table(POSTGRES, "public.t") == DatasetName("postgres://db:5432", "sales.public.t")


def test_lineage_of_folders_is_named_by_their_uri():
    table = base.TableReport(table=ORDERS, outcome="loaded", destination="s3://lake/shop/orders", upserted=1)
    [output] = SOURCE.loaded(structs.replace(LOAD, tables=(table,)), IN_FILES).outputs
    assert (output.namespace, output.name, output.version) == ("s3://lake", "shop/orders", None)


def test_lineage_of_a_lake_table_has_its_folder_its_catalog_and_its_snapshot() -> None:
    table = structs.replace(LOAD.tables[0], destination='"shop"."orders"', commit="8712")
    [output] = SOURCE.loaded(structs.replace(LOAD, tables=(table,)), IN_ICEBERG).outputs
    assert output == structs.replace(
        MIRROR,
        namespace="s3://lake",
        name="tables/shop/orders",
        other_names=(DatasetName("s3a://lake/tables", "shop.orders"),),
        version="8712",
    )


def source(manifest: Manifest, index: ChangelogIndex) -> DecodedRun:
    return DecodedRun(
        manifest=manifest,
        index=index,
        artifacts_uri="s3://lake/replay/shop",
        bootstrap_servers="broker-1:9092,broker-2:9092",
        claim_check_uri=None,
    )


def test_a_window_out_of_changelogs_comes_from_these_and_one_that_shares_a_decode_from_the_topics_too() -> None:
    parts = tuple(
        ManifestSource(run, "x", window) for run, window in (("a", Window(1000, 1500)), ("b", Window(1500, 2000)))
    )
    index = structs.replace(INDEX, derived=parts)
    runs = [Dataset(namespace="s3://lake", name="replay/shop/runs", version=run) for run in ("a", "b")]
    assert list(source(structs.replace(MANIFEST, derived=parts), index).decoded().inputs) == runs
    topics = (TopicPin("shop", "topic-id", ()),)
    shared = structs.replace(MANIFEST, topics=topics, shared=SharedInput("manifests/w.json", "w", Window(0, 9000)))
    topic = Dataset(
        namespace=kafka_namespace("broker-1:9092,broker-2:9092"), name="shop", topic=TopicRanges("topic-id", ())
    )
    assert list(source(shared, index).decoded().inputs) == [topic, *runs]
