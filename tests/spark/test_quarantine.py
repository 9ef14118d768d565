"""The way back for what was set aside: a changefeed with a message that is none, a lost object and one over the cap."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pyarrow.parquet as pq
import pytest
import yaml
from confluent_kafka import Producer
from typer.testing import CliRunner

from tests.integration.snapshot.feed import START_MS, at
from tests.support.open_protocol import columns, message, resolved, row
from tests.support.waiting import PATIENCE_S
from ticdc_replay import jobspec
from ticdc_replay.cli.main import app
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError, PolicyStopError
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.decode import run_decode as decode_job
from ticdc_replay.drivers.load import run_load as load_job
from ticdc_replay.spark.tasks import SparkRunner
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.coverage import coverage
from ticdc_replay.stages.load.publish import publish
from ticdc_replay.stages.quarantine.entries import Selection, accept, grouped, list_quarantine, show
from ticdc_replay.stages.quarantine.redrive import (
    RedriveReport,
    check_redrive,
    open_runs,
    pin_redrive,
    publish_redrive,
    write_redrive_loads,
)
from ticdc_replay.stages.window.jobs import write_decode_job, write_load_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.embedded_stack.kafka import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.integration]

WINDOW = Window(at(10), at(20))
NAMES = {number: f"{UUID(int=number)}.json" for number in (2, 3)}
CAP = 2_000
"""Of a claim-check object, in bytes."""
LONG = "x" * CAP
TARGETS = ("warehouse", "lake")


def object_of(number: int, value: str, commit_ts: int) -> bytes:
    whole = message([row(commit_ts, new=columns(number, value))], 0)
    parts = {"key": whole.key, "value": whole.value}
    return json.dumps({name: base64.b64encode(part or b"").decode() for name, part in parts.items()}).encode()


def produce(kafka: Kafka, topic: str) -> None:
    """Rows 1 to 4 of the table s.t, of which 2 and 3 are claim checks; a later version of 2; and a message that is none."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})

    def send(second: int, events: list[tuple[bytes, bytes]]) -> None:
        made = message(events, 0)
        producer.produce(topic, made.value, made.key, partition=0, timestamp=START_MS + second * 1000 + 300)

    def small(number: int, second: int) -> tuple[bytes, bytes]:
        return row(at(second), new={"id": columns(number)["id"]}, ccl=f"s3://bucket/{NAMES[number]}")

    for second in range(8):
        send(second, [resolved(at(second))])
    send(11, [row(at(11), new=columns(1, "one"))])
    send(12, [row(at(12), new=columns(4, "four")), small(2, 12)])
    send(13, [small(3, 13)])
    producer.produce(topic, b"not a message", b"of ticdc", partition=0, timestamp=START_MS + 14_000)
    send(15, [row(at(15), new=columns(2, "newer"), old=columns(2, "older"))])
    send(21, [resolved(at(21))])
    assert producer.flush(PATIENCE_S) == 0


