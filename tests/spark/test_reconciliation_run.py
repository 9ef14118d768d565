"""A whole reconciliation of a store in S3, with a changefeed in Kafka of which one window was decoded: every class comes out."""

from __future__ import annotations

import base64
import json
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow.parquet as pq
import pytest
import yaml
from botocore.config import Config
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from tests.support import open_protocol
from tests.support.open_protocol import Columns, resolved
from tests.support.waiting import PATIENCE_S
from ticdc_replay import jobspec
from ticdc_replay.cli.main import app
from ticdc_replay.config.load_store import load_store
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode
from ticdc_replay.drivers.scan import run_scan
from ticdc_replay.jobspec import DecodeJob, JobSpec, ReconcileJob, ScanJob
from ticdc_replay.reconcile.judge.classified import read_classified, recheck_folder
from ticdc_replay.reconcile.judge.report import ReconciliationReport
from ticdc_replay.reconcile.judge.rules import Reason
from ticdc_replay.spark.reconcile_job import run_reconcile
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.window.jobs import write_decode_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.storage import ObjectStore
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.deletion import make_plan
from ticdc_replay.store_stages.reconcile import (
    WrittenSurvey,
    record_scan,
    survey,
    take_inventory,
    write_recheck_job,
    write_reconcile_job,
)
from ticdc_replay.store_stages.reconcile_report import publish_reconciliation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka
    from demo.embedded_stack.s3 import VersityGateway
    from tests.conftest import MakeTopic

pytestmark = [pytest.mark.spark, pytest.mark.integration]

DAY_MS = 86_400_000
NOW = time.time_ns() // 1_000_000
OLD, MID = NOW - 20 * DAY_MS, NOW - 10 * DAY_MS
"""The window that is decoded begins at ``OLD``; what was sent at ``MID`` is only scanned."""
WINDOW = Window(tso.from_ms(OLD), tso.from_ms(OLD + DAY_MS))

NAMES = [
    "behind_retention", "used", "unreadable", "lost", "replaced", "copy", "other_copy", "lost_copy", "kept_copy",
    "later", "scanned", "lost_late", "lost_now", "older_than_kafka", "orphan", "fresh_orphan", "young", "empty",
]  # fmt: skip
NAME = {meaning: f"{uuid.UUID(int=number)}.json" for number, meaning in enumerate(NAMES, 1)}
MEANING = {name: meaning for meaning, name in NAME.items()}

OBJECT_CLASSES = {
    "behind_retention": "expired",
    "used": "referenced",
    "unreadable": "malformed",
    "replaced": "referenced",
    "copy": "referenced",
    "other_copy": "referenced",
    "kept_copy": "referenced",
    "later": "referenced",
    "scanned": "referenced",
    "older_than_kafka": "expired",
    "orphan": "orphaned",
    "fresh_orphan": "orphaned",
    "young": "too_young",
    "empty": "malformed",
    "notes.txt": "foreign",
    f"nested/{NAME['used']}": "foreign",
}
REFERENCE_CLASSES = {
    "behind_retention": "present",
    "used": "present",
    "unreadable": "present",
    "lost": "missing",
    "replaced": "altered",
    "copy": "duplicate",
    "other_copy": "duplicate",
    "lost_copy": "missing",
    "kept_copy": "present",
    "later": "present",
    "scanned": "present",
    "lost_late": "missing",
    "lost_now": "missing",
}
DELETABLE = {"behind_retention", "older_than_kafka", "orphan"}

PIPELINE: dict[str, Any] = {
    "name": "shop",
    "connections": {"kafka": "kafka", "claim_check": "claims"},
    "tables": ["s.*"],
    "schedule": {"start": "2025-01-01T00:00:00Z"},
    "window": {"list_claim_check_store": False, "pre_roll_seconds": 0, "clock_skew_seconds": 0},
    "policies": {"unproven": "allow", "claim_check_missing": "quarantine"},
}
STORE: dict[str, Any] = {
    "name": "claims",
    "pipelines": ["shop"],
    "owners_complete": True,
    "connections": {"store": "claims", "deletion": "claims_delete"},
    "schedule": {"start": "2025-01-01T00:00:00Z"},
    "deletion": {"policy": "approval"},
}


