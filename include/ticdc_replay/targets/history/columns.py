"""Which columns a history needs for the rows of a window, and what changes a table so that it has them."""

from collections.abc import Mapping, Sequence

from ticdc_replay.domain.errors import TargetMismatchError
from ticdc_replay.domain.tables import TableName, TableSchema
from ticdc_replay.targets.history.rows import OP, OWN
from ticdc_replay.targets.history.section import HistorySection
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.tables import (
    ChangeType,
    ColumnDefinition,
    FoundTable,
    MakeColumn,
    MirrorStep,
    Relation,
)


def require_free_names(table: TableName, schemas: Sequence[TableSchema], config: HistorySection) -> None:
    """Raise TargetMismatchError where *table* has a column with a name that the history, or its database, needs."""
    own = {name.lower() for name in (*OWN, config.commit_ts_column, *config.system_columns)}
    taken = sorted({column.name for schema in schemas for column in schema.columns if column.name.lower() in own})
    if taken:
        raise TargetMismatchError(
            f"{table}: a history needs the names of its columns {', '.join(taken)} for itself. Choose another "
            "`commit_ts_column` if it is that; else leave the table out, or load it into a parquet target"
        )


def require_history(target: Relation, found: FoundTable, commit_ts: str) -> None:
    """Raise TargetMismatchError if *found*, which has the name *target*, is no history with the column *commit_ts*."""
    if not found.is_table or not {commit_ts, *OWN} <= {column.name for column in found.columns}:
        raise TargetMismatchError(
            f"{target} is no history: it lacks columns that every one has, such as {commit_ts} and {OP}. Drop it, or give this "
            "target another `schema`"
        )


def no_view(view: Relation) -> TargetMismatchError:
    """The error for a table that has the name of a view of intervals."""
    return TargetMismatchError(
        f"{view} is there already, and is no view of a history: drop it, or give this target another `schema`"
    )


def needed(dialect: Dialect, target: Relation, schemas: Sequence[TableSchema]) -> dict[str, ColumnDefinition]:
    """The columns that rows of *schemas* need, by lower name. Raises TargetMismatchError where no type holds all."""
    found: dict[str, ColumnDefinition] = {}
    for schema in schemas:
        for column in schema.columns:
            name, type_name = dialect.fit_column(column.name), dialect.type_of(column.type)
            known = found.get(name.lower())
            if known is None or dialect.holds(type_name, known.type):
                found[name.lower()] = ColumnDefinition(known.name if known else name, type_name)
            elif not dialect.holds(known.type, type_name):
                raise _apart(target, column.name, known.type, type_name)
    return found


def steps_to(
    dialect: Dialect, target: Relation, there: Mapping[str, str], schemas: Sequence[TableSchema]
) -> list[MirrorStep]:
    """What adds the columns that rows of *schemas* bring to those that are *there*, with their types, and widens those that
    can't hold them. Columns that they lack stay.

    Raises TargetMismatchError where the types of a column can't share it.
    """
    known = {name.lower(): ColumnDefinition(name, type_name) for name, type_name in there.items()}
    steps = []
    for name, column in needed(dialect, target, schemas).items():
        old = known.get(name)
        if old is None:
            steps.append(MirrorStep(MakeColumn(column), f"add column {column.name} {column.type}"))
        elif dialect.holds(old.type, column.type):
            continue
        elif dialect.holds(column.type, old.type):
            text = f"change column {old.name} from {old.type} to {column.type}"
            steps.append(MirrorStep(ChangeType(old.name, column.type), text))
        else:
            raise _apart(target, old.name, old.type, column.type)
    return steps


def _apart(target: Relation, column: str, before: str, after: str) -> TargetMismatchError:
    return TargetMismatchError(
        f"{target}: no type holds the values of column {column} before and after a change from {before} to {after} "
        "unaltered. Load all windows from before the change; then rename the column in the table by hand, so that later rows "
        "get a new one, and load the window again"
    )
