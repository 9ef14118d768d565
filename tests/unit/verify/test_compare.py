"""The search for rows that differ finds them all and no other, whatever they are and however ranges are cut."""

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.verify import compare
from ticdc_replay.verify.compare import Comparison, Pace
from ticdc_replay.verify.findings import Findings
from ticdc_replay.verify.forms import Form
from ticdc_replay.verify.side import ComparedColumn, Digest, FoundRow, Key, MirrorSide, Range

Rows = dict[int, str]
COLUMNS = (
    ComparedColumn("id", "id", ColumnType("int"), False, Form.INTEGER),
    ComparedColumn("v", "v", ColumnType("varchar"), True, Form.TEXT),
)


class Table(MirrorSide):
    """An engine in memory: a table with the key ``id``. Rows whose value ends with ``!`` are newer."""

    def __init__(self, rows: Rows, *, steps_by_index: bool = True, deleted: dict[int, int] | None = None) -> None:
        self._rows = rows
        self._deleted = deleted or {}
        self.steps_by_index = steps_by_index
        self.largest = 0

    def _in(self, part: Range) -> list[int]:
        low = None if part.lower is None else int(part.lower[0])
        high = None if part.upper is None else int(part.upper[0])
        return sorted(key for key in self._rows if (low is None or key >= low) and (high is None or key < high))

    def _md5(self, key: int) -> str:
        return hashlib.md5(f"{key},{self._rows[key]}".encode(), usedforsecurity=False).hexdigest()

    def digest(self, part: Range) -> Digest:
        keys, bits = self._in(part), 0
        for key in keys:
            bits ^= int(self._md5(key)[:16], 16)
        return Digest(len(keys), bits)

    def step(self, part: Range, rows: int) -> Key | None:
        keys = self._in(part)
        return (str(keys[rows]),) if len(keys) > rows else None

    def rows(self, part: Range) -> list[FoundRow]:
        keys = self._in(part)
        self.largest = max(self.largest, len(keys))
        return [FoundRow((str(key),), self._md5(key), 9 if self._rows[key].endswith("!") else 1) for key in keys]

    def cells(self, key: Key) -> list[str | None] | None:
        return [key[0], self._rows[int(key[0])]] if int(key[0]) in self._rows else None

    def value(self, key: Key, column: int) -> str | None:
        raise AssertionError("no column needs it")

    def deleted(self, keys: Sequence[Key]) -> dict[Key, int]:
        return {key: self._deleted[int(key[0])] for key in keys if int(key[0]) in self._deleted}


@pytest.fixture(autouse=True, scope="module")
def small_ranges() -> object:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compare, "_SMALL", 4)
        yield


ROWS = st.dictionaries(st.integers(-60, 60), st.sampled_from("ab"), max_size=80)
CHANGES = st.dictionaries(st.integers(-60, 60), st.sampled_from(["gone", "a", "b", "c", "new!"]), max_size=12)


@given(rows=ROWS, changes=CHANGES, by_index=st.booleans(), range_rows=st.integers(1, 30), broken=st.integers(0, 5))
def test_exactly_the_rows_that_differ_are_found(
    rows: Rows, changes: Rows, by_index: bool, range_rows: int, broken: int
) -> None:
    mirrored = {**rows, **{key: value for key, value in changes.items() if value != "gone"}}
    for key, value in changes.items():
        if value == "gone":
            mirrored.pop(key, None)
    source, mirror = Table(rows, steps_by_index=by_index), Table(mirrored, deleted=dict.fromkeys(range(-60, 60, 7), 9))
    found = Findings()
    kept: list[Findings] = []

    def keep(so_far: Findings) -> None:
        kept.append(so_far)
        if len(kept) == broken:
            raise KeyboardInterrupt

    comparison = Comparison(source, mirror, COLUMNS, [0], 5, Pace(1.0, range_rows))
    while not found.ended:  # broken off once, and gone on with from what was kept
        try:
            found = comparison.run(found, keep)
        except KeyboardInterrupt:
            found = kept[-1]
    assert (found.source_rows, found.mirror_rows) == (len(rows), len(mirrored))
    newer = {key for key, value in mirrored.items() if value.endswith("!")}
    newer |= {key for key in set(rows) - set(mirrored) if key % 7 == -60 % 7 and key < 60}
    expected = {("missing", key) for key in set(rows) - set(mirrored) - newer} | {
        ("extra", key) for key in set(mirrored) - set(rows) - newer
    }
    expected |= {("changed", key) for key in set(rows) & set(mirrored) - newer if rows[key] != mirrored[key]}
    assert {(each.kind, int(each.key[0])) for each in found.differences} == expected
    assert len(found.differences) == len(expected)
    assert found.newer == len(newer)
    assert (found.missing + found.extra + found.changed, found.unexamined) == (len(expected), 0)
    assert max(source.largest, mirror.largest) <= 4
