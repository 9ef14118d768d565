"""The sample changefeed, window by window, through the stages and Spark into PostgreSQL and Parquet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from demo.sample import contents
from demo.sample.publish import publish as publish_sample
from demo.verify import verify
from tests.support.waiting import PATIENCE_S
from ticdc_replay import jobspec
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ArtifactNotFoundError, ExpiredRangeError
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.drivers.load import run_load
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.coverage import Held, Span, coverage
from ticdc_replay.stages.load.publish import RunReport, publish
from ticdc_replay.stages.window.jobs import write_decode_job, write_load_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.stages.window.watermark import require_watermark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka
    from demo.embedded_stack.s3 import MotoServer

pytestmark = [pytest.mark.spark, pytest.mark.integration]

PIPELINE = """\
name: shop
changefeed:
  sink_uri: kafka://broker:9092/{topic}?protocol=open-protocol&partition-num=3&max-message-bytes=4000
  timezone: Asia/Shanghai
  config: |
    [sink.kafka-config.large-message-handle]
    large-message-handle-option = "claim-check"
    claim-check-storage-uri = "s3://{bucket}/claim-check"
connections: {{kafka: kafka, claim_check: s3}}
artifacts: file://{folder}/artifacts
schedule: {{start: "2026-03-02T00:00:00Z"}}
limits: {{split_bytes: {split_bytes}}}
targets:
  - {{name: warehouse, type: postgres, connection: warehouse}}
  - {{name: lake, type: parquet, uri: "file://{folder}/lake"}}
