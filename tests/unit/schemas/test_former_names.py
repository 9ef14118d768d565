"""What tables and columns were called before, whatever came between."""

import pytest

from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.changes import changes_of, net_renames
from ticdc_replay.schemas.former_names import former_names
from ticdc_replay.schemas.history import SchemaHistory

CREATE = "CREATE TABLE `{}` (`id` INT PRIMARY KEY, `secret` VARCHAR(9), `b` INT)"


def changes(*texts: str):
    ddls = [DdlEvent(0, at * 10, "shop", "a", text, 3) for at, text in enumerate(texts, 1)]
    return changes_of(ddls, SchemaHistory((), ddls))


def former(*texts: str):
    return {
        each.table.table: (*(name.table for name in each.tables), *sorted(each.columns.items()))
        for each in former_names(changes(*texts))
        if each.tables or each.columns
    }


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["RENAME TABLE a TO b"], {"b": ("a",)}),
        (["RENAME TABLE a TO b", "RENAME TABLE b TO c"], {"c": ("a", "b")}),
        (["RENAME TABLE a TO c, b TO a, c TO b"], {"a": ("b",), "b": ("a",)}),
        (["RENAME TABLE a TO b", "RENAME TABLE b TO a"], {"a": ("b",)}),
        (["RENAME TABLE a TO b", "DROP TABLE b"], {}),
        (["RENAME TABLE a TO b", "DROP TABLE b", CREATE.format("b")], {}),
        (["RENAME TABLE a TO b", "TRUNCATE TABLE b"], {"b": ("a",)}),
        (["DROP TABLE a", "FLASHBACK TABLE a TO c"], {"c": ("a",)}),
        (["RENAME TABLE a TO b", "DROP TABLE b", "FLASHBACK TABLE b TO c"], {"c": ("a", "b")}),
        (
            ["RENAME TABLE a TO b", "ALTER TABLE b RENAME COLUMN secret TO p", "TRUNCATE b", "FLASHBACK TABLE b TO c"],
            {"b": ("a", ("p", ("secret",))), "c": ("a", "b", ("p", ("secret",)))},
        ),
        (["RENAME TABLE a TO b", CREATE.format("a"), "ALTER TABLE a DROP COLUMN b"], {"b": ("a",)}),
        (["ALTER TABLE a RENAME COLUMN secret TO private"], {"a": (("private", ("secret",)),)}),
        (
            ["ALTER TABLE a CHANGE secret Private INT", "ALTER TABLE a RENAME COLUMN private TO p"],
            {"a": (("p", ("private", "secret")),)},
        ),
        (["ALTER TABLE a RENAME COLUMN secret TO p, RENAME TO b"], {"b": ("a", ("p", ("secret",)))}),
        (["ALTER TABLE a RENAME COLUMN secret TO p", "RENAME TABLE a TO b"], {"b": ("a", ("p", ("secret",)))}),
        (["ALTER TABLE a RENAME COLUMN secret TO p", "ALTER TABLE a DROP COLUMN p"], {}),
        (
            [
                "ALTER TABLE a RENAME COLUMN secret TO p",
                "ALTER TABLE a DROP COLUMN p",
                "ALTER TABLE a ADD COLUMN p INT",
            ],
            {},
        ),
        (["ALTER TABLE a RENAME COLUMN secret TO p", "DROP TABLE a", CREATE.format("a")], {}),
        (["ALTER TABLE a MODIFY secret VARCHAR(20)", "ALTER TABLE a ADD COLUMN c INT"], {}),
        (["ALTER TABLE unknown CHANGE secret Private INT"], {"unknown": (("private", ("secret",)),)}),
    ],
)
def test_names_follow_ddl(texts: list[str], expected: dict) -> None:
    assert former(CREATE.format("a"), CREATE.format("b"), *texts) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a TO b", {"a": "b"}),
        ("a TO c, b TO a, c TO b", {"a": "b", "b": "a"}),
        ("a TO a_old, b TO a", {"a": "a_old", "b": "a"}),
        ("x TO a, a TO b, b TO a", {"x": "a"}),
        ("a TO b, b TO c, c TO d", {"a": "d"}),
        ("a TO c, c TO a", {"a": "a"}),
    ],
)
def test_only_names_before_and_after_a_statement_count(text: str, expected: dict[str, str]) -> None:
    found = net_renames(changes(f"RENAME TABLE {text}"))
    assert {old.table: new.table for old, new in found.items()} == expected


def test_a_name_of_which_nothing_is_told_is_left_out() -> None:
    own = {TableName("shop", "a"), TableName("shop", "b")}
    assert net_renames(entry for entry in changes("RENAME TABLE x TO a, a TO b") if entry.table in own) == {}
