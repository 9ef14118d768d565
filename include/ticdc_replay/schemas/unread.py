"""Which definitions become unknown by DDL that could not be read: those before it, until a CREATE TABLE after it."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from operator import attrgetter

import msgspec

from ticdc_replay.domain.tables import folded
from ticdc_replay.schemas.ddl.reader import TableKey, key_of
from ticdc_replay.schemas.epochs import Epoch
from ticdc_replay.schemas.history import SchemaHistory

_after, _until = attrgetter("after"), attrgetter("until")


class UnreadDdl(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """A message that may hold DDL and can't be read, or not all of it.

    What it changed, if anything, holds for no row with commitTs <= ``after``, and its own commitTs is at most ``until`` (TSO).
    """

    topic: str
    partition: int
    offset: int
    after: int
    until: int
    schema: str = ""
    table: str = ""
    """The table that it is about; "" where that could not be read: then it may be any of the topic."""

    @property
    def coordinates(self) -> str:
        """``topic[partition]@offset``."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


def forgetting(
    history: SchemaHistory,
    unread: Iterable[UnreadDdl],
    topic_of: Callable[[str, str], str | None],
    *,
    accepted_as: SchemaHistory | None = None,
) -> SchemaHistory:
    """*history* without the definitions that *unread* may have changed; ``SchemaHistory.unread_at`` then names what did.

    *topic_of* is the topic of a table's DDL, None if it is unknown. Where *unread* was accepted as lost, the tables
    are just unknown, as those whose DDL could not be understood, and after it *accepted_as* has what a person says of them.
    """
    tables: defaultdict[TableKey, list[Epoch]] = defaultdict(list)
    for epoch in history.epochs:
        tables[key_of(epoch.name)].append(epoch)
    gaps = _GapsOf(unread)
    forgotten: list[Epoch] = []
    for key, epochs in tables.items():
        name = epochs[-1].name
        topic = topic_of(name.schema, name.table)
        concerning = gaps.of(key, topic)
        forgotten += _forgotten(epochs, concerning, gaps.of_absent(key), accepted=accepted_as is not None)
        declared = None if accepted_as is None else accepted_as.definition_at(name.schema, name.table, 1)
        if declared is not None:
            forgotten += [Epoch(name, until, declared) for until in concerning.ends()]
    return history.with_epochs(forgotten) if forgotten else history


class _Gaps:
    """Messages that were not read, by when they may have committed."""

    def __init__(self, gaps: Iterable[UnreadDdl]) -> None:
        self.gaps = sorted(gaps, key=_after)
        self._last: list[UnreadDdl] = list(accumulate(self.gaps, lambda one, other: max(one, other, key=_until)))
        """Of each and those before it the one that may have committed last."""

    def around(self, commit_ts: int) -> UnreadDdl | None:
        """One that may have committed before *commit_ts* (TSO), or after it."""
        at = bisect_left(self.gaps, commit_ts, key=_after)
        return self._last[at - 1] if at and commit_ts < self._last[at - 1].until else None

    def first(self, start: int, end: int | None) -> UnreadDdl | None:
        """The first that may have committed from *start* on (TSO), if that is before *end*."""
        at = bisect_left(self.gaps, start, key=_after)
        return self.gaps[at] if at < len(self.gaps) and (end is None or self.gaps[at].after < end) else None

    def ends(self) -> list[int]:
        """From when on (TSO) none of several that overlap may have committed."""
        return [gap.until for gap in self.gaps if self.around(gap.until) is None]


class _GapsOf:
    """Which of the messages that were not read may concern a table."""

    def __init__(self, unread: Iterable[UnreadDdl]) -> None:
        self._named: defaultdict[TableKey, list[UnreadDdl]] = defaultdict(list)
        self._others: list[UnreadDdl] = []
        self._away: dict[str, int] = {}
        """From when on (TSO) a table of a topic may be gone, by a RENAME that names only what the table became."""
        for gap in unread:
            if gap.table:
                self._named[folded(gap.schema), folded(gap.table)].append(gap)
                self._away[gap.topic] = min(gap.after, self._away.get(gap.topic, gap.after))
            else:
                self._others.append(gap)
        self._of_topics: dict[str | None, _Gaps] = {}
        self._of_any = _Gaps(self._others)

    def of(self, key: TableKey, topic: str | None) -> _Gaps:
        """Those that concern the table *key*, whose DDL is sent to *topic*, None if that is unknown.

        One that names the table does so in whichever topic: a RENAME is sent to that of the old name. One that names none may be
        such a RENAME, too, once the table may be gone.
        """
        others = self._of_topics.get(topic)
        if others is None:
            away = min(self._away.values(), default=None) if topic is None else self._away.get(topic)
            others = self._of_topics[topic] = _Gaps(
                gap for gap in self._others if topic in (gap.topic, None) or (away is not None and gap.until > away)
            )
        return self._with_named(others, key)

    def of_absent(self, key: TableKey) -> _Gaps:
        """Those that may bring the table *key* back, which is not there: by CREATE, or RENAME from any topic."""
        return self._with_named(self._of_any, key)

    def _with_named(self, others: _Gaps, key: TableKey) -> _Gaps:
        named = self._named.get(key, [])
        return _Gaps([*others.gaps, *named]) if named else others


def _forgotten(epochs: list[Epoch], of_table: _Gaps, of_absent: _Gaps, *, accepted: bool) -> Iterator[Epoch]:
    """From when on nothing is known of the table with *epochs*, because of gaps."""
    for epoch, end in zip(epochs, [*(epoch.after for epoch in epochs[1:]), None], strict=True):
        if epoch.definition is None and not epoch.dropped:
            continue
        gaps = of_absent if epoch.dropped else of_table
        gap, since = gaps.around(epoch.after), epoch.after
        if gap is None:
            gap = gaps.first(epoch.after, end)
            since = gap.after if gap is not None else since
        if gap is not None and epoch.definition is None:
            yield Epoch(epoch.name, since)  # it may be there again
        elif gap is not None:
            why = f"{gap.coordinates} may hold DDL of it, and can't be read"
            yield Epoch(epoch.name, since, None, why if accepted else None, None if accepted else why)
