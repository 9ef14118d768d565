"""What is wrong with how a capture is decoded: its events, as the codec of its protocol reads them, against what happened."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.expected import compare, expected_events, known_deviations
from ticdc_replay.captures import Capture
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.canonical import line
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.schema_pass import lookup_in
from ticdc_replay.domain.events import Event, RowEvent, Undecodable
from ticdc_replay.domain.messages import RawMessage

CAP = 1 << 28
_OWN_WORD = "corrupted"
"""In the damage of rows that TiCDC itself took for damaged: classic does so for some right ones."""


class Located(NamedTuple):
    """One event and the message that it came in."""

    message: RawMessage
    event: Event

    @property
    def place(self) -> tuple[Any, ...]:
        return (self.message.topic, self.message.partition, self.message.offset, self.event.ordinal)


def codec_of(capture: Capture) -> Codec:
    """A codec for *capture* that knows all schemas in it."""
    return codec_for(capture.changefeed(), CAP, lookup_in(capture, CAP))


def decode(capture: Capture) -> list[Located]:
    """Every event of *capture*, claim checks resolved from its objects."""
    codec = codec_of(capture)
    return [
        Located(message, _whole(codec, event, capture))
        for message in capture.messages()
        for event in codec.decode(message)
    ]


def _whole(codec: Codec, event: Event, capture: Capture) -> Event:
    if isinstance(event, RowEvent) and event.reference is not None:
        return codec.decode_claim_check(event, (capture.folder / "objects" / event.reference.object_name).read_bytes())
    return event


def differences(folder: Path) -> list[str]:
    """Every difference between what is decoded from the capture in *folder* and what happened; empty when all is right."""
    capture = Capture(folder)
    changefeed = capture.changefeed()
    wrong_on_wire = _wrong_on_wire(folder)
    problems: list[str] = []
    lines = []
    unknown_old = {}
    quarantined = 0
    for located in decode(capture):
        message, event = located
        text = _line(located)
        if isinstance(text, Undecodable):
            about = (text.schema, text.table, text.commit_ts)
            # Values that stand under wrong names need not be of their column's type.
            if _carries_nothing(message) or about in wrong_on_wire:
                quarantined += 1
            else:
                problems.append(f"{message.place}: {text}")
            continue
        lines.append(json.loads(text))
        if isinstance(event, RowEvent):
            unknown_old[located.place] = event.before_unknown
            own_check = event.damage and _OWN_WORD not in event.damage
            if own_check and (event.schema, event.table, event.commit_ts) not in wrong_on_wire:
                problems.append(f"{message.place}: {event.schema}.{event.table} taken for damaged: {event.damage}")
    return problems + compare(lines, folder, changefeed, unknown_old, quarantined)


def _carries_nothing(message: RawMessage) -> bool:
    """Whether *message* deletes a row without saying which: Avro of the new architecture, tables without primary key."""
    return message.key is None and (message.value is None or message.value[:1] == b"\x03")


def _line(located: Located) -> bytes | Undecodable:
    message, event = located
    if isinstance(event, Undecodable):
        return event
    try:
        return line(message, event)
    except ValueError as error:
        assert isinstance(event, RowEvent)
        return Undecodable(event.ordinal, "bad_cell", str(error), event.commit_ts, event.schema, event.table)


def _wrong_on_wire(folder: Path) -> set[tuple[Any, ...]]:
    """Schema, table and commitTs of the events whose messages do not say what happened."""
    wrong = {known.get("expected_seq") for known in known_deviations(folder)["mismatch"]}
    return {
        (event["schema"], event["table"], event["commit_ts"])
        for event in expected_events(folder)
        if event["seq"] in wrong
    }
