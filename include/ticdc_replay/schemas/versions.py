"""Table definitions by version: what rows of Simple refer to instead of saying their columns' types."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from ticdc_replay.domain.definition import DefinedColumn, TableDefinition
from ticdc_replay.domain.tables import TableName


class TableVersions:
    """Table definitions by (schema, table, version), as rows of Simple name them; immutable.

    The version of a definition is its ``valid_from``. Names count in their exact spelling, as the wire repeats them. Of
    several definitions of one version that type rows alike the first counts: TiCDC may send the columns in another
    order later. Others are of two tables that have had the name, by a RENAME, and share a version, as all tables of one
    restore may: which table a row is of is unknown.
    """

    def __init__(self, definitions: Iterable[TableDefinition] = ()) -> None:
        self._definitions: dict[tuple[str, str, int], list[TableDefinition]] = {}
        for definition in definitions:
            name = definition.name
            known = self._definitions.setdefault((name.schema, name.table, definition.valid_from), [])
            if definition not in known and all(_difference(each, definition) is not None for each in known):
                known.append(definition)

    def find(self, schema: str, table: str, version: int) -> TableDefinition | None:
        """The definition that rows of *version* have, the first one where it is ambiguous, None where it is not known."""
        known = self._definitions.get((schema, table, version))
        return known[0] if known else None

    def why_ambiguous(self, schema: str, table: str, version: int) -> str | None:
        """In what definitions of *version* differ, so that rows of it can't be typed; None where they do not."""
        known = self._definitions.get((schema, table, version), ())
        return _difference(known[0], known[1]) if len(known) > 1 else None

    def with_definitions(self, definitions: Iterable[TableDefinition]) -> "TableVersions":
        """These and *definitions*."""
        return TableVersions(chain(*self._definitions.values(), definitions))

    def __iter__(self) -> Iterator[TableDefinition]:
        """In the order of table and version; those of one version as they came."""
        return chain.from_iterable(self._definitions[key] for key in sorted(self._definitions))

    def __bool__(self) -> bool:
        return bool(self._definitions)


class MissingVersion(NamedTuple):
    """A version that rows name and that is not defined yet."""

    name: TableName
    version: int


def _difference(one: TableDefinition, other: TableDefinition) -> str | None:
    """In what rows of *one* and of *other* are typed otherwise; None where they are typed alike, whatever else differs."""
    if one.columns == other.columns and one.indexes == other.indexes:
        return None
    columns, others = ({column.name: column for column in each.columns} for each in (one, other))
    for name in dict.fromkeys((*columns, *others)):
        form, other_form = _form(columns.get(name)), _form(others.get(name))
        if form != other_form:
            return f"column `{name}` is {form} in one, {other_form} in another"
    if one.handle_key() != other.handle_key():
        return f"the handle key is {_listed(one.handle_key())} in one, {_listed(other.handle_key())} in another"
    return None


def _form(column: DefinedColumn | None) -> str:
    if column is None:
        return "missing"
    return f"{column.type}{'' if column.nullable else ' NOT NULL'}{f' {column.generated}' if column.generated else ''}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
