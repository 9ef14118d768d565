"""Definitions by version, as rows of Simple name them."""

import pickle

import msgspec
import pytest

from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql
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


FIRST = definition(7, "`id` INT PRIMARY KEY, `v` INT DEFAULT 1")


@pytest.mark.parametrize(
    "columns",
    [
        "`v` INT DEFAULT 1, `id` INT PRIMARY KEY",
        "`id` INT PRIMARY KEY, `v` INT DEFAULT 2",
        "`id` INT PRIMARY KEY, `v` INT DEFAULT 1, KEY `by_v` (`v`)",
    ],
)
def test_of_definitions_of_one_version_that_type_rows_alike_the_first_counts(columns):
    versions = TableVersions([FIRST]).with_definitions([definition(7, columns)])
    assert versions.find("shop", "t", 7) == FIRST
    assert versions.why_ambiguous("shop", "t", 7) is None
    assert list(versions) == [FIRST]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ("`id` INT PRIMARY KEY, `v` ENUM('a','b')", "`v` is int in one, enum('a','b') in another"),
        ("`id` INT PRIMARY KEY, `v` INT NOT NULL", "`v` is int in one, int NOT NULL in another"),
        ("`id` INT PRIMARY KEY", "`v` is int in one, missing in another"),
        ("`id` INT PRIMARY KEY, `v` INT, `w` INT", "`w` is missing in one, int in another"),
        ("`id` INT NOT NULL, `v` INT", "the handle key is `id` in one, none in another"),
    ],
)
def test_a_version_that_two_tables_share_is_ambiguous(columns, named):
    other = definition(7, columns)
    ambiguous = SchemaHistory().with_versions([FIRST, other, FIRST, definition(8)]).with_versions([other])
    for history in (ambiguous, SchemaHistory.decode(ambiguous.encode()), pickle.loads(pickle.dumps(ambiguous))):
        assert named in history.versions.why_ambiguous("shop", "t", 7)
        assert history.versions.why_ambiguous("shop", "t", 8) is None
        assert list(history.versions) == [FIRST, other, definition(8)]


def test_a_history_takes_its_versions_wherever_it_goes():
    history = SchemaHistory().with_versions([definition(9), definition(7)]).with_ddls([]).since(100)
    for copy in (history, SchemaHistory.decode(history.encode()), pickle.loads(pickle.dumps(history))):
        assert [found.valid_from for found in copy.versions] == [7, 9]
    assert history.encode() == SchemaHistory().with_versions([definition(7), definition(9)]).encode()
    assert history
    assert not SchemaHistory()
