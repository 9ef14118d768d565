"""The key of a row as a person gives it, as the versions of its table have it."""

from collections.abc import Iterable, Mapping, Sequence

from ticdc_replay.changelog.cells.column import typed_array
from ticdc_replay.changelog.cells.written import WrittenCell, written_cell
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.domain.events import RowEvent
from ticdc_replay.domain.failure import failure
from ticdc_replay.domain.tables import TableName, TableSchema, folded

Cells = Mapping[str, WrittenCell]
"""The cells of a handle key, by column."""


def parse(options: Sequence[str]) -> dict[str, str]:
    """Values as text by column, from options such as ``id=7``. Raises ConfigError for another form."""
    texts: dict[str, str] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not (name and equals):
            raise ConfigError(f"--key: {option!r} is not of the form column=value")
        if folded(name) in map(folded, texts):
            raise ConfigError(f"--key: column {name} is given twice")
        texts[name] = text
    return texts


class TypedKeys:
    """One key in the types of each version of its table.

    Raises ConfigError if no version is identified by its columns, or if none of these can have its values.
    """

    def __init__(self, table: TableName, texts: Mapping[str, str], schemas: Iterable[TableSchema], zone: str) -> None:
        self._texts = {folded(name): text for name, text in texts.items()}
        self._zone = zone
        self._cells: dict[TableSchema, Cells] = {}
        """By schema, the oldest first, of those that can have the key."""
        self.others: set[tuple[str, ...]] = set()
        """The handle keys of versions that are identified by other columns; () for none."""
        refused: dict[str, None] = {}
        for schema in sorted(set(schemas), key=lambda schema: schema.valid_from):
            if {*map(folded, schema.handle_key)} != set(self._texts):
                self.others.add(schema.handle_key)
                continue
            try:
                self._cells[schema] = {name: self._cell(schema, name) for name in schema.handle_key}
            except ValueError as error:
                refused[str(error)] = None
        if self._cells:
            return
        if refused:
            raise ConfigError(f"--key: {table}: {'; '.join(refused)}")
        known = sorted(self.others - {()})
        if not known:
            raise ConfigError(
                f"{table} has no key, so its rows can't be distinguished: look in the changelog by other columns"
            )
        ways = " or ".join(" ".join(f"--key {name}=…" for name in key) for key in known)
        raise ConfigError(f"{table} is not identified by {', '.join(texts) or 'nothing'}: give {ways}")

    def of(self, schema: TableSchema) -> Cells | None:
        """The key in rows of *schema*; None if they can't have it."""
        return self._cells.get(schema)

    @property
    def newest(self) -> Cells:
        """The key in the newest version of the table that can have it."""
        return list(self._cells.values())[-1]

    def is_of(self, row: RowEvent) -> bool | None:
        """Whether *row*, as a codec gives it, has the key; None if its key can't be read."""
        image = row.after if row.after is not None else row.before
        if image is None or not image.shape.handle_key:
            return None
        names = image.shape.handle_key
        if {*map(folded, names)} != set(self._texts):
            return False
        try:
            values = dict(zip(map(folded, names), image.key(), strict=True))
        except BaseException as error:
            failure(error)
            return None
        return any(
            all(self._is(cell, values[folded(name)]) for name, cell in cells.items()) for cells in self._cells.values()
        )

    def _is(self, cell: WrittenCell, value: object) -> bool:
        typed = typed_array([value], cell.type, self._zone)
        exact = typed.exact.get(0)
        return cell.is_exactly(exact) if exact is not None else bool(cell.is_in(typed.array)[0].as_py())

    def _cell(self, schema: TableSchema, name: str) -> WrittenCell:
        column = schema.column(name)
        assert column is not None, "a handle key is of the table's columns"
        try:
            return written_cell(self._texts[folded(name)], column.type, self._zone)
        except ValueError as error:
            raise ValueError(f"{name} is {column.type}: {error}") from None
