"""A history of tables as a document: what definitions share stands in it once, so that it grows as the DDL does.

A CREATE TABLE LIKE, or an ALTER of one column, is short, and what it defines may have a thousand columns. A definition is
therefore written in pieces: columns of its own, and runs of columns of a definition before it.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from ticdc_replay.domain import canonical
from ticdc_replay.domain.definition import DefinedColumn, Index, TableDefinition
from ticdc_replay.domain.limits import refused_types
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.epochs import Epoch, believable

Part = TypeVar("Part", DefinedColumn, Index)

_Run = tuple[int, int, int]
"""The number of a definition, the first of its columns (or indexes) that are meant, and how many."""


class _Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    name: TableName
    columns: tuple[_Run | DefinedColumn, ...]
    indexes: tuple[_Run | Index, ...] = ()
    binary: bool = False
    valid_from: int = 0
    from_ddl: bool = False


class _Epoch(msgspec.Struct, frozen=True, omit_defaults=True):
    name: TableName
    after: int
    definition: int | TableDefinition | None = None
    """Its number; in documents of earlier versions the definition itself."""
    unparsed: str | None = None
    unread: str | None = None
    dropped: bool = False


class _Document(msgspec.Struct, frozen=True):
    epochs: tuple[_Epoch, ...]
    versions: tuple[int | TableDefinition, ...]
    definitions: tuple[_Definition, ...] = ()


def encode(epochs: Iterable[Epoch], versions: Iterable[TableDefinition]) -> bytes:
    """*epochs* and *versions* as canonical JSON: equal ones give equal bytes."""
    definitions = _Definitions()
    document = _Document(
        tuple(
            _Epoch(
                epoch.name,
                epoch.after,
                None if epoch.definition is None else definitions.number(epoch.definition),
                epoch.unparsed,
                epoch.unread,
                epoch.dropped,
            )
            for epoch in epochs
        ),
        tuple(definitions.number(definition) for definition in versions),
        tuple(definitions.found),
    )
    return canonical.encode(document)


def decode(content: bytes) -> tuple[list[Epoch], list[TableDefinition]]:
    """What ``encode`` was given, without definitions that have types of no table (``epochs.believable``).

    Raises msgspec.ValidationError, with the path inside the document if it is known.
    """
    document = msgspec.json.decode(content, type=_Document)
    definitions: list[TableDefinition] = []
    columns: list[tuple[DefinedColumn, ...]] = []
    indexes: list[tuple[Index, ...]] = []
    doubtful = False
    try:
        for each in document.definitions:
            columns.append(_whole(each.columns, columns))
            indexes.append(_whole(each.indexes, indexes))
            definitions.append(
                TableDefinition(each.name, columns[-1], indexes[-1], each.binary, each.valid_from, each.from_ddl)
            )
            own = (column for column in each.columns if isinstance(column, DefinedColumn))
            doubtful = doubtful or refused_types(own) is not None
        epochs = [
            Epoch(
                each.name,
                each.after,
                definitions[each.definition] if isinstance(each.definition, int) else each.definition,
                each.unparsed,
                each.unread,
                each.dropped,
            )
            for each in document.epochs
        ]
        versions = [definitions[each] if isinstance(each, int) else each for each in document.versions]
    except IndexError:
        raise msgspec.ValidationError("a definition is named that is not in the document") from None
    if doubtful or not document.definitions:
        return list(map(believable, epochs)), [each for each in versions if refused_types(each.columns) is None]
    return epochs, versions


class _Definitions:
    """Definitions in pieces, each with a number."""

    def __init__(self) -> None:
        self.found: list[_Definition] = []
        self._columns: dict[DefinedColumn, tuple[int, int]] = {}
        """Where each column stands last: the number of a definition, and the place in it."""
        self._indexes: dict[Index, tuple[int, int]] = {}

    def number(self, definition: TableDefinition) -> int:
        """The number of *definition*, which is added."""
        number = len(self.found)
        columns = _pieces(definition.columns, self._columns, number)
        indexes = _pieces(definition.indexes, self._indexes, number)
        self.found.append(
            _Definition(
                definition.name, columns, indexes, definition.binary, definition.valid_from, definition.from_ddl
            )
        )
        return number


def _pieces(parts: Sequence[Part], places: dict[Part, tuple[int, int]], number: int) -> tuple[_Run | Part, ...]:
    """*parts* of the definition *number*; *places* has where each stood last; it is updated."""
    pieces: list[_Run | Part] = []
    for part in parts:
        place: tuple[int, int] | None = places.get(part)
        if place is None:
            pieces.append(part)
            continue
        last = pieces[-1] if pieces else None
        if isinstance(last, tuple) and (last[0], last[1] + last[2]) == place:
            pieces[-1] = (last[0], last[1], last[2] + 1)
        else:
            pieces.append((place[0], place[1], 1))
    places.update((part, (number, at)) for at, part in enumerate(parts))
    return tuple(pieces)


def _whole(pieces: Sequence[_Run | Part], known: Sequence[tuple[Part, ...]]) -> tuple[Part, ...]:
    if len(pieces) == 1 and isinstance(pieces[0], tuple) and pieces[0][1:] == (0, len(known[pieces[0][0]])):
        return known[pieces[0][0]]
    parts: list[Part] = []
    for piece in pieces:
        if isinstance(piece, tuple):
            number, start, count = piece
            parts += known[number][start : start + count]
        else:
            parts.append(piece)
    return tuple(parts)
