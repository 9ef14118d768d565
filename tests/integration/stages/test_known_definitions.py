"""Rows get the definition that holds at their commitTs: at every lag, wherever DDL lies, in whatever order windows are pinned."""

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from demo.embedded_stack.kafka import Kafka
from tests.support.definition_histories import History
from tests.support.examples import examples
from tests.support.laggard import Laggard, at
from tests.support.replayed_windows import decode, pipeline_for, replay, rows_of
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.changelog.files.set_aside import read_entries
from ticdc_replay.codecs.open.codec import OpenCodec
from ticdc_replay.domain.errors import PolicyStopError, WatermarkNotReachedError
from ticdc_replay.domain.events import Event
from ticdc_replay.domain.window import Window
from ticdc_replay.stages.context import ReplayContext
from ticdc_replay.stages.quarantine.entries import Selection, accept
from ticdc_replay.stages.quarantine.redrive import check_redrive, open_runs, pin_redrive
from ticdc_replay.stages.window.pin import pin

pytestmark = pytest.mark.integration

CREATE = "CREATE TABLE `{}` (`id` BIGINT PRIMARY KEY, `e` ENUM('x','y'))"
SWAP = "ALTER TABLE `{}` MODIFY COLUMN `e` ENUM('y','x')"
HOUR = 3600


@pytest.fixture
def make_laggard(producer: Producer, make_topic: Callable[..., str]) -> Callable[..., Laggard]:
    def make(lag: float, partitions: int = 2, more: tuple[str, ...] = ()) -> Laggard:
        topic = make_topic(partitions, {"retention.ms": "-1"})
        for name in more:
            make_topic(partitions, {"retention.ms": "-1"}, f"{topic}-{name}")
        return Laggard(producer, topic, partitions, lag, {name: f"{topic}-{name}" for name in more})

    return make


@pytest.fixture
def make_context(kafka: Kafka, tmp_path: Path) -> Callable[..., ReplayContext]:
    def make(feed: Laggard, **more: Any) -> ReplayContext:
        folder = tmp_path / f"pipeline-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return pipeline_for(folder, kafka.bootstrap, feed.topic, feed.config, **more)

    return make


def names(context: ReplayContext, index: ChangelogIndex, column: str = "e") -> dict[int, Any]:
    """What *column* holds, by the row's key."""
    return {row["after"]["id"]: row["after"].get(column) for _, row in rows_of(context, index)}


@pytest.mark.parametrize("lag", [0.3, 15, 2 * HOUR])
def test_ddl_just_before_the_first_window_and_just_before_the_next(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext], lag: float
) -> None:
    feed = make_laggard(lag)
    feed.ddl(0, "t", CREATE.format("t"))
    feed.row(10, "t", 1, e=1)
    feed.ddl(290, "t", SWAP.format("t"))  # the first window begins at 300
    feed.row(310, "t", 2, e=1)
    feed.ddl(590, "t", "ALTER TABLE `t` ADD COLUMN `n` INT")  # the next one at 600
    feed.row(595, "t", 3, e=1, n=7)
    feed.row(610, "t", 4, e=1, n=7)
    feed.end(910)
    with make_context(feed) as context:
        first, second = replay(context, Window(at(300), at(600))), replay(context, Window(at(600), at(900)))
        assert names(context, first) == {2: "y", 3: "y"}
        assert names(context, second) == {4: "y"}


