"""Definitions that came with a version."""

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.definition import DefinedColumn, TableDefinition
from ticdc_replay.domain.tables import TableName
from ticdc_replay.state import StateStore


def test_table_versions_come_back_by_table_and_version(state: StateStore) -> None:
    found = [
        TableDefinition(TableName("shop", table), (), valid_from=version)
        for table, version in (("t", 1 << 60), ("t", 5), ("orders", 9))
    ]
    state.table_versions.record("p", found)
    state.table_versions.record("p", found)
    state.table_versions.record("other", found[:1])
    assert state.table_versions.all("p") == [found[2], found[1], found[0]]


def test_table_versions_with_types_of_no_table_do_not_come_back(state: StateStore) -> None:
    wrong = DefinedColumn("d", ColumnType("decimal", length=10, scale=20, declared=True))
    state.table_versions.record("p", [TableDefinition(TableName("shop", "t"), (wrong,), valid_from=5)])
    assert state.table_versions.all("p") == []


def test_several_table_versions_of_one_number_are_kept_in_their_order(state: StateStore) -> None:
    plain, other = (
        TableDefinition(TableName("shop", "t"), (), binary=binary, valid_from=5) for binary in (False, True)
    )
    later = TableDefinition(TableName("shop", "t"), (), valid_from=6)
    state.table_versions.record("p", [plain])
    state.table_versions.record("p", [later, plain, other])
    assert state.table_versions.all("p") == [plain, other, later]
