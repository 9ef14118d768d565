"""Coverage is never better than the target: windows that are pinned anew, mirrors that are forgotten, loads that broke."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pyarrow.parquet as pq
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from demo.embedded_stack.kafka import Kafka
from tests.integration.snapshot.feed import START_MS, at
from tests.support.in_process import in_process
from tests.support.open_protocol import columns, ddl, message, resolved, row
from tests.support.replayed_windows import decode
from tests.support.waiting import PATIENCE_S, wait_for
from ticdc_replay import jobspec
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain import canonical
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.begin_load import begin_load
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.load.coverage import coverage
from ticdc_replay.stages.load.publish import publish
from ticdc_replay.stages.quarantine.entries import Selection
from ticdc_replay.stages.quarantine.redrive import (
    check_redrive,
    open_runs,
    pin_redrive,
    publish_redrive,
    write_redrive_loads,
)
from ticdc_replay.stages.upkeep.mirrors import forget
from ticdc_replay.stages.upkeep.verify import verify_job
from ticdc_replay.stages.window.jobs import write_load_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.storage import open_store
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration

OBJECT = f"{UUID(int=2)}.json"
CREATE = "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(100))"


class Replay:
    """A pipeline with a mirror and a lake on one topic, whose claim-check objects lie in a folder."""

    def __init__(self, kafka: Kafka, topic: str, folder: Path, dsn: str) -> None:
        self.topic, self.dsn, self._folder = topic, dsn, folder
        parts = psycopg.conninfo.conninfo_to_dict(dsn)
        host, user, password, name = (str(parts.get(key, "")) for key in ("host", "user", "password", "dbname"))
        self.connections = Connections(
            {
                "kafka": Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap}),
                "warehouse": Connection("warehouse", "postgres", host, int(str(parts["port"])), user, password, name),
            }
        )
        (folder / "claims").mkdir()
        self.claims = open_store((folder / "claims").as_uri())
        config = (
            "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'\n"
            f"claim-check-storage-uri = '{(folder / 'claims').as_uri()}'\n"
        )
        sink = f"kafka://broker:9092/{topic}?protocol=open-protocol&partition-num=1"
        (folder / "shop.yaml").write_text(
            yaml.safe_dump(
                {
                    "name": "shop",
                    "changefeed": {"sink_uri": sink, "timezone": "UTC", "config": config},
                    "connections": {"kafka": "kafka", "source": "upstream"},
                    "artifacts": (folder / "artifacts").as_uri(),
                    "tables": ["s.*"],
                    "schedule": {"start": "2025-10-01T00:00:00Z"},
                    "policies": {
                        "quarantine": "continue",
                        "claim_check_missing": "quarantine",
                        "unproven": "allow",
                    },
                    "targets": [
                        {"name": "warehouse", "type": "postgres", "connection": "warehouse"},
                        {"name": "lake", "type": "parquet", "uri": (folder / "lake").as_uri()},
                    ],
                }
            )
        )
        self.context = ReplayContext(load_pipeline(folder / "shop.yaml"), self.connections)
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})

    def send(self, second: float, *events: Any) -> None:
        made = message(list(events), 0)
        time = START_MS + round(second * 1000) + 300
        self._producer.produce(self.topic, made.value, made.key, partition=0, timestamp=time)
        assert self._producer.flush(PATIENCE_S) == 0

    def resolved(self, *seconds: float) -> None:
        for second in seconds:
            self.send(second, resolved(at(second)))

    def reference(self, second: float) -> Any:
        """The event of row 2, which lies in the claim-check object."""
        return row(at(second), new={"id": columns(2)["id"]}, ccl=f"s3://bucket/{OBJECT}")

    def keep_object(self, second: float) -> None:
        whole = message([row(at(second), new=columns(2, "two"))], 0)
        parts = {"key": whole.key, "value": whole.value}
        content = {name: base64.b64encode(part or b"").decode() for name, part in parts.items()}
        self.claims.put(OBJECT, json.dumps(content).encode())

    def decode(self, start: float, end: float, **options: Any) -> str:
        pinned = pin(self.context, Window(at(start), at(end)), **options)
        return decode(self.context, pinned, lambda *_: None).run_hash

    def load(self, run_hash: str, targets: Sequence[str] = ("warehouse", "lake"), *, reload: bool = False) -> None:
        check(self.context, run_hash)
        for target in targets:
            self._load(write_load_job(self.context, run_hash, target, reload=reload).uri)

    def publish(self, run_hash: str) -> None:
        publish(self.context, run_hash, ["warehouse", "lake"])

    def replay(self, start: float, end: float, **options: Any) -> str:
        run_hash = self.decode(start, end, **options)
        self.load(run_hash)
        self.publish(run_hash)
        return run_hash

    def redrive(self, before_publish: Callable[[], None] = lambda: None) -> None:
        (run,) = open_runs(self.context, Selection())
        run_hash = decode(self.context, pin_redrive(self.context, run), lambda *_: None).run_hash
        check_redrive(self.context, run_hash)
        loads = write_redrive_loads(self.context, run_hash)
        for each in loads:
            for uri in (each.window_job, each.redrive_job):
                if uri is not None:
                    self._load(uri)
        before_publish()
        publish_redrive(self.context, run_hash, [each.target for each in loads])

    def _load(self, uri: str) -> None:
        job = jobspec.decode(self.context.artifacts.get(uri.removeprefix(self.context.artifacts_uri + "/")))
        assert isinstance(job, jobspec.LoadJob)
        begin_load(self.context, uri)
        report = load(job, self.connections, in_process)
        open_store(job.artifacts).put_once(report.name, canonical.encode(report))

    def in_lake(self) -> list[int]:
        """The rows of ``s.t`` that the lake lists."""
        entries = sorted((self._folder / "lake/shop/current/schema=s/table=t").glob("*.json"))
        files = [file["name"] for entry in entries for file in json.loads(entry.read_text())["fold"]]
        tables = [pq.read_table(self._folder / "lake" / name, partitioning=None) for name in files]
        return sorted(each["after"]["id"] for table in tables for each in table.to_pylist())

    def in_warehouse(self) -> list[int]:
        with psycopg.connect(self.dsn) as connection:
            return [id_ for (id_,) in connection.execute("SELECT id FROM s.t ORDER BY id")]

    def held(self, table: str | None = None) -> dict[str, list[tuple[str, str] | str]]:
        """By target, of the whole or of *table*: quality and grade of each stretch, then a word for each gap."""
        found = {}
        for target in coverage(self.context.pipeline, self.context.state):
            covered = {each.name: each for each in target.tables}[table] if table else target.target
            held = [(span.held.quality, span.held.grade) for span in covered.spans]
            found[target.target.name] = [*held, *("gap" for _ in covered.gaps)]
        return found


@pytest.fixture
def replay(
    kafka: Kafka, make_topic: Callable[..., str], make_database: Callable[[], str], tmp_path: Path
) -> Iterator[Replay]:
    made = Replay(kafka, make_topic(1, {"retention.ms": "-1"}), tmp_path, make_database())
    yield made
    made.context.__exit__()


def test_a_window_whose_object_is_gone_when_it_is_pinned_anew(replay: Replay) -> None:
    replay.resolved(*range(9))
    replay.send(10, ddl(at(10), CREATE, kind=3))
    replay.send(11, row(at(11), new=columns(1, "one")))
    replay.send(12, replay.reference(12))
    replay.keep_object(12)
    replay.resolved(*range(19, 23))
    replay.replay(9, 20)
    assert replay.held() == {"warehouse": [("complete", "proven")], "lake": [("complete", "proven")]}
    replay.claims.delete(OBJECT)
    replay.replay(9, 20, repin=True)
    assert (replay.in_warehouse(), replay.in_lake()) == ([1, 2], [1])
    assert replay.held() == {"warehouse": [("complete", "proven")], "lake": [("quarantine", "proven")]}


def test_a_window_whose_topic_was_made_again_when_it_is_pinned_anew(
    replay: Replay, kafka: Kafka, make_topic: Callable[..., str]
) -> None:
    replay.resolved(*range(9))
    replay.send(10, ddl(at(10), CREATE, kind=3))
    replay.send(11, row(at(11), new=columns(1, "one")))
    replay.send(12, row(at(12), new=columns(2, "two")))
    replay.resolved(*range(19, 23))
    replay.replay(9, 20)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([replay.topic])[replay.topic].result(PATIENCE_S)
    wait_for("the topic to be gone", lambda: replay.topic not in admin.list_topics(timeout=PATIENCE_S).topics)
    make_topic(1, {"retention.ms": "-1"}, replay.topic)
    replay.send(12, row(at(12), new=columns(2, "two")))
    replay.resolved(*range(19, 23))
    replay.replay(9, 20, repin=True)
    assert (replay.in_warehouse(), replay.in_lake()) == ([1, 2], [2])
    assert replay.held() == {"warehouse": [("complete", "proven")], "lake": [("complete", "unproven")]}


def two_windows(replay: Replay) -> tuple[str, str]:
    """Of the second only a re-drive brings the table ``s.t``."""
    replay.resolved(*range(9))
    replay.send(11, row(at(11), new=columns(1, "one"), table="u"))
    replay.resolved(19.5)
    replay.send(20.5, replay.reference(20.5))
    replay.send(21, row(at(21), new=columns(3, "three"), table="u"))
    replay.resolved(*range(30, 33))
    runs = replay.replay(9, 20), replay.replay(20, 30)
    replay.keep_object(20.5)
    replay.redrive()
    assert replay.in_warehouse() == [2]
    assert replay.held()["warehouse"] == [("complete", "proven")]
    return runs


def test_what_a_re_drive_brought_into_a_mirror_that_is_forgotten_is_open_again(replay: Replay) -> None:
    runs = two_windows(replay)
    table = TableName("s", "t")
    with pytest.raises(ConfigError, match="is still there"):
        forget(replay.context, "warehouse", table)
    assert replay.held()["warehouse"] == [("complete", "proven")], "refused: nothing is forgotten"
    with psycopg.connect(replay.dsn) as connection:
        connection.execute("DROP TABLE s.t")
    forget(replay.context, "warehouse", table)
    assert replay.held("s.t")["warehouse"] == ["gap"]
    for run_hash in runs:
        replay.publish(run_hash)
    assert replay.held("s.t")["warehouse"] == ["gap"], "nothing was loaded since"
    for run_hash in runs:
        replay.load(run_hash)
        replay.publish(run_hash)
    assert replay.held()["warehouse"] == [("complete", "proven"), ("quarantine", "proven")]
    assert replay.held()["lake"] == [("complete", "proven")]
    replay.redrive()
    assert replay.in_warehouse() == [2]
    assert replay.held()["warehouse"] == [("complete", "proven")]


def test_a_mirror_that_lost_what_a_re_drive_brought_is_told_by_its_ledger(replay: Replay) -> None:
    _, second = two_windows(replay)
    with psycopg.connect(replay.dsn) as connection:  # as an older copy of the database has it
        connection.execute("DROP TABLE s.t")
        for name in ("tables", "columns", "added_columns", "ledger"):
            connection.execute(f"DELETE FROM _ticdc_replay.{name} WHERE target_table = 't'")  # type: ignore[call-overload]
    replay.load(second)
    replay.publish(second)
    assert replay.held()["warehouse"] == [("complete", "proven"), ("quarantine", "proven")]


def test_a_re_drive_that_is_published_after_a_reload_took_its_rows_away_is_open(replay: Replay) -> None:
    replay.resolved(*range(9))
    replay.send(11, row(at(11), new=columns(1, "one")))
    replay.send(12, replay.reference(12))
    replay.resolved(*range(19, 23))
    run_hash = replay.replay(9, 20)
    replay.keep_object(12)

    def reload() -> None:
        assert replay.in_lake() == [1, 2]
        replay.load(run_hash, ["lake"], reload=True)
        replay.publish(run_hash)

    replay.redrive(reload)
    assert (replay.in_warehouse(), replay.in_lake()) == ([1, 2], [1])
    assert replay.held() == {"warehouse": [("complete", "proven")], "lake": [("quarantine", "proven")]}


def test_a_reload_of_which_only_one_target_ended_is_told_by_the_next_run(replay: Replay) -> None:
    replay.resolved(*range(9))
    replay.send(10, ddl(at(10), CREATE, kind=3))
    replay.send(11, row(at(11), new=columns(1, "one")))
    replay.send(12, replay.reference(12))
    replay.resolved(*range(19, 23))
    run_hash = replay.replay(9, 20)
    replay.keep_object(12)
    replay.redrive()
    assert replay.in_lake() == [1, 2]
    assert replay.held() == {"warehouse": [("complete", "proven")], "lake": [("complete", "proven")]}
    replay.load(run_hash, ["lake"], reload=True)
    assert replay.in_lake() == [1]
    assert replay.held() == {"warehouse": [("complete", "proven")], "lake": ["gap"]}
    replay.load(run_hash)
    replay.publish(run_hash)
    assert replay.held() == {"warehouse": [("complete", "proven")], "lake": [("quarantine", "proven")]}
    replay.redrive()
    assert replay.in_lake() == [1, 2]
    assert replay.held() == {"warehouse": [("complete", "proven")], "lake": [("complete", "proven")]}


def test_a_load_that_was_not_published_before_its_mirror_is_forgotten_does_not_count(replay: Replay) -> None:
    replay.resolved(*range(9))
    replay.send(10, ddl(at(10), CREATE, kind=3))
    replay.send(11, row(at(11), new=columns(1, "one")))
    replay.resolved(*range(19, 23))
    run_hash = replay.decode(9, 20)
    replay.load(run_hash, ["warehouse"])  # that of the lake fails, so nothing is published
    with psycopg.connect(replay.dsn) as connection:
        connection.execute("DROP TABLE s.t")
    forget(replay.context, "warehouse", TableName("s", "t"))
    replay.load(run_hash, ["lake"])  # cleared
    replay.publish(run_hash)
    assert replay.held()["warehouse"] == ["gap"], "nothing was loaded into the mirror since"
    assert replay.held()["lake"] == [("complete", "proven")]
    replay.load(run_hash, ["warehouse"])
    replay.publish(run_hash)
    assert replay.in_warehouse() == [1]
    assert replay.held()["warehouse"] == [("complete", "proven")]


def test_a_table_stays_forgotten_whose_load_an_earlier_version_published(replay: Replay) -> None:
    replay.resolved(*range(9))
    replay.send(10, ddl(at(10), CREATE, kind=3))
    replay.send(11, ddl(at(11), CREATE.replace("TABLE t", "TABLE u"), kind=3, table="u"))
    replay.resolved(*range(19, 23))
    replay.replay(9, 20)
    recorded = replay.context.state.coverage
    for table in ("t", "u"):
        recorded.record([msgspec.structs.replace(each, attempt="") for each in recorded.all("shop")])
        with psycopg.connect(replay.dsn) as connection:
            connection.execute(f"DROP TABLE s.{table}")
        forget(replay.context, "warehouse", TableName("s", table))
    assert [replay.held(f"s.{table}")["warehouse"] for table in ("t", "u")] == [["gap"], ["gap"]]


def test_a_comparison_goes_on_from_nothing_that_a_re_drive_of_a_part_has_changed(replay: Replay) -> None:
    replay.resolved(*range(9))
    replay.send(10, ddl(at(10), CREATE, kind=3))
    replay.send(12, replay.reference(12))
    replay.send(13, row(at(13), new={"id": columns(3)["id"]}, ccl=f"s3://bucket/{UUID(int=3)}.json"))
    replay.send(14, row(at(14), new=columns(1, "one")))
    replay.resolved(*range(19, 23))
    replay.replay(9, 20)
    (before,) = verify_job(replay.context, "warehouse").mirrors
    replay.keep_object(12)
    replay.redrive()
    assert replay.in_warehouse() == [1, 2]
    assert replay.held()["warehouse"] == [("quarantine", "proven")]
    (after,) = verify_job(replay.context, "warehouse").mirrors
    assert (after.at, after.loads != before.loads) == (before.at, True)
