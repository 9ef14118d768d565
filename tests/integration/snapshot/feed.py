"""A small changefeed that writes Open Protocol messages into a topic, with the record times a test wants."""

import json
from collections.abc import Mapping

from confluent_kafka import Producer

from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain import tso

START_MS = 1_760_000_000_000
"""The moment that tests count seconds from."""
LAG_MS = 300
"""How long after its commit a message is recorded, where a test does not say otherwise."""


def at(second: float) -> int:
    """The TSO of *second* after ``START_MS``."""
    return tso.from_ms(START_MS + int(second * 1000))


class Feed:
    """Writes changes of one table to one topic. Times are seconds after ``START_MS``; ``recorded`` is the record's time.

    *producer* keeps order: a new topic may refuse its first batch for a moment, and what comes then must not overtake it.
    """

    def __init__(self, producer: Producer, topic: str, partitions: int, table: str = "orders") -> None:
        self.topic = topic
        self.table = table
        self.partitions = range(partitions)
        self._producer = producer

    def row(
        self,
        partition: int,
        commit: float,
        *,
        recorded: float | None = None,
        only_key: bool = False,
        claim_check: str | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """An insert that committed at *commit*, with *texts* in further columns; of a large row the key alone, or where the
        rest of it is."""
        key: dict[str, object] = {"ts": at(commit), "scm": "shop", "tbl": self.table, "t": 1}
        if only_key or claim_check is not None:
            key["ohk"] = True
        if claim_check is not None:
            key["ccl"] = claim_check
        cells = {name: {"t": 15, "f": 64, "v": text} for name, text in (texts or {}).items()}
        value = {"u": {"id": {"t": 3, "h": True, "f": 11, "v": int(commit * 1000)}, **cells}}
        self._send(partition, key, json.dumps(value).encode(), commit, recorded)

    def ddl(self, commit: float, query: str, *, readable: bool = True) -> None:
        """A DDL that committed at *commit*, in every partition."""
        for partition in self.partitions:
            key = {"ts": at(commit), "scm": "shop", "tbl": self.table, "t": 2}
            value = json.dumps({"q": query, "t": 3}).encode()
            self._send(partition, key, value if readable else value[:-1], commit, None)

    def resolved(self, resolved: float, *partitions: int, recorded: float | None = None) -> None:
        """A resolved-ts to *partitions*, to all where none is named."""
        for partition in partitions or self.partitions:
            self._send(partition, {"ts": at(resolved), "t": 3}, b"", resolved, recorded)

    def seconds(self, first: int, end: int, *partitions: int) -> None:
        """Per second of ``[first, end)`` and partition a row, and a resolved-ts of that second behind it."""
        for second in range(first, end):
            for partition in partitions or self.partitions:
                self.row(partition, second)
                self.resolved(second, partition)
        self.flush()

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0

    def _send(
        self, partition: int, key: dict[str, object], value: bytes, second: float, recorded: float | None
    ) -> None:
        text = json.dumps(key, separators=(",", ":")).encode()
        timestamp = START_MS + int(second * 1000) + LAG_MS if recorded is None else START_MS + int(recorded * 1000)
        self._producer.produce(
            self.topic,
            len(value).to_bytes(8, "big") + value,
            key=(1).to_bytes(8, "big") + len(text).to_bytes(8, "big") + text,
            partition=partition,
            timestamp=timestamp,
        )
        self._producer.poll(0)
