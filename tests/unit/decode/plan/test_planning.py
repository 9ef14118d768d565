from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.changefeed.protocols import Carried
from ticdc_replay.decode.plan import splits as planning
from ticdc_replay.decode.plan.sampling import SizedRange, SizedStretch
from ticdc_replay.decode.plan.splits import divide, plan_splits, schema_ranges, worthwhile
from ticdc_replay.domain.messages import OffsetRange

MIB = 1 << 20


def sized(part: OffsetRange, *sizes: float) -> SizedRange:
    """*part* in stretches of one length whose messages have the mean *sizes* (bytes)."""
    ends = [part.start + part.length * (at + 1) // len(sizes) for at in range(len(sizes))]
    return SizedRange(part, tuple(map(SizedStretch, ends, sizes)))


ranges = st.lists(
    st.builds(
        lambda topic, partition, start, length, sizes: sized(
            OffsetRange(topic, partition, start, start + length), *sizes
        ),
        st.sampled_from(["a", "b"]),
        st.integers(0, 5),
        st.integers(0, 1 << 40),
        st.integers(1, 1000),
        st.lists(st.sampled_from([0.0, 1.0, 300.0, 100_000.0]), min_size=1, max_size=4),
    ),
    unique_by=lambda each: (each.range.topic, each.range.partition),
    max_size=6,
)


@given(ranges, st.integers(10_000, 1_000_000), st.integers(1, 16))
def test_splits_cover_every_offset_exactly_once_in_order(parts: list[SizedRange], size: int, least: int) -> None:
    splits = plan_splits(parts, size, least)
    covered = [part for split in splits for part in split.ranges]
    assert covered == sorted(covered) == divide(parts, size, least)
    assert all(part.length > 0 for part in covered)
    assert all(split.ranges for split in splits)
    for whole in (each.range for each in parts):
        mine = [part for part in covered if (part.topic, part.partition) == (whole.topic, whole.partition)]
        assert (mine[0].start, mine[-1].end) == (whole.start, whole.end)
        assert all(one.end == other.start for one, other in pairwise(mine))
    assert [split.number for split in splits] == list(range(len(splits)))


def bytes_of(parts: list[OffsetRange], whole: SizedRange) -> list[float]:
    found = []
    for part in parts:
        total, start = 0.0, whole.range.start
        for stretch in whole.stretches:
            total += stretch.bytes_per_offset * max(0, min(part.end, stretch.end) - max(part.start, start))
            start = stretch.end
        found.append(total)
    return found


def test_pieces_hold_the_same_number_of_bytes_where_sizes_differ_along_a_partition() -> None:
    whole = sized(OffsetRange("t", 0, 1_000, 101_000), 100, 10_000, 1_000, 100)
    sizes = bytes_of(divide([whole], 16 * MIB, 1), whole)
    assert len(sizes) == 17
    assert max(sizes) < 1.01 * min(sizes)


def test_topics_with_larger_messages_are_divided_more() -> None:
    small, large = sized(OffsetRange("a", 0, 0, 10_000), 100), sized(OffsetRange("b", 0, 0, 10_000), 10_000)
    splits = plan_splits([small, large], 10 * MIB, 1)
    assert [sum(part.topic == "b" for part in split.ranges) for split in splits] == [0] + [1] * 10


def test_a_split_has_a_limit_of_messages_however_small_they_are() -> None:
    pieces = divide([sized(OffsetRange("t", 0, 0, 10 * planning.SPLIT_MESSAGES), 1.0)], 1 << 30, 1)
    assert [part.length for part in pieces] == [planning.SPLIT_MESSAGES] * 10


def test_a_small_range_is_divided_among_all_cores() -> None:
    splits = plan_splits([sized(OffsetRange("t", 0, 0, 1000), 100)], 128 * MIB, 4)
    assert [part.length for split in splits for part in split.ranges] == [250, 250, 250, 250]
    assert len(splits) == 4


def test_no_worker_is_started_for_less_than_it_is_worth() -> None:
    def splits_of(*bytes_of_ranges: int) -> int:
        return worthwhile([sized(OffsetRange("t", at, 7, 8), each) for at, each in enumerate(bytes_of_ranges)], 4, 1000)

    assert splits_of() == splits_of(0) == splits_of(100) == splits_of(500, 500) == splits_of(1400) == 1
    assert splits_of(1000, 600) == 2
    assert splits_of(1000, 9000) == 4


def test_the_objects_of_messages_count() -> None:
    small = SizedRange(OffsetRange("t", 0, 0, 10), (SizedStretch(10, 100, 1000),))
    assert worthwhile([small], 4, 1000) == 4


def test_a_thousand_partitions_of_a_few_messages_share_a_few_splits() -> None:
    parts = [sized(OffsetRange("t", number, 7, 12), 500) for number in range(1000)]
    splits = plan_splits(parts, 128 * MIB, 4, {"t": 1000})
    assert 4 <= len(splits) <= 6
    assert {split.partitions["t"] for split in splits} == {1000}


def test_partitions_that_are_not_quite_equal_leave_no_split_over() -> None:
    parts = [sized(OffsetRange("t", number, 0, 1000 + 7 * number), 100) for number in range(4)]
    splits = plan_splits(parts, 128 * MIB, 2)
    assert [[part.partition for part in split.ranges] for split in splits] == [[0, 1], [2, 3]]


def test_a_split_of_pieces_that_share_it_has_no_more_than_a_whole_one() -> None:
    lengths = [250_000, 485_000, 485_000, 250_000, 485_000]
    splits = plan_splits([sized(OffsetRange("t", at, 0, each), 1) for at, each in enumerate(lengths)], 128 * MIB, 4)
    assert max(sum(part.length for part in split.ranges) for split in splits) <= planning.SPLIT_MESSAGES
    assert [part.partition for split in splits for part in split.ranges] == [0, 1, 2, 3, 4]


def test_short_ranges_fill_up_the_last_split_of_a_long_one() -> None:
    long = sized(OffsetRange("a", 0, 0, 300_000), 1_000)
    short = [sized(OffsetRange("b", number, 0, 10), 1_000) for number in range(20)]
    splits = plan_splits([long, *short], 128 * MIB, 2)
    assert [[part.topic for part in split.ranges] for split in splits] == [["a"], ["a"], ["a", *["b"] * 20]]


def test_schema_pass_reads_the_shortest_range_of_each_topic() -> None:
    parts = [OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 0, 10), OffsetRange("b", 0, 5, 50)]
    everywhere = Carried("rows", watermarks=True, ddl="every partition")
    assert schema_ranges(parts, everywhere) == [OffsetRange("a", 1, 0, 10), OffsetRange("b", 0, 5, 50)]


def test_schema_pass_reads_partition_0_where_only_it_has_ddl_and_nothing_where_none_is_sent() -> None:
    parts = [OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 0, 10), OffsetRange("b", 1, 5, 50)]
    first = Carried("rows", watermarks=True, ddl="first partition")
    assert schema_ranges(parts, first) == [OffsetRange("a", 0, 0, 100)]
    assert schema_ranges(parts, Carried("nothing", watermarks=False, ddl="nowhere")) == []
