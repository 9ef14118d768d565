"""Claim-check objects from a real S3 server."""

import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from demo.embedded_stack.s3 import MotoServer
from tests.support.s3_proxy import Refusal, before
from ticdc_replay.captures import Capture
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import PermanentError, TransientError
from ticdc_replay.domain.events import RowEvent
from ticdc_replay.large_messages.claim_check import ClaimCheckResolver
from ticdc_replay.storage import ObjectStore, open_store

pytestmark = pytest.mark.integration


def connection(s3: MotoServer, endpoint: str | None = None) -> Connection:
    extra = {"endpoint_url": endpoint or s3.endpoint, "region_name": s3.region}
    return Connection("claims", "aws", login=s3.access_key, password=s3.secret_key, extra=extra)


@pytest.fixture
def store(s3: MotoServer, make_bucket: Callable[[], str]) -> ObjectStore:
    return open_store(f"s3://{make_bucket()}/claims/of/changefeed", connection(s3))


def resolver(store: ObjectStore) -> ClaimCheckResolver:
    return ClaimCheckResolver(store, max_bytes=1 << 20, in_flight_bytes=1 << 16, connections=8)


def test_every_claim_check_of_a_capture_resolves(store: ObjectStore, open_captures: Path) -> None:
    capture = Capture(open_captures / "new" / "open-claim-check")
    for path in (capture.folder / "objects").iterdir():
        store.put(path.name, path.read_bytes())
    codec = codec_for(capture.changefeed(), 1 << 20)
    events = [event for message in capture.messages() for event in codec.decode(message)]
    small = [event for event in events if isinstance(event, RowEvent) and event.reference is not None]
    names = [event.reference.object_name for event in small if event.reference is not None]
    fetched = list(resolver(store).fetch(names))
    assert len(fetched) == len(small) == 56
    for event, item in zip(small, fetched, strict=True):
        assert item.content is not None
        whole = codec.decode_claim_check(event, item.content)
        assert isinstance(whole, RowEvent)
        assert not whole.partial
        info = store.info(event.reference.object_name if event.reference else "")
        assert info is not None
        assert (item.etag, item.size) == (info.etag, info.size)


def test_a_missing_object_is_missing_and_the_rest_is_there(store: ObjectStore) -> None:
    names = [f"{UUID(int=number)}.json" for number in range(30)]
    for number, name in enumerate(names):
        if number != 17:
            store.put(name, b"%d" % number)
    fetched = list(resolver(store).fetch(names))
    assert [item.content for item in fetched] == [None if n == 17 else b"%d" % n for n in range(30)]
    assert fetched[17].reason == "claim_check_missing"


def test_a_missing_bucket_is_an_error(s3: MotoServer) -> None:
    absent = open_store("s3://bucket-that-is-not-there/claims", connection(s3))
    with pytest.raises(PermanentError, match="bucket-that-is-not-there"):
        list(resolver(absent).fetch([f"{UUID(int=1)}.json"]))


def test_objects_of_a_store_that_throttles_and_is_slow_are_fetched_and_one_that_stays_away_is_transient(
    s3: MotoServer, make_bucket: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticdc_replay.storage.s3.bucket._ATTEMPTS", 3)
    names = [f"{UUID(int=number)}.json" for number in range(12)]
    with before(s3) as proxy:
        uri = f"s3://{make_bucket()}/claims"
        store = open_store(uri, connection(s3, proxy.endpoint))
        for name in names:
            store.put(name, name.encode())
        proxy.requests.clear()

        def throttled_and_slow(method: str, path: str) -> Refusal | None:
            time.sleep(0.05)
            return Refusal(503, "SlowDown") if len(proxy.requests) % 3 == 0 else None

        proxy.refuse = throttled_and_slow
        assert [item.content for item in resolver(store).fetch(names)] == [name.encode() for name in names]
        assert proxy.refused > 0
        proxy.refuse = lambda method, path: Refusal(503, "SlowDown")
        with pytest.raises(TransientError, match="503"):
            list(resolver(store).fetch(names))
