"""How the definitions of tables changed over time: which one holds at a commitTs."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from ticdc_replay.domain.definition import PRIMARY, TableDefinition
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableSchema, folded
from ticdc_replay.domain.tso import MAX_TSO
from ticdc_replay.schemas import document
from ticdc_replay.schemas.ddl.reader import TableKey, key_of
from ticdc_replay.schemas.epochs import Epoch, replay
from ticdc_replay.schemas.versions import TableVersions

_after = attrgetter("after")
_start = itemgetter(0)


class KnownTable(msgspec.Struct, frozen=True):
    """What is known of a table for a span of its history. ``virtual`` names the columns TiCDC does not send.

    ``schema.valid_from`` is the commitTs of the DDL that gave rows this form: comments, plain indexes and the like leave
    it alone.
    """

    schema: TableSchema
    virtual: tuple[str, ...] = ()
    from_ddl: bool = False
    """As ``TableDefinition`` has it."""
    has_primary_key: bool = False
    partial_keys: frozenset[tuple[str, ...]] = frozenset()
    """As ``TableDefinition.partial_keys`` has them."""


class SchemaHistory:
    """Definitions of tables over time; immutable. Names are matched in any letter case, as TiDB does.

    A DDL of commitTs T holds for rows with commitTs > T: rows of T itself were sent before it. The same epochs
    and DDLs give the same history, in any order and however often they come.
    """

    def __init__(
        self, base: Iterable[Epoch] = (), ddls: Iterable[DdlEvent] = (), versions: TableVersions | None = None
    ) -> None:
        """*base* are epochs known from elsewhere: they win over a DDL of the same commitTs, which made them.

        *versions* are definitions that came over the wire with a version of their own (Simple). They stand beside the epochs.
        """
        self.versions = versions if versions is not None else TableVersions()
        self._base = {(key_of(epoch.name), epoch.after): epoch for epoch in base}
        self._ddls = {(ddl.commit_ts, ddl.schema, ddl.table, ddl.query): ddl for ddl in ddls}
        self.epochs: tuple[Epoch, ...] = replay(self._base, (self._ddls[each] for each in sorted(self._ddls)))
        """The whole history, by time: what to keep for later windows and to ship to executors."""
        self._spans: dict[TableKey, list[tuple[int, KnownTable | None]]] = {}
        """Of the tables that were asked for: others may be many, and have many columns."""
        self._definitions: dict[TableKey, list[Epoch]] = {}
        for epoch in self.epochs:
            self._definitions.setdefault(key_of(epoch.name), []).append(epoch)
        self.has_unread = any(epoch.unread is not None for epoch in self.epochs)
        """Whether ``unread_at`` names anything for any row."""
        self._has_dropped = any(epoch.dropped for epoch in self.epochs)
        self._spelled: dict[tuple[str, str], list[tuple[int, KnownTable | None]]] = {}
        self._spelled_definitions: dict[tuple[str, str], list[Epoch]] = {}

    def with_epochs(self, epochs: Iterable[Epoch]) -> "SchemaHistory":
        """This history and *epochs*, for instance those of earlier windows."""
        return SchemaHistory([*self._base.values(), *epochs], self._ddls.values(), self.versions)

    def with_ddls(self, ddls: Iterable[DdlEvent]) -> "SchemaHistory":
        """This history and *ddls*, copies included."""
        return SchemaHistory(self._base.values(), [*self._ddls.values(), *ddls], self.versions)

    def with_versions(self, definitions: Iterable[TableDefinition]) -> "SchemaHistory":
        """This history and *definitions* that came over the wire."""
        return SchemaHistory(self._base.values(), self._ddls.values(), self.versions.with_definitions(definitions))

    def since(self, commit_ts: int) -> "SchemaHistory":
        """The part of this history that rows of *commit_ts* (TSO) and later need."""
        needed: dict[TableKey, list[Epoch]] = {}
        for epoch in self.epochs:
            epochs = needed.setdefault(key_of(epoch.name), [])
            if epoch.after < commit_ts:
                epochs.clear()
            epochs.append(epoch)
        return SchemaHistory((epoch for epochs in needed.values() for epoch in epochs), versions=self.versions)

    def known_at(self, schema: str, table: str, commit_ts: int) -> KnownTable | None:
        """What is known of a table for a row of *commit_ts* (TSO); the same object for the same span. Cheap per row."""
        spans = self._spans_of(schema, table)
        if spans and spans[-1][0] < commit_ts:  # most rows are later than the last DDL
            return spans[-1][1]
        at = bisect_left(spans, commit_ts, key=_start)
        return spans[at - 1][1] if at else None

    def all_known(self, schema: str, table: str) -> Iterator[KnownTable]:
        """All that was ever known of a table."""
        return (known for _, known in self._spans_of(schema, table) if known is not None)

    def is_one_span(self, schema: str, table: str, first_ts: int, last_ts: int) -> bool:
        """Whether the same is known of a table for all rows from *first_ts* to *last_ts* (TSO)."""
        spans = self._spans_of(schema, table)
        return bisect_left(spans, first_ts, key=_start) == bisect_left(spans, last_ts, key=_start)

    def span_at(self, schema: str, table: str, commit_ts: int) -> tuple[int, int]:
        """The first and the last commitTs (TSO) around *commit_ts* for whose rows the same is known of a table."""
        spans = self._spans_of(schema, table)
        at = bisect_left(spans, commit_ts, key=_start)
        return (spans[at - 1][0] + 1 if at else 0, spans[at][0] if at < len(spans) else MAX_TSO)

    def _spans_of(self, schema: str, table: str) -> list[tuple[int, KnownTable | None]]:
        spans = self._spelled.get((schema, table))
        if spans is None:
            key = folded(schema), folded(table)
            spans = self._spans.get(key)
            if spans is None:
                spans = self._spans[key] = []
                for epoch in self._definitions.get(key, ()):
                    spans.append((epoch.after, _known(epoch.definition, spans[-1][1] if spans else None)))
            self._spelled[schema, table] = spans
        return spans

    def definition_at(self, schema: str, table: str, commit_ts: int) -> TableDefinition | None:
        """A table's definition for a row of *commit_ts* (TSO), None where it is not known. Cheap per row, as ``known_at``.

        It says more than ``known_at``, and is another object also after changes that leave the form of rows alone.
        """
        epoch = self._epoch_at(schema, table, commit_ts)
        return epoch.definition if epoch is not None else None

    def unread_at(self, schema: str, table: str, commit_ts: int) -> str | None:
        """The unread message that may hold DDL, so that a row of *commit_ts* (TSO) can't be typed; mostly None."""
        epoch = self._epoch_at(schema, table, commit_ts) if self.has_unread else None
        return epoch.unread if epoch is not None else None

    def dropped_at(self, schema: str, table: str, commit_ts: int) -> int | None:
        """When (TSO) a table was dropped that is not there for a row of *commit_ts* (TSO), by its DDL; mostly None."""
        epoch = self._epoch_at(schema, table, commit_ts) if self._has_dropped else None
        return epoch.after if epoch is not None and epoch.dropped else None

    def _epoch_at(self, schema: str, table: str, commit_ts: int) -> Epoch | None:
        epochs = self._spelled_definitions.get((schema, table))
        if epochs is None:
            epochs = self._definitions.get((folded(schema), folded(table)), [])
            self._spelled_definitions[schema, table] = epochs
        at = bisect_left(epochs, commit_ts, key=_after)
        return epochs[at - 1] if at else None

    def encode(self) -> bytes:
        """Epochs and versions as canonical JSON: equal histories give equal bytes."""
        return document.encode(self.epochs, self.versions)

    @classmethod
    def decode(cls, content: bytes) -> "SchemaHistory":
        """A history from what ``encode`` made. Raises msgspec.ValidationError with the path inside the document."""
        epochs, versions = document.decode(content)
        return cls(epochs, versions=TableVersions(versions))

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self.epochs) or bool(self.versions)

    def __reduce__(self) -> tuple[Any, ...]:
        return SchemaHistory, (self.epochs, (), self.versions)


def _known(definition: TableDefinition | None, before: KnownTable | None) -> KnownTable | None:
    if definition is None:
        return None
    has_primary_key = any(index.name == PRIMARY for index in definition.indexes)
    known = KnownTable(
        definition.schema(), definition.virtual(), definition.from_ddl, has_primary_key, definition.partial_keys()
    )
    if before is None:
        return known
    schema = msgspec.structs.replace(known.schema, valid_from=before.schema.valid_from)
    same_form = msgspec.structs.replace(known, schema=schema)
    return before if same_form == before else known
