"""A window from Kafka to Parquet, with claim checks, artefacts and target in a cloud's store, run without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from demo.sample import contents
from demo.sample.publish import publish as publish_sample
from tests.support import stores, sts
from tests.support.replayed_windows import rows_of
from ticdc_replay.changelog.files.reading import read_index
from ticdc_replay.cli import submit as cli
from ticdc_replay.config.load import load_pipeline
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.load.check import check
from ticdc_replay.stages.window.jobs import write_decode_job, write_load_job
from ticdc_replay.stages.window.pin import pin
from ticdc_replay.storage import open_store

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from demo.embedded_stack.kafka import Kafka
    from demo.embedded_stack.s3 import MotoServer

pytestmark = pytest.mark.integration

WINDOW = next(Window(window.from_ts, window.to_ts) for window in contents.windows())
LIFETIME_S = 5.0


class Place:
    """A bucket: its URI, as TiCDC has it and as we do, and the connection that opens it."""

    def __init__(self, root: str, connection: Connection, claims: str | None = None) -> None:
        self.root = root
        self.connection = connection
        self.claims = claims or root


@pytest.fixture(scope="module")
def topic(kafka: Kafka, s3: MotoServer) -> str:
    """The sample in Kafka; its objects are in a bucket of the same name."""
    from tests.conftest import s3_client_of

    name = f"sample-{uuid.uuid4().hex[:8]}"
    client = s3_client_of(s3)
    client.create_bucket(Bucket=name)
    publish_sample(kafka.bootstrap, name, client, name, "claim-check/")
    return name


def rows(context: ReplayContext) -> tuple[list[tuple[str, dict[str, Any]]], str]:
    """Decode ``WINDOW`` and load it into the lake, each in a driver of its own; the rows of the changelog, and its run."""
    pinned = pin(context, WINDOW)
    written = write_decode_job(context, pinned)
    cli.submit(written.uri, context, None)
    (run_hash,) = {name.split("/")[1] for name in context.artifacts.folders("runs/")}
    check(context, run_hash)
    cli.submit(write_load_job(context, run_hash, "lake").uri, context, None)
    return sorted(rows_of(context, read_index(context.artifacts, run_hash)), key=repr), run_hash


@contextmanager
def context_of(folder: Path, topic: str, kafka: Kafka, place: Place) -> Iterator[ReplayContext]:
    folder.mkdir()
    toml = f"""
    [sink.kafka-config.large-message-handle]
    large-message-handle-option = "claim-check"
    claim-check-storage-uri = "{place.claims}/claim-check"
    """
    file = folder / "shop.yaml"
    declared = {
        "name": "shop",
        "changefeed": {
            "sink_uri": f"kafka://b:9092/{topic}?protocol=open-protocol&partition-num=3&max-message-bytes=4000",
            "timezone": "Asia/Shanghai",
            "config": toml,
        },
        "connections": {"kafka": "kafka", "claim_check": "store", "artifacts": "store", "state": "state"},
        "artifacts": f"{place.root}/artifacts",
        "schedule": {"start": "2026-03-02T00:00:00Z"},
        "runner": "local",
        "targets": [{"name": "lake", "type": "parquet", "uri": f"{place.root}/lake", "connection": "store"}],
    }
    file.write_text(yaml.safe_dump(declared), encoding="utf-8")
    connections = {
        "kafka": Connection("kafka", "kafka", extra={"bootstrap.servers": kafka.bootstrap}),
        "store": place.connection,
        "state": Connection("state", "sqlite", host=str(folder / "state.db")),
    }
    with ReplayContext(load_pipeline(file), Connections(connections, artifacts="store")) as context:
        yield context


def copy_claims(s3_client: S3Client, topic: str, place: Place) -> int:
    """Put the sample's objects where *place* has its claim checks; how many."""
    store = open_store(f"{place.root}/claim-check", place.connection)
    listed = s3_client.list_objects_v2(Bucket=topic, Prefix="claim-check/")["Contents"]
    for found in listed:
        content = s3_client.get_object(Bucket=topic, Key=found["Key"])["Body"].read()
        store.put(found["Key"].removeprefix("claim-check/"), content)
    return len(listed)


@pytest.fixture(scope="module")
def expected(topic: str, kafka: Kafka, s3: MotoServer, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The rows, by a plain key of S3."""
    extra = {"endpoint_url": s3.endpoint, "region_name": s3.region}
    connection = Connection("store", "aws", login=s3.access_key, password=s3.secret_key, extra=extra)
    with context_of(
        tmp_path_factory.mktemp("plain") / "p", topic, kafka, Place(f"s3://{topic}", connection)
    ) as context:
        found, _ = rows(context)
    assert len(found) > 100
    return found


@pytest.mark.parametrize("kind", ["gcs", "azure"])
def test_a_store_of_another_cloud_holds_all_that_a_run_needs(
    kind: str,
    topic: str,
    kafka: Kafka,
    s3_client: S3Client,
    expected: list[Any],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    if kind == "gcs":
        with stores.of_gcs(request.getfixturevalue("fake_gcs")) as bucket:
            assert bucket.connection is not None
            place = Place(bucket.root, bucket.connection, bucket.root.replace("gs:", "gcs:"))
            _holds_a_run(place, topic, kafka, s3_client, expected, tmp_path)
    else:
        container = stores.of_azure(request.getfixturevalue("azurite"))
        assert container.connection is not None
        place = Place(container.root, container.connection, container.root.replace("az:", "azblob:"))
        _holds_a_run(place, topic, kafka, s3_client, expected, tmp_path)


def _holds_a_run(
    place: Place, topic: str, kafka: Kafka, s3_client: S3Client, expected: list[Any], tmp_path: Path
) -> None:
    assert copy_claims(s3_client, topic, place) > 0
    with context_of(tmp_path / "p", topic, kafka, place) as context:
        found, run_hash = rows(context)
        assert found == expected
        names = [found.name for found in open_store(f"{place.root}/lake/shop", place.connection).list()]
    assert any(name.startswith("changelog/") and run_hash in name for name in names)
    assert any(name.startswith("current/") for name in names)


@pytest.mark.nightly
def test_a_job_goes_on_while_the_credentials_of_its_role_expire(
    topic: str,
    kafka: Kafka,
    s3: MotoServer,
    make_bucket: Callable[[], str],
    s3_client: S3Client,
    expected: list[Any],
    tmp_path: Path,
) -> None:
    with sts.sts() as identities, sts.gate(s3, identities) as gate:
        identities.lifetime_s = LIFETIME_S
        extra = {
            "endpoint_url": gate.endpoint,
            "region_name": "us-east-1",
            "role_arn": sts.ROLE,
            "external_id": sts.EXTERNAL_ID,
            "service_config": {"sts": {"endpoint_url": identities.url}},
        }
        connection = Connection("store", "aws", login=sts.BASE_KEY, password=sts.BASE_SECRET, extra=extra)
        place = Place(f"s3://{make_bucket()}", connection)
        copy_claims(s3_client, topic, place)
        begun = datetime.now(UTC)
        with context_of(tmp_path / "p", topic, kafka, place) as context:
            found, _ = rows(context)
        took = (datetime.now(UTC) - begun).total_seconds()
        assert found == expected
        assert took > 2 * LIFETIME_S, "the run was longer than its first credentials lived"
        assert set(identities.calls) == {"AssumeRole"}
        assert gate.refused == 0
        old = next(issued for issued in identities.issued if issued.expires < datetime.now(UTC))
        assert old.key_id != identities.issued[-1].key_id
