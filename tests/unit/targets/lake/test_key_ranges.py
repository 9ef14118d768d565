"""Ranges of keys hold every key, have the widest gaps between them, and are spelled as Spark reads them."""

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.targets.lake.key_ranges import RANGES, KeyRanges, common_ranges, in_list, in_ranges, joined

BIG = st.integers(-(2**63), 2**63 - 1)


def metadata_of(type_name, *batches):
    """The metadata of a file whose column ``id`` has *batches*."""
    ranges = KeyRanges()
    for batch in batches:
        ranges.add("id", type_name, batch)
    return {name.encode(): text.encode() for name, text in ranges.metadata().items()}


def ranges_of(type_name, *batches):
    return common_ranges([metadata_of(type_name, *batches)], "id", type_name)


def bigints(values):
    return pa.array(values, pa.int64())


@given(st.lists(st.lists(BIG | st.integers(0, 1000), min_size=1), min_size=1), st.data())
def test_every_key_is_in_a_range_however_batches_and_files_divide_them(batches, data):
    files = [metadata_of("bigint", bigints(batch), bigints(batch[:1])) for batch in batches]
    files = data.draw(st.permutations(files))
    ranges = common_ranges(files, "id", "bigint")
    assert all(any(low <= value <= high for low, high in ranges) for batch in batches for value in batch)
    ends = [end for each in ranges for end in each]
    assert ends == sorted(ends)
    assert len(ranges) <= 32
    assert {*ends} <= {value for batch in batches for value in batch}, "each end is a key"


def test_old_rows_and_new_rows_are_two_ranges():
    assert ranges_of("bigint", bigints([5, 3, 1_000_000, 4, 1_000_003]), bigints([1_000_001])) == [
        (3, 5),
        (1_000_000, 1_000_003),
    ]


def test_shards_of_auto_random_keys_are_ranges_of_their_own():
    shards = [shard << 58 for shard in range(32)]
    found = ranges_of("bigint", bigints([shard + at for at in range(100) for shard in shards]))
    assert found == [(shard, shard + 99) for shard in shards]


def test_the_widest_gaps_part_the_ranges_where_there_are_more_than_may_be():
    keys, key = [0], 0
    for width in range(100, 140):
        key += width
        keys.append(key)
    found = ranges_of("bigint", bigints(keys))
    assert len(found) == 32
    assert min(low - high for (_, high), (low, _) in itertools.pairwise(found)) == 109


def test_keys_that_are_everywhere_are_one_range():
    assert ranges_of("bigint", bigints(range(0, 100_000, 7))) == [(0, 99_995)]


def test_the_span_of_all_numbers_of_64_bits_has_gaps_too():
    low, high = -(2**63), 2**63 - 1
    assert ranges_of("bigint", bigints([low, high, 0])) == [(low, low), (0, 0), (high, high)]
    wide = pa.array([2**64 - 1, 1], pa.decimal128(20, 0))
    assert ranges_of("decimal(20,0)", wide) == [(1, 2**64 - 1)]
    narrow = pa.array([2**63 - 1, 1], pa.decimal128(20, 0))
    assert ranges_of("decimal(20,0)", narrow, wide) == [(1, 2**64 - 1)]
    assert ranges_of("decimal(20,0)", narrow) == [(1, 1), (2**63 - 1, 2**63 - 1)]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=3), min_size=1))
def test_texts_are_one_range_in_the_order_of_their_bytes(texts):
    ordered = sorted(texts, key=lambda text: text.encode())
    assert ranges_of("string", pa.array(texts), pa.array(texts[:1])) == [(ordered[0], ordered[-1])]


@pytest.mark.parametrize(
    ("type_name", "cells"),
    [
        ("float", pa.array([1.0], pa.float32())),
        ("double", pa.array([1.0])),
        ("binary", pa.array([b"a"])),
        ("decimal(20,2)", pa.array([1], pa.decimal128(20, 2))),
    ],
)
def test_types_by_whose_order_nothing_is_left_out_have_no_ranges(type_name, cells):
    assert ranges_of(type_name, cells) == []


def test_a_file_without_ranges_or_of_another_type_leaves_none():
    known = metadata_of("int", pa.array([1], pa.int32()))
    assert common_ranges([known], "id", "int") == [(1, 1)]
    assert common_ranges([known, known], "id", "int") == [(1, 1)]
    assert common_ranges([known, metadata_of("double", pa.array([1.0]))], "id", "int") == []
    assert common_ranges([known, metadata_of("date", pa.array([1], pa.date32()))], "id", "int") == []
    assert common_ranges([known], "id", "bigint") == []
    assert common_ranges([], "id", "int") == []
    assert common_ranges([{RANGES: b"{}"}], "id", "int") == []


@pytest.mark.parametrize(
    ("type_name", "cells", "expected"),
    [
        ("int", pa.array([-3, -3], pa.int32()), "(c = -3)"),
        ("bigint", pa.array([1, 2]), "(c >= 1L AND c <= 2L)"),
        (
            "bigint",
            pa.array([1, 9]),
            "(c = 1L OR c = 9L)",
        ),
        ("decimal(20,0)", pa.array([7], pa.decimal128(20, 0)), "(c = 7BD)"),
        ("date", pa.array([-719_162], pa.date32()), "(c = DATE '0001-01-01')"),
        ("timestamp_ntz", pa.array([-1], pa.timestamp("us")), "(c = TIMESTAMP_NTZ '1969-12-31 23:59:59.999999')"),
        ("timestamp", pa.array([0], pa.timestamp("us", "UTC")), "(c = TIMESTAMP '1970-01-01 00:00:00.000000Z')"),
        ("string", pa.array(["it's \\ one"]), "(c = 'it\\'s \\\\ one')"),
    ],
)
def test_conditions_are_spelled_as_spark_reads_them(type_name, cells, expected):
    assert in_ranges("c", type_name, ranges_of(type_name, cells)) == expected


@pytest.mark.parametrize(
    ("type_name", "cells", "expected"),
    [
        ("int", pa.array([7, -3, 7], pa.int32()), "c IN (7, -3)"),
        ("bigint", pa.array([-(2**63), 2**63 - 1]), "c IN (-9223372036854775808L, 9223372036854775807L)"),
        ("decimal(20,0)", pa.array([2**64 - 1, 0], pa.decimal128(20, 0)), "c IN (18446744073709551615BD, 0BD)"),
        ("date", pa.array([0], pa.date32()), "c IN (DATE '1970-01-01')"),
        ("timestamp_ntz", pa.array([1], pa.timestamp("us")), "c IN (TIMESTAMP_NTZ '1970-01-01 00:00:00.000001')"),
        ("string", pa.array(["b", "", "b"]), "c IN ('b', '')"),
    ],
)
def test_lists_have_each_key_once(type_name, cells, expected):
    assert in_list("c", type_name, cells) == expected


def test_ranges_that_touch_or_overlap_are_one():
    assert joined([(5, 9), (1, 6), (9, 9), (100, 200)]) == [(1, 9), (100, 200)]
