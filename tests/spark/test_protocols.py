"""A capture of each protocol, from Kafka through pinning and Spark into PostgreSQL: the mirror ends as the upstream did."""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import boto3
import pyarrow.parquet as pq
import pytest

from tests.expected import expected_events
from tests.expected.cells import same_cell
from tests.expected.wire import Wire
from tests.integration.targets.conftest import Mirror
from tests.integration.targets.test_captures import Json, SameCell, assert_same_rows, last_rows, same
from tests.support.capture_sets import CaptureSets, Committed
from tests.support.published_captures import Topics
from tests.support.schema_registry import Registry, serve
from ticdc_replay import jobspec
from ticdc_replay.captures import Capture, changefeed_toml
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.table_patterns import TablePatterns
from ticdc_replay.domain.window import Grade, Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.drivers.load import run_load
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.coverage import coverage
from ticdc_replay.stages.load.publish import publish as publish_run
from ticdc_replay.stages.window.jobs import write_decode_job, write_load_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.targets.base import LoadReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka
    from tests.conftest import MakeTopic

pytestmark = [pytest.mark.spark, pytest.mark.integration]

LAG_MS = 350
"""How much later than its commit each message of a capture was recorded."""
LARGE = ("devlarge.*",)
KEYS = tuple(
    f"devdb.{name}"
    for name in ("bin_pk", "comp_pk", "comp_pk_nc", "ledger2", "neg_pk", "part_h", "part_l", "str_pk", "uk_nullable")
)
"""Tables of ``main`` with a primary key and without DDL but their CREATE TABLE: at what others do, a mirror stops."""
TYPES = (*KEYS, "devdb.all_types", "devdb.bigu_pk", "devdb.defaults_t", "devdb.gen_t")
"""Also those that TiCDC's Debezium-Avro has no rows of, since its default for unsigned 64 bits can't hold them."""
NUL, NO_DATES, ROUNDED = frozenset({4}), frozenset({5, 6}), frozenset({3})
"""Rows of ``all_types`` that PostgreSQL can't hold: with the character NUL, with zero or partial dates (NULL in Debezium), and
with decimals of nothing but nines, which Debezium's doubles round up beyond the column's type."""


class Case(NamedTuple):
    """A capture, the grade that a window over it can have, and the tables of it that are mirrored."""

    capture: Committed
    grade: Grade
    tables: tuple[str, ...]
    refused: frozenset[int] = frozenset()
    """Rows of ``all_types`` that do not get into the mirror."""

    def __str__(self) -> str:
        return str(self.capture)


CASES = (
    Case(Committed("open", "new", "open-claim-check-lz4"), "proven", LARGE),
    Case(Committed("canal-json", "classic", "canal-json-claim-check-raw-snappy"), "proven", LARGE),
    Case(Committed("simple-json", "new", "simple-json-claim-check"), "proven", LARGE),
    Case(Committed("simple-avro", "classic", "simple-avro-claim-check-raw"), "proven", LARGE),
    Case(Committed("debezium", "new", "debezium-ext"), "proven", TYPES, NUL | ROUNDED),
    Case(Committed("debezium", "new", "debezium"), "unproven", TYPES, NUL | ROUNDED),
    Case(Committed("debezium", "new", "debezium-avro"), "unproven", KEYS),
    Case(Committed("avro", "new", "avro-before-value"), "unproven", TYPES, NUL | NO_DATES),
    Case(Committed("avro", "new", "avro-ext"), "offset", TYPES, NUL | NO_DATES),
    Case(Committed("avro", "classic", "avro-default"), "offset", TYPES, NUL | NO_DATES),
    Case(Committed("avro", "classic", "avro-glue"), "offset", TYPES, NUL | NO_DATES),
    Case(Committed("canal-json", "new", "canal-json"), "offset", TYPES, NUL | NO_DATES),
)

OF_MATRIX = (CASES[0], CASES[4])
"""One with claim checks, and one with all types."""