@pytest.mark.parametrize("lag", [0.3, 15, 2 * HOUR])
def test_ddl_that_lies_between_windows_which_do_not_touch(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext], lag: float
) -> None:
    feed = make_laggard(lag)
    feed.ddl(0, "t", CREATE.format("t"))
    feed.row(10, "t", 1, e=1)
    feed.ddl(5 * HOUR, "t", SWAP.format("t"))
    feed.row(30 * HOUR, "t", 2, e=1)
    feed.ddl(30 * HOUR + 5, "t", "ALTER TABLE `t` ADD COLUMN `n` INT")
    feed.row(30 * HOUR + 9, "t", 3, e=1, n=7)
    feed.end(31 * HOUR)
    # What the first window knew is not what holds thirty hours later, and the look back does not reach it.
    with make_context(feed, window={"schema_look_back_hours": 1}) as context:
        first = replay(context, Window(at(5), at(60)))
        second = replay(context, Window(at(30 * HOUR - 60), at(30 * HOUR + 60)))
        assert names(context, first) == {1: "x"}
        assert names(context, second) == {2: 1, 3: 1}  # numbers, not names that may be wrong
        assert second.report.undeclared_tables == ("shop.t",)
    with make_context(feed) as context:
        first = replay(context, Window(at(5), at(60)))
        second = replay(context, Window(at(30 * HOUR - 60), at(30 * HOUR + 60)))
        assert names(context, first) == {1: "x"}
        assert names(context, second) == {2: "y", 3: "y"}


@pytest.mark.parametrize("lag", [0.3, 15, 2 * HOUR])
def test_a_rename_into_the_topic_of_another_table(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext], lag: float
) -> None:
    feed = make_laggard(lag, more=("a", "b"))
    feed.ddl(0, "a", CREATE.format("a"))
    feed.ddl(1, "b", CREATE.format("b").replace("'x','y'", "'p','q'"))
    feed.ddl(290, "b", "DROP TABLE `b`")
    feed.ddl(291, "a", "ALTER TABLE `a` MODIFY COLUMN `e` ENUM('y','x')")
    feed.ddl(292, "a", "RENAME TABLE `shop`.`a` TO `shop`.`b`", new="b")  # in the topic of its old name alone
    feed.row(310, "b", 1, e=1)
    feed.ddl(590, "b", "ALTER TABLE `b` ADD COLUMN `n` INT")
    feed.row(610, "b", 2, e=1, n=1)
    feed.end(910)
    with make_context(feed) as context:
        first, second = replay(context, Window(at(300), at(600))), replay(context, Window(at(600), at(900)))
        assert names(context, first) == {1: "y"}
        assert names(context, second) == {2: "y"}


def test_windows_that_are_pinned_side_by_side_know_the_same(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext]
) -> None:
    feed = make_laggard(15)
    feed.ddl(0, "t", CREATE.format("t"))
    for minute in range(1, 6):
        feed.ddl(
            60 * minute - 10, "t", SWAP.format("t") if minute % 2 else SWAP.format("t").replace("'y','x'", "'x','y'")
        )
        feed.row(60 * minute + 5, "t", minute, e=1)
    feed.end(400)
    windows = [Window(at(60 * minute), at(60 * minute + 60)) for minute in range(1, 6)]
    known = []
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3]):
        with make_context(feed) as context:
            pinned = {number: pin(context, windows[number]) for number in order}
            for number in order:
                index = decode(context, pinned[number])
                assert names(context, index) == {number + 1: "y" if number % 2 == 0 else "x"}
            known.append({number: pinned[number].manifest.schemas.sha256 for number in order})
        with make_context(feed) as context:
            found = [names(context, replay(context, windows[number])) for number in order]
            assert found == [{number + 1: "y" if number % 2 == 0 else "x"} for number in order]
    assert known[0] == known[1]


def test_a_window_is_not_pinned_before_the_ddl_before_it_was_sent(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext]
) -> None:
    feed = make_laggard(2 * HOUR)
    feed.ddl(0, "t", CREATE.format("t"))
    feed.row(10, "t", 1, e=1)
    feed.end(280)
    with make_context(feed) as context:
        with pytest.raises(WatermarkNotReachedError, match="DDL from before its start may still come"):
            pin(context, Window(at(300), at(600)))
        feed.ddl(290, "t", SWAP.format("t"))
        feed.row(310, "t", 2, e=1)
        feed.end(610)
        assert names(context, replay(context, Window(at(300), at(600)))) == {2: "y"}


