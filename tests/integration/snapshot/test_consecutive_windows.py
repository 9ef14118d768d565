"""Consecutive windows of a changefeed that lags, restarts and sends again: together they hold each change once, and no change is
outside of what was pinned for its window."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.integration.snapshot.feed import Feed, at
from tests.support.examples import examples
from ticdc_replay.domain.events import RowEvent, WatermarkEvent
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.offsets import Offsets
from ticdc_replay.kafka.reader import read_range
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.snapshot.manifest import Manifest, PartitionPin
from ticdc_replay.snapshot.pin import pin_window
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.state import open_state
from ticdc_replay.state.sparse_index import Stretch
from ticdc_replay.storage import open_store

pytestmark = pytest.mark.integration

PARTITIONS = 2
END = 70

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(3, 25)),
        st.tuples(st.just("restart"), st.integers(1, 30)),
        st.tuples(st.just("stall"), st.integers(1, 90)),
    ),
    max_size=8,
)
"""What the changefeed does: so many seconds of changes are sent; it begins again so many seconds before; it sends nothing."""


class Upstream:
    """One change at the half and one at the whole of each second, in turns of the partitions, as a changefeed sends them.

    A resolved-ts follows each second: what it covers was sent, its own commitTs included. Record times step back by up to two
    seconds, as they do where several nodes send.
    """

    def __init__(self, feed: Feed, jitter: list[float]) -> None:
        self._feed = feed
        self._jitter = jitter
        self._clock = 1.0
        self._second = 0
        self._sent = 0

    def do(self, step: str, seconds: int) -> None:
        if step == "stall":
            self._clock += seconds
        elif step == "restart":
            self._second = max(0, self._second - seconds)
        else:
            for _ in range(seconds):
                self._one_second()

    def finish(self) -> None:
        while self._second < END + 5:
            self._one_second()
        self._feed.flush()

    def _one_second(self) -> None:
        self._clock = max(self._clock, self._second + 1.1)
        for commit in (self._second + 0.5, self._second + 1.0):
            self._feed.row(partition_of(commit), commit, recorded=self._recorded(commit))
        for partition in range(PARTITIONS):
            self._feed.resolved(self._second + 1, partition, recorded=self._recorded(self._second + 1))
        self._second += 1
        self._clock += 0.7

    def _recorded(self, commit: float) -> float:
        self._sent += 1
        return max(commit, self._clock - self._jitter[self._sent % len(self._jitter)])


def partition_of(commit: float) -> int:
    return int(commit * 2) // 2 % PARTITIONS


@settings(
    max_examples=examples(0.06),
    phases=[Phase.explicit, Phase.generate],  # each example asks a broker, so to shrink one takes long
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=STEPS,
    cuts=st.lists(
        st.integers(6, END - 1).map(lambda half: half - 0.5 * (half % 3)), min_size=1, max_size=3, unique=True
    ),
    jitter=st.lists(st.floats(0, 2), min_size=1, max_size=5),
    pin=st.sampled_from(["first", "first", "head"]),
)
def test_consecutive_windows_hold_each_change_once(
    make_feed: Callable[..., Feed], request_for: Callable[..., PinRequest], tmp_path_factory: pytest.TempPathFactory,
    settings: KafkaSettings, steps: list[tuple[str, int]], cuts: list[float], jitter: list[float], pin: str,
) -> None:  # fmt: skip
    feed = make_feed(PARTITIONS)
    upstream = Upstream(feed, jitter)
    for step, seconds in steps:
        upstream.do(step, seconds)
    upstream.finish()
    folder = tmp_path_factory.mktemp("windows")
    artifacts, state = open_store(folder.as_uri()), open_state(f"sqlite:///{folder}/state.db")
    held: list[float] = []
    try:
        for start, end in pairwise(sorted({5.0, *cuts, END})):
            request = request_for(feed.topic, Window(at(start), at(end)), unproven="allow", pin=pin)
            manifest = pin_window(request, settings, artifacts, None, state).manifest
            assert manifest.grade == "proven", manifest.reasons
            found = set()
            for part in manifest.topics[0].partitions:
                rows, resolved = read(request, settings, part)
                found |= {commit for commit in rows if at(start) <= at(commit) < at(end)}
                assert resolved[part.evidence] == part.resolved_ts
                assert part.resolved_ts >= at(end)
                state.sparse_index.record("shop", stretches(settings, manifest, part, rows))
            assert sorted(found) == changes(start, end)
            held += found
    finally:
        state.close()
    assert sorted(held) == changes(5, END)


def changes(start: float, end: float) -> list[float]:
    """The commit times of the changes in ``[start, end)``."""
    return [half / 2 for half in range(int(start * 2), int(end * 2))]


def read(
    request: PinRequest, settings: KafkaSettings, part: PartitionPin
) -> tuple[dict[float, list[int]], dict[int | None, int]]:
    """The offsets of each change of *part*, by its commit time, and its resolved-ts by offset."""
    codec = request.codec()
    rows: dict[float, list[int]] = {}
    resolved: dict[int | None, int] = {}
    for messages in read_range(settings, part.range):
        for message in messages:
            for event in codec.decode(message):
                if isinstance(event, WatermarkEvent):
                    resolved[message.offset] = event.commit_ts
                elif isinstance(event, RowEvent):
                    (commit_ms,) = event.after.key()  # type: ignore[union-attr]
                    rows.setdefault(commit_ms / 1000, []).append(message.offset)
    return rows, resolved


def stretches(
    settings: KafkaSettings, manifest: Manifest, part: PartitionPin, rows: dict[float, list[int]]
) -> list[Stretch]:
    """The sparse index that a decode of *part* leaves, in stretches of ten offsets."""
    with Offsets(settings) as offsets:
        topic = offsets.topics([manifest.topics[0].topic])[manifest.topics[0].topic].identity
    found = []
    for start in range(part.range.start, part.range.end, 10):
        piece = OffsetRange(part.range.topic, part.range.partition, start, min(start + 10, part.range.end))
        times = [
            at(commit) for commit, places in rows.items() if any(piece.start <= each < piece.end for each in places)
        ]
        found.append(
            Stretch(
                topic, piece.partition, piece.start, piece.end,
                min(times, default=None), max(times, default=None),
            )
        )  # fmt: skip
    return found