PIPELINE = """\
name: every
changefeed:
  sink_uri: {sink_uri}
  timezone: Asia/Shanghai
  start_ts: {start_ts}
  config: |
    {toml}
connections: {{kafka: kafka, schema_registry: {registry}}}
artifacts: file://{folder}/artifacts
tables: {tables}
schedule: {{start: "2026-01-01T00:00:00Z"}}
window: {{list_claim_check_store: false}}
policies: {{unproven: allow, target_value: quarantine}}
targets:
  - {{name: mirror, type: postgres, connection: target}}
"""


def pipeline_of(case: Case, capture: Capture, topics: Topics, start_ts: int, folder: Path) -> str:
    """The pipeline of *capture*'s changefeed on *topics*, with its claim-check objects in their folder."""
    meta = json.loads((capture.folder / "meta.json").read_bytes())
    settings = meta["replica_config"]
    if "claim-check-storage-uri" in settings["large-message-handle"]:
        settings["large-message-handle"]["claim-check-storage-uri"] = capture.objects
    settings["topic-rule"] = topics.name(settings["topic-rule"]) if settings["topic-rule"] else ""
    return PIPELINE.format(
        sink_uri=f"kafka://broker:9092/{topics.default}?{urlsplit(meta['sink_uri']).query}",
        start_ts=start_ts,
        toml="\n    ".join(changefeed_toml(settings, "meta.json").splitlines()),
        registry="registry" if capture.writer_schemas() else "null",
        tables=json.dumps(case.tables),
        folder=folder,
    )


class RegistryOf(NamedTuple):
    """A registry that has the schemas of a capture; ``framed`` gives keys and values the ids that they have there."""

    connection: Connection
    framed: Callable[[bytes | None], bytes | None]


@contextmanager
def registry_of(capture: Capture, request: pytest.FixtureRequest) -> Iterator[RegistryOf]:
    """The registry of the changefeed: one with Confluent's interface, or AWS Glue, whose ids are UUIDs."""
    if any("-" in schema_id for schema_id in capture.writer_schemas()):
        yield in_glue(capture, request.getfixturevalue("s3").endpoint)
    else:
        schemas = {int(schema_id): text for schema_id, text in capture.writer_schemas().items()}
        with serve(Registry(schemas)) as running:
            yield RegistryOf(Connection("registry", "http", host="127.0.0.1", port=running.port), lambda part: part)


