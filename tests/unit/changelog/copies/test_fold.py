"""The fold keeps the last version of each row, whatever the order, the hash or the form of its key."""

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.changelogs import Row, delete, put, rows_of, table
from ticdc_replay.changelog.copies.fold import by_value, is_put, last_versions, narrow, refuse_moved
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PermanentError

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
SCHEMA = table("s.t", {"a": INT, "b": TEXT, "v": INT}, key=["a", "b"])


def fold(rows: list[Row]) -> list[Row]:
    arrow = rows_of(SCHEMA, rows)
    return [rows[at] for at in last_versions(narrow(arrow, SCHEMA.handle_key, is_put(arrow))).to_pylist()]


def by_model(rows: list[Row]) -> list[Row]:
    last: dict[Any, int] = {}
    for at in sorted(range(len(rows)), key=lambda at: (rows[at].commit_ts, rows[at].op != "delete")):
        exact = tuple(sorted((rows[at].exact or {}).items()))
        last[rows[at].cells.get("a"), rows[at].cells.get("b"), exact] = at
    return [rows[at] for at in sorted(last.values())]


HASHES = st.sampled_from([b"x" * 16, b"x" * 8 + b"y" * 8, b"z" * 16, None])
ROWS = st.builds(
    lambda op, ts, a, b, hash_: Row(op, ts, {"a": a, "b": b}, key_hash=hash_),
    st.sampled_from(["insert", "update", "upsert", "delete"]),
    st.integers(1, 6),
    st.integers(0, 3),
    st.sampled_from(["", "k", "K"]),
    HASHES,
)


def one_hash_per_key(rows: list[Row]) -> list[Row]:
    """Versions without copies, in which equal keys have equal hashes, as decode guarantees; unequal keys may share one."""
    hashes: dict[Any, bytes | None] = {}
    versions = {}
    for row in rows:
        key = (row.cells["a"], row.cells["b"])
        row = row._replace(key_hash=hashes.setdefault(key, row.key_hash))
        versions[key, row.commit_ts, row.op == "delete"] = row
    return list(versions.values())


@given(st.lists(ROWS, max_size=40).map(one_hash_per_key), st.randoms())
def test_the_last_version_of_each_key_stays_in_any_order(rows: list[Row], shuffled: random.Random) -> None:
    shuffled.shuffle(rows)
    assert fold(rows) == by_model(rows)


def test_a_put_beats_a_delete_of_the_same_commit() -> None:
    rows = [put(5, a=1, b="x"), delete(5, a=1, b="x")]
    assert fold(rows) == [rows[0]]
    assert fold(rows[::-1]) == [rows[0]]


def test_keys_that_no_typed_cell_holds_are_told_apart_by_their_text() -> None:
    same = b"h" * 16
    rows = [
        Row("insert", 1, {"b": "x"}, exact={"a": b"99999999999999999999"}, key_hash=same),
        Row("insert", 2, {"b": "x"}, exact={"a": b"88888888888888888888"}, key_hash=same),
        Row("delete", 3, {"b": "x"}, exact={"a": b"99999999999999999999"}, key_hash=same),
    ]
    assert fold(rows) == [rows[1], rows[2]]


def test_a_put_that_lacks_columns_is_refused_with_its_place() -> None:
    rows = [put(1, a=1, b="x"), put(2, a=1, b="x")._replace(partial=True)]
    with pytest.raises(PermanentError, match=r"topic\[0\]@2, event 0: the row lacks columns"):
        fold(rows)


def test_a_delete_that_has_only_its_key_is_whole_enough() -> None:
    rows = [put(1, a=1, b="x"), delete(2, a=1, b="x")]
    assert fold(rows) == [rows[1]]


def test_a_table_without_key_is_not_folded() -> None:
    arrow = rows_of(table("s.t", {"a": INT}, key=[]), [put(1, a=1)])
    with pytest.raises(PermanentError, match="without handle key"):
        narrow(arrow, (), is_put(arrow))


def test_rows_without_commit_ts_have_no_order() -> None:
    arrow = rows_of(SCHEMA, [put(1, a=1, b="x")])
    nameless = arrow.set_column(1, arrow.schema.field("_commit_ts"), pa.array([None], pa.int64()))
    with pytest.raises(PermanentError, match=r"topic\[0\]@1, event 0: the row has no commitTs"):
        narrow(nameless, SCHEMA.handle_key, is_put(nameless))


