"""What is said of records that are older than what they say was committed or resolved."""

import msgspec
import pytest

from tests.unit.snapshot.test_start import SECOND, request
from ticdc_replay.domain import tso
from ticdc_replay.snapshot.clocks import Sent, counts, margin_doubt, waiting

RECORDED_MS = 1_760_000_000_000


def margin(ahead_ms: int, skew_ms: int, recorded_ms: int = RECORDED_MS) -> str | None:
    """What is doubtful where the record at offset 17 was made *ahead_ms* before its commit."""
    sent = Sent(17, tso.from_ms(recorded_ms + ahead_ms), recorded_ms)
    return margin_doubt(msgspec.structs.replace(request(), clock_skew_ms=skew_ms), SECOND, sent)


@pytest.mark.parametrize("ahead_ms", [15_001, 6 * 3_600_000, 3 * 86_400_000, 6 * 3_600_000 + 1])
def test_a_record_long_before_its_commit_is_named_with_what_to_do(ahead_ms: int) -> None:
    said = margin(ahead_ms, 30_000)
    commit_ts = tso.from_ms(RECORDED_MS + ahead_ms)
    assert said is not None
    assert said.startswith(
        f"shop[1]@17: commitTs {tso.describe(commit_ts)} is {ahead_ms} ms later than the time of its record"
    )
    assert "record, 2025-10-09T08:53:20.000Z: " in said
    assert "inspect --topic shop --partition 1 --from 17 --limit 1" in said
    assert "policies.unproven: allow" in said
    enough_s = int(said.split("window.clock_skew_seconds to ")[1].split(" ")[0])
    assert margin(ahead_ms, enough_s * 1000) is None, "what the message says is enough"
    assert margin(ahead_ms, enough_s * 1000 - 2000) is not None, "and not much too much"


@pytest.mark.parametrize("recorded_ms", [-1, -(10**17), 0, 10**17])
def test_a_record_time_that_no_commit_has_is_named_too(recorded_ms: int) -> None:
    sent = Sent(17, tso.MAX_TSO, recorded_ms)
    said = margin_doubt(request(), SECOND, sent)
    assert (said is None) == (recorded_ms > 0)
    if said is not None:
        assert "record, 1970-01-01T00:00:00.000Z: " in said


def test_a_resolved_ts_long_after_its_record_is_no_end_to_be_accepted() -> None:
    sent = Sent(17, tso.from_ms(RECORDED_MS + 20_000), RECORDED_MS, resolves=True)
    said = margin_doubt(msgspec.structs.replace(request(), clock_skew_ms=30_000), SECOND, sent)
    assert said is not None
    assert said.startswith(f"shop[1]@17: resolved-ts {tso.describe(sent.commit_ts)} is 20000 ms later")
    assert "may end at it and lack rows" in said
    assert "--pin head" in said


@pytest.mark.parametrize("skew_ms", [0, 5_000, 30_000])
@pytest.mark.parametrize("recorded_ms", [RECORDED_MS, -1, 0, 1_420_070_399_999])
def test_a_resolved_ts_later_than_its_record_by_more_than_the_skew_does_not_count(
    skew_ms: int, recorded_ms: int
) -> None:
    def sent(ahead_ms: int) -> Sent:
        return Sent(17, tso.from_ms(max(0, recorded_ms) + ahead_ms), recorded_ms, resolves=True)

    assert counts(sent(skew_ms - 1), skew_ms)
    assert counts(sent(skew_ms), skew_ms)
    has_time = recorded_ms == RECORDED_MS
    assert counts(sent(skew_ms + 1), skew_ms) == (not has_time), "a clock that was never set says nothing"


@pytest.mark.parametrize(
    ("say", "end"),
    [
        (waiting, "TiCDC's own is waited for"),
        (margin_doubt, "nothing of the clocks: set policies.unproven: allow for the run of this window"),
    ],
)
def test_a_resolved_ts_that_does_not_count_is_named_with_the_skew_that_is_enough(say, end: str) -> None:
    asked = msgspec.structs.replace(request(), clock_skew_ms=30_000)
    sent = Sent(17, tso.from_ms(RECORDED_MS + 7_200_000), RECORDED_MS, resolves=True)
    said = say(asked, SECOND, sent)
    assert said.startswith(
        f"shop[1]@17: resolved-ts {tso.describe(sent.commit_ts)} is 7200000 ms later than the time of its record, "
        "2025-10-09T08:53:20.000Z: more than "
    )
    assert "inspect --topic shop --partition 1 --from 17 --limit 1" in said
    assert "window.clock_skew_seconds to 14400 or more" in said
    assert said.endswith(end)
    assert counts(sent, 14_400_000)
