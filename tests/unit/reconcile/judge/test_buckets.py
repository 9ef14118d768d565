"""A name goes to the same bucket, wherever it stands and whatever stands beside it."""

import uuid
from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.reconcile.judge.buckets import buckets_of, buckets_of_references, buckets_of_versions
from ticdc_replay.reconcile.judge.row_versions import VERSION

NAMES = st.one_of(
    st.uuids().map(lambda number: f"{number}.json"),
    st.text(min_size=1, max_size=50),
    st.sampled_from(["é" * 20 + "!", "a" * 41, "a" * 40, "a" * 42]),
)


@given(st.lists(st.one_of(NAMES, st.just("")), max_size=30), st.integers(0, 3), st.integers(1, 7))
def test_the_bucket_of_a_name_depends_on_nothing_else(names: list[str], skipped: int, count: int) -> None:
    names = names[skipped:] if len(names) < skipped else names
    numbers = buckets_of(pa.array(names, pa.string()).slice(skipped), count).tolist()
    expected = [int(buckets_of(pa.array([name]), count)[0]) for name in names[skipped:]]
    assert [number for name, number in zip(names[skipped:], numbers, strict=True) if name] == [
        number for name, number in zip(names[skipped:], expected, strict=True) if name
    ]
    assert all(number < count for number in numbers)


@given(st.lists(NAMES, max_size=20))
def test_references_and_objects_of_a_name_meet(names: list[str]) -> None:
    versions = pa.array([b"v" * 16 if number % 2 else None for number in range(len(names))], VERSION.type)
    of_objects = buckets_of(pa.array(names, pa.string()), 5).tolist()
    assert buckets_of_references(pa.array(names, pa.string()), versions, 5).tolist() == of_objects


def test_references_without_a_name_are_spread_but_those_of_a_version_meet() -> None:
    names = pa.array([""] * 1000)
    unknown = pa.nulls(1000, VERSION.type)
    assert len(set(buckets_of_references(names, unknown, 8).tolist())) == 8
    versions = pa.array([bytes([number % 2]) * 16 for number in range(1000)], VERSION.type)
    numbers = buckets_of_references(names, versions, 8)
    assert numbers.tolist() == buckets_of_versions(versions, 8).tolist()


def test_buckets_are_of_about_one_size() -> None:
    names = pa.array([f"{uuid.UUID(int=number)}.json" for number in range(20_000)])
    sizes = Counter(buckets_of(names, 20).tolist())
    assert len(sizes) == 20
    assert max(sizes.values()) < 1.2 * min(sizes.values())
