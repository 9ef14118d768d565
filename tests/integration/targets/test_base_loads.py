"""The base of a mirror: rows of a dump at one TSO, and windows before and after it, in mirrors of every kind."""

import contextlib
from collections.abc import Callable
from functools import partial
from itertools import permutations
from pathlib import Path

import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, base, delete, put, table
from tests.support.deaths import die_at_statements
from tests.support.dying_loads import Dying, FaultError
from tests.support.target_rigs import LakeRig, MirrorRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import TargetMismatchError

pytestmark = pytest.mark.integration

BIGINT, TEXT = ColumnType("bigint", declared=True), ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": BIGINT, "item": TEXT}, valid_from=100)
LINES = table("shop.lines", {"id": BIGINT, "item": TEXT}, valid_from=100)
SNAPSHOT = 100


def windows(artifacts: Path) -> list[Changelog]:
    """Around a dump at 100: what happened before it, across it and after it."""
    before = Changelog(artifacts, 10, 50).rows(
        ORDERS, [put(20, id=1, item="old"), put(21, id=9, item="gone by the dump")]
    )
    across = Changelog(artifacts, 50, 150).rows(
        ORDERS,
        [put(60, id=2, item="old"), delete(61, id=9), delete(100, id=8), put(110, id=2, item="new"), delete(120, id=3)],
    )
    after = Changelog(artifacts, 150, 200).rows(ORDERS, [put(160, id=3, item="again"), put(161, id=4, item="new")])
    return [before, across, after]


def dump(artifacts: Path) -> Changelog:
    rows = [put(SNAPSHOT, op="upsert", id=number, item="dump") for number in (1, 2, 3)]
    return base(artifacts, SNAPSHOT).rows(ORDERS, rows, files=2)


EXPECTED = [(1, "dump", 100), (2, "new", 110), (3, "again", 160), (4, "new", 161)]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_windows_in_any_order_continue_a_base(any_mirror: MirrorRig, artifacts: Path, order: tuple[int, ...]) -> None:
    any_mirror.load(dump(artifacts))
    made = windows(artifacts)
    for number in order:
        any_mirror.load(made[number])
    assert any_mirror.rows("SELECT id, item, _commit_ts FROM shop.orders ORDER BY id") == EXPECTED


def test_a_base_that_is_repeated_changes_nothing(any_mirror: MirrorRig, artifacts: Path) -> None:
    first = any_mirror.load_table(dump(artifacts))
    assert (first.outcome, first.upserted) == ("loaded", 3)
    for window in windows(artifacts):
        any_mirror.load(window)
    assert any_mirror.load_table(dump(artifacts)).outcome == "done_before"
    assert any_mirror.rows("SELECT id, item, _commit_ts FROM shop.orders ORDER BY id") == EXPECTED


def test_tables_that_hold_rows_are_refused_and_named(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 10, 50).rows(ORDERS, [put(20, id=1, item="old")]))
    both = dump(artifacts).rows(LINES, [put(SNAPSHOT, op="upsert", id=1, item="dump")])
    with pytest.raises(TargetMismatchError, match=r"shop.*orders.* holds rows") as refused:
        mirror.load(both)
    assert "lines" not in str(refused.value)
    assert not mirror.has_table("shop.lines")
    mirror.load(both, tables=("shop.lines",))
    assert mirror.rows("SELECT id FROM shop.lines") == [(1,)]
    assert mirror.rows("SELECT item FROM shop.orders") == [("old",)]


