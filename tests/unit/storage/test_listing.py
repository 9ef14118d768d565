"""Listing in parallel finds exactly what listing in one go finds."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.domain.errors import TransientError
from ticdc_replay.storage.base import ObjectInfo
from ticdc_replay.storage.file import FileStore
from ticdc_replay.storage.listing import list_parallel, list_patiently, name_ranges

_MOMENT = datetime(2026, 3, 1, tzinfo=UTC)


class NamesOnly(FileStore):
    """A store of given names: the listing's part of the contract, in memory."""

    def __init__(self, names: set[str]) -> None:
        super().__init__(Path("/nowhere"))
        self.names = sorted(names)

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        for name in self.names:
            if name.startswith(prefix) and name > after:
                yield ObjectInfo(name, 0, "", _MOMENT)


def everything(_: Any) -> bool:
    return True


names = st.one_of(
    st.uuids(version=4).map(lambda value: f"{value}.json"),
    st.sampled_from(["0", "9", "a", "f", "00", "f0", "F", "G", "g", "-", "~", "é", "/", "a/b", "\U0001f600"]),
    st.text(min_size=1, max_size=5),
)


@given(st.sets(names, max_size=60))
def test_no_name_is_missed_or_seen_twice_whatever_it_starts_with(found: set[str]) -> None:
    assert [info.name for info in list_parallel(NamesOnly(found), everything)] == sorted(found)


def test_only_what_the_caller_wants_is_kept() -> None:
    kept = list_parallel(NamesOnly({"a", "b", "1"}), lambda info: info.name != "a")
    assert [info.name for info in kept] == ["1", "b"]


def test_an_error_in_one_part_reaches_the_caller() -> None:
    class Broken(NamesOnly):
        def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
            if after == "7":
                raise OSError("page lost")
            return super().list(prefix, after)

    with pytest.raises(OSError, match="page lost"):
        list(list_parallel(Broken({str(uuid.uuid4()) for _ in range(50)}), everything))


@pytest.mark.parametrize("digits", [1, 2])
@given(found=st.sets(names, max_size=60))
def test_parts_overlap_nowhere_and_leave_nothing_out(digits: int, found: set[str]) -> None:
    store = NamesOnly(found)
    parts = [list_patiently(lambda after: store.list(after=after), part) for part in name_ranges(digits)]
    assert len(parts) == 16**digits + 1
    assert [info.name for info in chain.from_iterable(parts)] == sorted(found)


class Storm:
    """A listing that breaks off after each page, ``storms`` times before it goes on."""

    def __init__(self, count: int, page: int, storms: int) -> None:
        self.store = NamesOnly({f"{number:03d}" for number in range(count)})
        self.page, self.storms, self.left = page, storms, storms

    def __call__(self, after: str) -> Iterator[ObjectInfo]:
        if self.left:
            self.left -= 1
            raise TransientError("SlowDown")
        for number, info in enumerate(self.store.list(after=after)):
            if number == self.page:
                self.left = self.storms - 1
                raise TransientError("SlowDown")
            yield info


def test_a_listing_that_is_throttled_again_and_again_goes_on_behind_the_last_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ticdc_replay.storage.listing.time", SimpleNamespace(sleep=lambda _: None))
    (*_, everything_else) = name_ranges(1)
    whole = everything_else._replace(after="", end=None)
    assert [info.name for info in list_patiently(Storm(100, 7, 6), whole)] == [f"{n:03d}" for n in range(100)]
    with pytest.raises(TransientError, match="SlowDown"):
        list(list_patiently(Storm(100, 7, 7), whole))
