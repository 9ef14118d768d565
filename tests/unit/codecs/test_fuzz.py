"""A short run of the fuzzer over each protocol; ``python -m tests.fuzz`` is the long one."""

import time
from collections.abc import Callable

import pytest

from tests.fuzz import oracle
from tests.fuzz.campaign import run
from tests.fuzz.oracle import Subject
from tests.support.capture_sets import CaptureSets, Committed
from ticdc_replay.captures import Capture
from ticdc_replay.codecs.base import Codec
from ticdc_replay.domain.events import Event, RowEvent
from ticdc_replay.domain.messages import RawMessage

pytestmark = pytest.mark.slow

SUBJECTS = (
    Committed("avro", "classic", "avro-glue"),
    Committed("avro", "new", "avro-ext-checksum"),
    Committed("avro", "new", "avro-ext-watermark"),
    Committed("canal-json", "classic", "canal-json-lz4"),
    Committed("canal-json", "new", "canal-json-claim-check-raw-snappy"),
    Committed("canal-json", "new", "canal-json-content-compatible"),
    Committed("debezium", "classic", "debezium-ext"),
    Committed("debezium", "new", "debezium-avro-string-modes"),
    Committed("debezium", "new", "debezium-no-schema"),
    Committed("open", "classic", "open-claim-check-lz4"),
    Committed("open", "new", "open-updated-columns"),
    Committed("simple-avro", "classic", "simple-avro-checksum"),
    Committed("simple-avro", "new", "simple-avro-claim-check"),
    Committed("simple-json", "classic", "simple-json-claim-check-raw-lz4"),
    Committed("simple-json", "new", "simple-json-checksum"),
)


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_changed_messages_give_right_rows_or_a_reason(captures: CaptureSets, subject: Committed) -> None:
    outcome = run(captures.of(subject), seed=2026, count=250)
    assert outcome.defects == []
    reasons = [name for name in outcome.answers if name.startswith("quarantine")]
    assert len(reasons) > 3
    assert outcome.answers["the same"] + outcome.answers["other events"] > 10


def raises(codec: Codec) -> None:
    decode = codec.decode

    def planted(message: RawMessage) -> list[Event]:
        if not (message.value or b"").endswith(b"}"):
            raise KeyError("planted")
        return decode(message)

    codec.decode = planted  # type: ignore[method-assign]


def hangs(codec: Codec) -> None:
    codec.decode = lambda message: time.sleep(60) or []  # type: ignore[method-assign, func-returns-value]


def overlooks_checksums(codec: Codec) -> None:
    decode = codec.decode

    def planted(message: RawMessage) -> list[Event]:
        return [event._replace(damage="") if isinstance(event, RowEvent) else event for event in decode(message)]

    codec.decode = planted  # type: ignore[method-assign]


def takes_any_object(codec: Codec) -> None:
    resolve = codec.decode_claim_check
    seen: list[RowEvent] = []

    def planted(small: RowEvent, content: bytes) -> Event:
        whole = resolve(small, content)
        if isinstance(whole, RowEvent):
            seen.append(whole)
            return whole
        return seen[0]._replace(ordinal=small.ordinal, reference=small.reference)

    codec.decode_claim_check = planted  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("mistake", "subject", "told"),
    [
        (raises, Committed("open", "new", "open-updated-columns"), "KeyError escapes"),
        (hangs, Committed("open", "new", "open-updated-columns"), "s for one message"),
        (overlooks_checksums, Committed("simple-json", "new", "simple-json-checksum"), "the format shows"),
        (takes_any_object, Committed("simple-avro", "new", "simple-avro-claim-check"), "the format shows"),
    ],
)
def test_a_planted_mistake_is_found(
    captures: CaptureSets,
    monkeypatch: pytest.MonkeyPatch,
    mistake: Callable[[Codec], None],
    subject: Committed,
    told: str,
) -> None:
    if mistake is hangs:  # elsewhere a slow machine would be taken for a mistake
        monkeypatch.setattr(oracle, "SECONDS_PER_MESSAGE", 0.5)
    folder = captures.of(subject)
    planted = Subject(Capture(folder))
    for number in range(len(planted.messages)):
        planted.original(number)
    mistake(planted.codec)
    count = 2 if mistake is hangs else 200
    assert any(told in found.what for found in run(folder, seed=7, count=count, subject=planted).defects)
