"""The lines of a stop tell all that the DDL did: a mirror that is changed as they say, and no more, is the upstream's.

The windows are [0, 100) before the DDL, [100, 200) with it at 150, and [200, 300) after it.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.targets.conftest import Mirror
from tests.support.changelogs import Changelog, put, table
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import PolicyStopError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql

pytestmark = pytest.mark.integration

INT = ColumnType("int", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
MOMENT = ColumnType("datetime", scale=0, declared=True)
BEFORE = {"id": INT, "v": TEXT, "u": INT}
CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(20), `u` INT)"
HANDS = {
    r"add the column to its mirror: (\S+) (.+), with (.+) in all rows": "ALTER TABLE {0} ADD COLUMN {1} {2} DEFAULT {3}",
    r"masked or cast as its `shape` says: (\S+) (.+)": "ALTER TABLE {0} ADD COLUMN {1} {2} DEFAULT '2020-01-01'",
    r"the column (\S+) was dropped, and policies.drop is stop: drop the column of its mirror": "ALTER TABLE {0} DROP COLUMN {1}",
    r"the column (\S+) was renamed to (\S+?)[^:]*: rename the column": "ALTER TABLE {0} RENAME COLUMN {1} TO {2}",
    r"change the column of its mirror: (\S+) (.+)": "ALTER TABLE {0} ALTER COLUMN {1} TYPE {2}",
    r"the table was renamed to \w+\.(\w+): rename its mirror": "ALTER TABLE {0} RENAME TO {1}",
    r"the table was renamed from \w+\.\w+: rename the mirror of the old name": "",
}


def by_hand(message: str) -> list[str]:
    """What the lines of *message* say is done to mirrors, in their order."""
    statements = []
    for name, what in re.findall(r"^- (\S+) at 150 \([^)]*\): (.*)$", message, re.MULTILINE):
        (done,) = [(found, text) for line, text in HANDS.items() if (found := re.search(line, what))]
        statements.append(done[1].format(name, *done[0].groups()))
    return [statement for statement in statements if statement]


@pytest.mark.parametrize(
    ("alter", "after", "older", "policies"),
    [
        (
            "ADD COLUMN `n` INT NOT NULL DEFAULT 5, DROP COLUMN `v`",
            {"id": INT, "u": INT, "n": INT},
            [{"id": 1, "u": 1, "n": 5}, {"id": 2, "u": 2, "n": 5}],
            {},
        ),
        (
            "ADD COLUMN `n` INT NOT NULL DEFAULT 5",
            {**BEFORE, "n": INT},
            [{"id": 1, "v": "a", "u": 1, "n": 5}, {"id": 2, "v": "b", "u": 2, "n": 5}],
            {"ddl": "stop"},
        ),
        (
            "ADD COLUMN `n` VARCHAR(20) NOT NULL DEFAULT 'it''s', MODIFY COLUMN `u` BIGINT, ADD COLUMN `m` INT",
            {**BEFORE, "u": ColumnType("bigint", declared=True), "n": TEXT, "m": INT},
            [{"id": 1, "v": "a", "u": 1, "n": "it's", "m": None}, {"id": 2, "v": "b", "u": 2, "n": "it's", "m": None}],
            {"ddl": "stop"},
        ),
        (
            "ADD COLUMN `n` INT DEFAULT 5, ADD COLUMN `at` DATETIME DEFAULT CURRENT_TIMESTAMP, MODIFY COLUMN `u` BIGINT",
            {**BEFORE, "u": ColumnType("bigint", declared=True), "n": INT, "at": MOMENT},
            [
                {"id": 1, "v": "a", "u": 1, "n": 5, "at": "2020-01-01T00:00:00"},
                {"id": 2, "v": "b", "u": 2, "n": 5, "at": "2020-01-01T00:00:00"},
            ],
            {},
        ),
        (
            "CHANGE COLUMN `u` `w` BIGINT, ADD COLUMN `n` INT DEFAULT 5",
            {"id": INT, "v": TEXT, "w": ColumnType("bigint", declared=True), "n": INT},
            [{"id": 1, "v": "a", "w": 1, "n": 5}, {"id": 2, "v": "b", "w": 2, "n": 5}],
            {"ddl": "stop"},
        ),
        (
            "ADD COLUMN `n` INT NOT NULL DEFAULT 5, RENAME TO `t2`",
            {**BEFORE, "n": INT},
            [{"id": 1, "v": "a", "u": 1, "n": 5}, {"id": 2, "v": "b", "u": 2, "n": 5}],
            {},
        ),
    ],
)
def test_a_mirror_that_is_changed_as_the_lines_say_is_the_table_of_the_upstream(
    mirror: Mirror,
    artifacts: Path,
    alter: str,
    after: Mapping[str, ColumnType],
    older: list[dict[str, Any]],
    policies: dict[str, str],
) -> None:
    name = "shop.t2" if "RENAME TO" in alter else "shop.t"

    def with_ddl(to_ts: int) -> Changelog:
        window = Changelog(artifacts, 100, to_ts).knows(definition_from_sql(TableName("shop", "t"), CREATE))
        window.rows(table("shop.t", BEFORE), [put(110, id=2, v="b", u=2)])
        return window.ddl(150, f"ALTER TABLE `t` {alter}", table=name)

    new = {key: {"varchar": "x", "datetime": datetime(2020, 1, 1)}.get(kind.base, 7) for key, kind in after.items()}
    later = table(name, after, valid_from=150)
    whole = with_ddl(200).rows(later, [put(160, **{**new, "id": 3})])
    ends_with_it = with_ddl(151)
    tables = tuple({"shop.t", name})
    mirror.load(Changelog(artifacts, 0, 100).rows(table("shop.t", BEFORE), [put(10, id=1, v="a", u=1)]), tables=tables)
    with pytest.raises(PolicyStopError) as first:
        mirror.load(whole, tables=tables, **policies)
    with pytest.raises(PolicyStopError) as stop:
        mirror.load(ends_with_it, tables=tables, **policies)
    assert by_hand(str(first.value)) == by_hand(str(stop.value)) != []
    for statement in by_hand(str(stop.value)):
        mirror.execute(statement)
    for each in tables:
        mirror.raise_floor(each, 151)
    third = Changelog(artifacts, 200, 300).rows(later, [put(210, **{**new, "id": 4})])
    for window in (ends_with_it, whole, third):
        mirror.load(window, tables=tables, **policies)
    shown = {key: cell.isoformat() if isinstance(cell, datetime) else cell for key, cell in new.items()}
    found = [row for (row,) in mirror.rows(f"SELECT to_jsonb(t) - '_commit_ts' FROM {name} t ORDER BY id")]
    assert found == [*older, {**shown, "id": 3}, {**shown, "id": 4}]


def test_a_column_that_is_renamed_and_rounded_is_told_as_both(mirror: Mirror, artifacts: Path) -> None:
    price = ColumnType("decimal", length=10, scale=2)
    before = table("shop.t", {"id": INT, "price": price})
    mirror.load(Changelog(artifacts, 0, 100).rows(before, [put(10, id=1, price=Decimal("1.55"))]))
    known = definition_from_sql(
        TableName("shop", "t"), "CREATE TABLE `t` (`id` INT PRIMARY KEY, `price` DECIMAL(10,2))"
    )
    window = Changelog(artifacts, 100, 151).knows(known)
    window.ddl(150, "ALTER TABLE `t` CHANGE COLUMN `price` `cost` DECIMAL(8,0)", table="shop.t")
    with pytest.raises(PolicyStopError) as stop:
        mirror.load(window)
    told = re.findall(r"^- shop.t at 150 \([^)]*\): (.*)$", str(stop.value), re.MULTILINE)
    assert [line.partition(": ")[0] for line in told] == [
        "the column price was renamed to cost",
        "the column cost changed from decimal(10,2) to decimal(8,0)",
    ]
    assert "if all rows fit the new type; else rebuild its mirror" in told[1]
