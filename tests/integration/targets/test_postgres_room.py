"""Rows that PostgreSQL has no room for: in an index of a mirror, or in a page."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.integration.targets.conftest import Mirror
from tests.integration.targets.test_postgres_values import INT, declared, random_text
from tests.support.changelogs import Changelog, Row, delete, put, table
from ticdc_replay.domain.errors import PermanentError, TargetMismatchError, UnrepresentableValueError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.targets.base import LoadReport

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


NAMES = [f"c{at}" for at in range(500)]
WIDE = table("shop.wide", {"id": INT, **dict.fromkeys(NAMES, declared("varchar", length=500))})


def wide_row(commit_ts: int, key: int, octets: int, names: Sequence[str] = NAMES) -> Row:
    """A row with texts of so many bytes, of which PostgreSQL keeps at least 18 in the row."""
    return put(commit_ts, id=key, **{name: random_text(octets) for name in names})


def test_a_row_that_no_page_holds_is_named_or_set_aside(mirror: Mirror, artifacts: Path) -> None:
    rows = [wide_row(10 + at, at, 100 if at in (3, 4, 7) else 5) for at in range(9)]
    changelog = Changelog(artifacts, 0, 100).rows(WIDE, rows)
    with pytest.raises(
        UnrepresentableValueError, match=r'shop\.wide \{"id": 3\} \(.*more than the 8,160 bytes(.|\n)*target_value'
    ):
        mirror.load(changelog)
    report = mirror.load(changelog, target_value="quarantine")
    assert [(table.upserted, table.quarantined, table.keys) for table in report.tables] == [(6, 3, 6)]
    assert mirror.rows("SELECT id FROM shop.wide ORDER BY id") == [(0,), (1,), (2,), (5,), (6,), (8,)]
    assert set_aside(artifacts, report) == [(3, ""), (4, ""), (7, "")]


def test_a_row_that_no_page_holds_beside_an_other_refused_one(mirror: Mirror, artifacts: Path) -> None:
    nul = put(12, id=2, **dict.fromkeys(NAMES, "\0"))
    rows = [wide_row(11, 1, 5), nul, wide_row(13, 3, 100)]
    report = mirror.load(Changelog(artifacts, 0, 100).rows(WIDE, rows), target_value="quarantine")
    assert sorted(set(set_aside(artifacts, report)))[-1] == (3, "")
    assert mirror.rows("SELECT id FROM shop.wide") == [(1,)]


@pytest.mark.parametrize("reload", [False, True])
def test_a_row_that_the_mirror_alone_has_no_page_for_is_named_or_set_aside(
    mirror: Mirror, artifacts: Path, reload: bool
) -> None:
    """A later window has brought more columns, whose default counts too."""
    names = NAMES[:400]
    texts = dict.fromkeys(names, declared("varchar", length=500))
    old = table("shop.wide", {"id": INT, **texts})
    query = "CREATE TABLE wide (id BIGINT PRIMARY KEY, " + ", ".join(f"{name} VARCHAR(500)" for name in names) + ")"
    known = definition_from_sql(old.name, query)
    mirror.load(Changelog(artifacts, 0, 100).knows(known).rows(old, [wide_row(10, 1, 5, names)]))
    added = [f"d{at}" for at in range(200)]
    adds = ", ".join(f"ADD COLUMN {name} BIGINT NOT NULL DEFAULT 1" for name in added)
    ddl = Changelog(artifacts, 200, 300).knows(known).ddl(210, f"ALTER TABLE wide {adds}", table="shop.wide", type=5)
    mirror.load(ddl)
    rows = [*(wide_row(110 + at, at, 100 if at in (3, 6) else 6, names) for at in range(1, 9)), delete(119, id=9)]
    changelog = Changelog(artifacts, 100, 200).knows(known).rows(old, rows, files=2)
    with pytest.raises(
        UnrepresentableValueError, match=r'shop\.wide \{"id": 3\} \(.*more than the 8,160 bytes(.|\n)*target_value'
    ):
        mirror.load(changelog, reload=reload)
    report = mirror.load(changelog, target_value="quarantine", reload=reload)
    assert [(table.upserted, table.quarantined, table.keys) for table in report.tables] == [(6, 2, 7)]
    assert mirror.rows("SELECT id, c0, d0 FROM shop.wide ORDER BY id") == [
        (at, random_text(6), 1) for at in (1, 2, 4, 5, 7, 8)
    ]
    assert set_aside(artifacts, report) == [(3, ""), (6, "")]


def test_a_fill_that_rows_of_the_mirror_have_no_page_for_names_table_and_step(mirror: Mirror, artifacts: Path) -> None:
    """The window with the ADD COLUMN comes late, and its default is filled into rows that are wide already."""
    names = NAMES[:440]
    old = table("shop.wide", {"id": INT, **dict.fromkeys(names, declared("varchar", length=500))})
    added = {f"d{at}": INT for at in range(60)}
    new = table("shop.wide", {**{column.name: column.type for column in old.columns}, **added}, valid_from=150)
    mirror.load(Changelog(artifacts, 0, 100).rows(old, [wide_row(10, 1, 100, names)]))
    mirror.load(Changelog(artifacts, 200, 300).rows(new, [wide_row(210, 2, 5, names)]))
    adds = ", ".join(f"ADD COLUMN {name} BIGINT NOT NULL DEFAULT 1" for name in added)
    late = Changelog(artifacts, 100, 200).ddl(150, f"ALTER TABLE wide {adds}", table="shop.wide", type=5)
    with pytest.raises(
        TargetMismatchError, match=r'"shop"."wide" has no room for UPDATE d\d+ = .*too big.*parquet target'
    ):
        mirror.load(late, target_value="quarantine")


def set_aside(artifacts: Path, report: LoadReport) -> list[tuple[int, str]]:
    """Key and column of each cell in the files of *report*."""
    found = [cell for name in report.quarantine_files for cell in pq.read_table(artifacts / name).to_pylist()]
    return sorted((json.loads(cell["key"])["id"], cell["column"]) for cell in found)
