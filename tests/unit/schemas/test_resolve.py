"""Which schema a row is typed with: the history's where the wire agrees."""

import msgspec

from ticdc_replay.changelog.cells.convert import rows_to_batches
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.definition import PRIMARY, DefinedColumn, Index, TableDefinition
from ticdc_replay.domain.events import DdlEvent, Image, Operation, RowEvent, Shape, WireColumn
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.resolve import SchemaResolver, version_of


def wire(name, base, *, key=False, **details):
    return WireColumn(name, ColumnType(base, **details), key, list)


WHOLE = Shape((wire("id", "bigint", key=True), wire("s", "varchar"), wire("d", "decimal"), wire("e", "enum")))
KEY_ONLY = Shape((wire("id", "bigint", key=True),))
CREATE = "CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `s` VARCHAR(9), `d` DECIMAL(12,4) DEFAULT 1, `e` ENUM('x','y'))"


def row(after=None, before=None, commit_ts=50, partial=False):
    images = [None if shape is None else Image(shape, (None,) * len(shape.names)) for shape in (after, before)]
    return RowEvent(0, commit_ts, "shop", "t", None, Operation.UPDATE, *images, partial, None, None, (), b"")


def history(*queries):
    return SchemaHistory().with_ddls(DdlEvent(0, ts, "shop", "t", query, 0) for ts, query in enumerate(queries, 10))


def types(resolved):
    return {column.name: str(column.type) for column in resolved.schema.columns}


def undeclared(resolved):
    return [column.name for column in resolved.schema.columns if not column.type.declared]


def test_declared_types_complete_what_the_wire_tells():
    resolved = SchemaResolver(history(CREATE)).resolve(row(WHOLE))
    assert types(resolved) == {"id": "bigint", "s": "varchar(9)", "d": "decimal(12,4)", "e": "enum('x','y')"}
    assert resolved.declared
    assert resolved.schema.handle_key == ("id",)
    assert resolved.schema.valid_from == 10


def test_without_a_definition_the_wire_alone_types_the_row_and_that_is_told():
    resolved = SchemaResolver(SchemaHistory()).resolve(row(WHOLE))
    assert types(resolved) == {"d": "decimal", "e": "enum", "id": "bigint", "s": "varchar"}
    assert not resolved.declared
    assert resolved.schema.column("id").nullable is False


def test_partial_images_of_a_known_table_share_the_version_of_whole_rows():
    resolver = SchemaResolver(history(CREATE))
    whole = resolver.resolve(row(WHOLE))
    assert resolver.resolve(row(before=KEY_ONLY, partial=True)) is whole
    assert resolver.resolve(row(WHOLE, KEY_ONLY)) is whole


def test_a_column_that_whole_rows_do_not_have_is_left_out():
    # A column selector drops it, or its DROP COLUMN was filtered away.
    wider = history(CREATE.replace("`e` ENUM", "`dropped` INT, `e` ENUM"))
    resolved = SchemaResolver(wider).resolve(row(WHOLE))
    assert list(types(resolved)) == ["id", "s", "d", "e"]
    assert resolved.declared


def test_member_order_makes_no_difference():
    reversed_members = Shape(tuple(reversed(WHOLE.columns)))
    for known in (history(CREATE), SchemaHistory()):
        resolver = SchemaResolver(known)
        assert resolver.resolve(row(reversed_members)) is resolver.resolve(row(WHOLE))


def test_a_column_whose_declared_type_the_wire_contradicts_is_typed_by_the_wire():
    stale = history("CREATE TABLE `t` (`id` BIGINT UNSIGNED PRIMARY KEY, `s` VARBINARY(9), `d` DOUBLE, `e` ENUM('x'))")
    resolved = SchemaResolver(stale).resolve(row(WHOLE))
    assert types(resolved) == {"id": "bigint", "s": "varchar", "d": "decimal", "e": "enum('x')"}
    assert undeclared(resolved) == ["id", "s", "d"]
    assert not resolved.declared


def test_a_column_the_definition_does_not_have_comes_last_by_name_of_the_wire():
    resolved = SchemaResolver(history("CREATE TABLE `t` (`id` BIGINT PRIMARY KEY)")).resolve(row(WHOLE))
    assert list(types(resolved)) == ["id", "d", "e", "s"]
    assert undeclared(resolved) == ["d", "e", "s"]


def test_types_that_the_wire_does_not_tell_apart_agree():
    close = history("CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `s` CHAR(9), `d` DECIMAL(5,2) UNSIGNED, `e` ENUM('x'))")
    assert SchemaResolver(close).resolve(row(WHOLE)).declared


