"""Faults that the long run of the fuzzer found, each in its shortest form."""

import pytest

from tests.support import canal_json, debezium_messages, open_protocol
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.events import Event, RowEvent, Undecodable
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.ddl.literals import Literal, default_text


def decoded(protocol: str, good: RawMessage, changed: RawMessage) -> list[tuple[Event, ...]]:
    """What a codec that has read nothing, and one that knows the form of *good*, make of *changed*."""
    fresh, knowing = (codec_for(Changefeed(protocol=protocol, topic="t", timezone="UTC"), 1 << 20) for _ in range(2))
    for _ in range(3):
        knowing.decode(good)
    return [tuple(codec.decode(changed)) for codec in (fresh, knowing)]


@pytest.mark.parametrize("build", [canal_json.row, lambda **time: canal_json.ddl("DROP TABLE t", **time)])
def test_canal_json_has_no_commit_after_the_last_tso(build) -> None:
    good = canal_json.message(build(ts=None))
    assert good.value is not None
    es = b'"es":%d' % (canal_json.TS >> 18)
    assert good.value.count(es) == 1
    for events in decoded("canal-json", good, good._replace(value=good.value.replace(es, b'"es":%d' % (1 << 60)))):
        assert [event.reason for event in events if isinstance(event, Undecodable)] == ["bad_value"]


def test_open_has_no_flags_beyond_64_bits() -> None:
    good = open_protocol.message([open_protocol.row(1, new=open_protocol.columns(1, "a"))], 0)
    image = open_protocol.columns(1, "a")
    image["v"]["f"] = 1 << 64
    for events in decoded("open-protocol", good, open_protocol.message([open_protocol.row(1, new=image)], 0)):
        assert all(isinstance(event, RowEvent | Undecodable) for event in events)
        assert len(events) == 1


@pytest.mark.parametrize("flags", [1 << 63, -(1 << 63) - 1, 1 << 64])
def test_open_reads_flags_beyond_63_bits_however_often_they_come(flags: int) -> None:
    image = open_protocol.columns(1, "a")
    image["v"]["f"] = flags
    codec = codec_for(Changefeed(protocol="open-protocol", topic="t", timezone="UTC"), 1 << 20)
    message = open_protocol.message([open_protocol.row(1, new=image)], 0)
    first, *others = [codec.decode(message) for _ in range(3)]
    assert len(first) == 1
    assert others == [first, first]


@pytest.mark.parametrize("name", [b"i\xc3", rb"i\ud800"])
def test_canal_json_has_no_primary_key_of_names_that_are_not_utf_8(name: bytes) -> None:
    message = canal_json.message(canal_json.row().replace(b'"pkNames":["id"]', b'"pkNames":["%s"]' % name))
    codec = codec_for(Changefeed(protocol="canal-json", topic="t", timezone="UTC"), 1 << 20)
    for _ in range(3):
        assert [event.reason for event in codec.decode(message) if isinstance(event, Undecodable)] == ["bad_value"]


def test_debezium_reads_a_row_whatever_else_its_source_says() -> None:
    good = debezium_messages.row(after={"id": 7}, fields=(debezium_messages.ID,))
    assert good.value is not None
    changed = good._replace(value=good.value.replace(b'"connector"', b'"conn\x96ctor"'))
    fresh, knowing = decoded("debezium", good, changed)
    assert [type(event) for event in fresh] == [type(event) for event in knowing] == [RowEvent]


def test_a_default_is_not_padded_to_a_length_that_no_column_has() -> None:
    literal = Literal("string", "a")
    assert default_text(literal, ColumnType("binary", length=2)) == "a\0"
    assert default_text(literal, ColumnType("binary", length=1 << 62)) is None