def test_ddl_that_is_sent_again_without_what_followed_it_is_no_definition(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext]
) -> None:
    feed = make_laggard(15)
    feed.ddl(0, "t", CREATE.format("t"))
    feed.ddl(5, "t", SWAP.format("t"))
    feed.row(30 * HOUR + 10, "t", 1, e=1)
    feed.resend(-1, until=4)  # a restart, of which the window's range holds the beginning
    feed.end(30 * HOUR + 60)
    with make_context(feed, window={"schema_look_back_hours": 1}) as context:
        assert names(context, replay(context, Window(at(30 * HOUR), at(30 * HOUR + 60)))) == {1: 1}


def test_ddl_of_the_changefeed_before_on_the_same_topic_does_not_count(
    make_laggard: Callable[..., Laggard], kafka: Kafka, tmp_path: Path
) -> None:
    feed = make_laggard(0.3)
    feed.ddl(0, "t", CREATE.format("t"))
    feed.row(10, "t", 1, e=1)
    feed.end(30)  # the first changefeed is removed; the enum is then changed, which is sent by nobody
    feed.row(HOUR + 100, "t", 2, e=1)  # the second one, with a later --start-ts
    feed.ddl(HOUR + 300, "t", CREATE.format("u"))
    feed.row(HOUR + 310, "u", 3, e=1)
    feed.end(HOUR + 800)
    sink = f"kafka://b:9092/{feed.topic}?protocol=open-protocol"
    changefeed = {"sink_uri": sink, "timezone": "UTC", "start_ts": at(HOUR)}
    more = {"changefeed": changefeed, "policies": {"unproven": "allow"}}
    with pipeline_for(tmp_path, kafka.bootstrap, feed.topic, **more) as context:
        pinned = pin(context, Window(at(HOUR + 50), at(HOUR + 600)))
        assert pinned.manifest.grade == "proven"
        index = decode(context, pinned)
        assert names(context, index) == {2: 1, 3: "x"}  # a number, not a name that is wrong
        assert index.report.undeclared_tables == ("shop.t",)
        # What the first one sent holds for its own rows.
        assert names(context, replay(context, Window(at(5), at(20)))) == {1: "x"}


def test_ddl_that_the_search_can_not_read_is_a_gap(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext]
) -> None:
    feed = make_laggard(0.3)
    feed.ddl(0, "t", CREATE.format("t"))
    feed.row(10, "t", 1, e=1)
    feed.ddl(20, "t", SWAP.format("t"), readable=False)
    feed.ddl(30, "t", CREATE.format("u"))
    feed.row(4 * HOUR + 10, "t", 2, e=1)
    feed.row(4 * HOUR + 11, "u", 3, e=1)
    feed.end(4 * HOUR + 700)
    with make_context(feed, window={"clock_skew_seconds": 1}) as context:
        for _ in range(2):  # the second one finds what the first has recorded
            index = replay(context, Window(at(4 * HOUR), at(4 * HOUR + 600)))
            assert names(context, index) == {2: 1, 3: "x"}
            assert index.report.undeclared_tables == ("shop.t",)


def test_ddl_that_a_decode_can_not_read_is_a_gap(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext]
) -> None:
    feed = make_laggard(0.3)
    feed.ddl(0, "t", CREATE.format("t"))
    feed.row(10, "t", 1, e=1)
    feed.ddl(4 * HOUR + 20, "t", SWAP.format("t"), readable=False)
    feed.row(8 * HOUR + 10, "t", 2, e=1)
    feed.end(8 * HOUR + 700)
    with make_context(feed, policies={"quarantine": "continue"}) as context:
        first = replay(context, Window(at(4 * HOUR), at(4 * HOUR + 600)))
        assert first.report.quarantine_reasons
        second = replay(context, Window(at(8 * HOUR), at(8 * HOUR + 600)))
        assert names(context, second) == {2: 1}


