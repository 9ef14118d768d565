"""The query for the versions of one row in a lake table, for a person who has Spark."""

from collections.abc import Mapping

import pyarrow as pa

from ticdc_replay.changelog.cells.written import WrittenCell
from ticdc_replay.targets.lake.dialect import lake_dialect, listed, literal, quoted
from ticdc_replay.targets.lake.section import LakeSection
from ticdc_replay.targets.lake.types import spark_type


def how_to_look(config: LakeSection, name: str, columns: list[str], key: Mapping[str, WrittenCell]) -> str:
    """What tells a person to look for *columns* of the rows with *key* in the table with the SQL *name*; empty if no row can
    have the key, as no type holds it."""
    if any(cell.exact is not None for cell in key.values()):
        return ""
    fit_column = lake_dialect(config.database).fit_column
    same_row = " AND ".join(f"{quoted(fit_column(column))} = {_literal(cell)}" for column, cell in key.items())
    return f"its tables can be looked at with Spark only; run: SELECT {listed(columns)} FROM {name} WHERE {same_row}"


def _literal(cell: WrittenCell) -> str:
    value = cell.array[0].as_py()
    text = value.isoformat() if pa.types.is_temporal(cell.array.type) else str(value)
    return literal(text, cell.type, cell.array, spark_type(cell.type))
