"""Tables whose names are equal but for letter case: several mirrors, of which the upstream has one table at a time."""

from itertools import permutations
from pathlib import Path

import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, put, table
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql

pytestmark = pytest.mark.integration

COLUMNS = {"id": ColumnType("int", declared=True), "v": ColumnType("varchar", length=20, declared=True)}
OLD = table("shop.orders", COLUMNS)
NEW = table("shop.Orders", COLUMNS, valid_from=160)
CREATE = "CREATE TABLE {} (id INT PRIMARY KEY, v VARCHAR(20))"
KNOWN_OLD, KNOWN_NEW = (
    definition_from_sql(TableName("shop", name), CREATE.format(name)) for name in ("orders", "Orders")
)
RENAME = "RENAME TABLE orders TO Orders"


def first(artifacts: Path) -> Changelog:
    return Changelog(artifacts, 0, 100).rows(OLD, [put(10, id=1, v="old"), put(11, id=2, v="old")])


def dropped(artifacts: Path, to_ts: int = 155) -> Changelog:
    return Changelog(artifacts, 100, to_ts).knows(KNOWN_OLD).ddl(150, "DROP TABLE orders")


def made_anew(window: Changelog) -> Changelog:
    window.ddl(160, CREATE.format("Orders"), table="shop.Orders")
    return window.rows(NEW, [put(170, id=3, v="new")])


def altered(artifacts: Path, ddl: str) -> Changelog:
    window = Changelog(artifacts, 200, 300).knows(KNOWN_NEW).ddl(250, ddl, table="shop.Orders")
    return window.rows(NEW, [put(260, id=4, v="newest")])


def rows(mirror: Mirror, name: str) -> list[tuple[object, ...]]:
    """The rows of a mirror; none where it is not there."""
    if not mirror.rows(f"SELECT FROM pg_tables WHERE schemaname = 'shop' AND tablename = '{name}'"):
        return []
    return mirror.rows(f'SELECT id, v FROM shop."{name}" ORDER BY id')


@pytest.mark.parametrize("order", [*permutations(range(4))], ids=str)
def test_a_table_dropped_and_made_in_another_letter_case(
    mirror: Mirror, artifacts: Path, order: tuple[int, ...]
) -> None:
    windows = [
        first(artifacts),
        dropped(artifacts),
        made_anew(Changelog(artifacts, 155, 200)),
        altered(artifacts, "TRUNCATE TABLE Orders"),
    ]
    waits: list[Changelog] = []
    for number in order:
        try:
            mirror.load(windows[number], drop="apply", truncate="apply")
        except PolicyStopError:
            waits.append(windows[number])
    # As with one spelling: where rows of the old table are there, the CREATE TABLE waits for the end of it.
    before = order[: order.index(2)]
    assert waits == ([windows[2]] if 0 in before and 1 not in before and 3 not in before else [])
    for window in waits:
        mirror.load(window, drop="apply")
    assert rows(mirror, "Orders") == [(4, "newest")]
    assert rows(mirror, "orders") == []


@pytest.mark.parametrize("order", [*permutations(range(3))], ids=str)
def test_the_same_within_one_window(mirror: Mirror, artifacts: Path, order: tuple[int, ...]) -> None:
    windows = [
        first(artifacts),
        made_anew(dropped(artifacts, 200)),
        altered(artifacts, "ALTER TABLE Orders MODIFY v VARCHAR(30)"),
    ]
    for number in order:
        mirror.load(windows[number], drop="apply")
    assert rows(mirror, "Orders") == [(3, "new"), (4, "newest")]
    assert rows(mirror, "orders") == []


def test_a_table_made_in_another_letter_case_stops_where_the_end_of_the_older_was_not_seen(
    mirror: Mirror, artifacts: Path
) -> None:
    """As a table made anew in the same letter case does: its DROP was filtered out."""
    mirror.load(first(artifacts))
    window = made_anew(Changelog(artifacts, 100, 200).rows(OLD, [put(120, id=9, v="old")]))
    for _ in range(2):
        with pytest.raises(PolicyStopError, match=r"loaded:\n- shop\.orders at 160 .*its mirror has rows from before"):
            mirror.load(window)
        assert rows(mirror, "Orders") == []
    mirror.execute("DELETE FROM shop.orders WHERE _commit_ts <= 160")
    mirror.raise_floor("shop.orders", 161)
    mirror.load(window)
    mirror.load(first(artifacts), reload=True)
    assert rows(mirror, "Orders") == [(3, "new")]
    assert rows(mirror, "orders") == []


