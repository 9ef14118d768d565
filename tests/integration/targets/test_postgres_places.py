"""Windows by offset: rows without commitTs are ordered by their place in Kafka, and the mirror ends the same in any order."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, Row, delete, put, table
from ticdc_replay.changelog.files.version_order import place
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PermanentError, PolicyStopError, TargetMismatchError
from ticdc_replay.schemas.ddl.reader import definition_from_sql

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
KNOWN = definition_from_sql(ORDERS.name, "CREATE TABLE orders (id BIGINT PRIMARY KEY, v VARCHAR(20))")
ALL = "SELECT id, v FROM shop.orders ORDER BY id"


def window(folder: Path, from_ts: int, rows: Sequence[Row], *, run: str = "a", topic_id: str = "topic-id") -> Changelog:
    """A window of 100; the number of a row is its offset."""
    return Changelog(folder, from_ts, from_ts + 100, run, order="place", topic_id=topic_id).rows(ORDERS, rows, files=2)


def test_the_last_event_of_each_row_is_mirrored_with_its_place(mirror: Mirror, artifacts: Path) -> None:
    events = [put(3, id=1, v="a"), put(7, id=1, v="b"), put(5, id=1, v="between"), delete(9, id=2), put(4, id=2, v="x")]
    report = mirror.load_table(window(artifacts, 0, events))
    assert mirror.rows("SELECT id, v, _place FROM shop.orders") == [(1, "b", place(0, 7))]
    assert (report.events, report.keys, report.folded, report.upserted, report.tombstones) == (5, 2, 3, 1, 1)
    assert [field.name for field in report.fields] == ["id", "v", "_place"]


def test_windows_in_any_order_give_one_table(mirror: Mirror, artifacts: Path) -> None:
    windows = [
        window(artifacts, 0, [put(1, id=1, v="a"), put(2, id=2, v="a"), put(3, id=3, v="a"), put(4, id=4, v="a")]),
        window(artifacts, 100, [put(5, id=1, v="b"), delete(6, id=2), delete(7, id=3)]),
        window(artifacts, 200, [delete(8, id=1), put(9, id=2, v="c"), delete(10, id=5)]),
    ]
    for order in itertools.permutations(windows):
        for changelog in order:
            mirror.load(changelog, reload=True)
        assert mirror.rows(ALL) == [(2, "c"), (4, "a")]
        mirror.execute("DROP SCHEMA shop CASCADE; DROP SCHEMA _ticdc_replay CASCADE")


def test_what_ticdc_sends_again_ends_as_it_did_before(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(window(artifacts, 0, [put(1, id=1, v="a"), put(2, id=1, v="b")]))
    mirror.load(window(artifacts, 100, [put(3, id=1, v="a"), put(4, id=1, v="b")]))
    assert mirror.rows(ALL) == [(1, "b")]


@pytest.mark.parametrize("last", [put(1, id=1, v="a"), delete(1, id=1)], ids=["row", "tombstone"])
def test_a_row_that_moved_to_another_partition_stops_the_load(mirror: Mirror, artifacts: Path, last: Row) -> None:
    mirror.load(window(artifacts, 0, [put(0, id=2, v="a"), last]))
    before = mirror.rows(ALL)
    moved = window(artifacts, 100, [put(1, id=1, v="b")._replace(partition=4), put(8, id=2, v="b")])
    with pytest.raises(TargetMismatchError, match=r"key \(1,\) was in partition 0, and is in partition 4"):
        mirror.load(moved)
    assert mirror.rows(ALL) == before
    # As the message says: the table brought up to date by hand has no places.
    mirror.execute("UPDATE shop.orders SET _place = 0")
    (tombstones,) = mirror.rows("SELECT tombstones FROM _ticdc_replay.tables")[0]
    mirror.execute(f'DELETE FROM _ticdc_replay."{tombstones}"')
    mirror.load(moved)
    assert mirror.rows(ALL) == [(1, "b"), (2, "b")]


def test_a_row_in_two_partitions_of_one_window_stops_the_load(mirror: Mirror, artifacts: Path) -> None:
    rows = [put(1, id=1, v="a"), put(2, id=1, v="b")._replace(partition=1)]
    with pytest.raises(
        PermanentError, match=r"1 rows have changes in several partitions, one of them at \[0\]@\d+ and \[1\]@\d+;"
    ):
        mirror.load(window(artifacts, 0, rows))


def test_rows_of_a_recreated_topic_are_refused(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(window(artifacts, 0, [put(900, id=1, v="a")]))
    with pytest.raises(TargetMismatchError, match=r"place in the topic with id topic-id, .* with id other-id"):
        mirror.load(window(artifacts, 100, [put(1, id=1, v="b")], topic_id="other-id"))


def test_a_mirror_by_commit_ts_takes_no_places(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="x")]))
    with pytest.raises(TargetMismatchError, match="column _place is missing"):
        mirror.load(window(artifacts, 100, [put(1, id=1, v="b")]))


def test_nothing_below_the_floor_is_applied_and_the_floor_lies_between_windows(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(window(artifacts, 100, [put(5, id=1, v="b")]))
    mirror.execute("UPDATE _ticdc_replay.tables SET floor_ts = 100")
    report = mirror.load_table(window(artifacts, 0, [put(1, id=2, v="old"), put(2, id=3, v="old")]))
    assert (report.below_floor, report.keys) == (2, 0)
    mirror.load(window(artifacts, 100, [put(6, id=1, v="c")], run="b"))
    assert mirror.rows(ALL) == [(1, "c")]
    mirror.execute("UPDATE _ticdc_replay.tables SET floor_ts = 150")
    with pytest.raises(TargetMismatchError, match=r"floor_ts 150 .* lies within the window"):
        mirror.load(window(artifacts, 100, [put(7, id=1, v="d")], run="c"))


def test_a_truncate_stops_until_the_floor_is_at_the_end_of_its_window(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(window(artifacts, 0, [put(1, id=1, v="a")]))
    truncated = window(artifacts, 100, [put(3, id=2, v="b")]).ddl(90, "TRUNCATE TABLE orders")
    # It committed before the window and was recorded in it.
    mirror.execute("UPDATE _ticdc_replay.tables SET floor_ts = 100")
    with pytest.raises(PolicyStopError, match=r"the table was truncated[\s\S]*to 200, the window's end"):
        mirror.load(truncated)
    mirror.execute("UPDATE _ticdc_replay.tables SET floor_ts = 200")
    assert mirror.load_table(truncated).below_floor == 1


def test_a_column_whose_ddl_comes_after_later_rows_is_not_filled_by_guess(mirror: Mirror, artifacts: Path) -> None:
    wide = table("shop.orders", {"id": INT, "v": TEXT, "n": INT}, valid_from=110)
    mirror.load(window(artifacts, 0, [put(1, id=1, v="a")]))
    mirror.load(Changelog(artifacts, 200, 300, order="place").rows(wide, [put(9, id=2, v="b", n=None)]))
    added = Changelog(artifacts, 100, 200, order="place").knows(KNOWN).rows(wide, [put(5, id=3, v="c", n=1)])
    added.ddl(110, "ALTER TABLE orders ADD COLUMN n BIGINT DEFAULT 7")
    with pytest.raises(TargetMismatchError, match="column n came with a later window"):
        mirror.load(added)
