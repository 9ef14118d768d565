"""Where a window starts: moving over offsets that are known to hold nothing of it, and showing that the changefeed ran then."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.topics import identity
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.domain.window import Window
from ticdc_replay.kafka.offsets import Bounds, Partition, RecordPlace
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.snapshot.start import RangeHead, beginning_doubt, skip_known
from ticdc_replay.state.sparse_index import Stretch

FROM_TS = 100
TOPIC = identity()


def stretch(start: int, end: int, newest: int | None) -> Stretch:
    return Stretch(TOPIC, 0, start, end, newest, newest)


def test_stretches_of_older_events_are_skipped_up_to_the_first_that_is_needed() -> None:
    known = [stretch(0, 10, 99), stretch(10, 20, None), stretch(20, 30, 100), stretch(30, 40, 50)]
    assert skip_known(known, 5, 1_000, FROM_TS) == 20


def test_a_gap_in_what_is_known_ends_the_skip() -> None:
    assert skip_known([stretch(0, 10, 1), stretch(11, 20, 1)], 0, 1_000, FROM_TS) == 10
    assert skip_known([stretch(6, 20, 1)], 5, 1_000, FROM_TS) == 5


def test_the_end_of_the_range_is_never_passed() -> None:
    assert skip_known([stretch(0, 50, 1)], 0, 20, FROM_TS) == 20


@given(
    st.lists(st.none() | st.integers(90, 110), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(1, 10)), max_size=12),
    st.integers(0, 39),
)
def test_no_event_of_the_window_is_ever_skipped(
    commit_ts_at: list[int | None], cuts: list[tuple[int, int]], start: int
) -> None:
    known = []
    for first, length in cuts:
        held = [commit_ts for commit_ts in commit_ts_at[first : first + length] if commit_ts is not None]
        known.append(stretch(first, first + length, max(held, default=None)))
    moved = skip_known(sorted(known, key=lambda each: (each.start, each.end)), start, len(commit_ts_at), FROM_TS)
    skipped = [commit_ts for commit_ts in commit_ts_at[start:moved] if commit_ts is not None]
    assert all(commit_ts < FROM_TS for commit_ts in skipped)


FIRST, SECOND = Partition("shop", 0), Partition("shop", 1)
WHOLE = Bounds(0, 50)


def request(start_ts: int | None = None) -> PinRequest:
    return PinRequest(
        pipeline="shop",
        changefeed=Changefeed(protocol="open-protocol", topic="shop", timezone="UTC"),
        window=Window(FROM_TS, 200),
        tables=("*.*",),
        start_ts=start_ts,
        pre_roll_ms=0,
        clock_skew_ms=0,
        lag_ms=0,
        claim_check_margin_ms=0,
        list_store=False,
        unproven="stop",
        decompressed_max_bytes=1 << 20,
        schemas=SchemaHistory(),
    )


def doubt(*earliest: int | None, needed: tuple[int | None, ...] = (0, 0), start_ts: int | None = None) -> str | None:
    """What is doubtful where the heads begin with *earliest* and the first records that may be needed have offsets *needed*."""
    partitions = (FIRST, SECOND)
    return beginning_doubt(
        request(start_ts),
        dict(zip(partitions, (RangeHead(None, ts) for ts in earliest), strict=True)),
        dict(zip(partitions, (None if at is None else RecordPlace(at, 0) for at in needed), strict=True)),
        dict.fromkeys(partitions, WHOLE),
    )


def test_a_sign_from_before_the_window_in_any_partition_shows_that_the_changefeed_ran() -> None:
    assert doubt(FROM_TS - 1, 150) is None
    assert doubt(None, FROM_TS - 1) is None


def test_a_first_sign_at_or_after_the_start_is_doubtful_and_named_with_its_partition() -> None:
    assert str(doubt(150, FROM_TS)).startswith(f"shop[1]: the changefeed's first sign in Kafka is of {FROM_TS} (")
    assert str(doubt(120, 150)).startswith("shop[0]: the changefeed's first sign in Kafka is of 120 (")


def test_heads_without_any_event_are_doubtful() -> None:
    assert str(doubt(None, None)).startswith("shop[0], shop[1]: the first messages hold no event")


def test_a_record_too_old_for_the_window_shows_that_the_changefeed_ran() -> None:
    assert doubt(150, 150, needed=(0, 1)) is None
    assert doubt(150, 150, needed=(None, 0)) is None  # every record is too old


def test_a_declared_start_decides_alone() -> None:
    assert doubt(150, 150, start_ts=FROM_TS - 1) is None
    assert str(doubt(50, 50, needed=(9, 9), start_ts=FROM_TS)).startswith("changefeed.start_ts says")
