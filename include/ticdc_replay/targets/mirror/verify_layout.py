"""Which columns of a table its source and its mirror have in common, in which order keys are compared, and what differs."""

from collections.abc import Callable

import msgspec

from ticdc_replay.domain.definition import PRIMARY, TableDefinition
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.tables import TableName, folded
from ticdc_replay.mysql_protocol import is_system_schema
from ticdc_replay.targets.mirror.comparison import Comparisons, MirrorTable
from ticdc_replay.targets.mirror.planning.dialect import Dialect
from ticdc_replay.targets.mirror.planning.tables import FoundColumn, kept_since
from ticdc_replay.targets.shape import Shape
from ticdc_replay.verify.forms import forms_of
from ticdc_replay.verify.side import ComparedColumn
from ticdc_replay.verify.source import SourceSnapshot


class Layout(msgspec.Struct, frozen=True):
    """What can be compared of a table; ``key`` are the places of the key's columns, in the order of the source's index."""

    definition: TableDefinition | None = None
    columns: tuple[ComparedColumn, ...] = ()
    key: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def can_be_compared(self) -> bool:
        """Whether both sides have the rows' key."""
        return bool(self.key)


def layout_of(
    snapshot: SourceSnapshot,
    table: TableName,
    mirror: MirrorTable,
    dialect: Dialect,
    comparisons: Comparisons,
    keeps: Callable[[str], bool],
    shape: Shape | None = None,
) -> Layout:
    """Compare the definition of *table* in *snapshot* with *mirror*; *keeps* says which columns the changefeed sends, *shape* how
    the mirror differs: columns that it leaves out, masks, casts or adds are not compared."""
    if is_system_schema(table.schema):
        return Layout(problems=(f"{table} is a table of the server's own, which is not replicated",))
    try:
        definition = snapshot.definition(table)
    except (ConfigError, UnicodeDecodeError) as error:
        return Layout(problems=(f"the definition of {table} in the source can't be read: {error}",))
    if definition is None and mirror.found is None:
        return Layout()
    if definition is None:
        return Layout(problems=(f"the source has no table {table} at this TSO, and the mirror exists",))
    if mirror.found is None or not mirror.found.is_table:
        return Layout(definition, problems=(f"there is no table {mirror.relation}",))
    columns: list[ComparedColumn] = []
    problems: list[str] = []
    left = {column.name: column for column in mirror.found.columns if not column.generated}
    for own in (mirror.version_column, mirror.state.deleted_column):
        left.pop(own or "", None)
    kept = kept_since(mirror.state.events, dialect.fit_column)
    for name in () if shape is None else shape.section.constants:
        constant = _found(left, dialect.fit_column(name))
        if constant is not None:
            del left[constant.name]
    handle_key = definition.handle_key()
    for column in definition.schema().columns:
        if shape is not None and not shape.has(column.name, handle_key):
            continue
        found = _found(left, dialect.fit_column(column.name if shape is None else shape.name_of(column.name)))
        if found is None:
            if keeps(column.name):
                problems.append(f"the mirror has no column {column.name}")
            continue
        del left[found.name]
        if found.loose:
            problems.append(f"column {found.name} of the mirror has a collation that takes different texts as equal")
            continue
        if shape is not None and not shape.treatment_of(column.name).is_plain:
            if column.name in handle_key:
                problems.append(f"key column {column.name} is masked or cast by `shape`: rows can't be compared")
            continue
        held = comparisons.forms(found.type)
        form = next((form for form in forms_of(column.type) if form in held), None)
        if form is None:
            problems.append(f"column {column.name}: {column.type} can't be compared with {found.type}")
        else:
            columns.append(ComparedColumn(column.name, found.name, column.type, column.nullable, form))
    problems += [
        f"the source has no column for {name} of the mirror" for name in sorted(left) if folded(name) not in kept
    ]
    places = {folded(column.name): at for at, column in enumerate(columns)}
    key = [places.get(folded(name)) for name in _key_of(definition)]
    at_mirror = {columns[at].mirror for at in key if at is not None}
    if not key or None in key or at_mirror != set(mirror.found.primary_key):
        named = ", ".join(_key_of(definition)) or "none"
        problems.append(
            f"the key of the source ({named}) is not that of the mirror ({', '.join(mirror.found.primary_key)})"
        )
        return Layout(definition, tuple(columns), (), tuple(problems))
    return Layout(definition, tuple(columns), tuple(at for at in key if at is not None), tuple(problems))


def _found(columns: dict[str, FoundColumn], name: str) -> FoundColumn | None:
    """The mirror's column *name*, in any letter case if there is none in this one."""
    return columns.get(name) or next((found for each, found in columns.items() if folded(each) == folded(name)), None)


def _key_of(definition: TableDefinition) -> tuple[str, ...]:
    """The handle key, in the order of the index that has it."""
    key = definition.handle_key()
    indexes = [
        index for index in definition.indexes if index.unique and index.plain and tuple(sorted(index.columns)) == key
    ]
    first = min(indexes, key=lambda index: index.name != PRIMARY, default=None)
    return key if first is None else first.columns
