"""Whether rows stand where the changefeed's dispatcher rules would have sent them.

A row elsewhere has one of three reasons: the rules of the pipeline are not those of the changefeed, partitions were added while
it ran, or another program writes to the topic. Rows are merged by commitTs wherever they are, so this is a warning and no error.
Only windows that go by offsets need it to be right.

Avro's names are another matter: in another table's topic they may be those of two tables, so such rows are set aside.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.partitions import partitions_of
from ticdc_replay.changelog.files.index import Elsewhere
from ticdc_replay.domain.events import Event, RowEvent
from ticdc_replay.domain.failure import failure
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.tables import TableSchema
from ticdc_replay.schemas.history import SchemaHistory

WRONG_TOPIC = "wrong_topic"
"""Reason of a row of Avro that the rules send to another topic."""

_log = logging.getLogger(__name__)


class ForeignNames:
    """Finds Avro rows in a topic to which the changefeed's rules send no table with that Avro name.

    The answer depends only on the configuration and the message: it is the same in every window and split.
    """

    def __init__(self, changefeed: Changefeed) -> None:
        self.why = cache(partial(_why_foreign, changefeed))
        """Why a row can't be of a table that belongs to its topic, by topic, schema and table; "" where it may be."""
        self.possible = changefeed.traits.avro_names and any(rule.topic for rule in changefeed.dispatch.rules)
        """Whether there can be such rows."""


def _why_foreign(feed: Changefeed, topic: str, schema: str, table: str) -> str:
    if feed.may_send(schema, table, topic):
        return ""
    return (
        f"the dispatcher rules of the changefeed send {schema}.{table} to topic {feed.topic_of(schema, table)} and no table "
        f"that Avro calls so to {topic}: another program wrote the message, or the rules were others then; replay what they "
        "sent by a pipeline with those rules"
    )


class PlacementCheck:
    """Checks a sample of the messages of one split: those whose offset *sampled* divides.

    A row costs 7 to 10 µs, and up to 17 more if it was read natively and is decoded for the check. *partitions* is the number of
    partitions of each topic; other topics are not checked. Neither are protocols whose events do not show where they belong, such
    as Avro.
    """

    def __init__(
        self, changefeed: Changefeed, partitions: Mapping[str, int], sampled: int, history: SchemaHistory
    ) -> None:
        self._changefeed = changefeed
        self._history = history
        self._sampled = sampled
        self._is_on = bool(partitions) and changefeed.traits.places_rows
        self._partitions = partitions
        self._columns = any(rule.partition == "columns" for rule in changefeed.dispatch.rules)
        self._elsewhere: dict[str, Elsewhere] = {}
        self._first: dict[str, tuple[str, int, int]] = {}
        self._has_failed = False
        self.checked = 0
        """Rows whose place could be checked."""

    def sample(self, messages: Sequence[RawMessage]) -> Sequence[int]:
        """Positions of those of *messages* to look at; they are of one partition, in the order of their offsets."""
        if not self._is_on or not messages:
            return ()
        first, last = messages[0].offset, messages[-1].offset
        if last - first == len(messages) - 1:
            return range(-first % self._sampled, len(messages), self._sampled)
        return [at for at, message in enumerate(messages) if message.offset % self._sampled == 0]

    def look_at(self, message: RawMessage, events: Iterable[Event]) -> None:
        """Check the rows of *message* if it is in the sample. Never raises for what a row says: such a row is not judged."""
        if not self._is_on or message.offset % self._sampled or message.topic not in self._partitions:
            return
        for event in events:
            if isinstance(event, RowEvent):
                try:
                    self._check(message, event)
                except BaseException as error:
                    why = failure(error)
                    if not self._has_failed:
                        _log.warning("%s: the expected partition of a row is not known: %s", message.place, why)
                    self._has_failed = True

    def found(self) -> tuple[Elsewhere, ...]:
        """The tables with rows elsewhere, by name."""
        return tuple(self._elsewhere[table] for table in sorted(self._elsewhere))

    def _check(self, message: RawMessage, row: RowEvent) -> None:
        feed = self._changefeed
        topic = feed.topic_of(row.schema, row.table)
        known = self._partitions.get(topic or "", self._partitions[message.topic])
        count = known if topic != feed.topic else feed.partition_num or known
        expected = partitions_of(row, feed.dispatch, count, feed.timezone, self._schema(row))
        if topic is None or expected is None:
            return
        self.checked += 1
        if message.topic == topic and message.partition in expected:
            return
        table = f"{row.schema}.{row.table}"
        before = self._elsewhere.get(table)
        place = (message.topic, message.partition, message.offset)
        if before is None or place < self._first[table]:
            places = ", ".join(f"{topic}[{number}]" for number in sorted(expected))
            self._first[table], example = place, f"{message.place}, not {places}"
        else:
            example = before.example
        self._elsewhere[table] = Elsewhere(table, (0 if before is None else before.rows) + 1, example)

    def _schema(self, row: RowEvent) -> TableSchema | None:
        if not self._columns or row.commit_ts is None:
            return None
        known = self._history.known_at(row.schema, row.table, row.commit_ts)
        return None if known is None else known.schema
