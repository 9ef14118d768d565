"""What comes over the wire with a version is kept for later windows."""

import msgspec

from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import definition_from_sql
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.schemas import all_schemas
from ticdc_replay.stages.window.versions import record_versions


def definition(columns: str, version: int = 7) -> TableDefinition:
    found = definition_from_sql(TableName("shop", "t"), f"CREATE TABLE `t` ({columns})")
    return msgspec.structs.replace(found, valid_from=version)


def test_a_version_that_a_later_window_shows_to_be_ambiguous_is_so_for_all_that_follow(context: ReplayContext) -> None:
    text, number = definition("`id` INT PRIMARY KEY, `v` TEXT"), definition("`id` INT PRIMARY KEY, `v` INT")
    other_order = definition("`v` TEXT, `id` INT PRIMARY KEY")
    alone = definition("`id` INT PRIMARY KEY", 8)
    record_versions(context, [text, alone])
    record_versions(context, [other_order])
    assert context.state.table_versions.all(context.pipeline.name) == [text, alone]
    record_versions(context, [number])
    record_versions(context, [text])
    assert context.state.table_versions.all(context.pipeline.name) == [text, number, alone]
    assert all_schemas(context).versions.why_ambiguous("shop", "t", 7) is not None
    assert all_schemas(context).versions.why_ambiguous("shop", "t", 8) is None
