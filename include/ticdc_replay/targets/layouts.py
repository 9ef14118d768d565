"""Which layouts the rows of a table have in a window, and where: for a load that stops because they can't share a table."""

import pyarrow.parquet as pq

from ticdc_replay.changelog.copies.fold import place_of
from ticdc_replay.changelog.files.index import TableVersion
from ticdc_replay.changelog.files.parts import rows_of
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.domain.tso import describe
from ticdc_replay.targets.base import Load
from ticdc_replay.targets.files import file_errors

_SHOWN = 5
_PLACE = ["_commit_ts", "_topic", "_partition", "_offset", "_index"]


def layouts_of(load: Load, table: TableName) -> str:
    """The layouts of the rows of *table*, the rarest first, each on a new line with the place of one row; "" without
    rows. Reads a few rows of one file per layout shown."""
    versions = sorted((each for each in load.index.versions_of(table) if each.files), key=lambda each: each.rows)
    if not versions:
        return ""
    usual = versions[-1].schema
    lines = [f"\nthe rows of {table} in this window, the rarest first:"]
    for version in versions[:_SHOWN]:
        schema = version.schema
        like = (
            "" if len(versions) == 1 else ", the usual ones" if schema is usual else f", {_difference(schema, usual)}"
        )
        lines.append(f"\n- {version.rows}{like}; such as {_one_place(load, version)}")
    if len(versions) > _SHOWN:
        lines.append(f"\n- and {len(versions) - _SHOWN} more layouts")
    lines.append(
        "\nRows that are not of the upstream: name their messages in set_aside of the pipeline file, and decode the window again"
    )
    return "".join(lines)


def _difference(schema: TableSchema, usual: TableSchema) -> str:
    types = {column.name: str(column.type) for column in schema.columns}
    others = {column.name: str(column.type) for column in usual.columns}
    parts = [f"with {name} {type_}" for name, type_ in types.items() if others.get(name) != type_]
    parts += [f"without {name}" for name in others if name not in types]
    if schema.handle_key != usual.handle_key:
        parts.append(f"identified by {', '.join(schema.handle_key) or 'nothing'}")
    return ", ".join(parts) or "by another definition"


def _one_place(load: Load, version: TableVersion) -> str:
    file = min(version.files, key=lambda each: (each.min_commit_ts, each.name))
    filesystem, base = load.artifacts.open().arrow_filesystem()
    name = load.file_name(file, table=version.schema.name)
    with file_errors(f"read {name}"), pq.ParquetFile(f"{base}/{name}", filesystem=filesystem) as opened:
        row = next(rows_of(opened, file.only, _PLACE, rows=1_024)).slice(0, 1)
    commit_ts = row["_commit_ts"][0].as_py()
    return place_of(row, 0) + ("" if commit_ts is None else f" at {describe(commit_ts)}")
