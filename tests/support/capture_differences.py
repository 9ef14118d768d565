"""What is wrong with how a capture is decoded: its events, as the codec of its protocol reads them, against what happened."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.expected import expected_events, known_deviations, match
from ticdc_replay.captures import Capture
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.canonical import line
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import lookup_in
from ticdc_replay.domain.events import Event, RowEvent, Undecodable
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.lookup import SchemaLookup

CAP = 1 << 28
_OWN_WORD = "corrupted"
"""In the damage of rows that TiCDC itself took for damaged: classic does so for some right ones."""
_RENAME_TABLE = 14


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
    return _events(codec_of(capture), capture)


def _events(codec: Codec, capture: Capture) -> list[Located]:
    return [
        Located(message, _whole(codec, event, capture))
        for message in capture.messages()
        for event in codec.decode(message)
    ]


def _whole(codec: Codec, event: Event, capture: Capture) -> Event:
    if isinstance(event, RowEvent) and event.reference is not None:
        return codec.decode_claim_check(event, (capture.folder / "objects" / event.reference.object_name).read_bytes())
    return event


class Reading(NamedTuple):
    """A capture as it was decoded: what is wrong with it, and its rows with the expected events that they are of."""

    problems: list[str]
    lookup: SchemaLookup
    rows: list[tuple[RowEvent, tuple[int, ...]]]


@cache
def read(folder: Path) -> Reading:
    """Decode the capture in *folder* and hold it against what happened."""
    capture = Capture(folder)
    wrong_on_wire, moved = _wrong_on_wire(folder), _tables_with_moved_columns(folder)
    problems: list[str] = []
    lines = []
    rows: dict[tuple[Any, ...], RowEvent] = {}
    quarantined = 0
    codec = codec_of(capture)
    for located in _events(codec, capture):
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
            rows[located.place] = event
            mistaken = _OWN_WORD in event.damage or (event.schema, event.table) in moved
            if event.damage and not mistaken and (event.schema, event.table, event.commit_ts) not in wrong_on_wire:
                problems.append(f"{message.place}: {event.schema}.{event.table} taken for damaged: {event.damage}")
    unknown_old = {place: event.before_unknown for place, event in rows.items()}
    matched = match(lines, folder, capture.changefeed(), unknown_old, quarantined)
    seqs = [(event, matched.seqs[place]) for place, event in rows.items() if place in matched.seqs]
    return Reading(problems + matched.problems, codec.schemas, seqs)


def _tables_with_moved_columns(folder: Path) -> set[tuple[str, str]]:
    """Tables whose columns stand in another order than that of their ids: new TiCDC's Avro sums them in the wrong one."""
    meta = json.loads((folder / "meta.json").read_bytes())
    if "classic" in meta["repository"] or "protocol=avro" not in meta["sink_uri"]:
        return set()
    ddl = [event for event in expected_events(folder) if event["type"] == "ddl"]
    moving = [event for event in ddl if re.search(r" add column .* (first|after \S+)( |,|$)", event["query"])]
    renamed = [event for event in ddl if event["action_code"] == _RENAME_TABLE]
    found = {(event["schema"], event["table"]) for event in moving}
    return found | {
        (event["schema"], event["query"].split()[-1]) for event in renamed if (event["schema"], event["table"]) in found
    }


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
