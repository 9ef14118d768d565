"""What happens to a mirror while a load stages its rows: it is looked at again before they are applied."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.targets.conftest import TARGET, Mirror
from tests.support.changelogs import Changelog, put, table
from tests.support.in_process import in_process
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PolicyStopError, TargetMismatchError, TransientError
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.targets.load import load

pytestmark = pytest.mark.integration

INT = ColumnType("int", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
CREATE = "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))"
KNOWN = definition_from_sql(ORDERS.name, CREATE)
ALL = "SELECT id, v FROM shop.orders ORDER BY id"


def load_while(mirror: Mirror, changelog: Changelog, happens: Callable[[], object]) -> None:
    """Load *changelog*; something *happens* once its rows are staged."""

    def staged(work: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
        results = in_process(work, tasks, name)
        if name.startswith("stage"):
            happens()
        return results

    load(changelog.job(TARGET), mirror.connections, staged)


def test_a_mirror_that_is_dropped_meanwhile_is_not_begun_in_the_middle(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="a")]))
    second = Changelog(artifacts, 100, 200).rows(ORDERS, [put(110, id=2, v="b")])
    with pytest.raises(TargetMismatchError, match="was dropped"):
        load_while(mirror, second, lambda: mirror.execute("DROP TABLE shop.orders"))
    assert mirror.rows("SELECT to_regclass('shop.orders')") == [(None,)]


def test_of_two_pipelines_that_load_first_at_once_one_has_the_mirror(mirror: Mirror, artifacts: Path) -> None:
    first = Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="eu")])
    other = Changelog(artifacts, 0, 100, run="b").rows(ORDERS, [put(11, id=1, v="us")])
    other.pipeline = "us"
    with pytest.raises(TargetMismatchError, match="is a mirror of pipeline pipeline"):
        load_while(mirror, other, lambda: mirror.load(first))
    assert mirror.rows(ALL) == [(1, "eu")]


def test_an_older_window_leaves_a_table_alone_that_is_dropped_meanwhile(mirror: Mirror, artifacts: Path) -> None:
    mirror.load(Changelog(artifacts, 0, 50).rows(ORDERS, [put(10, id=1, v="a")]))
    older = Changelog(artifacts, 50, 100).rows(ORDERS, [put(60, id=2, v="a")])
    dropped = Changelog(artifacts, 100, 200).knows(KNOWN).ddl(150, "DROP TABLE orders")
    with pytest.raises(TransientError, match=r"floor of .* was raised"):
        load_while(mirror, older, lambda: mirror.load(dropped, drop="apply"))
    mirror.load(older)
    assert mirror.rows("SELECT to_regclass('shop.orders')") == [(None,)]


def test_a_later_window_goes_on_though_an_earlier_one_raises_the_floor_meanwhile(
    mirror: Mirror, artifacts: Path
) -> None:
    later = Changelog(artifacts, 200, 300).rows(ORDERS, [put(210, id=2, v="b")])
    created = Changelog(artifacts, 100, 200).ddl(150, CREATE).rows(ORDERS, [put(160, id=1, v="a")])
    load_while(mirror, later, lambda: mirror.load(created))
    assert mirror.rows(ALL) == [(1, "a"), (2, "b")]
    assert mirror.rows("SELECT floor_ts FROM _ticdc_replay.tables") == [(150,)]


def test_rows_by_place_do_not_pass_a_floor_that_is_raised_meanwhile(mirror: Mirror, artifacts: Path) -> None:
    def brought_up_to_date() -> None:
        mirror.execute("UPDATE shop.orders SET v = 'upstream', _place = 0")
        mirror.raise_floor("shop.orders", 200)

    mirror.load(Changelog(artifacts, 0, 100, order="place").rows(ORDERS, [put(1, id=1, v="a")]))
    second = Changelog(artifacts, 100, 200, order="place").rows(ORDERS, [put(5, id=1, v="old"), put(6, id=2, v="gone")])
    with pytest.raises(TransientError, match=r"floor of .* was raised"):
        load_while(mirror, second, brought_up_to_date)
    mirror.load(second)
    assert mirror.rows(ALL) == [(1, "upstream")]


def test_a_table_is_not_created_over_rows_that_come_meanwhile(mirror: Mirror, artifacts: Path) -> None:
    created = Changelog(artifacts, 100, 200).ddl(150, CREATE).rows(ORDERS, [put(160, id=2, v="new table")])
    older = Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v="old table")])
    with pytest.raises(PolicyStopError, match="its mirror has rows from before"):
        load_while(mirror, created, lambda: mirror.load(older))
    assert mirror.rows(ALL) == [(1, "old table")]
