"""Listing thousands of objects of S3 servers in parallel: whole, whatever happens meanwhile, or an error."""

import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from demo.embedded_stack.s3 import S3Server, VersityGateway
from tests.conftest import s3_client_of
from tests.integration.storage.test_s3_deletion import make_bucket, store_of
from tests.support import s3_proxy
from tests.support.s3_proxy import Refusal
from ticdc_replay.domain.errors import PermanentError, TransientError
from ticdc_replay.reconcile.look.inventory import Destination, Inventory, write_listing
from ticdc_replay.storage import ObjectStore
from ticdc_replay.storage.file import FileStore
from ticdc_replay.storage.listing import list_parallel
from ticdc_replay.storage.s3.store import S3Store

pytestmark = pytest.mark.integration

OTHER_NAMES = ("-", "0", "9", "a", "f", "fz", "g.json", "with space", "50%", "plus+", "deep/er/x.json", "é😀.json")


@pytest.fixture(params=["s3", "versitygw"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def proxy(server: S3Server) -> Iterator[s3_proxy.Proxy]:
    with s3_proxy.before(server) as found:
        yield found


@pytest.fixture
def out(tmp_path: Path) -> Destination:
    return Destination(FileStore(tmp_path), "inventories/now")


def names(count: int, seed: int = 1) -> list[str]:
    """Names of claim-check objects."""
    choose = random.Random(seed)
    return [f"{uuid.UUID(int=choose.getrandbits(128), version=4)}.json" for _ in range(count)]


def fill(server: S3Server, bucket: str, count: int) -> list[str]:
    """Objects of claim checks and others; how many, depends on how fast *server* takes them. Their names in order."""
    made = names(count)
    client = s3_client_of(server)
    for name in OTHER_NAMES:
        client.put_object(Bucket=bucket, Key=f"claims/{name}", Body=b"x")
    if isinstance(server, VersityGateway):  # what an object is, is in the file: links are objects as well
        folder = server.folder / "data" / bucket / "claims"
        for name in made:
            os.link(folder / "0", folder / name)
    else:
        for name in made:
            client.put_object(Bucket=bucket, Key=f"claims/{name}", Body=b"x")
    return sorted([*made, *OTHER_NAMES])


def names_in(inventory: Inventory, out: Destination) -> list[str]:
    root = out.store.root.removeprefix("file://")
    return [name for file in inventory.files for name in pq.read_table(f"{root}/{file.name}")["name"].to_pylist()]


@pytest.mark.parametrize(("which", "count"), [("versitygw", 10_000), ("s3", 1_100)])
def test_a_parallel_listing_is_the_serial_one(
    request: pytest.FixtureRequest, out: Destination, which: str, count: int
) -> None:
    server: S3Server = request.getfixturevalue(which)
    bucket = make_bucket(server)
    expected = fill(server, bucket, count)
    store = store_of(server, bucket)
    serial = list(store.list())
    assert [found.name for found in serial] == expected
    assert list(list_parallel(store, lambda _: True)) == serial
    assert sorted(names_in(write_listing(store, out, versions=False, threads=4), out)) == expected


def paged(server: S3Server, bucket: str, endpoint: str) -> ObjectStore:
    """The store with 5 objects to a page, so that few objects make many requests."""
    store = store_of(server, bucket, endpoint)
    assert isinstance(store, S3Store)

    def fewer(params: dict[str, object], **_: object) -> None:
        params["MaxKeys"] = 5

    for listing in ("ListObjectsV2", "ListObjectVersions"):
        store._client.meta.events.register(f"before-parameter-build.s3.{listing}", fewer)
    return store


@pytest.mark.parametrize("versions", [False, True])
def test_of_a_store_that_changes_meanwhile_whatever_stays_is_listed_once(
    server: S3Server, proxy: s3_proxy.Proxy, out: Destination, versions: bool
) -> None:
    if versions and not isinstance(server, VersityGateway):
        pytest.skip("moto leaves out the first version behind a KeyMarker that no object is called")
    bucket = make_bucket(server, "Enabled" if versions else None)
    client = s3_client_of(server)
    stay, leave, come = names(80), names(60, seed=2), names(200, seed=3)
    for name in (*stay, *leave):
        client.put_object(Bucket=bucket, Key=f"claims/{name}", Body=b"x")
    leaving, coming = iter(sorted(leave)), iter(come)

    def change(method: str, path: str) -> None:
        """Before each page some objects go and some come, all over the names, and some are written again."""
        if method == "GET" and ("list-type" in path or "versions" in path):
            for name in islice(leaving, 2):
                client.delete_object(Bucket=bucket, Key=f"claims/{name}")
            for name in (*islice(coming, 2), *random.sample(stay, 2)):
                client.put_object(Bucket=bucket, Key=f"claims/{name}", Body=b"another")

    proxy.refuse = change
    store = paged(server, bucket, proxy.endpoint)
    found = Counter(names_in(write_listing(store, out, versions=versions, threads=4), out))
    assert len(proxy.requests) > 17
    assert {name: found[name] for name in stay} == dict.fromkeys(stay, 1)
    assert max(found.values()) == 1
    assert set(found) <= {*stay, *leave, *come}
    assert set(found) & set(come)


def test_a_storm_of_refusals_costs_time_and_no_object(
    server: S3Server, proxy: s3_proxy.Proxy, out: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The code that boto3's own limiter of requests does not react to by minutes of waiting.
    busy = Refusal(503, "ServiceUnavailable")
    monkeypatch.setattr("ticdc_replay.storage.listing.time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.setattr("ticdc_replay.storage.s3.bucket._ATTEMPTS", 1)
    bucket = make_bucket(server)
    expected = names(100)
    for name in expected:
        s3_client_of(server).put_object(Bucket=bucket, Key=f"claims/{name}", Body=b"x")
    seen: Counter[str] = Counter()

    def storm(_method: str, path: str) -> Refusal | None:
        """Each page twice."""
        if "list-type" not in path:
            return None
        seen[path] += 1
        return busy if seen[path] <= 2 else None

    proxy.refuse = storm
    store = paged(server, bucket, proxy.endpoint)
    found = names_in(write_listing(store, out, versions=False, threads=4), out)
    assert sorted(found) == sorted(expected)
    assert proxy.refused > 2 * 17
    proxy.refuse = lambda _method, path: busy if "list-type" in path else None
    with pytest.raises(TransientError, match="ServiceUnavailable"):
        write_listing(store, out, versions=False)


def test_without_the_right_to_list_a_part_there_is_no_inventory(
    server: S3Server, proxy: s3_proxy.Proxy, out: Destination
) -> None:
    bucket = make_bucket(server)
    for name in names(20):
        s3_client_of(server).put_object(Bucket=bucket, Key=f"claims/{name}", Body=b"x")
    proxy.refuse = lambda _, path: Refusal(403, "AccessDenied") if "start-after=claims%2F9" in path else None
    with pytest.raises(PermanentError, match=r"aws_test.*lack the permission"):
        write_listing(store_of(server, bucket, proxy.endpoint), out, versions=False)
    assert proxy.refused == 1


def test_times_are_told_by_the_clock_of_the_store(versitygw: VersityGateway, out: Destination) -> None:
    """A store whose clock is an hour ahead: its Date header and the times of its objects."""
    bucket = make_bucket(versitygw)
    s3_client_of(versitygw).put_object(Bucket=bucket, Key="claims/0", Body=b"x")
    hour = 3_600
    versitygw.set_last_modified(bucket, "claims/0", time.time() + hour)
    with s3_proxy.before(versitygw) as proxy:
        proxy.ahead_s = hour
        found = write_listing(store_of(versitygw, bucket, proxy.endpoint), out, versions=False)
    assert abs(found.clock_ahead_ms - hour * 1_000) <= 5_000
    (row,) = pq.read_table(Path(out.store.root.removeprefix("file://")) / found.files[0].name).to_pylist()
    assert found.began_ms - 10_000 <= row["last_modified_ms"] <= found.ended_ms + 5_000
    assert abs(write_listing(store_of(versitygw, bucket), out, versions=False).clock_ahead_ms) <= 5_000
