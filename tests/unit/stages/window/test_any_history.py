"""Whatever DDL came, was late, or can't be read: no row is typed by a definition that it does not have.

A model of what look back, decode and re-drive record and ask, without Kafka, so that many histories can be tried;
``tests/integration/stages/test_known_definitions.py`` tries fewer of them with a real broker.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from tests.support.examples import examples
from tests.support.schema_histories import schema_at
from tests.support.topics import identity
from ticdc_replay.decode.plan.schema_pass import Unread
from ticdc_replay.domain import tso
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.unread import UnreadDdl, forgetting
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.window.schemas import _history, recorded_schemas
from ticdc_replay.stages.window.searched_ddl import chains_of, without
from ticdc_replay.state import tables
from ticdc_replay.state.ddl import DdlScan, KnownDdl

TOPIC_OF = {"t": "t", "c": "t", "b": "b"}
RULES = "[sink]\ndispatchers = [{matcher = ['s.b'], topic = 'b'}]\n"
BEGIN_MS = 1_700_000_000_000
STEP_MS = 1000

Names = tuple[str, ...]


class Sent(NamedTuple):
    """A message of a topic's first partition."""

    commit_ts: int
    recorded_ms: int
    ddl: DdlEvent | None
    readable: bool = True
    named: bool = True
    """Whether the key says which table it is about, and when."""


class Feed:
    """A history of three tables, whose DDL goes to two topics, each of which has a resolved-ts after every moment."""

    def __init__(self, choose: random.Random, moments: int, lags: list[int], lost: float) -> None:
        self.sent: dict[str, list[Sent]] = {"t": [], "b": []}
        self.truth: list[dict[str, Names]] = []
        """After each moment: the names of the enum of each table."""
        self.moments = moments
        here: dict[str, Names] = {}
        latest = BEGIN_MS
        for moment in range(moments):
            ms = BEGIN_MS + moment * STEP_MS
            latest = max(latest, ms + choose.choice(lags) * STEP_MS)  # records of a partition are in order
            done = _ddl(choose, here)
            if done is not None:
                topic, table, query = done
                event = DdlEvent(0, tso.from_ms(ms), "s", table, query, 3)
                readable = choose.random() >= lost
                self.sent[topic].append(Sent(event.commit_ts, latest, event, readable, choose.random() < 0.5))
            self.truth.append(dict(here))
            for sent in self.sent.values():
                sent.append(Sent(tso.from_ms(ms) + 1, latest, None))

    def first(self, topic: str, fits: Callable[[Sent], bool]) -> int:
        """The offset of the first message that *fits*."""
        return next(offset for offset, sent in enumerate(self.sent[topic]) if fits(sent))


def _ddl(choose: random.Random, here: dict[str, Names]) -> tuple[str, str, str] | None:
    """A DDL that may come, which changes *here*: its topic, its table, its text."""
    names = tuple(choose.sample("xyz", 3))
    enum = f"ENUM({','.join(map(repr, names))})"
    kind = choose.choice(["none", "create", "swap", "swap", "drop", "rename", "rename", "like"])
    absent = [table for table in TOPIC_OF if table not in here]
    present = sorted(here)
    if kind == "create" and absent:
        table = choose.choice(absent)
        here[table] = names
        return TOPIC_OF[table], table, f"CREATE TABLE `{table}` (`id` BIGINT PRIMARY KEY, `e` {enum})"
    if kind == "swap" and present:
        table = choose.choice(present)
        here[table] = names
        return TOPIC_OF[table], table, f"ALTER TABLE `{table}` MODIFY COLUMN `e` {enum}"
    if kind == "drop" and present:
        table = choose.choice(present)
        del here[table]
        return TOPIC_OF[table], table, f"DROP TABLE `{table}`"
    if kind in ("rename", "like") and present and absent:
        old, new = choose.choice(present), choose.choice(absent)
        here[new] = here[old]
        if kind == "like":
            return TOPIC_OF[new], new, f"CREATE TABLE `{new}` LIKE `{old}`"
        del here[old]
        return TOPIC_OF[old], new, f"RENAME TABLE `s`.`{old}` TO `s`.`{new}`"
    return None


