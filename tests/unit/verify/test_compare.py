"""The search for rows that differ finds them all and no other, whatever they are and however ranges are cut."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.verify import compare, readers, scan
from ticdc_replay.verify.compare import Comparison, Pace
from ticdc_replay.verify.findings import Findings, Progress
from ticdc_replay.verify.forms import Form
from ticdc_replay.verify.scan import ScanComparison
from ticdc_replay.verify.side import ComparedColumn, Digest, FoundRow, Key, MirrorSide, Range, ScannedSide

Rows = dict[int, str]
COLUMNS = (
    ComparedColumn("id", "id", ColumnType("int"), False, Form.INTEGER),
    ComparedColumn("v", "v", ColumnType("varchar"), True, Form.TEXT),
)


class Table(MirrorSide):
    """An engine in memory: a table with the key ``id``. Rows whose value ends with ``!`` are newer. *copies* are more rows with
    keys of *rows*, which is possible without an index."""

    def __init__(
        self,
        rows: Rows,
        *,
        steps_by_index: bool = True,
        deleted: dict[int, int] | None = None,
        copies: Sequence[tuple[int, str]] = (),
    ) -> None:
        self._rows = rows
        self._all = sorted([*rows.items(), *copies])
        self._deleted = deleted or {}
        self.steps_by_index = steps_by_index
        self.largest = 0

    def _in(self, part: Range) -> list[tuple[int, str]]:
        low = None if part.lower is None else int(part.lower[0])
        high = None if part.upper is None else int(part.upper[0])
        return [row for row in self._all if (low is None or row[0] >= low) and (high is None or row[0] < high)]

    @staticmethod
    def _md5(key: int, value: str) -> str:
        return hashlib.md5(f"{key},{value}".encode(), usedforsecurity=False).hexdigest()

    def digest(self, part: Range) -> Digest:
        rows, bits = self._in(part), 0
        for row in rows:
            bits ^= int(self._md5(*row)[:16], 16)
        return Digest(len(rows), bits)

    def step(self, part: Range, rows: int) -> Key | None:
        keys = self.keys(part)
        return keys[rows] if len(keys) > rows else None

    def keys(self, part: Range) -> list[Key]:
        return [(str(key),) for key, _ in self._in(part)]

    def rows(self, part: Range) -> list[FoundRow]:
        rows = self._in(part)
        self.largest = max(self.largest, len(rows))
        return [FoundRow((str(key),), self._md5(key, value), 9 if value.endswith("!") else 1) for key, value in rows]

    def cells(self, key: Key) -> list[str | None] | None:
        return [key[0], self._rows[int(key[0])]] if int(key[0]) in self._rows else None

    def value(self, key: Key, column: int) -> str | None:
        raise AssertionError("no column needs it")

    def deleted(self, keys: Sequence[Key]) -> dict[Key, int]:
        return {key: self._deleted[int(key[0])] for key in keys if int(key[0]) in self._deleted}


class Scanned(ScannedSide):
    """A table in memory without an index."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.most_parts = self.largest = self.statements = 0

    def _ordered(self, parts: Sequence[Range]) -> Sequence[Range]:
        self.statements += 1
        self.most_parts = max(self.most_parts, len(parts))
        ends = [int(bound[0]) for part in parts for bound in part if bound is not None]
        assert ends == sorted(ends), "ranges are in order, and do not overlap"
        return parts

    def digests(self, parts: Sequence[Range]) -> list[Digest]:
        return [self._table.digest(part) for part in self._ordered(parts)]

    def cuts(self, parts: Sequence[Range], ratios: Sequence[int]) -> list[list[Key]]:
        pairs = zip(self._ordered(parts), ratios, strict=True)
        return [self._table.keys(part)[::ratio] for part, ratio in pairs]

    def rows(self, parts: Sequence[Range]) -> list[list[FoundRow]]:
        found = [self._table.rows(part) for part in self._ordered(parts)]
        self.largest = max(self.largest, sum(map(len, found)))
        return found

    def cells(self, keys: Sequence[Key]) -> dict[Key, list[str | None]]:
        found = {key: self._table.cells(key) for key in keys}
        return {
            key: [cells[0], hashlib.md5((cells[1] or "").encode(), usedforsecurity=False).hexdigest()]
            for key, cells in found.items()
            if cells is not None
        }

    def values(self, keys: Sequence[Key], column: int) -> dict[Key, str | None]:
        raise AssertionError("no column needs it")

    def deleted(self, keys: Sequence[Key]) -> dict[Key, int]:
        return self._table.deleted(keys)


