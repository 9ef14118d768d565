"""What a split leaves, on its way to the driver."""

import pickle

from tests.support.changelogs import table
from ticdc_replay.changelog.files.index import DataFile
from ticdc_replay.changelog.files.version_files import VersionFile
from ticdc_replay.domain.column_types import ColumnType


def version_file(number: int, column: str = "id") -> VersionFile:
    schema = table("shop.orders", {column: ColumnType("bigint", declared=True)}, key=(column,))
    return VersionFile(schema, "0123456789abcdef", True, DataFile(f"data/{number}.parquet", 1, 1, 0, 0))


def test_files_of_one_table_version_share_its_schema_however_many_arrive():
    first, second = (pickle.loads(pickle.dumps(version_file(number))) for number in (1, 2))
    assert (first, second) == (version_file(1), version_file(2))
    assert first.schema is second.schema


def test_a_schema_is_that_of_its_file_even_where_another_has_the_same_version():
    pickle.loads(pickle.dumps(version_file(1)))
    assert pickle.loads(pickle.dumps(version_file(2, "key"))) == version_file(2, "key")