class Model:
    """Pins and decodes windows of *feed*, and records in the state store what the library does."""

    def __init__(self, context: ReplayContext, feed: Feed, skew_ms: int) -> None:
        self.context = context
        self.feed = feed
        self.skew_ms = skew_ms

    def replay(self, window: Window) -> tuple[SchemaHistory, tuple[UnreadDdl, ...]]:
        """The definitions that the decode of *window* has, and its DDL that it can't read."""
        ends = {topic: self._look_back(topic, window) for topic in self.feed.sent}
        known = _history(
            self.context,
            window,
            window.from_ts,
            window.from_ts,
            {identity(topic): end for topic, end in ends.items()},
        ).since(window.from_ts)
        unread: list[UnreadDdl] = []
        ddl: list[DdlEvent] = []
        for topic, sent in self.feed.sent.items():
            from_ms = tso.physical_ms(window.from_ts) - self.skew_ms
            start = self.feed.first(topic, lambda each, ms=from_ms: each.recorded_ms >= ms)
            end = 1 + self.feed.first(topic, lambda each: each.ddl is None and each.commit_ts >= window.to_ts)
            found = [each.ddl for each in sent[start:end] if each.ddl is not None and each.readable]
            ddl += [event for event in found if event.commit_ts >= window.from_ts]
            unread += [each for each in self._bounded(topic, start, end) if each.until >= window.from_ts]
            scan = DdlScan(
                topic=identity(topic),
                partition=0,
                start=start,
                end=end,
                known_from=window.from_ts,
                resolved_ts=sent[end - 1].commit_ts,
            )
            self._record(topic, found, without(self._unread(topic, start, end), scan, self.skew_ms))
        return forgetting(known.with_ddls(ddl), unread, lambda _, table: TOPIC_OF[table]), tuple(unread)

    def _look_back(self, topic: str, window: Window) -> int:
        own = [scan for scan in self.context.state.ddl.scans("shop") if scan.topic == identity(topic)]
        chains = chains_of(own)
        for chain in chains:
            if chain.resolved_ts >= window.from_ts and chain.known_from == 0:
                return chain.end
        sent = self.feed.sent[topic]
        end = 1 + self.feed.first(topic, lambda each: each.ddl is None and each.commit_ts >= window.from_ts)
        searched = {offset for chain in chains for offset in range(chain.start, chain.end)}
        left = [offset for offset in range(end) if offset not in searched]
        found = [sent[offset].ddl for offset in left if sent[offset].ddl is not None and sent[offset].readable]
        unread = [each for each in self._unread(topic, 0, end) if each.offset not in searched]
        scan = DdlScan(
            topic=identity(topic), partition=0, start=0, end=end, known_from=0, resolved_ts=sent[end - 1].commit_ts
        )
        self._record(topic, found, without(unread, scan, self.skew_ms))
        return end

    def _unread(self, topic: str, start: int, end: int) -> list[Unread]:
        return [
            Unread(topic, 0, offset, sent.recorded_ms, sent.commit_ts if sent.named else None)
            for offset, sent in enumerate(self.feed.sent[topic])
            if start <= offset < end and sent.ddl is not None and not sent.readable
        ]

    def _bounded(self, topic: str, start: int, end: int) -> Iterator[UnreadDdl]:
        resolved = 0
        for offset in range(start, end):
            sent = self.feed.sent[topic][offset]
            if sent.ddl is None:
                resolved = sent.commit_ts
            elif not sent.readable and sent.named:
                yield UnreadDdl(topic, 0, offset, sent.commit_ts, sent.commit_ts, "s", sent.ddl.table)
            elif not sent.readable:
                until = tso.from_ms(sent.recorded_ms + self.skew_ms + 1) - 1
                yield UnreadDdl(topic, 0, offset, min(resolved, until), until)

    def _record(self, topic: str, ddl: Sequence[DdlEvent | None], scans: list[DdlScan]) -> None:
        state = self.context.state.ddl
        state.record("shop", [KnownDdl(identity(topic), event) for event in ddl if event is not None])
        state.record_scans("shop", scans)


def typed(history: SchemaHistory, feed: Feed, window: Window) -> Iterator[tuple[int, str, Names | None, Names]]:
    """The rows in *window*: the moment, the table, the names by which *history* types it, and those that it has."""
    for moment, truth in enumerate(feed.truth):
        row_ts = tso.from_ms(BEGIN_MS + moment * STEP_MS) + 2
        for table in truth if row_ts in window else ():
            schema = schema_at(history, TableName("s", table), row_ts)
            column = schema.column("e") if schema is not None else None
            yield moment, table, column.type.elements if column is not None else None, truth[table]


def wrong(history: SchemaHistory, feed: Feed, window: Window) -> list[tuple[int, str, Names | None, Names]]:
    """Those whose names are known, and others than it has."""
    return [row for row in typed(history, feed, window) if row[2] not in (None, row[3])]


def clean(context: ReplayContext) -> None:
    with context.state.ddl._database.writing() as connection:
        for table in reversed(tables.metadata.sorted_tables):
            connection.execute(delete(table))


@settings(
    max_examples=examples(),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(
    seed=st.integers(0, 1 << 32),
    lags=st.sampled_from([[0], [0, 3], [4], [0, 1, 9]]),
    lost=st.sampled_from([0.0, 0.1, 0.3]),
    skew_ms=st.sampled_from([0, 1500]),
)
@example(seed=99863506, lags=[4], lost=0.3, skew_ms=0)  # a RENAME away, then one from another topic, both not readable
@example(seed=13776, lags=[4], lost=0.3, skew_ms=0)  # a gap that was recorded after the window began
def test_no_row_is_typed_by_a_definition_that_it_does_not_have(
    make_context: Callable[[str], ReplayContext], seed: int, lags: list[int], lost: float, skew_ms: int
) -> None:
    choose = random.Random(seed)
    feed = Feed(choose, 24 + max(lags), lags, lost)
    last = feed.moments - max(lags) - 4
    cuts = sorted(choose.sample(range(1, last), min(4, last - 1)))
    windows = [
        Window(*(tso.from_ms(BEGIN_MS + cut * STEP_MS) + choose.choice([0, 1]) for cut in pair))
        for pair in pairwise(cuts)
    ]
    if choose.random() < 0.4:
        choose.shuffle(windows)
    context = make_context(RULES)
    clean(context)
    model = Model(context, feed, skew_ms)
    unread: dict[Window, tuple[UnreadDdl, ...]] = {}
    for window in windows:
        history, unread[window] = model.replay(window)
        assert not wrong(history, feed, window), ("decode", window)
        for earlier, gaps in unread.items():
            assert not wrong(recorded_schemas(context, earlier, gaps), feed, earlier), ("re-drive", earlier)
            assert not wrong(recorded_schemas(context, earlier), feed, earlier), ("without gaps", earlier)
    if not lost:
        for window in windows:
            assert all(
                names is not None for _, _, names, _ in typed(recorded_schemas(context, window, ()), feed, window)
            )