class Changefeed:
    """A topic with two partitions, and the messages that stand in it."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka, self.topic = kafka, topic
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap})

    def send(self, ms: int, event: tuple[bytes, bytes], partition: int = 0) -> None:
        raw = open_protocol.message([event], 0)
        self._producer.produce(self.topic, raw.value, raw.key, partition=partition, timestamp=ms)
        assert self._producer.flush(PATIENCE_S) == 0

    def refer(self, key: int, ms: int, name: str) -> None:
        """Send version *ms* of the row *key*, which the object *name* of ``NAMES`` holds."""
        commit_ts = tso.from_ms(ms)
        event = open_protocol.row(commit_ts, new=_key(key), ccl=f"s3://bucket/claim-check/{NAME[name]}")
        self.send(ms, event)

    def expire_before(self, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap})
        place = TopicPartition(self.topic, 0, offset)
        admin.delete_records([place])[place].result(PATIENCE_S)


class Claims:
    """The claim-check objects in a bucket, as old as wanted."""

    def __init__(self, server: VersityGateway) -> None:
        self._server = server
        self.bucket = f"claims-{uuid.uuid4().hex[:12]}"
        self._client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            aws_access_key_id=server.access_key,
            aws_secret_access_key=server.secret_key,
            region_name=server.region,
            config=Config(s3={"addressing_style": "path"}),
        )
        self._client.create_bucket(Bucket=self.bucket)

    def put(self, name: str, content: bytes, ms: int) -> None:
        key = f"claim-check/{NAME.get(name, name)}"
        self._client.put_object(Bucket=self.bucket, Key=key, Body=content)
        self._server.set_last_modified(self.bucket, key, ms / 1000)

    def put_row(self, name: str, key: int, ms: int) -> None:
        raw = open_protocol.message([open_protocol.row(tso.from_ms(ms), new=open_protocol.columns(key, name))], 0)
        assert raw.key is not None
        assert raw.value is not None
        wrapped = {"key": base64.b64encode(raw.key).decode(), "value": base64.b64encode(raw.value).decode()}
        self.put(name, json.dumps(wrapped).encode(), ms)

    @property
    def connection(self) -> Connection:
        extra = {"endpoint_url": self._server.endpoint, "region_name": self._server.region}
        return Connection("claims", "aws", login=self._server.access_key, password=self._server.secret_key, extra=extra)


class Setting:
    """The files of a deployment, and its steps as the DAG calls them."""

    def __init__(self, folder: Path, feed: Changefeed, claims: Claims, connections: Connections) -> None:
        self.folder, self.feed, self.claims, self.connections = folder, feed, claims, connections
        self.uri = f"s3://{claims.bucket}/claim-check"
        self.pipeline("shop")
        self.store = self.write("stores/claims.yaml", STORE | self._places | {"uri": self.uri})

    @property
    def _places(self) -> dict[str, str]:
        return {"artifacts": (self.folder / "artifacts").as_uri()}

    def pipeline(self, name: str) -> None:
        changefeed = {
            "sink_uri": f"kafka://broker:9092/{self.feed.topic}?protocol=open-protocol&partition-num=2",
            "timezone": "UTC",
            "config": "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'\n"
            f"claim-check-storage-uri = '{self.uri}'\n",
        }
        target = {"name": "lake", "type": "parquet", "uri": (self.folder / "lake").as_uri()}
        more = {"name": name, "changefeed": changefeed, "targets": [target]}
        self.write(f"pipelines/{name}.yaml", PIPELINE | self._places | more)

    def write(self, name: str, document: dict[str, Any]) -> Path:
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump(document))
        return file

    def open(self) -> StoreContext:
        return StoreContext(load_store(self.store, self.folder / "pipelines"), self.connections)


class Steps:
    """What the tasks of the DAG do."""

    def __init__(self, context: StoreContext, spark: SparkSession) -> None:
        self.context, self._spark = context, spark

    def job(self, uri: str, artifacts: ObjectStore) -> JobSpec:
        return jobspec.decode(artifacts.get(uri.removeprefix(f"{artifacts.root}/")))

    def run(self, uri: str) -> object:
        job = self.job(uri, self.context.artifacts)
        if isinstance(job, ScanJob):
            return run_scan(SparkRunner(self._spark), job, self.context.connections)
        assert isinstance(job, ReconcileJob)
        return run_reconcile(self._spark, job, self.context.connections, parallelism=2)

    def decode(self) -> None:
        (pipeline,) = self.context.pipelines
        job = self.job(write_decode_job(pipeline, pin(pipeline, WINDOW)).uri, pipeline.artifacts)
        assert isinstance(job, DecodeJob)
        check(pipeline, run_decode(SparkRunner(self._spark), job, self.context.connections).run_hash)

    def scan(self) -> WrittenSurvey:
        surveyed = survey(self.context)
        if surveyed.scan_job is not None:
            self.run(surveyed.scan_job.uri)
            record_scan(self.context, surveyed.scan_job.uri)
        return surveyed

    def reconcile(self) -> ReconciliationReport:
        name = self.scan().name
        written = write_reconcile_job(self.context, name, take_inventory(self.context, name))
        first = self.run(written.uri)
        assert self.run(written.uri) == first, "a repeat finds what is there"
        report = publish_reconciliation(self.context, written.run_hash)
        assert publish_reconciliation(self.context, written.run_hash) == report
        return report

    def rows(self, files: tuple[str, ...]) -> list[dict[str, Any]]:
        filesystem, root = self.context.artifacts.arrow_filesystem()
        return [row for name in files for row in pq.read_table(f"{root}/{name}", filesystem=filesystem).to_pylist()]


def _key(key: int) -> Columns:
    return {"id": open_protocol.columns(key)["id"]}


@pytest.fixture
def setting(kafka: Kafka, versitygw: VersityGateway, make_topic: MakeTopic, tmp_path: Path) -> Setting:
    feed, claims = Changefeed(kafka, make_topic(2, {"retention.ms": "-1"})), Claims(versitygw)
    broker = Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap})
    return Setting(
        tmp_path,
        feed,
        claims,
        Connections({"kafka": broker, "claims": claims.connection, "claims_delete": claims.connection}),
    )


def send_a_history(feed: Changefeed, claims: Claims) -> None:
    """What is decoded, at ``OLD``, then what is only scanned, at ``MID``."""
    there = ["behind_retention", "used", "unreadable", "replaced", "copy", "other_copy", "kept_copy"]
    for key, name in enumerate(["behind_retention", "used", "unreadable", "lost", "replaced"], 1):
        feed.refer(key, OLD + key, name)
    for key, names in ((6, ("copy", "other_copy")), (7, ("lost_copy", "kept_copy"))):
        for name in names:
            feed.refer(key, OLD + key, name)
    keys = dict(zip(there, (1, 2, 3, 5, 6, 6, 7), strict=True))
    for name, key in keys.items():
        claims.put_row(name, key, OLD + key)
    claims.put("unreadable", b"{}", OLD)
    for partition in (0, 1):
        feed.send(OLD + 2 * DAY_MS, resolved(tso.from_ms(OLD + 2 * DAY_MS)), partition)
    for key, name in ((4, "later"), (8, "scanned")):
        feed.refer(key, MID, name)
        claims.put_row(name, key, MID)
    feed.refer(9, MID, "lost_late")
    feed.refer(10, NOW, "lost_now")  # the object comes before the message, and the listing after the survey
    feed.send(MID, open_protocol.row(tso.from_ms(MID), new=open_protocol.columns(20, "small")), partition=1)


def leave_objects(claims: Claims) -> None:
    """Objects that no message refers to."""
    for name, ms in (("older_than_kafka", OLD - DAY_MS), ("orphan", MID), ("fresh_orphan", NOW - 3 * DAY_MS)):
        claims.put_row(name, 99, ms)
    claims.put_row("young", 99, NOW)
    claims.put("empty", b"", MID)
    claims.put("notes.txt", b"mine", MID)
    claims.put(f"nested/{NAME['used']}", b"mine too", MID)


def test_every_class_comes_out_and_only_what_nothing_can_need_may_go(setting: Setting, spark: SparkSession) -> None:
    feed, claims = setting.feed, setting.claims
    send_a_history(feed, claims)
    leave_objects(claims)
    with setting.open() as context:
        steps = Steps(context, spark)
        steps.decode()
        claims.put("replaced", b"another content", OLD)
        feed.expire_before(1)

        report = steps.reconcile()
        objects = {MEANING.get(row["name"], row["name"]): row for row in steps.rows(report.object_files)}
        assert {name: row["class"] for name, row in objects.items()} == OBJECT_CLASSES
        assert {name for name, row in objects.items() if row["deletable"]} == DELETABLE
        assert objects["behind_retention"]["reason"] == Reason.REFERENCES_EXPIRED
        assert objects["older_than_kafka"]["reason"] == Reason.OLDER_THAN_KAFKA
        references = steps.rows(report.reference_files)
        assert {MEANING[row["object_name"]]: row["class"] for row in references} == REFERENCE_CLASSES
        assert len(references) == len(REFERENCE_CLASSES), "each met once: by the decode or by the scan"
        by_decode = {MEANING[row["object_name"]] for row in references if row["source"] == "decode"}
        assert by_decode == set(NAMES[:9])
        assert {MEANING[row["object_name"]] for row in references if not row["protecting"]} == {"behind_retention"}
        assert report.obstacles == ()
        assert report.totals()["deletable.objects"] == len(DELETABLE)
        assert report.summary.lost_rows == 4
        tell_what_is_missing(report, feed.topic)
        assert [alert.kind for alert in report.alerts] == ["missing"] * 4 + ["altered", "malformed"]
        assert report.previous is None

        plan = make_plan(context, report.reconciliation_id)
        assert plan is not None
        assert plan.objects == len(DELETABLE)
        claims.put_row("orphan", 99, MID)
        feed.refer(11, NOW, "older_than_kafka")  # never seen in the wild: an old object is referred to late
        surveyed = steps.scan()
        recheck = write_recheck_job(context, surveyed.name, plan.plan_hash)
        assert write_recheck_job(context, survey(context).name, plan.plan_hash).run_hash != recheck.run_hash
        steps.run(recheck.uri)
        judged = read_classified(context.artifacts, recheck_folder(recheck.run_hash))
        again = steps.rows(tuple(file.name for file in judged.objects))
        assert {MEANING[row["name"]]: row["deletable"] for row in again} == {
            "behind_retention": True,
            "older_than_kafka": False,
            "orphan": True,
        }

    loses_a_file(setting, spark, report)


def tell_what_is_missing(report: ReconciliationReport, topic: str) -> None:
    missing = {MEANING[alert.object_name]: alert for alert in report.alerts if alert.kind == "missing"}
    assert set(missing) == {"lost", "lost_copy", "lost_late", "lost_now"}
    lost = missing["lost"]
    assert (lost.topic, lost.partition, lost.offset, lost.schema, lost.table) == (topic, 0, 3, "s", "t")
    assert lost.commit_ts == tso.from_ms(OLD + 4)
    assert lost.key is not None
    assert "4" in lost.key
    assert f"{topic}[0]@3" in lost.text
    upstream, later = lost.still_from
    assert str(lost.commit_ts) in upstream
    assert NAME["later"] in later
    assert NAME["kept_copy"] in missing["lost_copy"].still_from[0]
    assert len(missing["lost_late"].still_from) == 1


def loses_a_file(setting: Setting, spark: SparkSession, first: ReconciliationReport) -> None:
    """A second run scans nothing anew, unless references got lost; and with a changefeed that is not listed nothing may go."""
    with setting.open() as context:
        steps = Steps(context, spark)
        assert survey(context).scan_job is None
        (pipeline,) = context.pipelines
        file = next(entry.name for entry in pipeline.artifacts.list("runs/") if "/references/" in entry.name)
        pipeline.artifacts.delete(file)
        scan_job = survey(context).scan_job
        assert scan_job is not None
        job = steps.job(scan_job.uri, context.artifacts)
        assert isinstance(job, ScanJob)
        starts = [part.start for feed in job.feeds for part in feed.ranges if part.partition == 0]
        assert min(starts) == 1, "from where Kafka still has it"
    setting.pipeline("unlisted")
    setting.write(
        "stores/claims.yaml",
        STORE
        | setting._places
        | {"uri": setting.uri, "owners_complete": False, "deletion": {"policy": "never"}}
        | {"connections": {"store": "claims"}},
    )
    with setting.open() as context:
        steps = Steps(context, spark)
        report = steps.reconcile()
        assert report.reconciliation_id != first.reconciliation_id
        assert report.previous is not None
        assert report.previous.totals == first.totals()
        assert report.summary.deletable == 0
        assert "owners_complete" in report.obstacles[0]
        objects = {MEANING.get(row["name"], row["name"]): row["class"] for row in steps.rows(report.object_files)}
        assert objects == OBJECT_CLASSES | {
            "behind_retention": "expired",
            "older_than_kafka": "referenced",
            "unreadable": "referenced",
        }
        assert len(context.state.reconciliations.all("claims")) == 2


def test_the_command_shows_the_report_and_tells_by_its_exit_code_of_alerts(
    setting: Setting, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(uri: str, context: StoreContext, master: str) -> None:
        """In this Spark: ``submit`` has a test of its own."""
        Steps(context, spark).run(uri)

    monkeypatch.setattr("ticdc_replay.cli.store.submit", submit)
    monkeypatch.setattr("ticdc_replay.cli.reconcile.submit", submit)
    feed, claims = setting.feed, setting.claims
    feed.refer(1, OLD, "used")
    claims.put_row("used", 1, OLD)
    feed.refer(2, OLD, "lost")
    claims.put_row("orphan", 3, MID)
    known = setting.connections
    to = known["claims"]
    file = setting.write(
        "connections.yaml",
        {
            "kafka": {"conn_type": "kafka", "extra": known["kafka"].extra},
            "claims": {"conn_type": "aws", "login": to.login, "password": to.password, "extra": to.extra},
        },
    )
    file.chmod(0o600)
    arguments = ["reconcile", str(setting.store), "--connections", str(file)]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 1, shown.stderr
    assert "alert (missing)" in shown.stdout
    assert f"{feed.topic}[0]@1" in shown.stdout
    assert "1 objects may be deleted" in shown.stdout
    feed.expire_before(2)
    printed = CliRunner().invoke(app, [*arguments, "--json"])
    assert printed.exit_code == 0, printed.stderr
    report = json.loads(printed.stdout)
    assert report["totals"]["objects.expired"] == 2
    assert report["alerts"] == []
