"""Rows that PostgreSQL has no room for: in an index of a mirror, or in a page."""

from pathlib import Path

import pytest

from tests.changelogs import Changelog, put, table
from tests.integration.targets.conftest import Mirror
from tests.integration.targets.test_postgres_values import INT, declared, random_text
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl import definition_from_sql

pytestmark = pytest.mark.integration

CREATE = "CREATE TABLE orders (id BIGINT PRIMARY KEY, code VARCHAR(100), n BIGINT, UNIQUE (code), UNIQUE (code, n))"
KNOWN = definition_from_sql(TableName("shop", "orders"), CREATE)
CODE = declared("varchar", length=100)
INDEXES = "SELECT indexname FROM pg_indexes WHERE schemaname = 'shop' ORDER BY indexname"
LONG = random_text(6000)


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_secondary_index_that_a_row_does_not_fit_is_dropped(
    mirror: Mirror, artifacts: Path, partitioned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    orders = table("shop.orders", {"id": INT, "code": CODE, "n": INT}, unique=[["code"], ["n"]])
    if partitioned:
        mirror.execute(
            "CREATE SCHEMA shop; "
            "CREATE TABLE shop.orders (id bigint PRIMARY KEY, code text, n bigint, _commit_ts bigint NOT NULL) "
            "PARTITION BY RANGE (id); CREATE INDEX ON shop.orders (code); CREATE INDEX ON shop.orders (n); "
            "CREATE TABLE shop.orders_1 PARTITION OF shop.orders FOR VALUES FROM (0) TO (100)"
        )
    mirror.load(Changelog(artifacts, 0, 100).rows(orders, [put(10, id=1, code="a", n=1)]))
    before = mirror.rows(INDEXES)
    report = mirror.load_table(
        Changelog(artifacts, 100, 200).rows(orders, [put(110, id=1, code=LONG, n=1), put(111, id=2, code="b", n=2)])
    )
    assert mirror.rows("SELECT id, code FROM shop.orders ORDER BY id") == [(1, LONG), (2, "b")]
    assert {name for (name,) in before} - {name for (name,) in mirror.rows(INDEXES)} == (
        {"orders_code_idx", "orders_1_code_idx"} if partitioned else {"orders_code_idx"}
    )
    assert (report.upserted, report.deleted, report.quarantined) == (2, 0, 0)
    assert report.ddl == ("DROP INDEX orders_code_idx: a row has more than fits an entry",)
    assert "orders_code_idx" in caplog.text


def test_both_indexes_of_a_column_that_ddl_makes_longer_are_dropped(mirror: Mirror, artifacts: Path) -> None:
    """Nothing is wrong upstream: TiDB's keys have room for 768 characters of four bytes."""
    text = "".join(chr(0x20000 + at * 7919 % 0xA000) for at in range(768))
    old = table("shop.orders", {"id": INT, "code": CODE, "n": INT}, unique=[["code"], ["code", "n"]])
    mirror.load(Changelog(artifacts, 0, 100).rows(old, [put(10, id=1, code="a", n=1)]))
    new = table("shop.orders", {"id": INT, "code": declared("varchar", length=768), "n": INT}, valid_from=150)
    changelog = Changelog(artifacts, 100, 200).knows(KNOWN)
    changelog.ddl(150, "ALTER TABLE orders MODIFY code VARCHAR(768)", type=12)
    mirror.load(changelog.rows(new, [put(160, id=2, code=text, n=2)]))
    assert mirror.rows("SELECT id, code FROM shop.orders ORDER BY id") == [(1, "a"), (2, text)]
    assert mirror.rows(INDEXES) == [("orders_pkey",)]


def test_an_index_that_a_fill_does_not_fit_is_dropped(mirror: Mirror, artifacts: Path) -> None:
    """The window with the ADD COLUMN comes late: what older rows show in it is filled in."""
    text = random_text(3000)
    old = table("shop.orders", {"id": INT})
    new = table("shop.orders", {"id": INT, "code": CODE}, valid_from=150, unique=[["code"]])
    mirror.load(Changelog(artifacts, 0, 100).rows(old, [put(10, id=1)]))
    mirror.load(Changelog(artifacts, 200, 300).rows(new, [put(210, id=2, code="b")]))
    mirror.execute("CREATE INDEX by_hand ON shop.orders (code)")
    added = f"ALTER TABLE orders ADD COLUMN code VARCHAR(3000) NOT NULL DEFAULT '{text}'"
    report = mirror.load_table(Changelog(artifacts, 100, 200).ddl(150, added, type=5).rows(old, [put(110, id=3)]))
    assert mirror.rows("SELECT id, code FROM shop.orders ORDER BY id") == [(1, text), (2, "b"), (3, text)]
    assert report.ddl[0] == "DROP INDEX by_hand: a row has more than fits an entry"


def test_a_constraint_of_the_mirror_is_never_dropped(mirror: Mirror, artifacts: Path) -> None:
    """Somebody has given it a rule of his own."""
    orders = table("shop.orders", {"id": INT, "code": CODE})
    mirror.load(Changelog(artifacts, 0, 100).rows(orders, [put(10, id=1, code="a")]))
    mirror.execute("ALTER TABLE shop.orders ADD EXCLUDE (code WITH =)")
    with pytest.raises(PermanentError, match="orders_code_excl"):
        mirror.load(Changelog(artifacts, 100, 200).rows(orders, [put(110, id=1, code=LONG)]))
