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
    ArtifactExistsError,
    ArtifactNotFoundError,
    AuthenticationError,
    ConfigError,
    ObjectAlteredError,
    ObjectTooLargeError,
    PermanentError,
    TransientError,
)
from ticdc_replay.storage import ObjectStore, open_store
from ticdc_replay.storage.listing import list_parallel
from ticdc_replay.storage.s3.store import S3Store

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


def test_put_once_keeps_the_first_content(store: ObjectStore) -> None:
    assert store.put_once("manifests/x.json", b"first")
    assert not store.put_once("manifests/x.json", b"first")
    with pytest.raises(ArtifactExistsError, match=r"manifests/x\.json"):
        store.put_once("manifests/x.json", b"second")
    assert store.get("manifests/x.json") == b"first"


def test_of_many_concurrent_put_once_exactly_one_wins(s3: MotoServer) -> None:
    store = open_store(f"s3://{make_bucket(s3)}", connection_to(s3))

    def write(number: int) -> bool:
        try:
            return store.put_once("x", b"%d" % number * 1_000)
        except ArtifactExistsError:
            return False

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(16)))
    assert store.get("x") == b"%d" % won.index(True) * 1_000
    assert sum(won) == 1


def test_update_changes_what_is_there_and_no_update_is_lost(store: ObjectStore) -> None:
    def add(found: bytes | None) -> bytes:
        return b"%d" % (int(found or b"0") + 1)

    store.update("lists/a", add)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: store.update("lists/a", add), range(12)))
    assert store.get("lists/a") == b"13"


def test_an_update_meets_what_came_between(store: ObjectStore) -> None:
    seen: list[bytes | None] = []

    def change(found: bytes | None) -> bytes:
        seen.append(found)
        if len(seen) < 3:
            store.put("a", b"%d" % len(seen))  # another writer, after we have looked
        return (found or b"") + b"x"

    store.update("a", change)
    assert seen == [None, b"1", b"2"]
    assert store.get("a") == b"2x"


def test_a_missing_object_is_told_from_a_missing_bucket(store: ObjectStore, server: S3Server) -> None:
    with pytest.raises(ArtifactNotFoundError, match="nothing"):
        store.get("nothing")
    assert store.info("nothing") is None
    store.delete("nothing")
    no_bucket = open_store("s3://no-such-bucket-here", connection_to(server))
    for ask in (no_bucket.get, no_bucket.info, lambda name: list(no_bucket.list(name))):
        with pytest.raises(PermanentError, match="bucket does not exist") as caught:
            ask("nothing")
        assert not isinstance(caught.value, ArtifactNotFoundError)


def test_an_object_over_the_cap_is_refused(store: ObjectStore) -> None:
    store.put("big", b"x" * 11)
    assert len(store.get("big", max_bytes=11)) == 11
    with pytest.raises(ObjectTooLargeError, match="11 bytes; at most 10"):
        store.get("big", max_bytes=10)


def test_an_object_with_another_etag_is_refused(store: ObjectStore) -> None:
    store.put("a", b"first")
    first = store.info("a")
    assert first is not None
    assert store.get("a", etag=first.etag) == b"first"
    store.put("a", b"other")
    with pytest.raises(ObjectAlteredError, match=f"{first.etag} expected"):
        store.get("a", etag=first.etag)


def test_listing_crosses_pages_and_parallel_listing_finds_the_same(store: ObjectStore) -> None:
    names = sorted([*(f"{uuid.uuid4()}.json" for _ in range(1_100)), "0", "f", "README", "zz/deep/er", "é"])
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: store.put(name, b"12345"), names))
    assert [found.name for found in store.list()] == names
    assert [found.name for found in store.list("zz/")] == ["zz/deep/er"]
    assert [found.name for found in store.list(after="f")] == [name for name in names if name > "f"]
    parallel = list(list_parallel(store, lambda _: True))
    assert parallel == list(store.list())
    assert {found.size for found in parallel} == {5}


def test_info_and_listing_agree(store: ObjectStore) -> None:
    store.put("a", b"12345")
    (listed,) = store.list()
    info = store.info("a")
    assert info is not None
    assert (info.name, info.size, info.etag) == (listed.name, listed.size, listed.etag)
    assert abs((info.last_modified - listed.last_modified).total_seconds()) < 1


def test_folders_that_arrow_makes_are_not_listed_as_objects(store: ObjectStore) -> None:
    filesystem, root = store.arrow_filesystem()
    filesystem.create_dir(f"{root}/data/made", recursive=True)
    store.put("data/made/x", b"123")
    assert [found.name for found in store.list()] == ["data/made/x"]


def test_folders_are_those_directly_in_a_folder(store: ObjectStore) -> None:
    many = sorted(f"t/{number}/" for number in range(1_100))
    names = ["a/b/c/1", "a/b/c/2", "a/b.x/1", "a/d", "ab/c/1", *(f"{folder}x" for folder in many)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: store.put(name, b""), names))
    assert list(store.folders("a/")) == ["a/b.x/", "a/b/"]
    assert list(store.folders("a/b/")) == ["a/b/c/"]
    assert list(store.folders("nothing/")) == []
    assert list(store.folders("t/")) == many, "more than a page"


def test_arrow_reads_and_writes_the_same_objects(store: ObjectStore) -> None:
    store.put("data/x", b"123")
    filesystem, root = store.arrow_filesystem()
    assert filesystem.get_file_info(f"{root}/data/x").size == 3
    with filesystem.open_output_stream(f"{root}/data/y") as stream:
        stream.write(b"4567")
    assert store.get("data/y") == b"4567"


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
    with pytest.raises(ConfigError, match=r"role_arn.*allowed: endpoint_url"):
        open_store("s3://bucket", connection_to(s3, extra={"role_arn": "arn:aws:iam::1:role/x"}))


def test_a_prefix_of_the_same_beginning_is_another_store(s3: MotoServer) -> None:
    bucket = make_bucket(s3)
    open_store(f"s3://{bucket}/pipe-2", connection_to(s3)).put("a", b"")
    assert list(S3Store(f"s3://{bucket}/pipe", connection_to(s3)).list()) == []
