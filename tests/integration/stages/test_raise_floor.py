"""The floor that a person raises after a DDL that was done by hand: no row from below it may be still to come."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest
import yaml
from confluent_kafka import Producer

from demo.embedded_stack.kafka import Kafka
from tests.integration.snapshot.feed import START_MS, at
from tests.open_protocol import columns, ddl, message, resolved, row
from tests.replayed_windows import decode
from tests.waiting import PATIENCE_S
from ticdc_replay import jobspec
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.check import check
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.coverage import coverage
from ticdc_replay.stages.jobs import write_load_job
from ticdc_replay.stages.mirrors import raise_floor
from ticdc_replay.stages.pin import pin
from ticdc_replay.stages.publish import publish
from ticdc_replay.stages.quarantine import Selection, accept
from ticdc_replay.stages.redrive import open_runs, pin_redrive, publish_redrive, write_redrive_loads
from ticdc_replay.storage import open_store
from ticdc_replay.targets.load import in_process, load

pytestmark = pytest.mark.integration

TABLE = TableName("s", "t")
DROPPED = at(25)
OLD = {"w": {"t": 15, "f": 64, "v": "x"}}
OBJECT = f"{UUID(int=1)}.json"


class Rig:
    """A pipeline from a topic to a mirror; its steps run here. Times are seconds after ``START_MS``."""

    def __init__(self, producer: Producer, kafka: Kafka, topic: str, folder: Path, dsn: str) -> None:
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
            "policies": {"quarantine": "continue", "claim_check_missing": "quarantine", "unproven": "allow"},
            "targets": [{"name": "warehouse", "type": "postgres", "connection": "warehouse"}],
        }
        file = folder / "shop.yaml"
        file.write_text(yaml.safe_dump(declared))
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
        self.context = ReplayContext(load_pipeline(file), self.connections)

    def send(self, second: float, event: tuple[bytes, bytes]) -> None:
        sent = message([event], 0)
        time = START_MS + int(second * 1000) + 300
        self._producer.produce(self.topic, sent.value, sent.key, partition=0, timestamp=time)
        assert self._producer.flush(PATIENCE_S) == 0

    def resolved(self, *seconds: int) -> None:
        for second in seconds:
            self.send(second, resolved(at(second)))

    def decode(self, from_ts: int, to_ts: int) -> str:
        return decode(self.context, pin(self.context, Window(from_ts, to_ts)), lambda *_: None).run_hash

    def load(self, run_hash: str) -> None:
        check(self.context, run_hash)
        self._load(write_load_job(self.context, run_hash, "warehouse").uri)
        publish(self.context, run_hash, ["warehouse"])

    def replay(self, from_ts: int, to_ts: int) -> None:
        self.load(self.decode(from_ts, to_ts))

    def redrive(self) -> None:
        (run,) = open_runs(self.context, Selection())
        run_hash = decode(self.context, pin_redrive(self.context, run), lambda *_: None).run_hash
        for loads in write_redrive_loads(self.context, run_hash):
            assert loads.window_job is None
            self._load(loads.redrive_job)
        publish_redrive(self.context, run_hash, ["warehouse"])

    def raise_floor(self, floor_ts: int, **how: bool) -> int:
        return raise_floor(self.context, "warehouse", TABLE, floor_ts, **how).now

    def drop_by_hand(self) -> None:
        with psycopg.connect(self.dsn) as connection:
            connection.execute("ALTER TABLE s.t DROP COLUMN w")

    @property
    def ids(self) -> list[int]:
        with psycopg.connect(self.dsn) as connection:
            return [key for (key,) in connection.execute("SELECT id FROM s.t ORDER BY id").fetchall()]

    @property
    def held(self) -> list[str]:
        (found,) = coverage(self.context)
        return [span.held.quality for span in found.target.spans]

    def _load(self, uri: str) -> None:
        job = jobspec.decode(self.context.artifacts.get(uri.removeprefix(self.context.artifacts_uri + "/")))
        assert isinstance(job, jobspec.LoadJob)
        report = load(job, self.connections, in_process, 1)
        open_store(job.artifacts).put_once(report.name, canonical.encode(report))


@pytest.fixture
def rig(
    producer: Producer,
    kafka: Kafka,
    make_topic: Callable[..., str],
    make_database: Callable[[], str],
    tmp_path: Path,
) -> Iterator[Rig]:
    """Rows of a table with the column ``w`` at seconds 11, 12 and 16, DROP COLUMN at 25, a row without it at 26."""
    made = Rig(producer, kafka, make_topic(1, {"retention.ms": "-1"}), tmp_path, make_database())
    made.resolved(*range(9))
    made.send(10, ddl(at(10), "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(100), w VARCHAR(10))"))
    made.send(11, row(at(11), new=columns(1, "one", **OLD)))
    large: dict[str, Any] = {"new": {"id": columns(2)["id"]}, "ccl": f"s3://bucket/{OBJECT}"}
    made.send(12, row(at(12), **large))
    made.resolved(15)
    made.send(16, row(at(16), new=columns(3, "three", **OLD)))
    made.resolved(20)
    made.send(25, ddl(DROPPED, "ALTER TABLE t DROP COLUMN w", kind=6))
    made.send(26, row(at(26), new=columns(4, "four")))
    made.resolved(30, 31)
    with made.context:
        yield made


def bring_back(rig: Rig) -> None:
    whole = message([row(at(12), new=columns(2, "two", **OLD))], 0)
    parts = {"key": whole.key, "value": whole.value}
    encoded = {name: base64.b64encode(part or b"").decode() for name, part in parts.items()}
    rig.claims.put(OBJECT, json.dumps(encoded).encode())


def test_a_floor_waits_for_quarantine_and_gaps_below_it(rig: Rig) -> None:
    rig.replay(at(9), at(15))
    late, with_ddl = rig.decode(at(15), at(20)), rig.decode(at(20), at(30))
    with pytest.raises(PolicyStopError, match=r"Load a window that ends at the first commitTs named here"):
        rig.load(with_ddl)
    with pytest.raises(PolicyStopError) as stop:
        rig.raise_floor(DROPPED + 1)
    (run,) = open_runs(rig.context, Selection())
    lines = str(stop.value).split("\n")
    assert lines[1].startswith(f"- {Window(at(15), DROPPED)} is not loaded")
    assert lines[2].startswith(f"- 1 entry in the quarantine of window {run.window} ({rig.topic}[0]@")
    assert f"--run {run.run_hash[:12]}" in lines[2]
    assert "--holds-all-rows" in lines[-1]

    rig.load(late)
    rig.replay(at(20), DROPPED)
    with pytest.raises(PolicyStopError, match=r"1 entry in the quarantine") as stop:
        rig.raise_floor(DROPPED + 1)
    assert "is not loaded" not in str(stop.value)
    bring_back(rig)
    rig.redrive()
    of_that_moment = rig.decode(DROPPED, DROPPED + 1)
    with pytest.raises(PolicyStopError, match="end the window; all rows before them are loaded"):
        rig.load(of_that_moment)
    rig.drop_by_hand()
    assert rig.raise_floor(DROPPED + 1) == DROPPED + 1
    for run_hash in (of_that_moment, with_ddl):
        rig.load(run_hash)
    assert rig.ids == [1, 2, 3, 4]
    assert rig.held == ["complete"]


def test_an_entry_that_was_accepted_as_lost_is_not_waited_for(rig: Rig) -> None:
    for bounds in ((at(9), at(15)), (at(15), DROPPED)):
        rig.replay(*bounds)
    accept(rig.context, Selection(), "Ada Berg", "not ours")
    rig.drop_by_hand()
    assert rig.raise_floor(DROPPED + 1) == DROPPED + 1


def test_a_mirror_that_is_said_to_hold_all_rows_waits_for_nothing(rig: Rig) -> None:
    rig.replay(at(9), at(15))
    assert rig.raise_floor(at(24), holds_all_rows=True) == at(24)
    # What lies below that floor is dealt with: the next one waits for what comes after it.
    with pytest.raises(PolicyStopError) as stop:
        rig.raise_floor(DROPPED + 1)
    assert f"{Window(at(24), DROPPED)} is not loaded" in str(stop.value)
    assert "quarantine of window" not in str(stop.value)


def test_before_the_first_window_a_floor_waits_for_nothing(rig: Rig) -> None:
    rig.decode(at(9), at(15))
    assert rig.raise_floor(at(13)) == at(13)
    rig.replay(at(9), at(15))
    # Its entry below the floor is of a row that the base load has.
    assert rig.raise_floor(at(15)) == at(15)
