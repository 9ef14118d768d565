"""Reading many objects: as ``get`` reads them, also where the fast client can't and boto3 takes its place."""

import logging
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest

from demo.embedded_stack.s3 import MotoServer, S3Server
from tests.support.s3_proxy import Proxy, Refusal, before
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import (
    ArtifactNotFoundError,
    AuthenticationError,
    ObjectAlteredError,
    ObjectTooLargeError,
    TransientError,
)
from ticdc_replay.storage import ObjectStore, open_store

pytestmark = pytest.mark.integration

NAMES = [f"some prefix/ü+{number} %41.json" for number in range(20)]


@pytest.fixture
def proxy(s3: MotoServer) -> Iterator[Proxy]:
    with before(s3) as proxy:
        yield proxy


@pytest.fixture
def store(s3: MotoServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A store with ``NAMES``, whose content is their name."""
    monkeypatch.setattr("ticdc_replay.storage.s3.bucket._ATTEMPTS", 2)
    store = open_store(f"s3://{make_bucket(s3)}/below", connection(s3, proxy.endpoint))
    for name in NAMES:
        store.put(name, name.encode())
    proxy.requests.clear()
    return store


def make_bucket(server: S3Server) -> str:
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    keys: dict[str, Any] = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
    boto3.client("s3", endpoint_url=server.endpoint, region_name=server.region, **keys).create_bucket(Bucket=name)
    return name


def connection(server: S3Server, endpoint: str, password: str | None = None) -> Connection:
    extra = {"endpoint_url": endpoint, "region_name": server.region}
    return Connection("aws_test", "aws", login=server.access_key, password=password or server.secret_key, extra=extra)


def test_many_threads_read_each_object_in_one_request(store: ObjectStore, proxy: Proxy) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(store.fetch, NAMES)) == [name.encode() for name in NAMES]
    assert [method for method, _ in proxy.requests] == ["GET"] * len(NAMES)


def test_an_object_that_is_not_as_expected_is_refused_as_get_refuses_it(store: ObjectStore) -> None:
    info = store.info(NAMES[0])
    assert info is not None
    assert store.fetch(NAMES[0], info.size, info.etag) == NAMES[0].encode()
    with pytest.raises(ObjectAlteredError):
        store.fetch(NAMES[0], etag="another")
    with pytest.raises(ObjectTooLargeError):
        store.fetch(NAMES[0], info.size - 1)
    with pytest.raises(ArtifactNotFoundError):
        store.fetch("nothing")


def test_a_throttled_store_is_asked_again_by_boto3_and_it_is_said(
    store: ObjectStore, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.refuse = lambda method, path: Refusal(503, "SlowDown") if len(proxy.requests) <= 2 else None
    with caplog.at_level(logging.WARNING):
        assert store.fetch(NAMES[0]) == NAMES[0].encode()
    assert "by boto3 this time" in caplog.text
    assert store.fetch(NAMES[1]) == NAMES[1].encode()
    assert len(proxy.requests) == 4, "the second object takes one request again"


def test_a_store_that_stays_away_is_told_as_by_boto3(store: ObjectStore, proxy: Proxy) -> None:
    proxy.refuse = lambda method, path: Refusal(503, "SlowDown")
    with pytest.raises(TransientError, match="SlowDown"):
        store.fetch(NAMES[0])


def test_after_many_failures_in_a_row_only_boto3_is_asked(
    store: ObjectStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticdc_replay.storage.s3.fetching._FAILURES", 2)
    seen: list[int] = []
    proxy.refuse = lambda method, path: Refusal(400, "Odd") if seen.append(1) or len(seen) in (1, 3) else None
    for _ in range(3):
        assert store.fetch(NAMES[0]) == NAMES[0].encode()
    assert len(seen) == 5, "the third object takes one request, by boto3"


def test_refused_credentials_are_told_as_by_boto3(versitygw: S3Server) -> None:
    store = open_store(f"s3://{make_bucket(versitygw)}", connection(versitygw, versitygw.endpoint, "wrong"))
    with pytest.raises(AuthenticationError, match="aws_test"):
        store.fetch("any")