@pytest.fixture(autouse=True, scope="module")
def small_ranges() -> object:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compare, "_SMALL", 4)
        patched.setattr(compare, "_FETCHED", 10)
        patched.setattr(readers, "SMALL", 4)
        patched.setattr(readers, "MOST_RANGES", 5)
        patched.setattr(readers, "SORTED_RANGES", 3)
        patched.setattr(scan, "_FETCHED", 10)
        patched.setattr(scan, "_CELLS", 2)
        yield


ROWS = st.dictionaries(st.integers(-60, 60), st.sampled_from("ab"), max_size=80)
CHANGES = st.dictionaries(st.integers(-60, 60), st.sampled_from(["gone", "a", "b", "c", "new!"]), max_size=12)


@pytest.mark.parametrize("scanned", ["neither", "mirror", "both"])
@given(rows=ROWS, changes=CHANGES, by_index=st.booleans(), range_rows=st.integers(1, 30), broken=st.integers(0, 5))
def test_exactly_the_rows_that_differ_are_found(
    scanned: str, rows: Rows, changes: Rows, by_index: bool, range_rows: int, broken: int
) -> None:
    mirrored = {**rows, **{key: value for key, value in changes.items() if value != "gone"}}
    for key, value in changes.items():
        if value == "gone":
            mirrored.pop(key, None)
    source, mirror = Table(rows, steps_by_index=by_index), Table(mirrored, deleted=dict.fromkeys(range(-60, 60, 7), 9))
    begun, found = Progress(), Findings()
    kept: list[Progress] = []

    def keep(so_far: Progress) -> None:
        kept.append(so_far)
        if len(kept) == broken:
            raise KeyboardInterrupt

    comparison: Comparison | ScanComparison = Comparison(source, mirror, COLUMNS, [0], 5, Pace(1.0, range_rows))
    side = Scanned(mirror)
    if scanned != "neither":
        read = Scanned(source) if scanned == "both" else source
        comparison = ScanComparison(read, side, COLUMNS, 5, Pace(1.0, range_rows))
    while not found.ended:  # broken off once, and gone on with from what was kept
        try:
            found = comparison.run(begun, keep)
        except KeyboardInterrupt:
            begun = kept[-1]
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
    assert source.largest <= 4
    assert (mirror.largest if scanned == "neither" else side.largest) <= (4 if scanned == "neither" else 10)


@given(
    rows=st.dictionaries(st.integers(-60, 60), st.sampled_from("ab"), min_size=1, max_size=60),
    data=st.data(),
    by_index=st.booleans(),
    range_rows=st.integers(1, 30),
)
def test_each_row_that_repeats_a_key_of_a_mirror_is_extra(
    rows: Rows, data: st.DataObject, by_index: bool, range_rows: int
) -> None:
    copy = st.tuples(st.sampled_from(sorted(rows)), st.sampled_from(["a", "b", "c", "new!"]))
    copies = data.draw(st.lists(copy, min_size=1, max_size=30))
    source, mirror = Table(rows, steps_by_index=by_index), Scanned(Table(rows, copies=copies))
    found = ScanComparison(source, mirror, COLUMNS, 5, Pace(1.0, range_rows)).run(Progress(), lambda _: None)
    assert (found.source_rows, found.mirror_rows) == (len(rows), len(rows) + len(copies))
    assert not found.is_equal
    most = max(Counter(key for key, _ in copies).values())
    assert (found.unexamined > 0) == (most >= 10), "so many rows with one key can't be cut, and are not fetched"
    if found.unexamined:
        return
    expected = Counter(("extra", key) for key, _ in copies)
    assert Counter((each.kind, int(each.key[0])) for each in found.differences) == expected


UNCOUNTED = (msgspec.structs.replace(COLUMNS[0], type=ColumnType("decimal")), COLUMNS[1])
"""Keys that are no integers, so that no bound of a range is a guess."""


def is_possible(key: Key) -> bool:
    """Whether the mirror can have it: no mirror has some of MySQL's days."""
    return 0 <= int(key[0]) < 30 or int(key[0]) >= 50


class WithImpossibleKeys(Comparison):
    def _is_possible(self, key: Key) -> bool:
        return is_possible(key)