def in_glue(capture: Capture, endpoint: str) -> RegistryOf:
    """AWS Glue at *endpoint*, which gives each schema an id of its own."""
    access = {"aws_access_key_id": "replay", "aws_secret_access_key": "secret"}
    client = boto3.client("glue", endpoint_url=endpoint, region_name="us-east-1", **access)
    name = f"registry-{uuid.uuid4().hex[:8]}"
    client.create_registry(RegistryName=name)
    versions = {
        uuid.UUID(schema_id).bytes: uuid.UUID(
            client.create_schema(
                RegistryId={"RegistryName": name},
                SchemaName=schema_id,
                DataFormat="AVRO",
                Compatibility="NONE",
                SchemaDefinition=text,
            )["SchemaVersionId"]
        ).bytes
        for schema_id, text in capture.writer_schemas().items()
    }

    def framed(part: bytes | None) -> bytes | None:
        return part and part[:2] + versions[part[2:18]] + part[18:]

    extra = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    return RegistryOf(Connection("registry", "aws", login="replay", password="secret", extra=extra), framed)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.matrix] * (case in OF_MATRIX), id=str(case)) for case in CASES]
)
def test_a_capture_ends_in_the_mirror_as_the_upstream_had_it(
    spark: SparkSession,
    kafka: Kafka,
    make_topic: MakeTopic,
    make_database: Callable[[], str],
    captures: CaptureSets,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    case: Case,
) -> None:
    capture = Capture(captures.of(case.capture))
    topics = Topics(capture, make_topic)
    events = expected_events(capture.folder)
    window = window_over(case, capture, events)
    (tmp_path / "every.yaml").write_text(pipeline_of(case, capture, topics, window.from_ts - 1, tmp_path))
    mirror = Mirror(make_database())
    broker = Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap})
    with registry_of(capture, request) as registry:
        topics.publish(kafka.bootstrap, registry.framed)
        found = {"kafka": broker, "registry": registry.connection, "target": mirror.connections["target"]}
        with ReplayContext(load_pipeline(tmp_path / "every.yaml"), Connections(found)) as context:
            pinned = pin(context, window)
            decode = spec(context, write_decode_job(context, pinned).uri)
            assert isinstance(decode, jobspec.DecodeJob)
            index = run_decode(SparkRunner(spark), decode, context.connections)
            check(context, index.run_hash)
            load = spec(context, write_load_job(context, index.run_hash, "mirror").uri)
            assert isinstance(load, jobspec.LoadJob)
            loaded = run_load(SparkRunner(spark), load, context.connections)
            report = publish_run(context, index.run_hash, ["mirror"])
            (covered,) = coverage(context.pipeline, context.state)
    assert index.report.quarantine_reasons == {}
    assert (index.report.events.claim_checks_resolved > 0) == (capture.changefeed().large_message == "claim-check")
    assert pinned.manifest.grade == report.grade == covered.target.spans[0].held.grade == case.grade
    read = [part for topic in pinned.manifest.topics for part in topic.partitions if part.range.length]
    assert {part.start_margin_ms for part in read} == {None if case.grade == "offset" else LAG_MS}
    assert bool(report.reasons) == (case.grade != "proven")
    assert refused(loaded, tmp_path / "artifacts" / "every") == case.refused
    wanted = TablePatterns(case.tables)
    for table, rows in last_rows(events).items():
        if wanted.wants(table.schema, table.table):
            if table.table == "all_types":
                for key in case.refused:
                    mirror.execute(f"DELETE FROM devdb.all_types WHERE id = {key}")
                    rows.pop((str(key),), None)
            assert_same_rows(mirror, table, list(rows.values()), comparison(capture))


def window_over(case: Case, capture: Capture, events: list[Json]) -> Window:
    """The window with all that *capture* has: by commitTs, or by record time where not all rows carry one."""
    if case.grade == "offset":
        recorded = [message.timestamp_ms for message in capture.messages()]
        return Window(tso.from_ms(min(recorded)), tso.from_ms(max(recorded) + 1))
    committed = [event["commit_ts"] for event in events]
    return Window(min(committed) - 1, max(committed) + 1)


def refused(report: LoadReport, artifacts: Path) -> set[int]:
    """The keys of the rows that *report* says the target can't hold, all of ``all_types``."""
    rows = [row for name in report.quarantine_files for row in pq.read_table(artifacts / name).to_pylist()]
    assert {row["table"] for row in rows} <= {"all_types"}
    return {json.loads(row["key"])["id"] for row in rows}


def comparison(capture: Capture) -> SameCell:
    """Whether a cell of the mirror is the upstream's, as far as Debezium, and no other protocol, can tell it."""
    meta = json.loads((capture.folder / "meta.json").read_bytes())
    wire = Wire(capture.changefeed(), new="classic" not in meta["repository"])

    def equal(shown: str | None, wanted: Json) -> bool:
        if same(shown, wanted):
            return True
        text = shown
        if shown is not None and wanted.get("is_binary"):
            text = b64encode(bytes.fromhex(shown.removeprefix("\\x"))).decode()
        elif shown is not None and wanted["mysql_type"].startswith("timestamp"):
            text = shown.removesuffix("+00")
        return wire.debezium and same_cell({"value": text, "lossy": True}, wanted, wire)

    return equal


def spec(context: ReplayContext, uri: str) -> object:
    return jobspec.decode(context.artifacts.get(uri.removeprefix(context.artifacts_uri + "/")))