@pytest.mark.parametrize("named", [True, False])
def test_rows_after_ddl_that_the_decode_can_not_read_are_set_aside(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext], named: bool
) -> None:
    feed = make_laggard(0.3, more=("other",))
    for table in ("t", "renamed", "other"):
        feed.ddl(0, table, CREATE.format(table))
    feed.row(4 * HOUR + 10, "t", 1, e=1)
    feed.ddl(4 * HOUR + 20, "t", SWAP.format("t"), readable=False, named=named)
    feed.row(4 * HOUR + 30, "t", 2, e=1)
    feed.row(4 * HOUR + 31, "other", 3, e=1)  # its DDL is sent elsewhere
    feed.row(4 * HOUR + 32, "unknown", 4, e=1)  # no DDL changes what the wire alone tells
    feed.ddl(4 * HOUR + 40, "t", "ALTER TABLE `t` ADD COLUMN `n` INT")
    feed.ddl(4 * HOUR + 41, "t", "RENAME TABLE `renamed` TO `new`", new="new")
    feed.ddl(4 * HOUR + 42, "created", CREATE.format("created"))
    feed.row(4 * HOUR + 50, "t", 5, e=1, n=1)
    feed.row(4 * HOUR + 51, "new", 6, e=1)
    feed.row(4 * HOUR + 52, "created", 7, e=1)
    feed.end(4 * HOUR + 700)
    with make_context(feed, policies={"quarantine": "continue"}, window={"clock_skew_seconds": 1}) as context:
        index = replay(context, Window(at(4 * HOUR), at(4 * HOUR + 600)))
        others = {6: "x"} if named else {}
        assert names(context, index) == {1: "x", 3: "x", 4: 1, 7: "x", **others}
        assert index.report.quarantine_reasons == {
            "bad_value" if named else "bad_key": 2,
            "ddl_unread": 2 if named else 3,
        }
        (unread,) = index.unread_ddl
        assert unread.after == at(4 * HOUR + 20)
        assert unread.until == (at(4 * HOUR + 20) if named else at(4 * HOUR + 21.301) - 1)
        entries = [entry for entry in read_entries(context.artifacts, index) if entry.reason == "ddl_unread"]
        assert [entry.commit_ts for entry in sorted(entries, key=lambda entry: entry.commit_ts or 0)] == [
            at(4 * HOUR + second) for second in ((30, 50) if named else (30, 50, 51))
        ]
        assert all(entry.detail.startswith(unread.coordinates) for entry in entries)


def test_ddl_outside_the_window_that_a_decode_can_not_read_is_a_gap(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext]
) -> None:
    feed = make_laggard(0.3)
    feed.ddl(0, "t", CREATE.format("t"))
    feed.ddl(4 * HOUR - 5, "t", SWAP.format("t"), readable=False)  # in the range of the first window, and before it
    feed.row(4 * HOUR + 10, "t", 1, e=1)
    feed.row(4 * HOUR + 610, "t", 2, e=1)
    feed.end(4 * HOUR + 1300)
    with make_context(feed) as context:
        first = replay(context, Window(at(4 * HOUR), at(4 * HOUR + 600)))
        assert (names(context, first), first.report.quarantine_reasons) == ({1: 1}, {})
        second = replay(context, Window(at(4 * HOUR + 600), at(4 * HOUR + 1200)))
        assert names(context, second) == {2: 1}


def repaired(original: Callable[..., Event]) -> Callable[..., Event]:
    """The reader of a later version, to which a missing brace at the end does not matter."""

    def event(codec: OpenCodec, ordinal: int, *key_and_value: bytes) -> Event:
        whole = [part + b"}" if part[:1] == b"{" and part[-1:] != b"}" else part for part in key_and_value]
        return original(codec, ordinal, *whole)

    return event