def test_rows_from_before_a_table_made_in_another_letter_case_come_back_with_no_older_window(
    mirror: Mirror, artifacts: Path
) -> None:
    mirror.load(made_anew(Changelog(artifacts, 155, 200)))
    mirror.load(first(artifacts))
    assert rows(mirror, "orders") == []
    mirror.load(dropped(artifacts), drop="stop")
    back = Changelog(artifacts, 200, 300).ddl(240, "DROP TABLE Orders", table="shop.Orders")
    back.ddl(250, CREATE.format("orders")).rows(table("shop.orders", COLUMNS, valid_from=250), [put(260, id=5, v="b")])
    mirror.load(back, drop="apply")
    assert rows(mirror, "orders") == [(5, "b")]
    assert rows(mirror, "Orders") == []


def test_rows_of_one_window_are_left_out_where_another_letter_case_was_made_after_them(
    mirror: Mirror, artifacts: Path
) -> None:
    mirror.load(made_anew(Changelog(artifacts, 100, 200).rows(OLD, [put(120, id=9, v="old")])))
    assert rows(mirror, "orders") == []
    assert rows(mirror, "Orders") == [(3, "new")]


def test_policies_stop_what_would_empty_either(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    with pytest.raises(PolicyStopError, match=r"shop\.orders at 150 .*: the table was dropped, and policies\.drop is"):
        mirror.load(made_anew(dropped(artifacts, 200)), drop="stop")
    mirror.load(made_anew(dropped(artifacts, 200)), drop="apply")
    for ddl, words in (("TRUNCATE TABLE Orders", "truncated"), ("DROP TABLE Orders", "dropped")):
        with pytest.raises(
            PolicyStopError, match=rf"loaded:\n- shop\.Orders at 250 .*: the table was {words}, and"
        ) as stop:
            mirror.load(altered(artifacts, ddl), truncate="stop", drop="stop")
        assert "- shop.orders" not in str(stop.value)


def test_a_change_of_columns_is_told_of_the_table_that_is_there(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    mirror.load(made_anew(dropped(artifacts, 200)), drop="apply")
    mirror.load(
        Changelog(artifacts, 200, 300)
        .knows(KNOWN_NEW)
        .ddl(250, "ALTER TABLE orders ADD COLUMN n INT DEFAULT 5", table="shop.Orders")
    )
    assert mirror.rows('SELECT id, n FROM shop."Orders"') == [(3, 5)]


@pytest.mark.parametrize("known", [True, False])
def test_a_rename_of_letter_case_alone_is_a_rename(mirror: Mirror, artifacts: Path, known: bool) -> None:
    mirror.load(first(artifacts))
    window = Changelog(artifacts, 100, 200).ddl(150, RENAME, table="shop.Orders").rows(NEW, [put(160, id=1, v="new")])
    if known:
        window.knows(KNOWN_OLD)
    with pytest.raises(PolicyStopError, match=r"Orders at 150 .* renamed from shop\.orders[\s\S]*orders at 150 .* to"):
        mirror.load(window)
    mirror.execute('ALTER TABLE shop.orders RENAME TO "Orders"')
    for name in ("shop.orders", "shop.Orders"):
        mirror.raise_floor(name, 151)
    mirror.load(window)
    assert rows(mirror, "Orders") == [(1, "new"), (2, "old")]
    mirror.load(altered(artifacts, "TRUNCATE TABLE Orders"))
    assert rows(mirror, "Orders") == [(4, "newest")]


def test_a_rename_of_letter_case_stops_a_mirror_that_lacks_the_older_rows(mirror: Mirror, artifacts: Path) -> None:
    window = Changelog(artifacts, 100, 200).ddl(150, RENAME, table="shop.Orders").rows(NEW, [put(160, id=1, v="new")])
    with pytest.raises(PolicyStopError, match=r"shop\.Orders at 150 .* renamed from shop\.orders"):
        mirror.load(window)


def test_a_name_of_a_text_alone_can_mean_either(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(first(artifacts))
    mirror.load(made_anew(dropped(artifacts, 200)), drop="apply")
    window = Changelog(artifacts, 200, 300)
    window.ddl(250, "ALTER TABLE parts EXCHANGE PARTITION p WITH TABLE orders", table="shop.parts")
    with pytest.raises(PolicyStopError, match=r"shop\.Orders at 250 .*exchanged with a partition of shop\.parts"):
        mirror.load(window)
