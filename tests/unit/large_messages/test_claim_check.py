"""Objects are fetched many at a time, in order, within bounds; what is wrong with the store is no message's fault."""

import hashlib
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain.errors import AuthenticationError, TransientError
from ticdc_replay.large_messages.claim_check import ClaimCheckResolver, Expected
from ticdc_replay.storage.base import ObjectInfo
from ticdc_replay.storage.file import FileStore


def name(number: int) -> str:
    return f"{UUID(int=number)}.json"


class WatchedStore(FileStore):
    """A folder that records what is going on, and can be made slow or faulty."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.open = 0
        self.most_open = 0
        self.read_bytes = 0
        self.together = threading.Barrier(1)
        self.fail_first: Exception | None = None
        self.missing_first = 0

    def info(self, name: str) -> ObjectInfo | None:
        with self.lock:
            self.calls[f"info {name}"] += 1
            if self.calls[f"info {name}"] <= self.missing_first:
                return None
        return super().info(name)

    def get(self, name: str, max_bytes: int | None = None, etag: str | None = None) -> bytes:
        with self.lock:
            self.calls["get"] += 1
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        try:
            if self.fail_first is not None:
                error, self.fail_first = self.fail_first, None
                raise error
            self.together.wait(PATIENCE_S)
            content = super().get(name, max_bytes, etag)
            with self.lock:
                self.read_bytes += len(content)
            return content
        finally:
            with self.lock:
                self.open -= 1


@pytest.fixture
def store(tmp_path: Path) -> WatchedStore:
    return WatchedStore(tmp_path)


def pinned(store: FileStore, *names: str) -> dict[str, Expected]:
    """What is known of the objects *names* of a store as it is now."""
    found = [store.info(each) for each in names]
    return {info.name: Expected(info.size, info.etag) for info in found if info is not None}


def resolver(
    store: FileStore, max_bytes: int = 1000, in_flight: int = 10_000, connections: int = 4
) -> ClaimCheckResolver:
    return ClaimCheckResolver(store, max_bytes=max_bytes, in_flight_bytes=in_flight, connections=connections)


def test_objects_come_in_the_order_of_their_names_with_what_was_read(store: WatchedStore) -> None:
    contents = [bytes([n]) * (n + 1) for n in range(50)]
    for n, content in enumerate(contents):
        store.put(name(n), content)
    order = [(n * 7) % 50 for n in range(50)]
    fetched = list(resolver(store).fetch([name(n) for n in order]))
    assert [item.content for item in fetched] == [contents[n] for n in order]
    for item, n in zip(fetched, order, strict=True):
        info = store.info(name(n))
        assert info is not None
        assert (item.etag, item.size) == (info.etag, n + 1)
        assert item.sha256 == hashlib.sha256(contents[n]).hexdigest()


def test_one_bad_reference_takes_no_other_with_it(store: WatchedStore) -> None:
    store.put(name(1), b"good")
    store.put(name(2), b"x" * 1001)
    good, missing, large, unnamed, again = resolver(store).fetch([name(1), name(9), name(2), "", name(1)])
    assert good.content == again.content == b"good"
    assert [item.reason for item in (missing, large, unnamed)] == [
        "claim_check_missing",
        "claim_check_too_large",
        "claim_check_bad_name",
    ]
    assert (missing.content, large.content, unnamed.content) == (None, None, None)
    assert name(9) in missing.detail
    assert "1001 bytes, 1000 allowed" in large.detail
    assert large.size == 1001


def test_a_gigantic_object_is_not_read(store: WatchedStore) -> None:
    store.put(name(1), b"x" * 5000)
    list(resolver(store).fetch([name(1)]))
    assert store.calls["get"] == 0


def test_an_object_that_appears_late_is_found(store: WatchedStore) -> None:
    store.put(name(1), b"late")
    store.missing_first = 2
    (item,) = resolver(store).fetch([name(1)])
    assert item.content == b"late"


def test_missing_objects_are_looked_for_again_after_the_same_pauses(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(name(0), b"there")
    pauses: list[float] = []
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=pauses.append))  # of no other thread's code
    there, *missing = resolver(store).fetch([name(n) for n in range(100)])
    assert there.content == b"there"
    assert {item.reason for item in missing} == {"claim_check_missing"}
    assert store.calls == Counter({f"info {name(n)}": 3 for n in range(1, 100)} | {f"info {name(0)}": 1, "get": 1})
    assert len(pauses) == 2
    assert 0.3 <= sum(pauses) <= 0.5


def test_a_stumbling_store_is_asked_again(store: WatchedStore) -> None:
    store.put(name(1), b"content")
    store.fail_first = TransientError("throttled")
    (item,) = resolver(store).fetch([name(1)])
    assert item.content == b"content"


@pytest.mark.parametrize("error", [AuthenticationError("denied"), TransientError("away")])
def test_a_store_that_can_not_be_read_is_an_error(tmp_path: Path, error: Exception) -> None:
    class Refusing(FileStore):
        def info(self, name: str) -> ObjectInfo | None:
            raise error

    with pytest.raises(type(error), match=str(error)):
        list(resolver(Refusing(tmp_path)).fetch([name(1), name(2)]))


def test_an_expected_object_takes_one_request(store: WatchedStore) -> None:
    store.put(name(1), b"content")
    expected = pinned(store, name(1))
    store.calls.clear()
    (item,) = resolver(store).fetch([name(1)], expected)
    assert (item.content, item.etag) == (b"content", expected[name(1)].etag)
    assert store.calls == Counter({"get": 1})


def test_an_object_that_was_replaced_since_it_was_pinned_is_not_used(store: WatchedStore) -> None:
    store.put(name(1), b"pinned")
    store.put(name(2), b"pinned")
    expected = pinned(store, name(1), name(2))
    store.put(name(1), b"edited")
    altered, good = resolver(store).fetch([name(1), name(2)], expected)
    assert (altered.content, altered.reason) == (None, "claim_check_altered")
    assert expected[name(1)].etag in altered.detail
    assert good.content == b"pinned"


def test_other_content_than_an_earlier_run_read_is_not_used_even_under_the_same_etag(store: WatchedStore) -> None:
    store.put(name(1), b"content")
    expected = pinned(store, name(1))[name(1)]
    read = expected._replace(sha256=hashlib.sha256(b"content").hexdigest())
    other = expected._replace(sha256=hashlib.sha256(b"another").hexdigest())
    assert next(resolver(store).fetch([name(1)], {name(1): read})).content == b"content"
    assert next(resolver(store).fetch([name(1)], {name(1): other})).reason == "claim_check_altered"


def test_an_expected_object_that_is_gone_is_missing(store: WatchedStore) -> None:
    store.put(name(1), b"content")
    expected = pinned(store, name(1))
    store.delete(name(1))
    assert next(resolver(store).fetch([name(1)], expected)).reason == "claim_check_missing"


def test_an_expected_object_over_the_cap_is_not_asked_for(store: WatchedStore) -> None:
    (item,) = resolver(store).fetch([name(1)], {name(1): Expected(1001, "etag")})
    assert item.reason == "claim_check_too_large"
    assert store.calls["get"] == 0


def test_an_object_that_changes_between_looking_and_reading_is_read_again_by_a_retry(tmp_path: Path) -> None:
    class Changing(FileStore):
        def info(self, name: str) -> ObjectInfo | None:
            found = super().info(name)
            self.put(name, b"another content")
            return found

    store = Changing(tmp_path)
    store.put(name(1), b"content")
    with pytest.raises(TransientError, match="changed while it was read"):
        list(resolver(store).fetch([name(1)]))


def test_no_more_connections_than_allowed_and_not_one_by_one(store: WatchedStore) -> None:
    for n in range(20):
        store.put(name(n), b"x")
    store.together = threading.Barrier(4)  # whoever comes is kept until there are four
    list(resolver(store, connections=4).fetch([name(n) for n in range(20)]))
    assert store.most_open == 4


def test_no_more_bytes_are_held_than_allowed(store: WatchedStore) -> None:
    for n in range(20):
        store.put(name(n), b"x" * 100)
    fetching = resolver(store, in_flight=350, connections=8).fetch([name(n) for n in range(20)])
    for taken in range(1, 21):
        next(fetching)
        time.sleep(0.005)
        # The one that was just taken counts until the next is asked for.
        assert store.read_bytes <= (taken - 1) * 100 + 350


def test_an_object_over_the_bytes_in_flight_passes_alone(store: WatchedStore) -> None:
    for n, size in enumerate((10, 900, 10)):
        store.put(name(n), b"x" * size)
    fetched = list(resolver(store, in_flight=100).fetch([name(n) for n in range(3)]))
    assert [item.size for item in fetched] == [10, 900, 10]


def test_stopping_early_leaves_no_thread_behind(store: WatchedStore) -> None:
    for n in range(30):
        store.put(name(n), b"x" * 100)
    before = threading.active_count()
    fetching = resolver(store, in_flight=100, connections=8).fetch([name(n) for n in range(30)])
    next(fetching)
    fetching.close()
    assert threading.active_count() == before
    assert store.calls["get"] <= 2


def test_no_reference_opens_nothing(store: WatchedStore) -> None:
    assert list(resolver(store).fetch([])) == []


@given(
    sizes=st.lists(st.integers(0, 300), max_size=40),
    in_flight=st.integers(1, 500),
    connections=st.integers(1, 9),
    max_bytes=st.integers(1, 300),
)
@settings(max_examples=examples(0.4), deadline=None)
def test_any_mix_of_sizes_and_bounds_comes_to_an_end(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], in_flight: int, connections: int, max_bytes: int
) -> None:
    store = FileStore(tmp_path_factory.mktemp("objects"))
    for n, size in enumerate(sizes):
        store.put(name(n), b"x" * size)
    names = [name(n) if size % 7 else "" for n, size in enumerate(sizes)]
    expected = pinned(store, *(name(n) for n in range(0, len(sizes), 3)))
    fetched = list(resolver(store, max_bytes, in_flight, connections).fetch(names, expected))
    assert [len(item.content) if item.content is not None else None for item in fetched] == [
        size if size % 7 and size <= max_bytes else None for size in sizes
    ]