def test_virtual_columns_are_left_out_even_where_a_protocol_sends_them():
    shape = Shape((*WHOLE.columns, wire("v", "int")))
    resolved = SchemaResolver(history(CREATE, "ALTER TABLE `t` ADD COLUMN `v` INT AS (1) VIRTUAL")).resolve(row(shape))
    assert "v" not in types(resolved)
    assert resolved.virtual == {"v"}
    assert resolved.declared


def test_names_that_differ_in_letter_case_are_the_wires():
    shape = Shape((wire("ID", "bigint", key=True), wire("S", "varchar")))
    resolved = SchemaResolver(history("CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `s` VARCHAR(9))")).resolve(row(shape))
    assert types(resolved) == {"ID": "bigint", "S": "varchar(9)"}


def test_a_row_is_typed_by_the_definition_of_its_commit_ts():
    resolver = SchemaResolver(history(CREATE, "ALTER TABLE `t` MODIFY `d` DECIMAL(20,6)"))
    before, after = (resolver.resolve(row(WHOLE, commit_ts=ts)) for ts in (11, 12))
    assert [types(resolved)["d"] for resolved in (before, after)] == ["decimal(12,4)", "decimal(20,6)"]
    assert before.version != after.version


def test_a_row_without_commit_ts_has_no_place_in_the_history():
    assert not SchemaResolver(history(CREATE)).resolve(row(WHOLE, commit_ts=None)).declared


def test_the_version_names_the_form_of_rows_not_its_moment_or_defaults():
    resolver = SchemaResolver(history(CREATE, "ALTER TABLE `t` ALTER COLUMN `d` SET DEFAULT 2"))
    first, second = (resolver.resolve(row(WHOLE, commit_ts=ts)) for ts in (11, 12))
    assert first.version == second.version == version_of(first.schema)
    assert len(first.version) == 16
    assert first.schema.columns == second.schema.columns


def carried(*names, key=("id",)):
    """A shape that came with its table's definition."""
    types = {"id": "bigint", "s": "varchar", "v": "int"}
    columns = [
        DefinedColumn(name, ColumnType(base, declared=True), nullable=name != "id") for name, base in types.items()
    ]
    indexes = (Index(PRIMARY, ("id",), unique=True), Index("u", ("s",), unique=True), Index("g", ("v",), unique=True))
    definition = TableDefinition(TableName("shop", "t"), tuple(columns), indexes, valid_from=7)
    found = (WireColumn(name, ColumnType(types[name], declared=True), name in key, list) for name in names)
    return Shape(tuple(found), definition)


def test_a_definition_that_came_with_the_row_types_it_whatever_the_history_says():
    resolved = SchemaResolver(history(CREATE)).resolve(row(carried("s", "id")))
    assert [column.name for column in resolved.schema.columns] == ["id", "s"]
    assert [column.nullable for column in resolved.schema.columns] == [False, True]
    assert resolved.declared
    assert resolved.schema.handle_key == ("id",)
    assert resolved.schema.unique_keys == (("id",), ("s",))
    assert resolved.schema.valid_from == 7


def test_virtual_columns_that_came_with_their_definition_are_left_out() -> None:
    virtual = CREATE.replace("`e` ENUM('x','y')", "`v` INT AS (`id` + 1) VIRTUAL")
    sent = row(carried("s", "id", "v"))
    resolved = SchemaResolver(history(virtual)).resolve(sent)
    assert [column.name for column in resolved.schema.columns] == ["id", "s"]
    assert resolved.virtual == {"v"}
    assert resolved.version == SchemaResolver(history(virtual)).resolve(row(carried("s", "id"))).version
    (converted,) = rows_to_batches([sent], resolved, "UTC")
    assert not converted.bad
    assert "v" in types(SchemaResolver(SchemaHistory()).resolve(sent))


def test_hidden_columns_that_came_with_their_definition_are_left_out() -> None:
    shape = carried("s", "id", "v")
    hidden = msgspec.structs.replace(shape.definition.columns[2], name="_V$_i_0", generated="virtual")
    definition = msgspec.structs.replace(shape.definition, columns=(*shape.definition.columns[:2], hidden))
    columns = (*shape.columns[:2], shape.columns[2]._replace(name="_V$_i_0"))
    resolved = SchemaResolver(SchemaHistory()).resolve(row(Shape(columns, definition)))
    assert [column.name for column in resolved.schema.columns] == ["id", "s"]
    assert resolved.virtual == {"_V$_i_0"}


def test_a_key_that_came_with_its_definition_shares_the_version_of_whole_rows():
    virtual = CREATE.replace("`e` ENUM('x','y')", "`v` INT AS (`id` + 1) VIRTUAL")
    resolver = SchemaResolver(history(virtual))
    whole = resolver.resolve(row(carried("s", "id")))
    assert resolver.resolve(row(before=carried("id"), partial=True)) is whole
    assert whole.version == SchemaResolver(SchemaHistory()).resolve(row(carried("s", "id"))).version
