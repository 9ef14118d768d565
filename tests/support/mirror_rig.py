"""A pipeline from a topic to a mirror whose steps run in the test."""

import base64
import json
from pathlib import Path
from typing import LiteralString
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
import psycopg
import yaml
from confluent_kafka import Producer

from demo.embedded_stack.kafka import Kafka
from tests.integration.snapshot.feed import START_MS, at
from tests.support.in_process import InProcess, in_process
from tests.support.open_protocol import columns, message, resolved, row
from tests.support.replayed_windows import decode
from tests.support.target_rigs import LakeRig, MysqlRig
from tests.support.waiting import PATIENCE_S
from ticdc_replay import jobspec
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.drivers.mirror import run_mirror
from ticdc_replay.drivers.verify import run_verify
from ticdc_replay.snapshot.pin import PinnedManifest
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.coverage import coverage
from ticdc_replay.stages.load.publish import load_of, publish
from ticdc_replay.stages.quarantine.entries import Selection
from ticdc_replay.stages.quarantine.redrive import (
    check_redrive,
    open_runs,
    pin_redrive,
    publish_redrive,
    write_redrive_loads,
)
from ticdc_replay.stages.upkeep.mirrors import raise_floor
from ticdc_replay.stages.window.jobs import write_load_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.storage import open_store
from ticdc_replay.targets.base import LoadReport
from ticdc_replay.targets.load import load
from ticdc_replay.targets.sql import Sql

TABLE = TableName("s", "t")
DROPPED = at(25)
OLD = {"w": {"t": 15, "f": 64, "v": "x"}}
OBJECT = f"{UUID(int=1)}.json"