@given(
    impossible=st.sets(st.one_of(st.integers(-60, -1), st.integers(30, 49)))
    | st.just({*range(-60, 0), *range(30, 50)}),
    rows=st.dictionaries(st.one_of(st.integers(0, 29), st.integers(50, 90)), st.sampled_from("ab"), max_size=60),
    changes=st.dictionaries(st.one_of(st.integers(0, 29), st.integers(50, 90)), st.sampled_from("abc"), max_size=9),
    range_rows=st.integers(1, 30),
)
def test_rows_with_keys_that_no_mirror_can_have_are_missing_or_a_range_is_not_examined(
    impossible: set[int], rows: Rows, changes: Rows, range_rows: int
) -> None:
    class Possible(Table):
        def _in(self, part: Range) -> list[tuple[int, str]]:
            assert all(bound is None or is_possible(bound) for bound in part), "the mirror can't be asked for others"
            return super()._in(part)

    upstream = {**rows, **dict.fromkeys(impossible, "z")}
    source, mirror = Table(upstream), Possible({**rows, **changes})
    kept: list[Progress] = []
    found = WithImpossibleKeys(source, mirror, UNCOUNTED, [0], 5, Pace(1.0, range_rows)).run(Progress(), kept.append)
    assert found.ended
    assert found.is_equal == (not impossible and {**rows, **changes} == rows)
    assert source.largest <= 10
    listed = {int(each.key[0]) for each in found.differences}
    differing = {*impossible, *(key for key, value in changes.items() if rows.get(key) != value)}
    assert listed <= differing
    assert listed == differing or 0 < found.unexamined <= 2


def test_many_rows_with_keys_that_no_mirror_can_have_hide_no_others() -> None:
    upstream = {**dict.fromkeys(range(-5_000, 0), "z"), **dict.fromkeys(range(30), "a")}
    source, mirror = Table(upstream), Table({**dict.fromkeys(range(30), "a"), 3: "b", 29: "b"})
    found = WithImpossibleKeys(source, mirror, UNCOUNTED, [0], 5, Pace(1.0, 10_000)).run(Progress(), lambda _: None)
    assert [(each.kind, each.key) for each in found.differences] == [("changed", ("3",)), ("changed", ("29",))]
    assert (found.unexamined, found.is_equal, source.largest <= 10) == (1, False, True)


def test_a_range_whose_rows_do_not_explain_their_number_is_not_equal() -> None:
    class Lacking(Scanned):
        def rows(self, parts: Sequence[Range]) -> list[list[FoundRow]]:
            return [[row for row in rows if row.key != ("7",)] for rows in super().rows(parts)]

    rows = dict.fromkeys(range(4), "a")
    found = ScanComparison(Table(rows), Lacking(Table({**rows, 7: "a"})), COLUMNS, 5, Pace(1.0)).run(
        Progress(), lambda _: None
    )
    assert (found.source_rows, found.mirror_rows, found.extra, found.unexamined) == (4, 5, 0, 1)
    assert not found.is_equal


@pytest.mark.parametrize("by_index", [True, False])
def test_many_rows_of_the_mirror_in_a_gap_of_the_source_are_few_statements(
    by_index: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "MOST_LISTED", 100)

    class Counted(Table):
        statements = 0

        def digest(self, part: Range) -> Digest:
            self.statements += 1
            return super().digest(part)

        def step(self, part: Range, rows: int) -> Key | None:
            self.statements += 1
            return super().step(part, rows)

        def rows(self, part: Range) -> list[FoundRow]:
            self.statements += 1
            return super().rows(part)

    rows = {0: "a", 90_000: "a"}
    extra = dict.fromkeys(range(1, 5_001), "x")
    source, mirror = Counted(rows, steps_by_index=by_index), Scanned(Table({**rows, **extra}))
    found = ScanComparison(source, mirror, COLUMNS, 5, Pace(1.0)).run(Progress(), lambda _: None)
    assert (found.missing, found.changed) == (0, 0)
    assert (found.extra >= 100, found.unexamined > 0) == (True, True)
    assert source.statements < 50
    assert mirror.statements < 100, "until so many rows are found as are listed"


@pytest.mark.parametrize(
    ("keys", "steps"),
    [
        (range(1, 1_000), 3),  # of the first two ranges, and of the last
        (range(1, 1_000, 3), 4),  # ranges that are a third empty are no good guess
        (range(2**31 - 1_000, 2**31), 3),  # beyond the last number of the type, no guess
    ],
)
def test_the_ends_of_ranges_are_counted_where_numbers_follow_each_other(keys: range, steps: int) -> None:
    class Stepping(Table):
        steps = 0

        def step(self, part: Range, rows: int) -> Key | None:
            self.steps += 1
            return super().step(part, rows)

    rows = dict.fromkeys(keys, "a")
    source = Stepping(rows)
    kept: list[Progress] = []
    found = Comparison(source, Table(rows), COLUMNS, [0], 5, Pace(1.0, 100)).run(Progress(), kept.append)
    assert (found.is_equal, found.source_rows) == (True, len(rows))
    counts = [each.findings.source_rows for each in kept]
    assert max(after - before for before, after in pairwise([0, *counts])) <= 100
    assert source.steps == steps
