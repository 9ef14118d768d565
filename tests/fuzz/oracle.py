"""What a codec may answer to a changed message, and the checks of it.

Rows, or an ``Undecodable`` with its reason. Never an exception, never minutes, never a row that contradicts itself; and where the
change is one that the format shows or that means nothing, not another row either.
"""

import json
import re
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from types import FrameType
from typing import NamedTuple

from tests.support.capture_differences import codec_of
from ticdc_replay.captures import Capture
from ticdc_replay.changelog.cells.convert import rows_to_batch
from ticdc_replay.codecs.base import DECODER_FAILED, Codec
from ticdc_replay.codecs.canonical import line
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.events import (
    BootstrapEvent,
    DdlEvent,
    Event,
    Image,
    Operation,
    RowEvent,
    Undecodable,
    WatermarkEvent,
)
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.tso import MAX_TSO
from ticdc_replay.schemas.resolve import ResolvedSchema, SchemaResolver

DECOMPRESSED_CAP = 1 << 22
"""Small, so that bombs need not be large."""
SECONDS_PER_MESSAGE = 5


class Allowed(Enum):
    """What may come out of a changed message, compared with the unchanged one."""

    ANYTHING = "anything consistent"
    SAME = "the same events"
    SAME_OR_BAD = "the same events or quarantine"
    BAD = "quarantine"
    DAMAGED = "the same events, quarantine, or rows that are marked as damaged"


class DefectError(Exception):
    """What a codec must not do."""


class _Hang(BaseException):
    """Raised into code that takes too long; not an Exception, so that nothing on its way takes it for one."""


class Answer(NamedTuple):
    """What a codec said: events, and their lines (None for what has none)."""

    events: tuple[Event, ...]
    lines: tuple[bytes | None, ...]

    @property
    def bad(self) -> bool:
        return any(found is None for found in self.lines)


