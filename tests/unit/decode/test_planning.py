from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.codecs.base import Carried
from ticdc_replay.decode.planning import plan_splits, schema_ranges
from ticdc_replay.domain.messages import OffsetRange

ranges = st.lists(
    st.builds(
        lambda topic, partition, start, length: OffsetRange(topic, partition, start, start + length),
        st.sampled_from(["a", "b"]),
        st.integers(0, 5),
        st.integers(0, 1000),
        st.integers(1, 5000),
    ),
    unique_by=lambda part: (part.topic, part.partition),
    max_size=6,
)


@given(ranges, st.integers(1, 10_000), st.integers(1, 16))
def test_splits_cover_every_offset_exactly_once(parts: list[OffsetRange], size: int, least: int) -> None:
    splits = plan_splits(parts, size, least)
    covered = [
        (split.range.topic, split.range.partition, offset)
        for split in splits
        for offset in range(split.range.start, split.range.end)
    ]
    expected = [(part.topic, part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    assert sorted(covered) == sorted(expected)
    assert [split.number for split in splits] == list(range(len(splits)))


@given(ranges, st.integers(1, 10_000), st.integers(1, 16))
def test_no_split_is_longer_than_asked_for_or_empty(parts: list[OffsetRange], size: int, least: int) -> None:
    assert all(0 < split.range.length <= size for split in plan_splits(parts, size, least))


def test_a_small_range_is_divided_among_all_cores() -> None:
    splits = plan_splits([OffsetRange("t", 0, 0, 1000)], 1_000_000, 4)
    assert [split.range.length for split in splits] == [250, 250, 250, 250]


def test_schema_pass_reads_the_shortest_range_of_each_topic() -> None:
    parts = [OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 0, 10), OffsetRange("b", 0, 5, 50)]
    everywhere = Carried("rows", watermarks=True, ddl="every partition")
    assert schema_ranges(parts, everywhere) == [OffsetRange("a", 1, 0, 10), OffsetRange("b", 0, 5, 50)]


def test_schema_pass_reads_partition_0_where_only_it_has_ddl_and_nothing_where_none_is_sent() -> None:
    parts = [OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 0, 10), OffsetRange("b", 1, 5, 50)]
    first = Carried("rows", watermarks=True, ddl="first partition")
    assert schema_ranges(parts, first) == [OffsetRange("a", 0, 0, 100)]
    assert schema_ranges(parts, Carried("nothing", watermarks=False, ddl="nowhere")) == []
