"""What DDLs make of tables, commitTs after commitTs: the epochs of their history."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, MutableMapping
from heapq import heappop, heappush
from typing import TypeVar

import msgspec

from ticdc_replay.domain.definition import TableDefinition
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.limits import refused_types
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.ddl.reader import ParsedDdl, TableKey, Tables, UnparsedDdl, key_of

_Value = TypeVar("_Value")


class Epoch(msgspec.Struct, frozen=True, omit_defaults=True):
    """A span of a table's history: *definition* holds for rows with commitTs > ``after`` (TSO) until the next epoch.

    Without a definition nothing is known of the table from there on: it was dropped, or ``unparsed`` says which DDL
    could not be understood and why, or ``unread`` which message that may hold DDL could not be read. In the last case it is not
    known whether the table changed at all, and rows are not typed before that is known.
    """

    name: TableName
    after: int
    definition: TableDefinition | None = None
    unparsed: str | None = None
    unread: str | None = None
    dropped: bool = False
    """Whether the last DDL of the table, as far as it is known, dropped it: then it has no rows."""


def believable(epoch: Epoch) -> Epoch:
    """*epoch*, without its definition where that has types of no table: earlier versions of the library took any."""
    refusal = None if epoch.definition is None else refused_types(epoch.definition.columns)
    if refusal is None:
        return epoch
    return Epoch(epoch.name, epoch.after, unparsed=f"a definition that an earlier version took: {refusal[1]}")


def replay(base: Mapping[tuple[TableKey, int], Epoch], ddls: Iterable[DdlEvent]) -> tuple[Epoch, ...]:
    """The epochs that *ddls*, each once and in the order of their texts, begin, and those of *base*, by time.

    An epoch of *base* wins over a DDL of the same commitTs, which made it.
    """
    given: dict[int, list[Epoch]] = {}
    for epoch in base.values():
        given.setdefault(epoch.after, []).append(epoch)
    executed: dict[int, list[DdlEvent]] = {}
    for ddl in ddls:
        executed.setdefault(ddl.commit_ts, []).append(ddl)
    tables = Tables()
    unread: dict[TableKey, str] = {}
    dropped: dict[TableKey, TableName] = {}
    seen: set[TableKey] = set()
    epochs: list[Epoch] = []
    for moment in sorted({*given, *executed}):
        changed = _Moment(tables, unread, dropped).run(executed.get(moment, []))
        changed = {key: epoch for key, epoch in changed.items() if key in seen or _says_anything(epoch)}
        changed |= {key_of(epoch.name): epoch for epoch in given.get(moment, [])}
        for key, epoch in changed.items():
            keep(tables, key, epoch.definition)
            keep(unread, key, epoch.unread)
            keep(dropped, key, epoch.name if epoch.dropped else None)
        seen.update(changed)  # ``|=`` with the keys of a dict copies the set
        epochs += [changed[key] for key in sorted(changed)]
    return tuple(epochs)


def keep(known: MutableMapping[TableKey, _Value], key: TableKey, value: _Value | None) -> None:
    """Let *known* have *value* at *key*; nothing if it is None."""
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value


def _says_anything(epoch: Epoch) -> bool:
    return epoch.definition is not None or epoch.unparsed is not None or epoch.unread is not None or epoch.dropped


class _Rename:
    """A RENAME TABLE that waits: how many of its sources there are, and how many of those have a target that is taken."""

    __slots__ = ("blocked", "ddl", "number", "sources")

    def __init__(self, number: int, ddl: ParsedDdl, tables: Tables) -> None:
        self.number = number
        self.ddl = ddl
        there = [target for source, target in ddl.renames if source in tables]
        self.sources = len(there)
        self.blocked = sum(target in tables for target in there)

    @property
    def can_run(self) -> bool:
        return self.sources > 0 and not self.blocked


class _Moment:
    """The DDLs of one commitTs, as they are run on *tables*; *unread* has why nothing is known of others. Both are changed.

    *dropped* are the tables whose last DDL was a DROP. Any other DDL that names one shows that it is there again, though nobody
    said how: of a table without key TiCDC sends no CREATE TABLE.

    One RENAME TABLE a TO c, b TO a comes as two DDLs of one commitTs, in an order the wire does not keep. A rename can
    only have been run when its source existed and its target did not, which gives the order back: the first in the order of
    *ddls* that can run is next, and where none can, the first of all. Each text is read once, and what waits is looked at
    only where a table that it names comes or goes, so that many take no longer.
    """

    def __init__(self, tables: Tables, unread: dict[TableKey, str], dropped: Mapping[TableKey, TableName]) -> None:
        self._tables = tables
        self._unread = unread
        self._dropped = dropped
        self._changed: dict[TableKey, Epoch] = {}
        self._waiting: dict[int, _Rename] = {}
        self._by_source: defaultdict[TableKey, list[tuple[_Rename, TableKey]]] = defaultdict(list)
        """The renames that wait with a table as a source of theirs, each with the target."""
        self._by_target: defaultdict[TableKey, list[tuple[_Rename, TableKey]]] = defaultdict(list)
        self._possible: list[int] = []
        """Numbers of those that may be able to run now: a heap."""

    def run(self, ddls: Iterable[DdlEvent]) -> dict[TableKey, Epoch]:
        """Run *ddls*; the epochs that they begin."""
        for number, ddl in enumerate(map(ParsedDdl, ddls)):
            rename = _Rename(number, ddl, self._tables)
            if ddl.renames and not rename.can_run:
                self._wait(rename)
            else:
                self._run(ddl)
        for number in list(self._waiting):
            if number in self._waiting:
                self._run(self._waiting.pop(number).ddl)
        return self._changed

    def _wait(self, rename: _Rename) -> None:
        self._waiting[rename.number] = rename
        for source, target in rename.ddl.renames:
            self._by_source[source].append((rename, target))
            if target != source:
                self._by_target[target].append((rename, source))

    def _run(self, ddl: ParsedDdl) -> None:
        """Run *ddl*, and of those that wait each that can run then, the first of them first."""
        self._apply(ddl)
        while self._possible:
            rename = self._waiting.get(heappop(self._possible))
            if rename is not None and rename.can_run:
                del self._waiting[rename.number]
                self._apply(rename.ddl)

    def _apply(self, ddl: ParsedDdl) -> None:
        for epoch in self._epochs(ddl):
            key = key_of(epoch.name)
            self._changed[key] = epoch
            was_there = key in self._tables
            keep(self._unread, key, epoch.unread)
            keep(self._tables, key, epoch.definition)
            if self._waiting and was_there is not (epoch.definition is not None):
                self._count(key, -1 if was_there else 1)

    def _epochs(self, ddl: ParsedDdl) -> list[Epoch]:
        outcome = ddl.apply(self._tables)
        commit_ts = ddl.event.commit_ts
        if isinstance(outcome, UnparsedDdl):
            return [Epoch(outcome.table, commit_ts, unparsed=f"{ddl.event.query[:500]}: {outcome.reason}")]
        # What is made from an unknown table is unknown for the same reason.
        reasons = {target: self._unread.get(source) for source, target in ddl.copies}
        back = [self._dropped[key] for key in ddl.names if key in self._dropped] if self._dropped else []
        epochs = [Epoch(name, commit_ts) for name in sorted(back)]
        epochs += [
            Epoch(name, commit_ts, unread=reasons.get(key_of(name)), dropped=ddl.drops(name)) for name in outcome.gone
        ]
        return epochs + [Epoch(definition.name, commit_ts, definition) for definition in outcome.defined]

    def _count(self, key: TableKey, more: int) -> None:
        """Note in what waits that the table *key* came (1) or went (-1)."""
        for renames, of_source in ((self._by_source, True), (self._by_target, False)):
            if key not in renames:
                continue
            left = renames[key] = [each for each in renames[key] if each[0].number in self._waiting]
            for rename, other in left:
                rename.sources += more if of_source else 0
                rename.blocked += more if other == key or other in self._tables else 0
                if rename.can_run:
                    heappush(self._possible, rename.number)