class Subject:
    """One capture with the codec that reads it."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.changefeed = capture.changefeed()
        self.messages = list(capture.messages())
        self.writer_schemas = capture.writer_schemas()
        self.lookup = codec_of(capture).schemas
        self.codec = self.fresh_codec()
        self._answers: dict[int, Answer] = {}
        self._resolver = SchemaResolver(self.lookup.history)
        self._unconverted: list[RowEvent] = []

    def fresh_codec(self) -> Codec:
        return codec_for(self.changefeed, DECOMPRESSED_CAP, self.lookup)

    def original(self, number: int) -> Answer:
        """What the unchanged message *number* says."""
        if number not in self._answers:
            self._answers[number] = self.ask(self.messages[number])
        return self._answers[number]

    def ask(self, message: RawMessage, codec: Codec | None = None) -> Answer:
        """What the codec, or another *codec* of it, says to *message*. Raises DefectError when that is never allowed."""
        codec = codec or self.codec
        with _in_time():
            events = tuple(codec.decode(message))
            change, watermark = codec.is_schema_change(message), codec.is_watermark(message)
        if any(isinstance(event, DdlEvent | BootstrapEvent) for event in events) and not change:
            raise DefectError("is_schema_change denies a message with DDL or a bootstrap")
        if any(isinstance(event, WatermarkEvent) for event in events) and not watermark:
            raise DefectError("is_watermark denies a message with a watermark")
        return self._checked(message, events)

    def resolve(self, message: RawMessage, small: RowEvent, content: bytes) -> Answer:
        """What the codec makes of *content*, taken for the claim-check object of *small*."""
        with _in_time():
            event = self.codec.decode_claim_check(small, content)
        if isinstance(event, RowEvent) and (event.partial or event.reference != small.reference):
            raise DefectError("a resolved row is partial, or lost its reference")
        return self._checked(message, (event,))

    def _checked(self, message: RawMessage, events: tuple[Event, ...]) -> Answer:
        for event in events:
            _check_event(event)
        ddl = [event for event in events if isinstance(event, DdlEvent)]
        if ddl:
            with _in_time():
                self.lookup.history.with_ddls(ddl)
        self._unconverted += [event for event in events if isinstance(event, RowEvent)]
        return Answer(events, tuple(_line(message, event) for event in events))

    def convert(self) -> None:
        """Type the rows of the answers since the last call as a changelog does; whatever their values, that must not raise."""
        rows, self._unconverted = self._unconverted, []
        groups: dict[ResolvedSchema, list[RowEvent]] = defaultdict(list)
        with _in_time(len(rows)):
            for row in rows:
                groups[self._resolver.resolve(row)].append(row)
            for resolved, members in groups.items():
                rows_to_batch(members, resolved, self.changefeed.timezone)


def judge(original: Answer, changed: Answer, allowed: Allowed) -> None:
    """Raise DefectError where *changed* is not *allowed*."""
    if allowed is Allowed.ANYTHING or changed.lines == original.lines:
        return
    known, told = _unordered(original), _unordered(changed)
    if allowed is Allowed.BAD and not changed.bad:
        raise DefectError("a broken message gives events")
    if allowed is Allowed.SAME and told != known:
        raise DefectError("a change that means nothing gives other events")
    if allowed in (Allowed.SAME_OR_BAD, Allowed.DAMAGED):
        for event, text in zip(changed.events, told, strict=True):
            damaged = allowed is Allowed.DAMAGED and isinstance(event, RowEvent) and event.damage
            if text not in (None, *known) and not damaged:
                raise DefectError("a change that the format shows gives other rows")


def same_meaning(one: Answer, other: Answer) -> bool:
    """Whether both say the same."""
    return one.lines == other.lines or _unordered(one) == _unordered(other)


def _unordered(answer: Answer) -> list[str | None]:
    """The lines of *answer* with members in one order: that of columns carries no meaning."""
    return [None if text is None else json.dumps(json.loads(text), sort_keys=True) for text in answer.lines]


def _line(message: RawMessage, event: Event) -> bytes | None:
    if isinstance(event, Undecodable):
        return None
    try:
        return line(message, event)
    except ValueError:
        return None
    except Exception as error:
        raise DefectError(f"{type(error).__name__} while its line is written: {error}") from error


def _check_event(event: Event) -> None:
    if isinstance(event, Undecodable):
        if event.reason == DECODER_FAILED:
            raise DefectError(f"{event.detail} (caught at the boundary)")
        if not re.fullmatch(r"[a-z_]+", event.reason) or not event.detail:
            raise DefectError(f"quarantine without a reason: {event}")
    elif isinstance(event, RowEvent):
        _check_row(event)
    elif isinstance(event, DdlEvent | WatermarkEvent):
        _check_tso(event.commit_ts)


def _check_row(row: RowEvent) -> None:
    _check_tso(row.commit_ts)
    if not row.schema or not row.table:
        raise DefectError("a row of no table")
    sides = {Operation.INSERT: (False, True), Operation.DELETE: (True, False), Operation.UPSERT: (False, True)}
    there = (row.before is not None, row.after is not None)
    if there != sides.get(row.operation, (there[0], True)):
        raise DefectError(f"images {there} of a {row.operation}")
    cells = set()
    for side, image in (("before", row.before), ("after", row.after)):
        if image is not None:
            _check_image(image)
            cells |= {f"{side}.{name}" for name in image.shape.names}
    if not cells.issuperset(row.lossy):
        raise DefectError(f"lossy cells that are not there: {row.lossy}")


def _check_image(image: Image) -> None:
    if len(image.values) != len(image.shape.columns):
        raise DefectError("an image with more or fewer values than columns")
    if len(set(image.shape.names)) != len(image.shape.names):
        raise DefectError(f"columns of one name: {image.shape.names}")


def _check_tso(commit_ts: int | None) -> None:
    if commit_ts is not None and not (isinstance(commit_ts, int) and 0 <= commit_ts <= MAX_TSO):
        raise DefectError(f"commitTs {commit_ts!r}")


@contextmanager
def _in_time(messages: int = 1) -> Iterator[None]:
    """Raise DefectError in what takes too long for so many *messages*, or raises."""
    before = signal.signal(signal.SIGALRM, _hang)
    signal.setitimer(signal.ITIMER_REAL, SECONDS_PER_MESSAGE * max(1, messages))
    try:
        yield
    except _Hang:
        raise DefectError(f"more than {SECONDS_PER_MESSAGE} s for one message") from None
    except Exception as error:
        raise DefectError(f"{type(error).__name__} escapes: {error}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _hang(number: int, frame: FrameType | None) -> None:
    raise _Hang
