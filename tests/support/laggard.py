"""A changefeed of Open Protocol that lags: each message has the record time of its commit and the lag at that moment."""

import math
from typing import Any, NamedTuple

from confluent_kafka import Producer

from tests.support.open_protocol import ddl, message, resolved, row
from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain import tso

START_MS = 1_760_000_000_000
"""The moment that tests count seconds from."""
SCHEMA = "shop"
_ENUM, _INT = 247, 3


def at(second: float) -> int:
    """The TSO of *second* after ``START_MS``."""
    return tso.from_ms(START_MS + round(second * 1000))


class _Sent(NamedTuple):
    commit: float
    topic: str
    partition: int
    event: tuple[bytes, bytes]


class Laggard:
    """Sends events, given in order of commitTs, to topics: *topics* names those of tables with one of their own.

    Times are seconds after ``START_MS``. A resolved-ts follows each event in all partitions. *lag* may be changed at any time.
    """

    def __init__(
        self, producer: Producer, topic: str, partitions: int, lag: float, topics: dict[str, str] | None = None
    ) -> None:
        self.topic, self.lag = topic, lag
        self._topics, self._partitions = topics or {}, partitions
        self._producer = producer
        self._sent: list[_Sent] = []
        self._clock = 0.0
        self.resolve(-1)

    @property
    def config(self) -> str | None:
        """The changefeed's configuration file."""
        rules = [f"{{matcher = ['shop.{table}'], topic = '{topic}'}}" for table, topic in self._topics.items()]
        return f"[sink]\ndispatchers = [{', '.join(rules)}]\n" if rules else None

    def topic_of(self, table: str) -> str:
        return self._topics.get(table, self.topic)

    def row(self, commit: float, table: str, key: int, **cells: int) -> None:
        """The row *key* as it is from *commit* on; ``n…`` are integers, other cells numbers of an enum's names."""
        self.resolve(commit - 0.001)
        image: dict[str, dict[str, Any]] = {"id": {"t": 8, "h": True, "f": 11, "v": key}}
        image |= {name: {"t": _INT if name[0] == "n" else _ENUM, "f": 64, "v": value} for name, value in cells.items()}
        self._send(
            commit, self.topic_of(table), key % self._partitions, row(at(commit), new=image, table=table, schema=SCHEMA)
        )

    def ddl(
        self,
        commit: float,
        table: str,
        query: str,
        *,
        new: str | None = None,
        readable: bool = True,
        named: bool = True,
    ) -> None:
        """*query* about *table*, which is called *new* after it. A resolved-ts of its own commitTs may come before it.

        Of one that is not *readable*, the table can be read where it is *named*.
        """
        self.resolve(commit)
        for partition in range(self._partitions):
            key, value = ddl(at(commit), query, table=new or table, schema=SCHEMA)
            self._send(
                commit, self.topic_of(table), partition, (key if named else key[:-1], value if readable else value[:-1])
            )

    def resolve(self, second: float) -> None:
        """A resolved-ts in all partitions."""
        for topic in (self.topic, *self._topics.values()):
            for partition in range(self._partitions):
                self._produce(second, topic, partition, resolved(at(second)))

    def resend(self, since: float, until: float = math.inf) -> None:
        """Restart: all that committed after *since* comes again, up to *until*."""
        again = [each for each in self._sent if since < each.commit <= until]
        for each in again:
            self._produce(each.commit, each.topic, each.partition, each.event)

    def end(self, second: float) -> None:
        """Nothing else comes up to *second*."""
        self.resolve(second)
        assert self._producer.flush(PATIENCE_S) == 0

    def _send(self, commit: float, topic: str, partition: int, event: tuple[bytes, bytes]) -> None:
        self._sent.append(_Sent(commit, topic, partition, event))
        self._produce(commit, topic, partition, event)

    def _produce(self, commit: float, topic: str, partition: int, event: tuple[bytes, bytes]) -> None:
        self._clock = max(self._clock, commit + self.lag)  # a producer's clock does not go back
        sent = message([event], 0)
        self._producer.produce(topic, sent.value, sent.key, partition, timestamp=START_MS + round(self._clock * 1000))
        self._producer.poll(0)
