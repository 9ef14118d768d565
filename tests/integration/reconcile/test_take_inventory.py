"""The inventory that a store's file asks for."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq
import pytest
import yaml

from tests.conftest import s3_client_of
from tests.support.s3_inventory_reports import Reports, entries_of
from ticdc_replay.config.load_store import load_store
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.reconcile.look.inventory import Inventory
from ticdc_replay.reconcile.look.survey import Survey, put_survey
from ticdc_replay.store_stages.context import StoreContext
from ticdc_replay.store_stages.reconcile import take_inventory

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from demo.embedded_stack.s3 import VersityGateway

pytestmark = pytest.mark.integration

NAMES = [f"{number:08d}-0000-4000-8000-000000000000.json" for number in range(3)]
PIPELINE = """\
name: shop
changefeed:
  sink_uri: kafka://broker:9092/shop?protocol=open-protocol
  timezone: UTC
  config: |
    [sink.kafka-config.large-message-handle]
    large-message-handle-option = "claim-check"
    claim-check-storage-uri = "s3://{bucket}/claims"
connections: {{kafka: kafka, claim_check: s3}}
artifacts: file:///unused
tables: ["s.*"]
schedule: {{start: "2025-01-01T00:00:00Z"}}
targets: [{{name: lake, type: parquet, uri: "file:///unused"}}]
"""


class Bucket:
    """A bucket that keeps versions, with three objects of a store."""

    def __init__(self, folder: Path, server: VersityGateway, client: S3Client, name: str) -> None:
        self.client, self.name, self._folder = client, name, folder
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        for claim in NAMES:
            client.put_object(Bucket=name, Key=f"claims/{claim}", Body=claim.encode())
        (folder / "pipelines").mkdir()
        (folder / "pipelines/shop.yaml").write_text(PIPELINE.format(bucket=name))
        extra = {"endpoint_url": server.endpoint, "region_name": server.region}
        aws = Connection("s3", "aws", login=server.access_key, password=server.secret_key, extra=extra)
        self._connections = Connections({"s3": aws})

    def inventory(self, **declared: Any) -> tuple[Inventory, list[dict[str, Any]]]:
        """What is taken of the store with *declared* in its file, and the rows in its files."""
        document: dict[str, Any] = {
            "name": "claims",
            "uri": f"s3://{self.name}/claims",
            "pipelines": ["shop"],
            "owners_complete": True,
            "connections": {"store": "s3"},
            "artifacts": (self._folder / "artifacts").as_uri(),
            "schedule": {"start": "2025-01-01T00:00:00Z"},
        }
        (self._folder / "claims.yaml").write_text(yaml.safe_dump(document | declared))
        loaded = load_store(self._folder / "claims.yaml", self._folder / "pipelines")
        with StoreContext(loaded, self._connections) as context:
            survey = put_survey(context.artifacts, Survey(store="claims", uri="", bounds_ms=0, feeds=()))
            name = take_inventory(context, survey)
            found = msgspec.json.decode(context.artifacts.get(name), type=Inventory)
            filesystem, root = context.artifacts.arrow_filesystem()
            tables = [pq.read_table(f"{root}/{file.name}", filesystem=filesystem) for file in found.files]
        return found, sorted((row for table in tables for row in table.to_pylist()), key=lambda row: str(row["name"]))


@pytest.fixture
def client(versitygw: VersityGateway) -> S3Client:
    return s3_client_of(versitygw)


@pytest.fixture
def make_bucket(client: S3Client) -> Callable[[], str]:
    def make() -> str:
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        client.create_bucket(Bucket=name)
        return name

    return make


@pytest.fixture
def bucket(tmp_path: Path, versitygw: VersityGateway, client: S3Client, make_bucket: Callable[[], str]) -> Bucket:
    """On versitygw: moto leaves out the first key behind a marker of a listing of versions."""
    return Bucket(tmp_path, versitygw, client, make_bucket())


def test_a_store_is_listed_without_versions_unless_it_may_be_deleted_from(bucket: Bucket) -> None:
    _, rows = bucket.inventory()
    assert [(row["name"], row["version_id"]) for row in rows] == [(name, None) for name in NAMES]
    policy = {"deletion": {"policy": "approval"}, "connections": {"store": "s3", "deletion": "s3_deletion"}}
    _, rows = bucket.inventory(**policy)
    assert [row["name"] for row in rows] == NAMES
    assert all(row["version_id"] for row in rows)


def test_s3s_own_report_takes_the_place_of_a_listing(bucket: Bucket, make_bucket: Callable[[], str]) -> None:
    reports = Reports(bucket.client, bucket.name, make_bucket())
    reports.publish(entries_of(bucket.client, bucket.name), "Parquet")
    bucket.client.put_object(Bucket=bucket.name, Key="claims/late.json", Body=b"{}")
    found, rows = bucket.inventory(inventory={"source": "s3_inventory", "manifest": reports.uri})
    assert [row["name"] for row in rows] == NAMES
    assert found.objects == len(NAMES)
    assert found.began_ms < found.ended_ms
