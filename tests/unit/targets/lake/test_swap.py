"""How a table gets the columns of another one, from wherever an attempt has left it."""

import pytest

from ticdc_replay.targets.iceberg.section import IcebergTarget
from ticdc_replay.targets.iceberg.table_format import Iceberg
from ticdc_replay.targets.lake.swap import Alignment, Columns, align
from ticdc_replay.targets.mirror.planning.tables import (
    Action,
    ChangeType,
    ColumnDefinition,
    MakeColumn,
    RemoveColumn,
    RenameColumn,
)

OLD = [
    ("id", "int", True),
    ("v", "int", True),
    ("gone", "string", True),
    ("Name", "string", True),
    ("n", "int", True),
    ("wide", "bigint", True),
    ("_commit_ts", "bigint", False),
    ("_is_deleted", "boolean", False),
]
NEW = [
    ("id", "int", True),
    ("v", "string", True),
    ("name", "string", True),
    ("n", "bigint", True),
    ("wide", "int", True),
    ("added", "int", True),
    ("_commit_ts", "bigint", False),
]


@pytest.fixture
def iceberg() -> Iceberg:
    return Iceberg(IcebergTarget(type="iceberg", name="lake", catalog="lake", ledger="file:///ledger"))


def done(columns: Columns, actions: list[Action]) -> list[tuple[str, str, bool]]:
    """*columns* after *actions*."""
    found = {name: (kind, null) for name, kind, null in columns}
    for action in actions:
        match action:
            case MakeColumn(column=column):
                assert column.name.lower() not in map(str.lower, found)
                found[column.name] = (column.type, True)
            case ChangeType(column=name, type=kind):
                found[name] = (kind, found[name][1])
            case RemoveColumn(column=name):
                del found[name]
            case RenameColumn(column=name, to=to):
                assert to.lower() not in map(str.lower, found)
                found[to] = found.pop(name)
    return [(name, *rest) for name, rest in found.items()]


def test_columns_are_added_before_the_rows_and_dropped_after_them(iceberg: Iceberg) -> None:
    assert align(iceberg, OLD, NEW) == Alignment(
        [
            MakeColumn(ColumnDefinition("_ticdc_rebuilt_v", "string")),
            MakeColumn(ColumnDefinition("_ticdc_rebuilt_name", "string")),
            ChangeType("n", "bigint"),
            MakeColumn(ColumnDefinition("added", "int")),
        ],
        ["`id`", "NULL", "NULL", "NULL", "`n`", "`wide`", "`_commit_ts`", "false", "`v`", "`name`", "`added`"],
        [
            RemoveColumn("v"),
            RemoveColumn("gone"),
            RemoveColumn("Name"),
            RemoveColumn("_is_deleted"),
            RenameColumn("_ticdc_rebuilt_v", "v"),
            RenameColumn("_ticdc_rebuilt_name", "name"),
        ],
    )


def test_it_ends_the_same_from_wherever_an_attempt_broke(iceberg: Iceberg) -> None:
    steps = align(iceberg, OLD, NEW)
    actions = [*steps.before, *steps.after]
    for number in range(len(actions) + 1):
        columns = done(OLD, actions[:number])
        again = align(iceberg, columns, NEW)
        came = done(columns, again.before)
        assert len(again.cells) == len(came)
        if number >= len(steps.before):  # the rows may be there
            assert again.before == []
        held = {name: kind for name, kind, _ in done(came, again.after)}
        assert held == {**{name: kind for name, kind, _ in NEW}, "wide": "bigint"}, number
        assert align(iceberg, done(came, again.after), NEW).after == []