def test_without_commit_ts_the_last_offset_stays():
    rows = [put(8, a=1, b="k", v=1), put(9, a=1, b="k", v=2), delete(7, a=1, b="k")]
    arrow = rows_of(SCHEMA, rows, order="place")
    assert last_versions(narrow(arrow, SCHEMA.handle_key, is_put(arrow), "place")).to_pylist() == [1]


def test_places_order_rows_of_one_partition_only():
    rows = [put(8, a=1, b="k"), put(9, a=2, b="k")._replace(partition=1), put(9, a=1, b="k")]
    arrow = rows_of(SCHEMA, rows, order="place")
    refuse_moved(narrow(arrow, SCHEMA.handle_key, is_put(arrow), "place"), "s.t")
    arrow = rows_of(SCHEMA, [*rows, put(1, a=1, b="k")._replace(partition=5)], order="place")
    with pytest.raises(
        PermanentError, match=r"1 rows have changes in several partitions, one of them at \[0\]@8 and \[5\]@1;"
    ):
        refuse_moved(narrow(arrow, SCHEMA.handle_key, is_put(arrow), "place"), "s.t")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (pa.array([Decimal("1.5")]), pa.array([Decimal("1.500")]), True),
        (pa.array([Decimal("100")]), pa.array(["100.00"]), True),
        (pa.array([Decimal("0.0")]), pa.array([0], pa.int8()), True),
        (pa.array([-7], pa.int64()), pa.array([Decimal("-7.0")]), True),
        (pa.array([1.5], pa.float32()), pa.array([1.5], pa.float64()), True),
        (pa.array([1e-7], pa.float64()), pa.array(["0.0000001000"]), True),
        (pa.array([0.0]), pa.array([-0.0]), True),
        (pa.array([-0.0]), pa.array([Decimal("0.00")]), True),
        (pa.array(["-0.00"]), pa.array(["0"]), True),
        (pa.array([10], pa.int64()), pa.array([1], pa.int64()), False),
        (pa.array(["1.50"]), pa.array(["1.05"]), False),
        (pa.array(["9" * 65]), pa.array(["9" * 64 + "8"]), False),
    ],
)
def test_keys_of_several_types_are_compared_by_value(one: pa.Array, other: pa.Array, equal: bool) -> None:
    def narrowed(cells: pa.Array, hash_: bytes) -> pa.Table:
        rest = {"hash": pa.array([hash_], pa.binary(16)), "version": [1], "put": [True], "exact": pa.nulls(1)}
        return by_value(pa.table({**rest, "key.a": cells}), ["a"])

    found = pa.concat_tables([narrowed(one, b"x" * 16), narrowed(other, b"y" * 16)])
    hashes = found["hash"].to_pylist()
    assert (hashes[0] == hashes[1]) == equal
    assert len(last_versions(found)) == (1 if equal else 2)


ZERO = "0000-00-00 00:00:00"


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (ZERO, f"{ZERO}.000", True),
        (f"{ZERO}Z", f"{ZERO}.000000Z", True),
        ("2024-00-10 01:00:00.5", "2024-00-10 01:00:00.500", True),
        ("2024-00-10 01:00:00.5", "2024-00-10 01:00:00.050", False),
        ("2024-00-10 01:00:00", "2024-00-10 01:00:01.000", False),
        (ZERO, f"{ZERO}Z", False),
        ("0000-00-00", "0000-00-00", True),
        ("0000-00-00", "2024-00-00", False),
    ],
)
@pytest.mark.parametrize("deletes", [False, True])
def test_moments_that_no_typed_cell_holds_are_compared_by_value(
    one: str, other: str, equal: bool, deletes: bool
) -> None:
    def narrowed(text: str, scale: int, commit_ts: int, number: int, deleted: bool = False) -> pa.Table:
        schema = table("s.t", {"a": ColumnType("datetime", scale=scale), "n": INT}, key=["a", "n"])
        operation = "delete" if deleted else "insert"
        cells = {"n": number, "a": None}
        row = Row(operation, commit_ts, cells, exact={"a": text.encode()}, key_hash=text.encode().ljust(16)[-16:])
        arrow = rows_of(schema, [row])
        return by_value(narrow(arrow, schema.handle_key, is_put(arrow)), [])

    found = pa.concat_tables(
        [narrowed(one, 0, 1, 7), narrowed(other, 3, 2, 7, deletes), narrowed(one, 0, 3, 8)],
        promote_options="permissive",
    )
    assert len(set(found["hash"].to_pylist())) == (2 if equal else 3)
    assert last_versions(found).to_pylist() == ([1, 2] if equal else [0, 1, 2])
