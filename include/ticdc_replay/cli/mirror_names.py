"""The mirror and the table that a verb names."""

from typing import Annotated

import typer

from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tables import TableName
from ticdc_replay.stages.context import ReplayContext

UpstreamTable = Annotated[str, typer.Argument(help="The upstream's table: schema.table", metavar="TABLE")]
Mirror = Annotated[
    str | None, typer.Option("--target", help="The target's name, where the pipeline has several mirrors")
]


def mirror_name(context: ReplayContext, name: str | None) -> str:
    """*name*, or the pipeline's only mirror. Raises ConfigError if it has several, or none."""
    if name is not None:
        return name
    found = [target.name for target in context.pipeline.targets if target.is_mirror]
    if len(found) != 1:
        raise ConfigError(f"--target: name one of the pipeline's mirrors: {', '.join(found) or 'it has none'}")
    return found[0]


def table_name(text: str) -> TableName:
    """The table in *text*, ``schema.table``. Raises ConfigError for another form."""
    schema, dot, name = text.partition(".")
    if not (schema and dot and name):
        raise ConfigError(f"{text!r} is not of the form schema.table")
    return TableName(schema, name)
