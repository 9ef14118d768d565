"""One message never stops a window, nor eats a machine: what it costs grows as its bytes do, and nothing comes out but events."""

import tracemalloc

import msgspec
import pytest

from tests.fuzz.poison import GROWING, codec
from tests.support import canal_json, open_protocol
from tests.support.growth import assert_linear
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.protocols import protocol_names
from ticdc_replay.codecs.base import DECODER_FAILED, MAX_BAD_EVENTS, MAX_DDL_EVENTS, Codec
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.errors import PermanentError, TransientError
from ticdc_replay.domain.events import DdlEvent, Event, RowEvent, Undecodable
from ticdc_replay.domain.messages import RawMessage

pytestmark = pytest.mark.slow

FORMS = sorted(GROWING)
MESSAGE = RawMessage("topic", 0, 7, 0, b"key", b"value")


def text_of(event: Event) -> str | bytes | None:
    if isinstance(event, Undecodable):
        return event.detail
    return event.query if isinstance(event, DdlEvent) else None


@pytest.mark.parametrize("form", FORMS)
def test_a_message_of_any_size_is_events_or_a_reason(form: str) -> None:
    for size in (10_000, 40_000):
        message = GROWING[form](size)
        reader = codec(form)
        events = [event for _ in range(3) for event in reader.decode(message)]
        assert events
        for event in events:
            if isinstance(event, Undecodable):
                assert event.reason != DECODER_FAILED, event.detail
        for asked in (reader.is_schema_change, reader.is_watermark, reader.may_refer):
            assert isinstance(asked(message), bool)
        bytes_in = len(message.key or b"") + len(message.value or b"")
        assert sum(len(text_of(event) or "") for event in events) < 200 * bytes_in


@pytest.mark.parametrize("form", FORMS)
def test_decoding_takes_time_as_a_message_is_long(form: str) -> None:
    messages: dict[int, RawMessage] = {}

    def decode(size: int) -> None:
        reader = codec(form)
        for _ in range(3):
            reader.decode(messages[size])

    for size in (4_000, 16_000):
        messages[size] = GROWING[form](size)
    assert_linear(decode, 4_000)


@pytest.mark.parametrize("form", FORMS)
def test_decoding_takes_memory_as_a_message_is_long(form: str) -> None:
    message, reader = GROWING[form](20_000), codec(form)
    tracemalloc.start()
    try:
        reader.decode(message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    bytes_in = len(message.key or b"") + len(message.value or b"") + reader.expanded
    assert peak < 150 * bytes_in + (1 << 20)


def codec_of(protocol: str) -> Codec:
    return codec_for(Changefeed(protocol=protocol, topic="t", timezone="UTC"), 1 << 20)


def raising(error: BaseException) -> object:
    def fail(*parts: object) -> None:
        raise error

    return fail


PANIC = type("PanicException", (BaseException,), {})


@pytest.mark.parametrize("protocol", protocol_names())
@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        ValueError("Exceeds the limit"),
        OverflowError(),
        RecursionError(),
        ZeroDivisionError(),
        PANIC("index"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_codec_raises_for_a_message_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, protocol: str, error: BaseException
) -> None:
    reader = codec_of(protocol)
    for name in (
        "_decode",
        "_read_object",
        "_made_whole",
        "_is_schema_change",
        "_schema_changes",
        "_is_watermark",
        "_may_refer",
    ):
        monkeypatch.setattr(reader, name, raising(error))
    (bad,) = reader.decode(MESSAGE)
    assert isinstance(bad, Undecodable)
    assert (bad.ordinal, bad.reason) == (None, DECODER_FAILED)
    assert bad.detail.startswith(f"{type(error).__name__}: {error} in {__name__}.raising.<locals>.fail")
    assert reader.is_schema_change(MESSAGE)
    assert reader.is_watermark(MESSAGE)
    assert reader.may_refer(MESSAGE)
    assert list(reader.schema_changes([MESSAGE, MESSAGE])) == [MESSAGE, MESSAGE]
    (small,) = codec_of("open-protocol").decode(
        open_protocol.message([open_protocol.row(1, new=open_protocol.columns(1))], 0)
    )
    assert isinstance(small, RowEvent)
    resolved = reader.decode_claim_check(small, b"")
    assert isinstance(resolved, Undecodable)
    assert (resolved.ordinal, resolved.reason, resolved.table) == (0, DECODER_FAILED, "t")


@pytest.mark.parametrize(
    "error",
    [TransientError("registry away"), PermanentError("refused"), MemoryError(), KeyboardInterrupt(), SystemExit()],
)
def test_what_is_not_the_messages_fault_is_raised(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    reader = codec_of("avro")
    monkeypatch.setattr(reader, "_decode", raising(error))
    monkeypatch.setattr(reader, "_schema_changes", raising(error))
    with pytest.raises(type(error)):
        reader.decode(MESSAGE)
    with pytest.raises(type(error)):
        list(reader.schema_changes([MESSAGE]))


@pytest.mark.parametrize("protocol", protocol_names())
@pytest.mark.parametrize("part", ["key", "value"])
def test_a_message_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch, protocol: str, part: str) -> None:
    reader = codec_of(protocol)
    monkeypatch.setattr(reader, "_decode", raising(AssertionError("it was read")))
    (bad,) = reader.decode(MESSAGE._replace(**{part: bytes((1 << 20) + 1)}))
    assert isinstance(bad, Undecodable)
    assert (bad.ordinal, bad.reason) == (None, "too_large")


def test_a_message_with_too_many_bad_events_is_bad_as_a_whole() -> None:
    good, bad = open_protocol.row(1, new=open_protocol.columns(1)), (b'{"ts":1,"scm":"s","tbl":"t","t":1}', b"{")
    events = codec_of("open-protocol").decode(open_protocol.message([good, *[bad] * MAX_BAD_EVENTS], 0))
    assert [type(event) for event in events] == [RowEvent, *[Undecodable] * MAX_BAD_EVENTS]
    (whole,) = codec_of("open-protocol").decode(open_protocol.message([good, bad, *[bad] * MAX_BAD_EVENTS], 0))
    assert isinstance(whole, Undecodable)
    assert (whole.ordinal, whole.reason) == (None, "too_many_bad_events")
    assert "more than 1000 events" in whole.detail
    assert msgspec.msgpack.encode(whole)


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_a_message_with_many_ddl_is_set_aside_as_a_whole(protocol: str) -> None:
    def sent(count: int) -> RawMessage:
        if protocol == "canal-json":
            return canal_json.message(canal_json.row() + b"".join([canal_json.ddl("DROP TABLE t")] * count))
        row = open_protocol.row(1, new=open_protocol.columns(1))
        return open_protocol.message([row, *[open_protocol.ddl(1, "DROP TABLE t")] * count], 0)

    events = codec_of(protocol).decode(sent(MAX_DDL_EVENTS))
    assert [type(event) for event in events] == [RowEvent, *[DdlEvent] * MAX_DDL_EVENTS]
    (whole,) = codec_of(protocol).decode(sent(MAX_DDL_EVENTS + 1))
    assert isinstance(whole, Undecodable)
    assert (whole.ordinal, whole.reason) == (None, "too_many_ddl_events")
    assert codec_of(protocol).is_schema_change(sent(MAX_DDL_EVENTS + 1)), "rows after it can't be typed"
