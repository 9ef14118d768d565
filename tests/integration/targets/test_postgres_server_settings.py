"""What people set or add in their database: it alters no row of a mirror silently."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import psycopg
import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, delete, put, table
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import PermanentError, TargetMismatchError, TransientError
from ticdc_replay.targets.mirror import commit
from ticdc_replay.targets.postgres.comparison import PostgresComparisons
from ticdc_replay.targets.postgres.mirror import PostgresMirror

pytestmark = pytest.mark.integration

INT = ColumnType("bigint", declared=True)
ORDERS = table("shop.orders", {"id": INT, "v": INT})
ITEMS = table("shop.items", {"id": INT, "order_id": INT})


@pytest.fixture
def owner(mirror: Mirror) -> Iterator[str]:
    """A login that may make schemas, and no superuser; *mirror* uses it."""
    role, target = f"owner_{uuid4().hex[:12]}", mirror.connections["target"]
    mirror.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    mirror.execute(f"GRANT CREATE ON DATABASE {target.schema} TO {role}")
    everything = mirror.dsn
    login = msgspec.structs.replace(target, login=role, password="secret")
    mirror.connections = Connections({"target": login})
    yield role
    with psycopg.connect(everything) as connection:
        connection.execute(f"DROP OWNED BY {role} CASCADE")
        connection.execute(f"DROP ROLE {role}")


def test_a_policy_that_hides_rows_stops_a_load_and_a_comparison(mirror: Mirror, owner: str, artifacts: Path) -> None:
    """Hidden rows could not be replaced or deleted, and would pass for missing."""
    rows = [put(10, id=1, v=1), put(10, id=2, v=1)]
    mirror.load(Changelog(artifacts, 0, 100).rows(ORDERS, rows))
    mirror.execute("ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY")
    mirror.execute("ALTER TABLE shop.orders FORCE ROW LEVEL SECURITY")
    mirror.execute("CREATE POLICY own ON shop.orders USING (id < 2)")
    window = Changelog(artifacts, 100, 200).rows(ORDERS, [put(110, id=1, v=2), delete(120, id=2)])
    with pytest.raises(PermanentError, match="affected by row-level security policy"):
        mirror.load(window)
    target = mirror.target(None)
    assert isinstance(target, PostgresMirror)
    with target.comparisons() as session:
        assert isinstance(session, PostgresComparisons)
        with pytest.raises(PermanentError, match="affected by row-level security policy"):
            session.query("compare", "SELECT count(*) FROM shop.orders")
    mirror.execute("ALTER TABLE shop.orders NO FORCE ROW LEVEL SECURITY")
    mirror.load(window)
    assert mirror.rows("SELECT id, v FROM shop.orders ORDER BY id") == [(1, 2)]


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT"])
def test_a_foreign_key_that_follows_deletes_is_refused(mirror: Mirror, artifacts: Path, action: str) -> None:
    """A row that is replaced would take those along that refer to it."""
    both = Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v=1)]).rows(ITEMS, [put(10, id=5, order_id=1)])
    mirror.load(both)
    key = "ALTER TABLE shop.items ADD CONSTRAINT ordered FOREIGN KEY (order_id) REFERENCES shop.orders"
    mirror.execute(f"{key} ON DELETE {action}")
    window = Changelog(artifacts, 100, 200).rows(ORDERS, [put(110, id=1, v=2)])
    with pytest.raises(TargetMismatchError, match=r"foreign key ordered of shop\.items"):
        mirror.load(window)
    mirror.execute("ALTER TABLE shop.items DROP CONSTRAINT ordered")
    mirror.execute(f"{key} DEFERRABLE INITIALLY DEFERRED")
    mirror.load(window)
    assert mirror.rows("SELECT id, order_id FROM shop.items") == [(5, 1)]
    assert mirror.rows("SELECT id, v FROM shop.orders") == [(1, 2)]


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_what_another_load_commits_counts_whatever_the_default_isolation_is(
    mirror: Mirror, artifacts: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database of the first rows is dropped while they are about to be applied."""
    mirror.execute(
        f"ALTER DATABASE {mirror.connections['target'].schema} SET default_transaction_isolation = '{level}'"
    )
    dropped = Changelog(artifacts, 100, 200).ddl(150, "DROP DATABASE shop", table="shop")
    before = Changelog(artifacts, 0, 100).rows(ORDERS, [put(10, id=1, v=1)])
    look_again = commit.dropped_databases.look_again

    def later(*given: Any) -> None:
        mirror.load(dropped, drop="apply")
        look_again(*given)

    with monkeypatch.context() as patch:
        patch.setattr(commit.dropped_databases, "look_again", later)
        with pytest.raises(TransientError, match=r"database of .* was dropped"):
            mirror.load(before)
    assert mirror.load_table(before).below_floor == 1
