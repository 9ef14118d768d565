"""How rows of one form are read: what schema block, key and definition say together."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ticdc_replay.codecs.avro.schema import SchemaError
from ticdc_replay.codecs.debezium.cells import Cells, cells_of
from ticdc_replay.codecs.debezium.compiled import Doubtful, compile_doubts
from ticdc_replay.codecs.debezium.json import Document
from ticdc_replay.codecs.debezium.modes import BY_DEFAULT, Modes
from ticdc_replay.codecs.debezium.schema import ConnectField, key_names, value_fields
from ticdc_replay.codecs.errors import MessageError
from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.events import Shape, WireColumn
from ticdc_replay.domain.limits import refused_columns


class RowPlan(NamedTuple):
    """All that rows with the same columns, types and key have in common. Interned, so that their shape is one object."""

    shape: Shape
    cells: tuple[Cells, ...]
    key: tuple[int, ...]
    """Positions of the columns that the key repeats."""
    doubtful_before: Doubtful
    doubtful_after: Doubtful


def plan_of(
    names: Sequence[str],
    fields: Mapping[str, ConnectField] | None,
    handle_key: tuple[str, ...],
    definition: TableDefinition | None,
    zone: str,
    modes: Modes = BY_DEFAULT,
) -> RowPlan:
    """How rows with the columns *names* are read, which *fields* tell of and *definition* defines.

    Raises SchemaError, and MessageError for columns that no table has.
    """
    refusal = refused_columns(names)
    if refusal is not None:
        raise MessageError(*refusal)
    cells = []
    for name in names:
        defined = definition.column(name) if definition is not None else None
        field = None if fields is None else fields[name]
        cells.append(cells_of(field, defined, name in handle_key, zone, modes))
    shape = Shape(
        tuple(
            WireColumn(name, column.type, name in handle_key, column.neutral, ambiguous=column.ambiguous)
            for name, column in zip(names, cells, strict=True)
        )
    )
    return RowPlan(
        shape,
        tuple(cells),
        tuple(names.index(name) for name in handle_key),
        compile_doubts(names, cells, "before"),
        compile_doubts(names, cells, "after"),
    )


def fields_of(
    document: Document, names: Sequence[str], definition: TableDefinition | None
) -> dict[str, ConnectField] | None:
    """The columns *names* as the schema block describes them; None without schema block. Raises MessageError."""
    if document.schema is None:
        return None
    try:
        fields, repeated = value_fields(document.schema)
    except SchemaError as error:
        raise MessageError("bad_schema", str(error)) from None
    unknown = [name for name in names if name not in fields]
    if unknown:
        raise MessageError("bad_value", f"columns that the schema lacks: {', '.join(map(repr, unknown))}")
    for name in fields.keys() - set(names) - repeated:
        # Virtual columns are in the schema, but have no values; classic TiCDC does not list them twice.
        column = definition.column(name) if definition is not None else None
        if column is not None and column.generated != "virtual":
            raise MessageError("bad_value", f"column {name!r} of the schema has no value")
    return {name: fields[name] for name in names}


def handle_key_of(
    document: Document | None, names: Sequence[str], definition: TableDefinition | None, drops_columns: bool
) -> tuple[str, ...]:
    """The columns of the handle key: those of the key, or of *definition* where old releases send none. Raises MessageError.

    None where a column selector *drops_columns* of it: new TiCDC drops them from the value alone.
    """
    if document is None:
        found = definition.handle_key() if definition is not None else ()
        return found if set(found) <= set(names) else ()
    found = tuple(document.payload)
    if document.schema is not None:
        try:
            listed = key_names(document.schema)
        except SchemaError as error:
            raise MessageError("bad_key", f"key: {error}") from None
        if set(listed) != set(found):
            raise MessageError("bad_key", f"key: columns {', '.join(found)}, but the schema has {', '.join(listed)}")
    unknown = [name for name in found if name not in names]
    if unknown and drops_columns:
        return ()
    if unknown:
        raise MessageError("key_mismatch", f"the key has columns that the value lacks: {', '.join(map(repr, unknown))}")
    return found
