"""What DDL that nobody could read makes unknown: the definitions from before it, until a CREATE TABLE after it."""

from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec

from ticdc_replay.domain.tables import folded
from ticdc_replay.schemas.ddl import TableKey, key_of
from ticdc_replay.schemas.epochs import Epoch
from ticdc_replay.schemas.history import SchemaHistory


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

    *topic_of* tells where DDL of a table is sent; None where that can't be told. Where *unread* was accepted as lost, the tables
    are just unknown, as those whose DDL could not be understood, and after it *accepted_as* has what a person says of them.
    """
    gaps: defaultdict[str, list[UnreadDdl]] = defaultdict(list)
    for each in sorted(unread, key=lambda each: each.after):
        gaps[each.topic].append(each)
    if not gaps:
        return history
    tables: defaultdict[TableKey, list[Epoch]] = defaultdict(list)
    for epoch in history.epochs:
        tables[key_of(epoch.name)].append(epoch)
    forgotten: list[Epoch] = []
    for key, epochs in tables.items():
        name = epochs[-1].name
        topic = topic_of(name.schema, name.table)
        for gap in (gap for of_topic, members in gaps.items() if topic in (of_topic, None) for gap in members):
            if not gap.table or key == (folded(gap.schema), folded(gap.table)):
                forgotten += _forgotten(epochs, gap, accepted_as)
    return history.with_epochs(forgotten)


def _forgotten(epochs: list[Epoch], gap: UnreadDdl, accepted_as: SchemaHistory | None) -> Iterable[Epoch]:
    """What is unknown of the table with *epochs* from when on, because of *gap*."""
    why = f"{gap.coordinates} may hold DDL of it, and can't be read"
    unparsed, unread = (why, None) if accepted_as is not None else (None, why)
    before = [epoch for epoch in epochs if epoch.after <= gap.after]
    if before and before[-1].definition is not None:
        yield Epoch(before[-1].name, gap.after, None, unparsed, unread)
    for epoch in epochs:
        # Whether that came before or after what could not be read nobody knows.
        if gap.after < epoch.after < gap.until and epoch.definition is not None:
            yield Epoch(epoch.name, epoch.after, None, unparsed, unread)
    if accepted_as is not None:
        name = epochs[-1].name
        declared = accepted_as.definition_at(name.schema, name.table, 1)
        if declared is not None:
            yield Epoch(name, gap.until, declared)