class Setting:
    """One pipeline on one topic; ``context`` reads its file anew, so that it can be changed meanwhile."""

    def __init__(self, spark: SparkSession, folder: Path, connections: Connections, pipeline: dict[str, Any]) -> None:
        self.spark = spark
        self.folder = folder
        self.connections = connections
        self.pipeline = pipeline
        self.claims = open_store((folder / "claims").as_uri())
        self.claims.put(NAMES[3], object_of(3, LONG, at(13)))
        self.configure()

    @property
    def file(self) -> Path:
        return self.folder / "shop.yaml"

    def configure(self, **changed: Any) -> None:
        self.pipeline |= changed
        self.file.write_text(yaml.safe_dump(self.pipeline))
        self.context = ReplayContext(load_pipeline(self.file), self.connections)

    def decode(self) -> str:
        return self.run_decode(write_decode_job(self.context, pin(self.context, WINDOW)).uri)

    def load(self, run_hash: str, *, reload: bool = False) -> None:
        check(self.context, run_hash)
        for target in TARGETS:
            self.run_load(write_load_job(self.context, run_hash, target, reload=reload).uri)
        publish(self.context, run_hash, TARGETS)

    def redrive(self, selection: Selection = Selection()) -> RedriveReport:  # noqa: B008
        """As the command does."""
        (run,) = open_runs(self.context, selection)
        run_hash = self.run_decode(write_decode_job(self.context, pin_redrive(self.context, run)).uri)
        check_redrive(self.context, run_hash)
        loads = write_redrive_loads(self.context, run_hash)
        for load in loads:
            for uri in (load.window_job, load.redrive_job):
                if uri is not None:
                    self.run_load(uri)
        return publish_redrive(self.context, run_hash, [load.target for load in loads])

    def warehouse(self) -> list[tuple[Any, ...]]:
        to = self.connections["warehouse"]
        dsn = f"postgresql://{to.login}:{to.password or ''}@{to.host}:{to.port}/{to.schema}"
        with psycopg.connect(dsn) as connection:
            return connection.execute("SELECT id, left(v, 5) FROM s.t ORDER BY id").fetchall()

    def lake(self, kind: str) -> list[tuple[Any, ...]]:
        """What the entry of the window lists: the rows as (id, value) in order of commitTs."""
        (entry,) = (self.folder / "lake/shop/current/schema=s/table=t").glob("*.json")
        files = [self.folder / "lake" / file["name"] for file in json.loads(entry.read_text())[kind]]
        rows = [each for file in files for each in pq.read_table(file, partitioning=None).to_pylist()]
        found = sorted(rows, key=lambda each: (each["_commit_ts"], each["after"]["id"]))
        return [(each["after"]["id"], each["after"]["v"][:5]) for each in found]

    def quality(self) -> dict[str, str]:
        return {
            covered.target.name: covered.target.spans[0].held.quality
            for covered in coverage(self.context.pipeline, self.context.state)
        }

    def statuses(self) -> dict[tuple[str, str], int]:
        (run,) = list_quarantine(self.context, Selection())
        return {(group.reason, group.status): group.entries for group in grouped(run)}

    def _job(self, uri: str) -> Any:
        return jobspec.decode(self.context.artifacts.get(uri.removeprefix(self.context.artifacts_uri + "/")))

    def run_decode(self, uri: str) -> str:
        return decode_job(SparkRunner(self.spark), self._job(uri), self.connections).run_hash

    def run_load(self, uri: str) -> None:
        load_job(SparkRunner(self.spark), self._job(uri), self.connections)


