"""S3 as an object store, on moto and on a server that checks signatures."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config

from demo.embedded_stack.s3 import MotoServer, S3Server
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import (
    AuthenticationError,
    ConfigError,
    TransientError,
)
from ticdc_replay.storage import ObjectStore, open_store

pytestmark = pytest.mark.integration


@pytest.fixture(params=["s3", "versitygw"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def bucket(server: S3Server) -> str:
    return make_bucket(server)


@pytest.fixture
def store(server: S3Server, bucket: str) -> ObjectStore:
    return open_store(f"s3://{bucket}/some/prefix", connection_to(server))


def client_of(server: S3Server) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name=server.region,
        config=Config(s3={"addressing_style": "path"}),
    )


def make_bucket(server: S3Server) -> str:
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    client_of(server).create_bucket(Bucket=name)
    return name


def connection_to(server: S3Server, **fields: Any) -> Connection:
    values: dict[str, Any] = {
        "conn_id": "aws_test",
        "conn_type": "aws",
        "login": server.access_key,
        "password": server.secret_key,
        "extra": {"endpoint_url": server.endpoint, "region_name": server.region},
    }
    return Connection(**(values | fields))


def test_what_was_put_is_read_back_below_the_prefix(store: ObjectStore, server: S3Server, bucket: str) -> None:
    store.put("runs/a/index.json", b"one")
    store.put("runs/a/index.json", b"two")
    assert store.get("runs/a/index.json") == b"two"
    assert store.uri("runs/a/index.json") == f"s3://{bucket}/some/prefix/runs/a/index.json"
    held = client_of(server).get_object(Bucket=bucket, Key="some/prefix/runs/a/index.json")["Body"].read()
    assert held == b"two"


def test_folders_are_those_directly_in_a_folder(store: ObjectStore) -> None:
    many = sorted(f"t/{number}/" for number in range(1_100))
    names = ["a/b/c/1", "a/b/c/2", "a/b.x/1", "a/d", "ab/c/1", *(f"{folder}x" for folder in many)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: store.put(name, b""), names))
    assert list(store.folders("a/")) == ["a/b.x/", "a/b/"]
    assert list(store.folders("a/b/")) == ["a/b/c/"]
    assert list(store.folders("nothing/")) == []
    assert list(store.folders("t/")) == many, "more than a page"


@pytest.mark.parametrize(("field", "value"), [("password", "not-the-secret"), ("login", "nobody")])
def test_wrong_credentials_are_an_error_that_names_the_connection(versitygw: S3Server, field: str, value: str) -> None:
    bucket = make_bucket(versitygw)
    wrong = open_store(f"s3://{bucket}", connection_to(versitygw, **{field: value}))
    for ask in (lambda: wrong.get("a"), lambda: wrong.put("a", b""), lambda: list(wrong.list())):
        with pytest.raises(AuthenticationError, match="aws_test") as caught:
            ask()
        assert "not-the-secret" not in str(caught.value)


def test_a_server_that_is_away_is_transient(s3: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticdc_replay.storage.s3.bucket._ATTEMPTS", 1)
    away = connection_to(s3, extra={"endpoint_url": "http://127.0.0.1:9"})
    with pytest.raises(TransientError, match="aws_test"):
        open_store("s3://bucket", away).get("a")


def test_an_option_that_would_be_ignored_is_refused(s3: MotoServer) -> None:
    with pytest.raises(ConfigError, match=r"verify.*allowed: endpoint_url"):
        open_store("s3://bucket", connection_to(s3, extra={"verify": False}))
