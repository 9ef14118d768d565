"""Deleting from S3: only what is still as it was known, with a result for each object, and with a way back."""

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from demo.embedded_stack.s3 import S3Server
from tests.conftest import s3_client_of
from tests.support import s3_proxy
from tests.support.s3_proxy import Refusal
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, PermanentError, TransientError
from ticdc_replay.storage import ObjectInfo, ObjectStore, open_store
from ticdc_replay.storage.deletion import Deletion, DeletionOutcome, delete_parallel
from ticdc_replay.storage.facts import Versioning
from ticdc_replay.storage.listing import list_patiently, name_ranges

pytestmark = pytest.mark.integration

NAMES = [
    "plain.json",
    "with space.json",
    "50%.json",
    "a%2Fb",
    "plus+.json",
    "é😀.json",
    'quote".json',
    "deep/er/x.json",
]


@pytest.fixture(params=["s3", "versitygw"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


def make_bucket(server: S3Server, versioning: str | None = None) -> str:
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    client = s3_client_of(server)
    client.create_bucket(Bucket=bucket)
    if versioning:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": versioning})  # type: ignore[typeddict-item]
    return bucket


def store_of(server: S3Server, bucket: str, endpoint: str | None = None, **fields: Any) -> ObjectStore:
    extra = {"endpoint_url": endpoint or server.endpoint, "region_name": server.region}
    values = {"login": server.access_key, "password": server.secret_key} | fields
    return open_store(f"s3://{bucket}/claims", Connection(conn_id="aws_test", conn_type="aws", extra=extra, **values))


@pytest.fixture
def store(server: S3Server) -> ObjectStore:
    return store_of(server, make_bucket(server))


@pytest.fixture
def versioned(server: S3Server) -> ObjectStore:
    return store_of(server, make_bucket(server, "Enabled"))


@pytest.fixture
def proxy(server: S3Server) -> Iterator[s3_proxy.Proxy]:
    with s3_proxy.before(server) as found:
        yield found


@pytest.fixture(autouse=True)
def fewer_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticdc_replay.storage.s3.bucket._ATTEMPTS", 4)


def put(store: ObjectStore, *names: str) -> dict[str, ObjectInfo]:
    """Objects as a listing knows them."""
    for name in names:
        store.put(name, name.encode())
    return {found.name: found for found in store.list()}


def names_of(store: ObjectStore) -> list[str]:
    return [found.name for found in store.list()]


def test_objects_that_are_as_they_were_listed_are_deleted_whatever_their_name(store: ObjectStore) -> None:
    listed = put(store, *NAMES)
    assert sorted(listed) == sorted(NAMES)
    results = dict(
        delete_parallel(store.deletion(), [found for name, found in listed.items() if name != "a%2Fb"], threads=4)
    )
    assert set(results.values()) == {Deletion(DeletionOutcome.DELETED)}
    assert names_of(store) == ["a%2Fb"]


def test_an_object_that_was_replaced_is_left_alone(store: ObjectStore) -> None:
    listed = put(store, "a")
    store.put("a", b"another content")
    result = store.deletion().delete_unchanged(listed["a"])
    assert result.outcome == DeletionOutcome.ALTERED
    assert listed["a"].etag in result.detail
    assert store.get("a") == b"another content"


def test_an_object_that_was_written_again_with_the_same_bytes_is_left_alone(versitygw: Any) -> None:
    bucket = make_bucket(versitygw)
    store = store_of(versitygw, bucket)
    listed = put(store, "a")
    versitygw.set_last_modified(bucket, "claims/a", listed["a"].last_modified.timestamp() + 5)
    result = store.deletion().delete_unchanged(listed["a"])
    assert (result.outcome, "last modified" in result.detail) == (DeletionOutcome.ALTERED, True)
    assert names_of(store) == ["a"]


def test_an_object_that_is_replaced_between_look_and_deletion_is_left_alone(
    server: S3Server, proxy: s3_proxy.Proxy
) -> None:
    bucket = make_bucket(server)
    direct = store_of(server, bucket)
    listed = put(direct, "a")

    def replace(method: str, _path: str) -> None:
        if method == "DELETE":
            direct.put("a", b"in between")

    proxy.refuse = replace
    result = store_of(server, bucket, proxy.endpoint).deletion().delete_unchanged(listed["a"])
    assert result.outcome == DeletionOutcome.ALTERED
    assert direct.get("a") == b"in between"


def test_an_object_that_is_not_there_is_told_from_a_bucket_that_is_not(server: S3Server, store: ObjectStore) -> None:
    listed = put(store, "a")
    store.delete("a")
    assert store.deletion().delete_unchanged(listed["a"]) == Deletion(DeletionOutcome.GONE)
    with pytest.raises(PermanentError, match="bucket does not exist"):
        store_of(server, "no-such-bucket-here").deletion().delete_unchanged(listed["a"])


@pytest.mark.parametrize("name", ["../x", "a//b", "/a", "a/../../x", ""])
def test_a_name_that_reaches_outside_is_refused_and_never_asked_for(
    server: S3Server, proxy: s3_proxy.Proxy, store: ObjectStore, name: str
) -> None:
    (found,) = put(store, "a").values()
    asked = store_of(server, "some-bucket", proxy.endpoint)
    result = asked.deletion().delete_unchanged(ObjectInfo(name, found.size, found.etag, found.last_modified))
    assert (result.outcome, proxy.requests) == (DeletionOutcome.REFUSED, [])


def test_a_deletion_from_a_bucket_with_versions_can_be_taken_back(versioned: ObjectStore) -> None:
    listed = put(versioned, "a", "b")
    result = versioned.deletion().delete_unchanged(listed["a"])
    assert result.outcome == DeletionOutcome.DELETED
    assert result.marker is not None
    assert names_of(versioned) == ["b"]
    assert versioned.deletion().undelete("a", result.marker)
    assert versioned.get("a") == b"a"
    assert not versioned.deletion().undelete("a", result.marker)
    assert names_of(versioned) == ["a", "b"]


def test_a_deletion_that_was_interrupted_finds_its_marker_again(versioned: ObjectStore) -> None:
    listed = put(versioned, "a", "ab")
    first = versioned.deletion().delete_unchanged(listed["a"])
    assert versioned.deletion().delete_unchanged(listed["a"]) == Deletion(DeletionOutcome.GONE, first.marker)


def test_undelete_never_removes_a_version(server: S3Server, versioned: ObjectStore) -> None:
    put(versioned, "a")
    version = versioned.info("a")
    assert version is not None
    assert version.version_id
    with pytest.raises(PermanentError, match="not a delete marker"):
        versioned.deletion().undelete("a", version.version_id)
    assert versioned.get("a") == b"a"


def test_a_deletion_whose_answer_is_lost_is_repeated_and_found_done(server: S3Server, proxy: s3_proxy.Proxy) -> None:
    bucket = make_bucket(server)
    listed = put(store_of(server, bucket), "a", "tried before")
    through = store_of(server, bucket, proxy.endpoint)
    assert through.deletion().delete_unchanged(listed["tried before"]).outcome == DeletionOutcome.DELETED
    proxy.refuse = lambda method, _: Refusal(500, "InternalError", after=True) if method == "DELETE" else None
    with pytest.raises(TransientError):
        through.deletion().delete_unchanged(listed["a"])
    proxy.refuse = lambda _method, _path: None
    assert through.deletion().delete_unchanged(listed["a"]).outcome == DeletionOutcome.GONE


def test_versions_are_listed_with_their_ids_and_deleted_objects_are_not(versioned: ObjectStore) -> None:
    listed = put(versioned, *NAMES)
    versioned.put("50%.json", b"second version")
    assert versioned.deletion().delete_unchanged(listed["plain.json"]).outcome == DeletionOutcome.DELETED
    found = list(versioned.deletion().list_versions())
    assert [(one.name, one.size, one.etag) for one in found] == [
        (one.name, one.size, one.etag) for one in versioned.list()
    ]
    for one in found:
        info = versioned.info(one.name)
        assert info is not None
        assert info.difference(one) == ""
        assert one.version_id == info.version_id
    half = found[len(found) // 2].name
    assert [one.name for one in versioned.deletion().list_versions(half)] == [
        one.name for one in found if one.name > half
    ]


def test_a_listing_of_versions_leaves_out_nothing_behind_a_name_that_no_object_has(versioned: ObjectStore) -> None:
    listed = put(versioned, *(f"{digit}{digit}.json" for digit in "0123456789abcdef"))
    versioned.put("33.json", b"second version")
    versioned.put("33.json", b"third version")
    assert versioned.deletion().delete_unchanged(listed["77.json"]).outcome == DeletionOutcome.DELETED
    there = names_of(versioned)
    for after in ("", "3", "33.json", "7", "77.json", "8", "ff", "ff.json", "g"):
        assert [one.name for one in versioned.deletion().list_versions(after)] == [
            name for name in there if name > after
        ]
    parts = [list_patiently(versioned.deletion().list_versions, part) for part in name_ranges(1)]
    assert [one for part in parts for one in part] == list(versioned.deletion().list_versions())


def test_a_version_that_was_written_since_is_another_object_though_its_bytes_are_the_same(
    versioned: ObjectStore,
) -> None:
    put(versioned, "a")
    (listed,) = versioned.deletion().list_versions()
    versioned.put("a", b"a")
    assert versioned.deletion().delete_unchanged(listed).outcome == DeletionOutcome.ALTERED
    assert names_of(versioned) == ["a"]


def test_an_object_from_before_there_were_versions_can_be_undeleted(server: S3Server) -> None:
    bucket = make_bucket(server)
    store = store_of(server, bucket)
    listed = put(store, "a")
    s3_client_of(server).put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    result = store.deletion().delete_unchanged(listed["a"])
    assert result.outcome == DeletionOutcome.DELETED
    assert result.marker
    assert store.deletion().undelete("a", result.marker)
    assert store.get("a") == b"a"


def test_no_right_to_some_objects_is_a_result_and_not_the_end(server: S3Server, proxy: s3_proxy.Proxy) -> None:
    bucket = make_bucket(server)
    listed = put(store_of(server, bucket), *(f"{number:02d}" for number in range(20)))
    proxy.refuse = lambda method, path: (
        Refusal(403, "AccessDenied")
        if (method == "DELETE" and path.split("?")[0][-1] in "37") or (method == "HEAD" and path.endswith("5"))
        else None
    )
    results = dict(delete_parallel(store_of(server, bucket, proxy.endpoint).deletion(), listed.values(), threads=4))
    denied = {found.name for found, result in results.items() if result.outcome == DeletionOutcome.DENIED}
    assert denied == {name for name in listed if name[-1] in "357"}
    assert sorted(names_of(store_of(server, bucket))) == sorted(denied)


def test_credentials_that_are_refused_end_the_deletion(versitygw: S3Server, server: S3Server) -> None:
    bucket = make_bucket(versitygw)
    listed = put(store_of(versitygw, bucket), "a", "b")
    wrong = store_of(versitygw, bucket, password="not-the-secret")
    with pytest.raises(AuthenticationError, match="aws_test"):
        list(delete_parallel(wrong.deletion(), listed.values()))
    assert names_of(store_of(versitygw, bucket)) == ["a", "b"]


def test_a_throttled_deletion_backs_off_and_goes_on(server: S3Server, proxy: s3_proxy.Proxy) -> None:
    bucket = make_bucket(server)
    listed = put(store_of(server, bucket), "a", "b", "c")
    seen = Counter[str]()

    def throttle(method: str, path: str) -> Refusal | None:
        """Twice for each object: three threads that share a number of refusals may all meet one object, and end its attempts."""
        if method != "DELETE":
            return None
        seen[path] += 1
        return Refusal(503, "SlowDown") if seen[path] <= 2 else None

    proxy.refuse = throttle
    results = dict(delete_parallel(store_of(server, bucket, proxy.endpoint).deletion(), listed.values(), threads=3))
    assert {result.outcome for result in results.values()} == {DeletionOutcome.DELETED}
    assert len(seen) == 3
    assert min(seen.values()) == 3
    assert names_of(store_of(server, bucket)) == []


def test_a_bucket_tells_its_versioning(server: S3Server) -> None:
    found = [
        store_of(server, make_bucket(server, state)).deletion().facts().versioning
        for state in (None, "Enabled", "Suspended")
    ]
    assert found == [Versioning.NONE, Versioning.ENABLED, Versioning.SUSPENDED]


def test_lifecycle_rules_that_reach_into_the_prefix_are_told(s3: S3Server) -> None:
    bucket = make_bucket(s3)
    store = store_of(s3, bucket)
    assert store.deletion().facts().expirations == ()
    rules = [
        {"ID": "elsewhere", "Status": "Enabled", "Filter": {"Prefix": "other/"}, "Expiration": {"Days": 1}},
        {"ID": "ours", "Status": "Enabled", "Filter": {"Prefix": "claims/"}, "Expiration": {"Days": 5}},
    ]
    s3_client_of(s3).put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})  # type: ignore[typeddict-item]
    facts = store.deletion().facts()
    assert [(found.rule, found.least_days) for found in facts.expirations or ()] == [("ours", 5)]
    assert facts.unknown == ()


def test_a_question_that_the_server_does_not_answer_is_unknown(versitygw: S3Server) -> None:
    facts = store_of(versitygw, make_bucket(versitygw)).deletion().facts()
    assert facts.expirations is None
    assert "GetLifecycleConfiguration" in facts.unknown[0]


def test_the_clock_is_the_servers(server: S3Server, store: ObjectStore) -> None:
    before = store.now()
    put(store, "a")
    after = store.now()
    info = store.info("a")
    assert info is not None
    # Whole seconds; a file may have the time of the kernel's last tick, and servers look once a second what time they answer.
    second = timedelta(seconds=1)
    assert before - second <= info.last_modified <= after + second
