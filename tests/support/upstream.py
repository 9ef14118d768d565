"""Random histories of an upstream with two tables, and what TiCDC may make of them: the tables at the end, and messages.

Rows have the key ``id`` and a value ``v``; in table ``u`` no two rows have one value, as by a unique key.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import strategies as st

from tests.support.open_protocol import columns, message, row
from ticdc_replay.domain.messages import RawMessage

FIRST_TS, LAST_TS = 100, 140
Event = tuple[bytes, bytes]
Tables = dict[str, dict[int, str]]


class Step(NamedTuple):
    """What somebody does next: the table, the key, another key, the value, and how long after the step before."""

    kind: str
    table: str
    key: int
    other: int
    value: str
    raw: bool
    after: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["put", "put", "delete", "move", "exchange"]),
        st.sampled_from(["t", "u"]),
        st.integers(1, 3),
        st.integers(1, 4),
        st.sampled_from("abcdef"),
        st.booleans(),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=12,
)


class History(NamedTuple):
    """What is there at the end, and the events on the way there, by commitTs."""

    tables: Tables
    events: list[tuple[int, Event]]


def happened(steps: Sequence[Step]) -> History:
    """What *steps* do; those that can't be done at their time are left out."""
    tables: Tables = {"t": {}, "u": {}}
    events: list[tuple[int, Event]] = []
    ts = FIRST_TS
    for step in steps:
        ts += step.after
        events += [(ts, event) for event in _events(step, tables[step.table], ts)]
    return History(tables, events)


def _events(step: Step, rows: dict[int, str], ts: int) -> list[Event]:
    """The events of *step*, which changes *rows*."""
    key, other, value, old = step.key, step.other, step.value, rows.get(step.key)

    def gone(number: int, what: str) -> Event:
        return row(ts, old=columns(number, what), table=step.table)

    def come(number: int, what: str) -> Event:
        return row(ts, new=columns(number, what), table=step.table)

    if step.kind == "put":
        if old == value or (step.table == "u" and value in rows.values()):
            return []
        rows[key] = value
        if old is None:
            return [come(key, value)]
        if step.table == "u" and not step.raw:  # a unique key changes: the update is split
            return [gone(key, old), come(key, value)]
        return [row(ts, new=columns(key, value), old=columns(key, old), table=step.table)]
    if old is None:
        return []
    if step.kind == "delete":
        del rows[key]
        return [gone(key, old)]
    if step.kind == "move":
        if other in rows:
            return []
        rows[other] = rows.pop(key)
        if step.raw:
            return [row(ts, new=columns(other, old), old=columns(key, old), table=step.table)]
        return [come(other, old), gone(key, old)]
    if other not in rows or other == key:
        return []
    theirs = rows[other]
    rows[key], rows[other] = theirs, old
    return [gone(key, old), gone(other, theirs), come(key, theirs), come(other, old)]


class Delivery(NamedTuple):
    """How events are sent and read: which ones again, in which order, in which partitions, how many in a message, and where the
    messages are cut into splits."""

    again: list[int]
    order: list[int]
    partitions: list[int]
    batches: list[int]
    cuts: list[int]


def deliveries(events: int) -> st.SearchStrategy[Delivery]:
    """Ways to send so many *events*."""
    some = st.lists(st.integers(0, max(0, events - 1)), max_size=events)
    return some.flatmap(
        lambda again: st.builds(
            Delivery,
            st.just(again),
            st.permutations(range(events + len(again))),
            st.lists(st.integers(0, 2), min_size=1, max_size=5),
            st.lists(st.integers(1, 4), min_size=1, max_size=5),
            st.lists(st.integers(1, 30), max_size=3),
        )
    )


def delivered(events: Sequence[Event], delivery: Delivery) -> list[list[RawMessage]]:
    """The messages with *events*, in splits."""
    everything = [*events, *(events[at] for at in delivery.again)]
    stream = [everything[at] for at in delivery.order]
    messages: list[RawMessage] = []
    at = 0
    while at < len(stream):
        size = delivery.batches[len(messages) % len(delivery.batches)]
        partition = delivery.partitions[len(messages) % len(delivery.partitions)]
        messages.append(message(stream[at : at + size], len(messages), partition=partition))
        at += size
    messages.sort(key=lambda each: each[:3])
    bounds = sorted({0, len(messages), *(cut for cut in delivery.cuts if cut < len(messages))})
    return [messages[start:end] for start, end in pairwise(bounds)]