@pytest.mark.parametrize("accepted", [False, True])
def test_rows_that_were_set_aside_for_ddl_come_back_once_it_is_read_or_accepted_as_lost(
    make_laggard: Callable[..., Laggard],
    make_context: Callable[..., ReplayContext],
    monkeypatch: pytest.MonkeyPatch,
    accepted: bool,
) -> None:
    feed = make_laggard(0.3)
    feed.ddl(0, "t", CREATE.format("t"))
    feed.row(4 * HOUR + 10, "t", 1, e=1)
    feed.ddl(4 * HOUR + 20, "t", SWAP.format("t"), readable=False, named=False)
    feed.row(4 * HOUR + 30, "t", 2, e=1)
    feed.row(4 * HOUR + 610, "t", 3, e=1)
    feed.end(4 * HOUR + 1300)
    first, second = Window(at(4 * HOUR), at(4 * HOUR + 600)), Window(at(4 * HOUR + 600), at(4 * HOUR + 1200))

    def redrive(context: ReplayContext) -> ChangelogIndex:
        (run,) = open_runs(context, Selection(window=first))
        return decode(context, pin_redrive(context, run), check_redrive)

    with make_context(feed, policies={"quarantine": "continue"}) as context:
        assert names(context, replay(context, first)) == {1: "x"}
        assert names(context, redrive(context)) == {}
        if accepted:
            accept(context, Selection(reasons=("bad_key",)), "Ada", "it changed no column")
            assert names(context, redrive(context)) == {2: 1}
            assert names(context, replay(context, second)) == {3: 1}
        else:
            monkeypatch.setattr(OpenCodec, "_event", repaired(OpenCodec._event))
            assert names(context, redrive(context)) == {2: "y"}
            assert names(context, replay(context, second)) == {3: "y"}


@pytest.mark.parametrize("lag", [0.3, HOUR])
def test_a_table_that_was_renamed_into_another_topic_is_unknown_after_a_gap_there(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext], lag: float
) -> None:
    """With a lag, DDL in the gap is recorded later than rows of the next window are committed."""
    feed = make_laggard(lag, more=("b",))
    feed.ddl(4 * HOUR, "c", CREATE.format("c"))
    feed.ddl(4 * HOUR + 10, "c", "RENAME TABLE `c` TO `b`", new="b")  # sent to the topic of c
    feed.ddl(4 * HOUR + 20, "b", SWAP.format("b"), readable=False)
    feed.row(4 * HOUR + 610, "b", 1, e=1)
    feed.end(8 * HOUR)
    with make_context(feed, policies={"quarantine": "continue"}) as context:
        first = replay(context, Window(at(4 * HOUR + 5), at(4 * HOUR + 600)))
        assert len(first.unread_ddl or ()) == 1
        assert names(context, replay(context, Window(at(4 * HOUR + 600), at(4 * HOUR + 1200)))) == {1: 1}


def test_ddl_that_stopped_the_window_before_is_a_gap(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext]
) -> None:
    feed = make_laggard(0.3)
    feed.ddl(0, "t", CREATE.format("t"))
    feed.row(10, "t", 1, e=1)
    feed.ddl(4 * HOUR + 20, "t", SWAP.format("t"), readable=False)
    feed.row(4 * HOUR + 700, "t", 2, e=1)
    feed.end(4 * HOUR + 1300)
    with make_context(feed) as context:
        with pytest.raises(PolicyStopError):
            replay(context, Window(at(4 * HOUR), at(4 * HOUR + 600)))
        assert names(context, replay(context, Window(at(4 * HOUR + 600), at(4 * HOUR + 1200)))) == {2: 1}


def windows_of(history: History, choose: random.Random) -> list[Window]:
    """Windows that touch, or leave gaps, cut at and around moments when something committed."""
    borders = [at(moment) + choose.choice([0, 1]) for moment in choose.sample(history.moments, choose.choice([0, 2]))]
    # Between the commit and the record of successive DDL of one table.
    table = choose.choice(history.shadows)[0]
    shadows = [shadow for shadow in history.shadows if shadow[0] == table and shadow[1] < history.second - 1]
    first = choose.randrange(max(1, len(shadows) - 4))
    borders += [at(min(choose.uniform(*shadow[1:]), history.second)) + 1 for shadow in shadows[first : first + 4]]
    cuts = sorted({at(history.second) + 2, *borders})
    windows = [Window(start, end) for start, end in pairwise(cuts)]
    if len(windows) > 2 and choose.random() < 0.4:
        windows.pop(choose.randrange(len(windows)))
    if choose.random() < 0.4:
        choose.shuffle(windows)
    return windows