"""

WINDOWS = [Window(window.from_ts, window.to_ts) for window in contents.windows()]


class Published:
    """The sample in Kafka and S3."""

    def __init__(self, topic: str, bucket: str) -> None:
        self.topic = topic
        self.bucket = bucket


@pytest.fixture(scope="module")
def published(kafka: Kafka, s3: MotoServer) -> Published:
    import uuid

    from tests.conftest import s3_client_of

    client = s3_client_of(s3)
    name = f"sample-{uuid.uuid4().hex[:8]}"
    client.create_bucket(Bucket=name)
    publish_sample(kafka.bootstrap, name, client, name, "claim-check/")
    return Published(name, name)


MakeContext = Callable[..., ReplayContext]


@pytest.fixture
def make_context(
    kafka: Kafka, s3: MotoServer, published: Published, make_database: Callable[[], str], tmp_path: Path
) -> Iterator[MakeContext]:
    """Makes a pipeline on the sample with artefacts and targets of its own."""
    made: list[ReplayContext] = []
    numbers = itertools.count()

    def make(split_bytes: int = 1_000_000, edit: Callable[[str], str] = str) -> ReplayContext:
        folder = tmp_path / f"pipeline{next(numbers)}"
        folder.mkdir()
        text = PIPELINE.format(topic=published.topic, bucket=published.bucket, folder=folder, split_bytes=split_bytes)
        (folder / "shop.yaml").write_text(edit(text))
        dsn = psycopg.conninfo.conninfo_to_dict(make_database())
        connections = Connections(
            {
                "kafka": Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap}),
                "s3": Connection(
                    "s3",
                    "aws",
                    login=s3.access_key,
                    password=s3.secret_key,
                    extra={"endpoint_url": s3.endpoint, "region_name": s3.region},
                ),
                "warehouse": Connection(
                    "warehouse",
                    "postgres",
                    str(dsn["host"]),
                    int(str(dsn["port"])),
                    str(dsn["user"]),
                    str(dsn.get("password", "")),
                    str(dsn["dbname"]),
                ),
            }
        )
        context = ReplayContext(load_pipeline(folder / "shop.yaml"), connections)
        made.append(context)
        return context

    yield make
    for context in made:
        context.__exit__()


def decode_job(context: ReplayContext, window: Window, *, repin: bool = False) -> jobspec.DecodeJob:
    """Pin *window* as the DAG does; the job that decodes it."""
    require_watermark(context, window)
    written = write_decode_job(context, pin(context, window, repin=repin))
    name = written.uri.removeprefix(context.artifacts_uri + "/")
    job = jobspec.decode(context.artifacts.get(name))
    assert isinstance(job, jobspec.DecodeJob)
    return job


def decode(spark: SparkSession, context: ReplayContext, window: Window, *, repin: bool = False) -> ChangelogIndex:
    """Pin and decode *window* as the DAG does."""
    return run_decode(SparkRunner(spark), decode_job(context, window, repin=repin), context.connections)


def replay(
    spark: SparkSession,
    context: ReplayContext,
    window: Window,
    targets: tuple[str, ...] = ("warehouse", "lake"),
    *,
    reload: bool = False,
) -> RunReport:
    """The whole DAG for *window*."""
    run_hash = decode(spark, context, window).run_hash
    check(context, run_hash)
    for target in targets:
        written = write_load_job(context, run_hash, target, reload=reload)
        job = jobspec.decode(context.artifacts.get(written.uri.removeprefix(context.artifacts_uri + "/")))
        assert isinstance(job, jobspec.LoadJob)
        run_load(SparkRunner(spark), job, context.connections)
    return publish(context, run_hash, targets)


def warehouse(context: ReplayContext) -> str:
    """The DSN of the target database."""
    at = context.connections["warehouse"]
    return f"postgresql://{at.login}:{at.password}@{at.host}:{at.port}/{at.schema}"


def assert_equal_to_expected(context: ReplayContext) -> None:
    checks = verify(warehouse(context))
    assert [(check.table, check.differences) for check in checks if not check.equal] == []
    assert {check.table: check.rows for check in checks} == contents.summary()["rows"]


def content(context: ReplayContext, index: ChangelogIndex) -> list[str]:
    """The rows of a changelog as sorted text, without what depends on how work was divided."""
    filesystem, base = context.artifacts.arrow_filesystem()
    lines = []
    for table in index.tables:
        for file in table.files:
            path = f"{base}/{changelog_root(index.run_hash)}/{file.name}"
            for row in pq.read_table(path, filesystem=filesystem, partitioning=None).to_pylist():
                lines.append(f"{table.schema.name} {table.version} {row!r}")
    return sorted(lines)


def left(context: ReplayContext, index: ChangelogIndex) -> set[str]:
    """What lies in the folder of a changelog."""
    root = changelog_root(index.run_hash)
    return {entry.name.removeprefix(f"{root}/") for entry in context.artifacts.list(f"{root}/")}


def references(context: ReplayContext, index: ChangelogIndex) -> list[dict[str, Any]]:
    filesystem, base = context.artifacts.arrow_filesystem()
    root = f"{base}/{changelog_root(index.run_hash)}"
    return [
        row
        for name in index.reference_files
        for row in pq.read_table(f"{root}/{name}", filesystem=filesystem, partitioning=None).to_pylist()
    ]


def used_object(window: Window) -> str:
    """The name of an object that a message of *window* needs."""
    written = range(tso.physical_ms(window.from_ts), tso.physical_ms(window.to_ts))
    return min(each.name for each in contents.objects() if each.written_ms in written and not each.orphan)


def unlisted(text: str) -> str:
    """The pipeline *text* with the listing of claim-check objects off."""
    return text.replace("schedule:", "window: {list_claim_check_store: false}\nschedule:")


@contextmanager
def put_back(context: ReplayContext, name: str) -> Iterator[None]:
    """What is done to a claim-check object is undone in the end."""
    store = context.claim_check
    assert store is not None
    content = store.get(name)
    try:
        yield
    finally:
        store.put(name, content)


@pytest.mark.matrix
def test_the_windows_one_after_the_other_give_the_expected_tables(
    spark: SparkSession, make_context: MakeContext
) -> None:
    context = make_context()
    for window, expected in zip(WINDOWS, contents.windows(), strict=True):
        report = replay(spark, context, window)
        assert report.events.written == sum(sum(operations.values()) for operations in expected.tables.values())
        assert report.quarantine_reasons == {}
    assert_equal_to_expected(context)
    loaded = Span(Window(WINDOWS[0].from_ts, WINDOWS[-1].to_ts), Held("complete", "proven"))
    for target in coverage(context.pipeline, context.state):
        names = [target.target.name, *(str(table) for table in contents.summary()["rows"])]
        assert {table.name: table.spans for table in (target.target, *target.tables)} == dict.fromkeys(names, (loaded,))


def test_windows_in_any_order_and_twice_give_the_expected_tables(
    spark: SparkSession, make_context: MakeContext
) -> None:
    context = make_context()
    for at in (1, 3, 0, 2):
        replay(spark, context, WINDOWS[at], ("warehouse",))
    replay(spark, context, WINDOWS[1], ("warehouse",))
    replay(spark, context, WINDOWS[3], ("warehouse",), reload=True)
    assert_equal_to_expected(context)


def test_a_window_is_the_same_however_it_is_split(spark: SparkSession, make_context: MakeContext) -> None:
    indexes = []
    for split_bytes in (150_000, 100_000_000):
        context = make_context(split_bytes=split_bytes)
        index = decode(spark, context, WINDOWS[2])
        indexes.append((index, content(context, index)))
    (first, first_rows), (second, second_rows) = indexes
    assert first_rows == second_rows
    assert first.run_hash == second.run_hash
    events = [msgspec.structs.asdict(index.report.events) for index in (first, second)]
    assert events[0] == events[1]
    assert first.report.events.duplicates > 0


def test_a_second_decode_finds_the_changelog_and_reads_nothing(spark: SparkSession, make_context: MakeContext) -> None:
    context = make_context()
    index = decode(spark, context, WINDOWS[0])
    assert decode(spark, context, WINDOWS[0]) == index == read_index(context.artifacts, index.run_hash)


def test_only_files_of_the_index_are_left(spark: SparkSession, make_context: MakeContext) -> None:
    context = make_context()
    index = decode(spark, context, WINDOWS[2])
    data = {file.name for table in index.tables for file in table.files}
    assert left(context, index) == {*data, *index.reference_files, *index.sparse_index_files, "index.json"}


def test_every_reference_of_the_range_is_recorded(spark: SparkSession, make_context: MakeContext) -> None:
    context = make_context(edit=lambda text: text.replace("schedule:", 'tables: ["shop.*"]\nschedule:'))
    index = decode(spark, context, WINDOWS[3])
    rows = references(context, index)
    assert rows
    assert {row["status"] for row in rows} == {"not_needed"}
    assert {row["schema"] for row in rows} == {"devlarge"}


def test_attempts_that_decode_a_window_at_once_return_one_changelog_and_leave_its_files_alone(
    spark: SparkSession, make_context: MakeContext
) -> None:
    context = make_context(split_bytes=150_000)
    job = decode_job(context, WINDOWS[2])
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: run_decode(SparkRunner(spark), job, context.connections), range(2))
    assert first == second == read_index(context.artifacts, job.run_hash)
    assert len(content(context, first)) == first.report.events.written
    assert left(context, first) == {*first.files(), "index.json"}


def lose(context: ReplayContext, index: ChangelogIndex) -> list[str]:
    """Remove files of *index* as a lifecycle rule does, one of each kind; their names."""
    names = [index.tables[0].files[0].name, index.reference_files[0], index.sparse_index_files[0]]
    for name in names:
        context.artifacts.delete(f"{changelog_root(index.run_hash)}/{name}")
    return names


def test_a_changelog_of_which_files_are_gone_is_decoded_anew_into_the_same_rows(
    spark: SparkSession, make_context: MakeContext, caplog: pytest.LogCaptureFixture
) -> None:
    context = make_context(split_bytes=150_000)
    job = decode_job(context, WINDOWS[2])
    whole = run_decode(SparkRunner(spark), job, context.connections)
    rows = content(context, whole)
    load = jobspec.decode(
        context.artifacts.get(
            write_load_job(context, job.run_hash, "lake").uri.removeprefix(context.artifacts_uri + "/")
        )
    )
    assert isinstance(load, jobspec.LoadJob)
    lost = lose(context, whole)
    with pytest.raises(ArtifactNotFoundError, match="decode the window again"):
        run_load(SparkRunner(spark), load, context.connections)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: run_decode(SparkRunner(spark), job, context.connections), range(2))
    assert first == second == read_index(context.artifacts, job.run_hash)
    assert content(context, first) == rows
    assert first.report == whole.report
    assert left(context, first) == {*first.files(), "index.json"}
    assert all(name in caplog.text for name in lost)
    assert {table.outcome for table in run_load(SparkRunner(spark), load, context.connections).tables} == {"loaded"}


def test_a_changelog_of_which_files_are_gone_stays_as_it_is_where_kafka_has_expired_its_range(
    spark: SparkSession, make_context: MakeContext, kafka: Kafka, s3: MotoServer, published: Published
) -> None:
    from tests.conftest import s3_client_of

    topic = f"{published.topic}-expiring"
    publish_sample(kafka.bootstrap, topic, s3_client_of(s3), published.bucket, "claim-check/")
    context = make_context(edit=lambda text: text.replace(published.topic, topic, 1))
    job = decode_job(context, WINDOWS[0])
    index = run_decode(SparkRunner(spark), job, context.connections)
    (removed, *_) = [TopicPartition(part.topic, part.partition, part.start + 1) for part in index.ranges]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_records([removed])[removed].result(PATIENCE_S)
    assert run_decode(SparkRunner(spark), job, context.connections) == index
    (name, *_) = lose(context, index)
    with pytest.raises(ExpiredRangeError) as raised:
        run_decode(SparkRunner(spark), job, context.connections)
    text = str(raised.value)
    assert name in text
    assert (
        f"Kafka no longer holds {topic}[{removed.partition}] offsets {removed.offset - 1} to {removed.offset - 1}"
        in text
    )
    assert read_index(context.artifacts, job.run_hash) == index


def test_an_object_that_is_replaced_after_pinning_is_set_aside(spark: SparkSession, make_context: MakeContext) -> None:
    context, name = make_context(), used_object(WINDOWS[3])
    job = decode_job(context, WINDOWS[3])
    assert context.claim_check is not None
    with put_back(context, name):
        context.claim_check.put(name, b"another")
        index = run_decode(SparkRunner(spark), job, context.connections)
    assert set(index.report.quarantine_reasons) == {"claim_check_altered"}
    assert {row["object_name"] for row in references(context, index) if row["status"] != "used"} >= {name}
    # What is there now counts where the window is pinned anew.
    assert decode(spark, context, WINDOWS[3], repin=True).report.quarantine_reasons == {}


def test_a_restored_object_is_used_by_pinning_anew_also_where_the_store_is_not_listed(
    spark: SparkSession, make_context: MakeContext
) -> None:
    context, name = make_context(edit=unlisted), used_object(WINDOWS[3])
    assert context.claim_check is not None
    with put_back(context, name):
        context.claim_check.delete(name)
        missing = decode(spark, context, WINDOWS[3])
        assert set(missing.report.quarantine_reasons) == {"claim_check_missing"}
    assert decode(spark, context, WINDOWS[3]) == missing
    restored = decode(spark, context, WINDOWS[3], repin=True)
    assert restored.ranges == missing.ranges
    assert restored.report.quarantine_reasons == {}


def test_another_selection_of_tables_holds_to_the_objects_that_were_used(
    spark: SparkSession, make_context: MakeContext
) -> None:
    context = make_context(edit=unlisted)
    used = [row for row in references(context, decode(spark, context, WINDOWS[3])) if row["status"] == "used"]
    name, table = used[0]["object_name"], f"{used[0]['schema']}.{used[0]['table']}"
    written = write_decode_job(context, pin(context, WINDOWS[3]), (table,))
    job = jobspec.decode(context.artifacts.get(written.uri.removeprefix(context.artifacts_uri + "/")))
    assert isinstance(job, jobspec.DecodeJob)
    assert context.claim_check is not None
    with put_back(context, name):
        context.claim_check.put(name, b"another")
        index = run_decode(SparkRunner(spark), job, context.connections)
    assert set(index.report.quarantine_reasons) == {"claim_check_altered"}