def test_another_base_of_the_same_rows_is_refused(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(dump(artifacts))
    again = base(artifacts, SNAPSHOT, "other").rows(ORDERS, [put(SNAPSHOT, op="upsert", id=1, item="dump")])
    with pytest.raises(TargetMismatchError, match="holds rows"):
        mirror.load(again)


def test_a_table_that_the_same_files_have_filled_is_done(any_mirror: MirrorRig, artifacts: Path) -> None:
    """The other table of the dump comes later, or the program was upgraded: another run, of the same content."""
    first = dump(artifacts)
    first.contents = {"shop.orders": "a"}
    any_mirror.load(first)
    for window in windows(artifacts)[1:]:
        any_mirror.load(window)
    rows = [put(SNAPSHOT, op="upsert", id=number, item="dump") for number in (1, 2, 3)]
    both = (
        base(artifacts, SNAPSHOT, "other")
        .rows(ORDERS, rows)
        .rows(LINES, [put(SNAPSHOT, op="upsert", id=1, item="dump")])
    )
    both.contents = {"shop.orders": "b", "shop.lines": "c"}
    with pytest.raises(TargetMismatchError, match="holds rows"):
        any_mirror.load(both)
    both.contents["shop.orders"] = "a"
    found = {str(report.table): (report.outcome, report.upserted) for report in any_mirror.load(both).tables}
    assert found == {"shop.orders": ("done_before", 3), "shop.lines": ("loaded", 1)}
    assert any_mirror.rows("SELECT id, item, _commit_ts FROM shop.orders ORDER BY id") == EXPECTED


def test_a_base_from_below_the_floor_is_refused(mirror: Mirror, artifacts: Path) -> None:
    mirror.raise_floor("shop.orders", 500)
    with pytest.raises(TargetMismatchError, match="none of its rows would be applied"):
        mirror.load(dump(artifacts))


def test_an_empty_table_gets_a_mirror_with_a_floor(any_mirror: MirrorRig, artifacts: Path) -> None:
    report = any_mirror.load_table(base(artifacts, SNAPSHOT).empty(ORDERS))
    assert (report.outcome, report.events) == ("loaded", 0)
    any_mirror.load(Changelog(artifacts, 10, 50).rows(ORDERS, [put(20, id=1, item="old")]))
    assert any_mirror.rows("SELECT id FROM shop.orders") == []
    any_mirror.load(Changelog(artifacts, 100, 150).rows(ORDERS, [put(101, id=1, item="new")]))
    assert any_mirror.rows("SELECT id FROM shop.orders") == [(1,)]


def test_a_mirror_that_its_create_table_has_made_takes_a_base(mirror: Mirror, artifacts: Path) -> None:
    made = Changelog(artifacts, 10, 50).ddl(20, "CREATE TABLE orders (id BIGINT PRIMARY KEY, item VARCHAR(20))")
    mirror.load(made)
    mirror.load(dump(artifacts))
    assert mirror.rows("SELECT id, item FROM shop.orders ORDER BY id") == [(1, "dump"), (2, "dump"), (3, "dump")]


def test_a_row_that_a_dump_has_twice_is_refused(mirror: Mirror, artifacts: Path) -> None:
    twice = dump(artifacts).rows(ORDERS, [put(SNAPSHOT, op="upsert", id=1, item="other")])
    with pytest.raises(TargetMismatchError, match="a row has a key that another row of the dump has"):
        mirror.load(twice)
    assert not mirror.has_table("shop.orders")


def test_a_seeded_mirror_that_is_lost_is_noticed(
    any_mirror: MirrorRig, artifacts: Path, drop_by_hand: Callable[[str], None]
) -> None:
    any_mirror.load(dump(artifacts))
    drop_by_hand("shop.orders")
    with pytest.raises(TargetMismatchError, match="was dropped"):
        any_mirror.load(windows(artifacts)[2])


@pytest.mark.parametrize("after", [False, True])
def test_a_load_into_a_lake_that_dies_anywhere_is_repeated(
    make_lake: Callable[[], LakeRig], artifacts: Path, *, after: bool
) -> None:
    before, across, newer = windows(artifacts)

    def attempt(number: int) -> int:
        lake, dying = make_lake(), Dying(number, after=after)
        with pytest.MonkeyPatch.context() as patch:
            dying.patched(patch)
            with contextlib.suppress(FaultError):
                lake.load(dump(artifacts))
        if any('"base":"' in state.read_text() for state in lake.ledger.rglob("state.json")):
            lake.load(before)  # an older window comes in between, and brings nothing
            assert not lake.has_table("shop.orders") or not lake.rows("SELECT id FROM shop.orders WHERE id = 9")
        lake.load(dump(artifacts))
        for window in (newer, across, before):
            lake.load(window)
        assert lake.rows("SELECT id, item, _commit_ts FROM shop.orders ORDER BY id") == EXPECTED
        return dying.seen

    die_at_statements(attempt, few=1)


@pytest.fixture
def make_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], LakeRig]:
    return partial(LakeRig, "iceberg", request.getfixturevalue("lake_spark"), tmp_path)
