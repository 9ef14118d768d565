"""The key of a row as a person gives it, in the types of each version of its table."""

from collections.abc import Mapping

import pytest

from tests.support.changelogs import table
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.stages.trace.row_key import TypedKeys, parse

INT, BIGINT = ColumnType("int", declared=True), ColumnType("bigint", declared=True)
TEXT = ColumnType("varchar", length=20, declared=True)
OLD = table("shop.orders", {"id": INT, "v": TEXT}, valid_from=1)
WIDER = table("shop.orders", {"id": BIGINT, "v": TEXT}, valid_from=2)
COMPOSITE = table("shop.orders", {"id": BIGINT, "Region": TEXT}, key=("id", "Region"), valid_from=3)
KEYLESS = table("shop.orders", {"id": BIGINT}, key=(), valid_from=4)


def keys(texts: Mapping[str, str], *schemas: TableSchema) -> TypedKeys:
    return TypedKeys(TableName("shop", "orders"), texts, schemas, "UTC")


def test_the_options() -> None:
    assert parse(["id=7", "v=a=b", "w="]) == {"id": "7", "v": "a=b", "w": ""}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["id"], "'id' is not of the form column=value"),
        (["=7"], "'=7' is not of the form column=value"),
        (["id=7", "ID=8"], "column ID is given twice"),
    ],
)
def test_options_that_are_none(options: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(options)


def test_the_key_has_the_types_of_each_version() -> None:
    found = keys({"id": "7"}, WIDER, OLD)
    assert {name: str(cell.array.type) for name, cell in (found.of(OLD) or {}).items()} == {"id": "int32"}
    assert str(found.newest["id"].array.type) == "int64"
    assert found.others == set()


def test_a_version_whose_type_is_too_narrow_has_no_such_row() -> None:
    found = keys({"id": "5000000000"}, OLD, WIDER)
    assert found.of(OLD) is None
    assert found.of(WIDER) is not None


def test_versions_with_another_key_are_left_out_and_named() -> None:
    found = keys({"ID": "7", "region": "eu"}, OLD, COMPOSITE, KEYLESS)
    assert found.others == {("id",), ()}
    assert set(found.newest) == {"id", "Region"}


@pytest.mark.parametrize(
    ("texts", "schemas", "message"),
    [
        ({"id": "7", "v": "x"}, (OLD,), "shop.orders is not identified by id, v: give --key id=…"),
        ({"v": "x"}, (OLD, COMPOSITE), "give --key Region=… --key id=… or --key id=…"),
        ({"id": "7"}, (KEYLESS,), "shop.orders has no key"),
        ({"id": "x"}, (OLD, WIDER), "id is int: 'x' is not an integer; id is bigint: 'x' is not an integer"),
    ],
)
def test_what_is_no_key_of_the_table(texts: dict[str, str], schemas: tuple[TableSchema, ...], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        keys(texts, *schemas)
    assert message in str(refused.value)
