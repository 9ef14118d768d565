"""What somebody is told of a store in S3: asked of the bucket and of Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from ticdc_replay.config.load_store import load_store
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.reconcile.judge.records import CLASSIFIED_REFERENCES
from ticdc_replay.reconcile.judge.rules import ReferenceClass
from ticdc_replay.reconcile.judge.summary import ReferencesOfTable, Summary
from ticdc_replay.reconcile.look.survey import read_survey
from ticdc_replay.state.quarantine import AcceptedLoss
from ticdc_replay.store_stages.alerts import Watched, look_after
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.evidence import gather
from ticdc_replay.store_stages.reconcile import survey

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from demo.embedded_stack.kafka import Kafka
    from demo.embedded_stack.s3 import MotoServer
    from tests.conftest import MakeTopic

pytestmark = pytest.mark.integration

DAY_MS = 86_400_000
NAMES = [f"{number:08d}-0000-4000-8000-000000000000.json" for number in range(4)]


class Store:
    """A bucket with one changefeed, nothing of which was decoded."""

    def __init__(self, folder: Path, kafka: Kafka, s3: MotoServer, client: S3Client, bucket: str, topic: str) -> None:
        self.bucket, self.topic, self._client, self._folder = bucket, topic, client, folder
        (folder / "pipelines").mkdir()
        uri = f"s3://{bucket}/claim-check"
        common = {"artifacts": (folder / "artifacts").as_uri(), "schedule": {"start": "2025-01-01T00:00:00Z"}}
        pipeline = {
            "name": "shop",
            "changefeed": {
                "sink_uri": f"kafka://broker:9092/{topic}?protocol=open-protocol&partition-num=1",
                "timezone": "UTC",
                "config": "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'\n"
                f"claim-check-storage-uri = '{uri}'\n",
            },
            "connections": {"kafka": "kafka", "claim_check": "s3"},
            "tables": ["s.*"],
            "targets": [{"name": "lake", "type": "parquet", "uri": (folder / "lake").as_uri()}],
        }
        (folder / "pipelines/shop.yaml").write_text(yaml.safe_dump(pipeline | common))
        store = {"name": "claims", "uri": uri, "pipelines": ["shop"], "connections": {"store": "s3"}}
        (folder / "claims.yaml").write_text(yaml.safe_dump(store | common))
        extra = {"endpoint_url": s3.endpoint, "region_name": s3.region}
        self._connections = Connections(
            {
                "kafka": Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap}),
                "s3": Connection("s3", "aws", login=s3.access_key, password=s3.secret_key, extra=extra),
            }
        )

    def put(self, name: str) -> None:
        self._client.put_object(Bucket=self.bucket, Key=f"claim-check/{name}", Body=b"{}")

    def expire_after(self, days: int) -> None:
        rule: Any = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": days}}
        self._client.put_bucket_lifecycle_configuration(Bucket=self.bucket, LifecycleConfiguration={"Rules": [rule]})

    def accept(self, loss: AcceptedLoss) -> None:
        loaded = load_store(self._folder / "claims.yaml", self._folder / "pipelines")
        with StoreContext(loaded, self._connections) as context:
            context.pipelines[0].state.quarantine.record_accepted_losses([loss])

    def look_after(self, *missing: str, listed_later_ms: int = 0) -> Watched:
        """What is told where the objects *missing*, each of a message of its own, were not in the inventory."""
        with StoreContext(
            load_store(self._folder / "claims.yaml", self._folder / "pipelines"), self._connections
        ) as context:
            made = read_survey(context.artifacts, survey(context).name)
            evidence = gather(context, made, made.bounds_ms, 0).evidence
            counted = (
                (ReferencesOfTable(ReferenceClass.MISSING, "s", "t", len(missing), len(missing)),) if missing else ()
            )
            summary = Summary(by_day=(), objects_by_table=(), references_by_table=counted)
            filesystem, root = context.artifacts.arrow_filesystem()
            rows = [self._reference(offset, name) for offset, name in enumerate(missing)]
            filesystem.create_dir(root, recursive=True)
            table = pa.Table.from_pylist(rows, CLASSIFIED_REFERENCES)
            pq.write_table(table, f"{root}/references.parquet", filesystem=filesystem)
            evidence = msgspec.structs.replace(evidence, listed_ms=evidence.listed_ms + listed_later_ms)
            return look_after(context, made, evidence, summary, ("references.parquet",))

    def _reference(self, offset: int, name: str) -> dict[str, Any]:
        row = dict.fromkeys(CLASSIFIED_REFERENCES.names)
        row |= {"topic": self.topic, "topic_id": "id", "partition": 0, "offset": offset, "ordinal": 0}
        row |= {"pipeline": "shop", "schema": "s", "table": "t", "status": "seen", "source": "scan"}
        return row | {"object_name": name, "class": "missing", "protecting": True, "commit_ts": tso.from_ms(offset + 1)}


@pytest.fixture
def store(
    tmp_path: Path,
    kafka: Kafka,
    s3: MotoServer,
    s3_client: S3Client,
    make_bucket: Callable[[], str],
    make_topic: MakeTopic,
) -> Store:
    topic = make_topic(1, {"retention.ms": str(5 * DAY_MS)})
    return Store(tmp_path, kafka, s3, s3_client, make_bucket(), topic)


def test_a_bucket_that_deletes_sooner_than_kafka_is_an_alert(store: Store) -> None:
    assert (store.look_after().alerts, store.look_after().notes) == ((), ())
    store.expire_after(5)
    (alert,) = store.look_after().alerts
    assert (alert.kind, alert.topic) == ("lifecycle", store.topic)
    assert "rule 'tidy' (prefix '') deletes objects after 5 days, but Kafka keeps" in alert.text
    store.expire_after(6)
    assert store.look_after().alerts == ()


def test_an_object_that_came_after_the_inventory_is_not_missing(store: Store) -> None:
    store.put(NAMES[1])
    alerts = store.look_after(*NAMES[:3]).alerts
    assert [alert.object_name for alert in alerts] == [NAMES[0], NAMES[2]]
    assert [alert.offset for alert in alerts] == [0, 2]


def test_what_the_second_look_finds_does_not_count_as_missing(store: Store) -> None:
    store.put(NAMES[1])
    watched = store.look_after(*NAMES[:3])
    assert (watched.summary.lost_rows, watched.unlisted) == (2, 0)
    assert watched.summary.references_by_table == (
        ReferencesOfTable(ReferenceClass.MISSING, "s", "t", 2, 2),
        ReferencesOfTable(ReferenceClass.PRESENT, "s", "t", 1, 1),
    )


def test_objects_that_are_older_than_the_inventory_that_lacks_them_are_an_alert_of_their_own(store: Store) -> None:
    store.put(NAMES[1])
    store.put(NAMES[2])
    missing, lacking = store.look_after(*NAMES[:3], listed_later_ms=DAY_MS).alerts
    assert (missing.kind, missing.object_name) == ("missing", NAMES[0])
    assert lacking.kind == "inventory"
    assert f"older than it: {NAMES[1]} and 1 more" in lacking.text
    watched = store.look_after(NAMES[1], listed_later_ms=DAY_MS)
    assert [alert.kind for alert in watched.alerts] == ["inventory"]
    assert (watched.summary.lost_rows, watched.unlisted) == (0, 1)


def test_a_loss_that_somebody_accepted_is_no_alert(store: Store) -> None:
    topic = TopicIdentity("cluster", store.topic, "id")
    store.accept(AcceptedLoss("shop", topic, 0, 1, 0, "claim_check_missing", "run", "Ada", "why", "accepted/a.json", 1))
    assert [alert.offset for alert in store.look_after(*NAMES[:3]).alerts] == [0, 2]


def test_of_very_many_missing_objects_the_first_are_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticdc_replay.store_stages.alerts.MOST", 2)
    *named, rest = store.look_after(*NAMES).alerts
    assert [alert.object_name for alert in named] == NAMES[:2]
    assert "of 4 references" in rest.text