class Rig:
    """A pipeline from a topic to a mirror; its steps run here. Times are seconds after ``START_MS``."""

    def __init__(
        self,
        producer: Producer,
        kafka: Kafka,
        topic: str,
        folder: Path,
        dsn: str,
        policies: dict[str, str] | None = None,
    ) -> None:
        self.folder, self.topic, self.dsn, self._producer = folder, topic, dsn, producer
        (folder / "claims").mkdir()
        self.claims = open_store((folder / "claims").as_uri())
        large = (
            "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'\n"
            f"claim-check-storage-uri = '{self.claims.uri('')}'\n"
        )
        declared = {
            "name": "shop",
            "changefeed": {
                "sink_uri": f"kafka://broker:9092/{topic}?protocol=open-protocol&partition-num=1",
                "timezone": "UTC",
                "config": large,
            },
            "connections": {"kafka": "kafka"},
            "artifacts": (folder / "artifacts").as_uri(),
            "tables": ["s.*"],
            "schedule": {"start": "2025-10-01T00:00:00Z"},
            "policies": {
                "quarantine": "continue",
                "claim_check_missing": "quarantine",
                "unproven": "allow",
                **(policies or {}),
            },
            "targets": [{"name": "warehouse", "type": "postgres", "connection": "warehouse"}],
        }
        self._declared = declared
        parts = urlsplit(dsn)
        warehouse = Connection(
            "warehouse",
            "postgres",
            parts.hostname,
            parts.port,
            parts.username,
            parts.password,
            parts.path.lstrip("/"),
        )
        broker = Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap})
        self.connections = Connections({"kafka": broker, "warehouse": warehouse})
        self.target = "warehouse"
        self.sql: Sql | None = None
        self.context = self._context()

    def use_lake(self, lake: LakeRig) -> None:
        """Have the mirror in *lake*."""
        self.sql = lake.sql
        self._declared["targets"] = [{**lake.section, "name": self.target}]
        self.context.__exit__()
        self.context = self._context()

    def use_mysql(self, database: MysqlRig) -> None:
        """Have the mirror in *database*."""
        warehouse = msgspec.structs.replace(database.connections["target"], conn_id="warehouse")
        self.connections = Connections({**self.connections.by_id, "warehouse": warehouse})
        self._declared["targets"] = [{"name": self.target, "type": "mysql", "connection": "warehouse"}]
        self.context.__exit__()
        self.context = self._context()

    def move(self, name: str = "warehouse", **options: str) -> None:
        """The pipeline file gives the mirror another name, or another place by *options*."""
        self.target = name
        self._declared["targets"] = [{"name": name, "type": "postgres", "connection": "warehouse", **options}]
        self.context.__exit__()
        self.context = self._context()

    def _context(self) -> ReplayContext:
        file = self.folder / "shop.yaml"
        file.write_text(yaml.safe_dump(self._declared))
        return ReplayContext(load_pipeline(file), self.connections)

    def send(self, second: float, event: tuple[bytes, bytes]) -> None:
        sent = message([event], 0)
        time = START_MS + int(second * 1000) + 300
        self._producer.produce(self.topic, sent.value, sent.key, partition=0, timestamp=time)
        assert self._producer.flush(PATIENCE_S) == 0

    def resolved(self, *seconds: int) -> None:
        for second in seconds:
            self.send(second, resolved(at(second)))

    def pin(self, from_ts: int, to_ts: int, **how: bool) -> PinnedManifest:
        return pin(self.context, Window(from_ts, to_ts), **how)

    def decode(self, from_ts: int, to_ts: int, tables: tuple[str, ...] | None = None, **how: bool) -> str:
        return decode(self.context, self.pin(from_ts, to_ts, **how), lambda *_: None, tables).run_hash

    def load(self, run_hash: str, tables: tuple[str, ...] | None = None, *, reload: bool = False) -> None:
        check(self.context, run_hash, tables)
        self._load(write_load_job(self.context, run_hash, self.target, tables, reload=reload).uri)
        publish(self.context, run_hash, [self.target])

    def replay(self, from_ts: int, to_ts: int) -> None:
        self.load(self.decode(from_ts, to_ts))

    def redrive(self, window: Window | None = None) -> None:
        (run,) = open_runs(self.context, Selection(window=window))
        run_hash = decode(self.context, pin_redrive(self.context, run), lambda *_: None).run_hash
        check_redrive(self.context, run_hash)
        for loads in write_redrive_loads(self.context, run_hash):
            assert loads.window_job is None
            self._load(loads.redrive_job)
        publish_redrive(self.context, run_hash, [self.target])

    def raise_floor(self, floor_ts: int, **how: bool) -> int:
        return raise_floor(self.context, self.target, TABLE, floor_ts, **how).now

    def bring_back(self) -> None:
        """Put the object of the row at second 12 into the claim-check store."""
        self.put_object(OBJECT, row(at(12), new=columns(2, "two", **OLD)))

    def put_object(self, name: str, event: tuple[bytes, bytes]) -> None:
        """Put the claim-check object of *event* into the store."""
        whole = message([event], 0)
        parts = {"key": whole.key, "value": whole.value}
        encoded = {part: base64.b64encode(content or b"").decode() for part, content in parts.items()}
        self.claims.put(name, json.dumps(encoded).encode())

    def execute(self, statement: LiteralString) -> None:
        with psycopg.connect(self.dsn) as connection:
            connection.execute(statement)

    def drop_by_hand(self) -> None:
        self.execute("ALTER TABLE s.t DROP COLUMN w")

    @property
    def open(self) -> list[tuple[Window, int]]:
        """The windows with open entries in quarantine, and how many."""
        return [(run.window, len(run.entries)) for run in open_runs(self.context, Selection())]

    def report(self, run_hash: str) -> LoadReport:
        return load_of(self.context, run_hash, self.target)

    @property
    def ids(self) -> list[int]:
        with psycopg.connect(self.dsn) as connection:
            return [key for (key,) in connection.execute("SELECT id FROM s.t ORDER BY id").fetchall()]

    @property
    def held(self) -> list[str]:
        (found,) = coverage(self.context.pipeline, self.context.state)
        return [span.held.quality for span in found.target.spans]

    def _load(self, uri: str) -> None:
        job = jobspec.decode(self.context.artifacts.get(uri.removeprefix(self.context.artifacts_uri + "/")))
        if isinstance(job, jobspec.MirrorJob):
            run_mirror(InProcess(self.sql), job, self.connections)
            return
        if isinstance(job, jobspec.VerifyJob):
            run_verify(InProcess(self.sql), job, self.connections)
            return
        for each in job.jobs if isinstance(job, jobspec.Series) else [job]:
            assert isinstance(each, jobspec.LoadJob)
            report = load(each, self.connections, in_process, 1, self.sql)
            open_store(each.artifacts).put_once(report.name, canonical.encode(report))
