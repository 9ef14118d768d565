"""Definitions by version, as rows of Simple name them."""

import pickle

import msgspec

from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl import definition_from_sql
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.versions import TableVersions


def definition(version: int, columns: str = "`id` INT PRIMARY KEY", table: str = "t"):
    found = definition_from_sql(TableName("shop", table), f"CREATE TABLE `{table}` ({columns})")
    return msgspec.structs.replace(found, valid_from=version)


def test_a_version_is_found_by_its_table_and_number():
    versions = TableVersions([definition(7), definition(9, "`id` INT PRIMARY KEY, `v` INT")])
    assert [len(versions.find("shop", "t", version).columns) for version in (7, 9)] == [1, 2]
    assert versions.find("shop", "t", 8) is None
    assert versions.find("shop", "T", 7) is None


def test_of_one_version_the_first_definition_counts():
    first, other = definition(7), definition(7, "`id` INT PRIMARY KEY, `v` INT")
    assert TableVersions([first]).with_definitions([other]).find("shop", "t", 7) == first


def test_a_history_takes_its_versions_wherever_it_goes():
    history = SchemaHistory().with_versions([definition(9), definition(7)]).with_ddls([]).since(100)
    for copy in (history, SchemaHistory.decode(history.encode()), pickle.loads(pickle.dumps(history))):
        assert [found.valid_from for found in copy.versions] == [7, 9]
    assert history.encode() == SchemaHistory().with_versions([definition(7), definition(9)]).encode()
    assert history
    assert not SchemaHistory()
