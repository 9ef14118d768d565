"""Open Protocol, as TiCDC's own encoders write it, decodes to what happened in the database."""

import json
import os
from pathlib import Path

import pytest

from tests.expected_events import compare
from ticdc_replay.captures import Capture
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.canonical import line
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.events import Event, RowEvent, Undecodable
from ticdc_replay.domain.messages import RawMessage

VARIANTS = (
    "open-2part-index", "open-claim-check", "open-claim-check-lz4", "open-default", "open-delete-handle-key",
    "open-handle-key-only", "open-lz4", "open-no-old-value", "open-raw-change", "open-snappy",
    "open-updated-columns", "open-updated-columns-large",
)  # fmt: skip
CAP = 1 << 28

_more = os.environ.get("TICDC_REPLAY_CAPTURES")
MORE_CAPTURES = sorted(Path(_more).glob("*/*/open*")) if _more else []


def decode(capture: Capture) -> list[tuple[RawMessage, Event]]:
    """Every event of *capture*, claim checks resolved from its objects."""
    codec = codec_for(capture.changefeed(), CAP)
    return [
        (message, _whole(codec, event, capture)) for message in capture.messages() for event in codec.decode(message)
    ]


def _whole(codec: Codec, event: Event, capture: Capture) -> Event:
    if isinstance(event, RowEvent) and event.reference is not None:
        return codec.decode_claim_check(event, (capture.folder / "objects" / event.reference.object_name).read_bytes())
    return event


def differences(folder: Path) -> list[str]:
    capture = Capture(folder)
    events = decode(capture)
    bad = [f"{message.place}: {event}" for message, event in events if isinstance(event, Undecodable)]
    unknown = {
        (message.topic, message.partition, message.offset, event.ordinal): event.before_unknown
        for message, event in events
        if isinstance(event, RowEvent)
    }
    lines = [json.loads(line(message, event)) for message, event in events if not isinstance(event, Undecodable)]
    return bad + compare(lines, folder, capture.changefeed(), unknown)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("architecture", ["classic", "new"])
def test_every_event_of_a_capture_is_the_expected_one(open_captures: Path, architecture: str, variant: str) -> None:
    assert differences(open_captures / architecture / variant) == []


@pytest.mark.parametrize("folder", MORE_CAPTURES, ids=str)
def test_every_event_of_other_captures_is_the_expected_one(folder: Path) -> None:
    assert differences(folder) == []
