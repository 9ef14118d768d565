"""What is relied upon of an S3 store is tried before it is relied upon, and a store that lacks it is refused by name."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from demo.embedded_stack.s3 import MotoServer, S3Server
from tests.integration.storage.test_s3_deletion import make_bucket, put, store_of
from tests.support import s3_proxy
from tests.support.s3_proxy import Refusal
from ticdc_replay.domain.errors import MissingAbilityError
from ticdc_replay.storage import ObjectInfo
from ticdc_replay.storage.abilities import PROBE_PREFIX
from ticdc_replay.storage.deletion import DeletionOutcome

pytestmark = pytest.mark.integration


@pytest.fixture(params=["s3", "versitygw"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def deaf(s3: MotoServer) -> Iterator[s3_proxy.Proxy]:
    """A server that does not know conditions: it checks no signatures, so a header can be taken away before it."""
    with s3_proxy.before(s3) as found:
        found.ignored = frozenset({"if-match", "if-none-match"})
        yield found


def test_a_store_that_ignores_if_none_match_is_refused_before_anything_is_written(
    s3: MotoServer, deaf: s3_proxy.Proxy
) -> None:
    bucket = make_bucket(s3)
    store_of(s3, bucket).put("runs/a/index.json", b"first")
    store = store_of(s3, bucket, deaf.endpoint)
    for _ in range(2):
        with pytest.raises(MissingAbilityError, match="conditional put of a new object") as raised:
            store.put_once("runs/a/index.json", b"second")
        assert store.root in str(raised.value)
    assert store.get("runs/a/index.json") == b"first"
    assert [found.name for found in store.list()] == ["runs/a/index.json"]
    assert len(deaf.requests) == 5, "two puts and a removal, then a read and a listing: a store is tried once"


def test_a_store_that_ignores_if_match_is_refused_before_anything_is_replaced(
    s3: MotoServer, deaf: s3_proxy.Proxy
) -> None:
    deaf.ignored = frozenset({"if-match"})
    bucket = make_bucket(s3)
    store = store_of(s3, bucket, deaf.endpoint)
    store.put_once("a", b"first")
    with pytest.raises(MissingAbilityError, match="conditional put over an object"):
        store.update("a", lambda found: b"second")
    assert store.get("a") == b"first"


def test_an_account_that_may_not_delete_leaves_the_probe_and_writes(s3: MotoServer) -> None:
    bucket = make_bucket(s3)
    with s3_proxy.before(s3) as proxy:
        proxy.refuse = lambda method, path: Refusal(403, "AccessDenied") if method == "DELETE" else None
        store = store_of(s3, bucket, proxy.endpoint)
        assert store.put_once("a", b"first")
        assert [found.name for found in store.list()] == ["a"]
        proxy.ignored = frozenset({"if-none-match"})
        other = store_of(s3, make_bucket(s3), proxy.endpoint)
        with pytest.raises(MissingAbilityError, match="conditional put of a new object"):
            other.put_once("a", b"first")


def test_a_store_that_refuses_conditions_is_refused_by_name(s3: MotoServer) -> None:
    bucket = make_bucket(s3)
    with s3_proxy.before(s3) as proxy:
        proxy.refuse = lambda method, path: Refusal(501, "NotImplemented") if method == "PUT" else None
        with pytest.raises(MissingAbilityError, match=r"conditional put of a new object.*NotImplemented"):
            store_of(s3, bucket, proxy.endpoint).put_once("a", b"")


def test_a_store_whose_listings_lag_is_refused(s3: MotoServer) -> None:
    bucket = make_bucket(s3)
    with s3_proxy.before(s3) as proxy:

        def forget(method: str, path: str) -> Refusal | None:
            if "list-type=2" in path:
                store_of(s3, bucket).delete(path.partition("prefix=claims%2F")[2].partition("&")[0])
            return None

        proxy.refuse = forget
        with pytest.raises(MissingAbilityError, match="list after write"):
            store_of(s3, bucket, proxy.endpoint).put_once("a", b"")


def test_a_store_whose_reads_lag_is_refused(s3: MotoServer) -> None:
    bucket = make_bucket(s3)
    with s3_proxy.before(s3) as proxy:
        proxy.refuse = lambda method, path: Refusal(404, "NoSuchKey") if method == "GET" else None
        with pytest.raises(MissingAbilityError, match="read after write"):
            store_of(s3, bucket, proxy.endpoint).put_once("a", b"")


def test_a_store_that_has_all_is_tried_once_in_a_process(server: S3Server) -> None:
    bucket = make_bucket(server)
    with s3_proxy.before(server) as proxy:
        for number in range(2):
            store = store_of(server, bucket, proxy.endpoint)
            store.put_once(f"{number}", b"")
            store.update("list", lambda found: (found or b"") + b"x")
        assert store.get("list") == b"xx"
        tried = [method for method, path in proxy.requests if PROBE_PREFIX in path]
    assert tried == ["PUT", "PUT", "GET", "GET", "DELETE", "PUT", "PUT", "PUT", "GET", "DELETE"]
    assert [found.name for found in store_of(server, bucket).list()] == ["0", "1", "list"]


def test_an_update_that_meets_another_request_at_the_same_time_is_tried_again(s3: MotoServer) -> None:
    bucket = make_bucket(s3)
    with s3_proxy.before(s3) as proxy:
        conflict = Refusal(409, "ConditionalRequestConflict")
        proxy.refuse = lambda method, path: (
            conflict if path.endswith("/list") and method == "PUT" and proxy.refused < 2 else None
        )
        store = store_of(s3, bucket, proxy.endpoint)
        store.update("list", lambda found: (found or b"") + b"x")
    assert proxy.refused == 2
    assert store_of(s3, bucket).get("list") == b"x"


def test_a_store_that_is_only_read_is_not_tried(s3: MotoServer) -> None:
    bucket = make_bucket(s3)
    store_of(s3, bucket).put("a", b"1")
    with s3_proxy.before(s3) as proxy:
        store = store_of(s3, bucket, proxy.endpoint)
        assert store.get("a") == b"1"
        assert store.info("a") is not None
        assert [found.name for found in store.list()] == ["a"]
        assert {method for method, _ in proxy.requests} == {"GET", "HEAD"}


def test_what_tries_a_store_is_in_no_listing(server: S3Server) -> None:
    store = store_of(server, make_bucket(server))
    store.put(f"{PROBE_PREFIX}left", b"by a process that was killed")
    store.put("b", b"")
    assert [found.name for found in store.list()] == ["b"]
    assert [found.name for found in store.deletion().list_versions()] == ["b"]


def test_a_store_that_deletes_in_spite_of_a_condition_loses_one_planned_object_and_no_other(
    s3: MotoServer, deaf: s3_proxy.Proxy
) -> None:
    bucket = make_bucket(s3, "Enabled")
    listed = put(store_of(s3, bucket), "a", "b", "c")
    store = store_of(s3, bucket, deaf.endpoint)
    first = store.deletion().delete_unchanged(listed["a"])
    assert first.outcome == DeletionOutcome.DELETED
    assert first.marker is not None
    for name in ("b", "c"):
        with pytest.raises(MissingAbilityError, match="conditional delete"):
            store.deletion().delete_unchanged(listed[name])
    assert sorted(found.name for found in store.list()) == ["b", "c"]
    assert store.deletion().undelete("a", first.marker)


def test_a_condition_on_a_delete_is_tried_with_the_first_object_only(server: S3Server) -> None:
    bucket = make_bucket(server)
    listed = put(store_of(server, bucket), "a", "b")
    with s3_proxy.before(server) as proxy:
        store = store_of(server, bucket, proxy.endpoint)
        for name in ("a", "b"):
            assert store.deletion().delete_unchanged(listed[name]).outcome == DeletionOutcome.DELETED
        assert [method for method, _ in proxy.requests] == ["HEAD", "DELETE", "DELETE", "HEAD", "DELETE"]


def test_an_object_that_is_not_what_it_was_tries_nothing(s3: MotoServer, deaf: s3_proxy.Proxy) -> None:
    bucket = make_bucket(s3)
    put(store_of(s3, bucket), "a")
    other = ObjectInfo("a", 1, "0" * 32, datetime(2026, 3, 1, tzinfo=UTC))
    assert store_of(s3, bucket, deaf.endpoint).deletion().delete_unchanged(other).outcome == DeletionOutcome.ALTERED
    assert [found.name for found in store_of(s3, bucket).list()] == ["a"]
