"""Cells whose bytes TiCDC's encoders replaced are named; text that really has U+FFFD is not."""

from collections.abc import Callable

import pytest

from tests.support import canal_json, open_protocol
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.events import RowEvent
from ticdc_replay.domain.messages import RawMessage

Build = Callable[[str, str], RawMessage]
TYPES = {"id": "int", "v": "varchar", "b": "varbinary"}


def canal(old: str, new: str) -> RawMessage:
    """An UPDATE of v, beside bytes of a character that is not ASCII."""
    images = [{"id": "1", "v": value, "b": "ï¿½"} for value in (old, new)]
    return canal_json.message(canal_json.row("UPDATE", old=images[0], data=images[1], types=TYPES))


def classic_open(old: str, new: str) -> RawMessage:
    images = [open_protocol.columns(1, value, b={"t": 15, "f": 65, "v": "\ufffd"}) for value in (old, new)]
    return open_protocol.message([open_protocol.row(canal_json.TS, new=images[1], old=images[0])], 0)


def escaped(message: RawMessage) -> RawMessage:
    """The character U+FFFD behind a ``?`` as the escape that Go writes for a byte that is not UTF-8."""
    assert message.value is not None
    value = message.value.replace("?\ufffd".encode(), b"?\\ufffd")
    if message.key is not None:  # Open Protocol's frame tells the length
        value = (len(value) - 8).to_bytes(8, "big") + value[8:]
    return RawMessage(message.topic, message.partition, message.offset, message.timestamp_ms, message.key, value)


@pytest.mark.parametrize(("protocol", "build"), [("canal-json", canal), ("open-protocol", classic_open)])
@pytest.mark.parametrize(
    ("old", "new", "lossy"),
    [
        ("a", "a?\ufffdb", {"after.v"}),
        ("a?\ufffdb", "a", {"before.v"}),
        ("?\ufffd", "\\?\ufffd", {"before.v", "after.v"}),
        ("a", "a\ufffdb", set()),
        ("a", "a\\ufffd", set()),
        ("a", "\\\\ufffd \ufffd", set()),
    ],
)
def test_text_that_lost_bytes_is_lossy(protocol: str, build: Build, old: str, new: str, lossy: set[str]) -> None:
    codec = codec_for(Changefeed(protocol=protocol, topic="topic", timezone="UTC", enable_tidb_extension=True), 1 << 20)
    for _ in range(4):  # also by the parser that is compiled for a form that comes again
        (event,) = codec.decode(escaped(build(old, new)))
        assert isinstance(event, RowEvent), event
        assert set(event.lossy) == lossy