@pytest.fixture
def setting(
    spark: SparkSession,
    kafka: Kafka,
    make_topic: Callable[..., str],
    make_database: Callable[[], str],
    tmp_path: Path,
) -> Iterator[Setting]:
    topic = make_topic(1, {"retention.ms": "-1"})
    produce(kafka, topic)
    dsn = psycopg.conninfo.conninfo_to_dict(make_database())
    warehouse = Connection(
        "warehouse",
        "postgres",
        str(dsn["host"]),
        int(str(dsn["port"])),
        str(dsn["user"]),
        str(dsn.get("password", "")),
        str(dsn["dbname"]),
    )
    brokers = Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap})
    made = Setting(
        spark,
        tmp_path,
        Connections({"kafka": brokers, "warehouse": warehouse}),
        {
            "name": "shop",
            "changefeed": {
                "sink_uri": f"kafka://broker:9092/{topic}?protocol=open-protocol&partition-num=1",
                "timezone": "UTC",
                "config": "[sink.kafka-config.large-message-handle]\n"
                "large-message-handle-option = 'claim-check'\n"
                f"claim-check-storage-uri = '{(tmp_path / 'claims').as_uri()}'\n",
            },
            "connections": {"kafka": "kafka"},
            "artifacts": (tmp_path / "artifacts").as_uri(),
            "tables": ["s.*"],
            "schedule": {"start": "2025-10-01T00:00:00Z"},
            "policies": {"quarantine": "continue", "claim_check_missing": "quarantine", "unproven": "allow"},
            "limits": {"claim_check_max_bytes": CAP},
            "targets": [
                {"name": "warehouse", "type": "postgres", "connection": "warehouse"},
                {"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri()},
            ],
        },
    )
    yield made
    made.context.__exit__()


def without_kafka(setting: Setting) -> None:
    """From here on whatever asks Kafka fails at once."""
    nowhere = Connection("kafka", "kafka", extra={"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "500"})
    setting.connections = Connections({"kafka": nowhere, "warehouse": setting.connections["warehouse"]})
    setting.configure()


def test_what_was_mended_comes_out_goes_to_all_targets_and_completes_the_window(setting: Setting) -> None:
    setting.load(setting.decode())
    assert setting.warehouse() == [(1, "one"), (2, "newer"), (4, "four")]
    assert setting.quality() == dict.fromkeys(TARGETS, "quarantine")
    assert setting.statuses() == {
        ("unknown_version", "open"): 1,
        ("claim_check_missing", "open"): 1,
        ("claim_check_too_large", "open"): 1,
    }
    without_kafka(setting)

    # A restored object: of its row a later version is there, which the guard keeps.
    setting.claims.put(NAMES[2], object_of(2, "found", at(12)))
    first = setting.redrive()
    assert first.left == {"unknown_version": 1, "claim_check_too_large": 1}
    assert setting.warehouse() == [(1, "one"), (2, "newer"), (4, "four")]
    assert setting.lake("changelog") == [(1, "one"), (2, "found"), (4, "four"), (2, "newer")]
    assert setting.lake("fold") == [(1, "one"), (4, "four"), (2, "newer")]
    assert setting.quality() == dict.fromkeys(TARGETS, "quarantine")

    # A cap raised, and what can't be mended accepted.
    setting.configure(limits={"claim_check_max_bytes": 2 * CAP})
    second = setting.redrive(Selection(tables=("s.t",)))
    assert second.left == {}
    assert setting.warehouse() == [(1, "one"), (2, "newer"), (3, "xxxxx"), (4, "four")]
    assert setting.lake("fold") == [(1, "one"), (4, "four"), (3, "xxxxx"), (2, "newer")]
    assert second.open == {target: {"unknown_version": 1} for target in TARGETS}
    assert setting.quality() == dict.fromkeys(TARGETS, "quarantine")
    (record,) = accept(setting.context, Selection(reasons=("unknown_version",)), "Ada", "a test tool wrote it")
    assert setting.quality() == dict.fromkeys(TARGETS, "complete")
    assert setting.statuses() == {
        ("unknown_version", "accepted"): 1,
        ("claim_check_missing", "redriven"): 1,
        ("claim_check_too_large", "redriven"): 1,
    }
    kept = [entry.name for entry in setting.context.artifacts.list("accepted/")]
    assert len(kept) == 1
    assert json.loads(setting.context.artifacts.get(kept[0]))["person"] == record.person == "Ada"
    assert open_runs(setting.context, Selection()) == ()

    # Loading the window's run once more writes its files without these rows: the coverage says so until they are there again. A
    # mirror keeps them.
    setting.configure(policies={"quarantine": "continue", "claim_check_missing": "quarantine", "unproven": "allow"})
    setting.load(record.run_hash, reload=True)
    assert setting.lake("fold") == [(1, "one"), (4, "four"), (2, "newer")]
    assert setting.warehouse() == [(1, "one"), (2, "newer"), (3, "xxxxx"), (4, "four")]
    assert setting.quality() == {"warehouse": "complete", "lake": "quarantine"}
    assert setting.redrive().left == {}
    assert setting.lake("fold") == [(1, "one"), (4, "four"), (3, "xxxxx"), (2, "newer")]
    assert setting.quality() == dict.fromkeys(TARGETS, "complete")


def test_a_run_that_quarantine_stopped_goes_on_once_each_entry_is_mended_or_accepted(setting: Setting) -> None:
    setting.configure(policies={"unproven": "allow"}, limits={"claim_check_max_bytes": 2 * CAP})
    run_hash = setting.decode()
    with pytest.raises(PolicyStopError, match="1 × claim_check_missing, 1 × unknown_version"):
        check(setting.context, run_hash)
    with pytest.raises(ConfigError, match="by somebody and for a reason"):
        accept(setting.context, Selection(), " ", "why")
    (bad,) = [
        listed.entry.coordinates
        for listed in list_quarantine(setting.context, Selection(reasons=("unknown_version",)))[0].entries
    ]
    accept(setting.context, Selection(places=(bad,)), "Ada", "not ours")
    with pytest.raises(PolicyStopError, match="are in quarantine: 1 × claim_check_missing"):
        check(setting.context, run_hash)
    setting.claims.put(NAMES[2], object_of(2, "found", at(12)))
    report = setting.redrive()
    assert report.open == {target: {} for target in TARGETS}
    assert "1 accepted as lost, 1 decoded again since" in check(setting.context, run_hash).summary
    assert setting.warehouse() == [(1, "one"), (2, "newer"), (3, "xxxxx"), (4, "four")]
    assert setting.lake("changelog") == [(1, "one"), (2, "found"), (4, "four"), (3, "xxxxx"), (2, "newer")]
    assert setting.quality() == dict.fromkeys(TARGETS, "complete")


def test_an_entry_is_shown_as_far_as_it_can_be_read(setting: Setting) -> None:
    check(setting.context, setting.decode())
    (run,) = list_quarantine(setting.context, Selection(reasons=("claim_check_missing",)))
    (lost,) = [listed.entry for listed in run.entries]
    (shown,) = show(setting.context, lost.coordinates)
    (event,) = shown.events
    assert (event.ordinal, lost.ordinal, lost.table_name) == (1, 1, "s.t")
    assert b"not a message" not in (shown.message.value or b"")
    with pytest.raises(ConfigError, match="is not in quarantine"):
        show(setting.context, f"{lost.topic}[0]@1")


def test_the_command_lists_shows_accepts_and_re_drives(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(uri: str, context: ReplayContext, master: str) -> None:
        """In this Spark: ``submit`` has a test of its own."""
        kind = jobspec.kind_of(jobspec.read(context.artifacts, uri))
        leases = context.state.leases.current(str(context.changefeed.claim_check_uri))
        assert [lease.kind for lease in leases] == (["replay"] if kind == "decode" else [])
        {"decode": setting.run_decode, "load": setting.run_load}[kind](uri)

    monkeypatch.setattr("ticdc_replay.cli.quarantine.submit", submit)
    check(setting.context, setting.decode())
    secrets = setting.folder / "connections.yaml"
    secrets.touch(mode=0o600)
    to = setting.connections["warehouse"]
    fields = {"host": to.host, "port": to.port, "login": to.login, "password": to.password or "", "schema": to.schema}
    kafka = {"conn_type": "kafka", "extra": dict(setting.connections["kafka"].extra)}
    secrets.write_text(yaml.safe_dump({"kafka": kafka, "warehouse": {"conn_type": "postgres", **fields}}))

    def command(verb: str, *options: str) -> Any:
        arguments = ["quarantine", verb, str(setting.file), *options, "--connections", str(secrets)]
        return CliRunner().invoke(app, arguments)

    listed = command("list", "--reason", "claim_check_missing", "--each")
    assert listed.exit_code == 0, listed.stderr
    assert NAMES[2] in listed.stdout.replace("\n", "").replace(" ", "").replace("│", "")
    (run,) = list_quarantine(setting.context, Selection(reasons=("unknown_version",)))
    shown = command("show", run.entries[0].entry.coordinates)
    assert "6e 6f 74 20 61 20 6d 65 73 73 61 67 65" in shown.stdout, shown.stderr
    assert "not a message" in shown.stdout
    everything = command("accept", "--by", "Ada", "--why", "tired")
    assert everything.exit_code == 2
    assert "use --all" in everything.stderr
    accepted = command("accept", "--by", "Ada", "--why", "a test tool", "--reason", "unknown_version")
    assert "1 accepted as lost by Ada: a test tool" in accepted.stdout, accepted.stderr
    setting.claims.put(NAMES[2], object_of(2, "found", at(12)))
    setting.configure(limits={"claim_check_max_bytes": 2 * CAP})
    window = ("--from", str(WINDOW.from_ts), "--to", tso.to_datetime(WINDOW.to_ts).isoformat())
    redriven = command("redrive", *window)
    assert redriven.exit_code == 0, redriven.output
    assert "warehouse: complete" in redriven.stdout
    assert setting.warehouse() == [(1, "one"), (2, "newer"), (3, "xxxxx"), (4, "four")]
    assert "nothing of this selection is open" in command("redrive").stdout