@settings(
    max_examples=examples(0.05),
    phases=[Phase.explicit, Phase.generate],  # each example asks a broker, so to shrink one takes long
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(
    seed=st.integers(0, 1 << 32),
    lags=st.lists(st.sampled_from([0.2, 5, 15, 15, 90, 90, HOUR, 8 * HOUR]), min_size=1, max_size=3),
    own_topics=st.booleans(),
    hours=st.sampled_from([168, 168, 1]),
    first_pin_all=st.sampled_from([False, False, True]),
    decode_hours=st.sampled_from([None, None, 4]),
)
@example(seed=607, lags=[5, 5, 15], own_topics=True, hours=168, first_pin_all=False, decode_hours=None)
def test_no_history_gives_a_row_another_definition(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext],
    seed: int, lags: list[float], own_topics: bool, hours: int, first_pin_all: bool, decode_hours: int | None,
) -> None:  # fmt: skip
    feed = make_laggard(lags[0], more=("a", "b") if own_topics else ())
    history = History(feed, seed)
    history.go_on(60, lags)
    feed.lag = max(lags)
    feed.end(history.second + 13 * HOUR)
    choose = random.Random(seed)
    window = {"schema_look_back_hours": hours} | ({"decode_hours": decode_hours} if decode_hours else {})
    with make_context(feed, window=window) as context:
        windows = windows_of(history, choose)
        pinned = [pin(context, each) for each in windows] if first_pin_all else []
        for number, each in enumerate(windows):
            index = decode(context, pinned[number] if first_pin_all else pin(context, each))
            found = {(table, row["after"]["id"]): row["after"] for table, row in rows_of(context, index)}
            expected = [row for row in history.rows if at(row.commit) in each]
            assert found.keys() == {(f"shop.{row.table}", row.key) for row in expected}
            for row in expected:
                cells = dict(found[f"shop.{row.table}", row.key])
                assert cells.pop("id") == row.key
                unknown = {name for name, cell in cells.items() if name[0] == "e" and isinstance(cell, int)}
                assert {name: cells[name] for name in cells.keys() - unknown} == {
                    name: cell for name, cell in row.cells.items() if name not in unknown
                }
                if unknown:
                    assert f"shop.{row.table}" in index.report.undeclared_tables
                if hours == 168:  # all of the history
                    assert not unknown


@settings(
    max_examples=examples(0.05),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(
    seed=st.integers(0, 1 << 32),
    lags=st.lists(st.sampled_from([0.2, 5, 15, 90, HOUR]), min_size=1, max_size=3),
    own_topics=st.booleans(),
    skew=st.sampled_from([0, 1, 30]),
)
@example(seed=249802, lags=[5, 3600, 15], own_topics=True, skew=30)
@example(seed=47509, lags=[15, 3600, 90], own_topics=True, skew=30)
def test_no_history_with_ddl_that_can_not_be_read_gives_a_row_another_definition(
    make_laggard: Callable[..., Laggard], make_context: Callable[..., ReplayContext],
    seed: int, lags: list[float], own_topics: bool, skew: int,
) -> None:  # fmt: skip
    feed = make_laggard(lags[0], more=("a", "b") if own_topics else ())
    history = History(feed, seed, unreadable=0.1)
    history.go_on(60, lags)
    feed.lag = max(lags)
    feed.end(history.second + 13 * HOUR)
    with make_context(feed, window={"clock_skew_seconds": skew}, policies={"quarantine": "continue"}) as context:
        for window in windows_of(history, random.Random(seed)):
            index = replay(context, window)
            assert {*index.report.quarantine_reasons} <= {"bad_key", "bad_value", "ddl_unread"}
            aside = [entry for entry in read_entries(context.artifacts, index) if entry.reason == "ddl_unread"]
            expected = {(row.table, row.key): row for row in history.rows if at(row.commit) in window}
            for table, row in rows_of(context, index):
                meant = expected.pop((table.removeprefix("shop."), row["after"].pop("id"))).cells
                unknown = {name for name, cell in row["after"].items() if name[0] == "e" and isinstance(cell, int)}
                assert {name: cell for name, cell in row["after"].items() if name not in unknown} == {
                    name: cell for name, cell in meant.items() if name not in unknown
                }
            assert sorted(entry.commit_ts or 0 for entry in aside) == sorted(
                at(row.commit) for row in expected.values()
            )
