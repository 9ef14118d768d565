"""Secondary unique keys while windows come in any order. The rest of the guard is tested over all kinds (test_mirrors)."""

from pathlib import Path

import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, delete, put, table
from ticdc_replay.domain.column_types import ColumnType

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": TEXT})
ALL = "SELECT id, v, _commit_ts FROM shop.orders ORDER BY id"


def test_values_of_a_unique_key_are_swapped_between_rows(mirror: Mirror, artifacts: Path) -> None:
    users = table("shop.users", {"id": INT, "email": TEXT}, unique=[["email"]])
    mirror.load(Changelog(artifacts, 0, 100).rows(users, [put(10, id=1, email="a"), put(10, id=2, email="b")]))
    mirror.load(Changelog(artifacts, 100, 200).rows(users, [put(110, id=1, email="b"), put(110, id=2, email="a")]))
    assert mirror.rows("SELECT id, email FROM shop.users ORDER BY id") == [(1, "b"), (2, "a")]
    (index,) = mirror.rows("SELECT indexdef FROM pg_indexes WHERE tablename = 'users' AND indexname <> 'users_pkey'")
    assert index[0] == "CREATE INDEX users_email_idx ON shop.users USING btree (email)"


def test_a_unique_value_may_be_double_while_an_older_window_is_missing(mirror: Mirror, artifacts: Path) -> None:
    users = table("shop.users", {"id": INT, "email": TEXT}, unique=[["email"]])
    mirror.load(Changelog(artifacts, 0, 100).rows(users, [put(10, id=1, email="a")]))
    mirror.load(Changelog(artifacts, 200, 300).rows(users, [put(210, id=2, email="a")]))
    assert mirror.rows("SELECT id, email FROM shop.users ORDER BY id") == [(1, "a"), (2, "a")]
    mirror.load(Changelog(artifacts, 100, 200).rows(users, [delete(110, id=1)]))
    assert mirror.rows("SELECT id, email FROM shop.users ORDER BY id") == [(2, "a")]
