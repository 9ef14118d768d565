"""A scan finds the references that a full decode finds, and decodes few messages for it."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import lz4.frame
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import canal_json, open_protocol, simple_protocol
from tests.support.capture_sets import COMMITTED, CaptureSets, Committed
from ticdc_replay.captures import Capture
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.identity import row_key
from ticdc_replay.codecs.base import Codec
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import lookup_in
from ticdc_replay.domain.events import RowEvent, Undecodable
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.reconcile.judge.records import REFERENCES
from ticdc_replay.reconcile.look.scan import ReferenceScan
from ticdc_replay.schemas.lookup import SchemaLookup

MAX_BYTES = 1 << 26
CLAIM_CHECKED = [capture for capture in COMMITTED if "claim-check" in capture.variant]
"""Open, Canal-JSON and Simple in both encodings, of both generations; plain, lz4 and snappy."""
NAMES = [f"{number:08x}-7ddc-41ea-bd96-c0e4d82b1770.json" for number in range(3)]


def scan_of(codec: Codec, messages: list[RawMessage]) -> ReferenceScan:
    scan = ReferenceScan(codec, "shop", "topic id")
    scan.add(messages)
    return scan


def found_by(codec: Codec, messages: list[RawMessage]) -> list[dict[str, Any]]:
    """What a scan with *codec* says of *messages*."""
    rows: list[dict[str, Any]] = scan_of(codec, messages).table().to_pylist()
    return rows


def decoded(codec: Codec, messages: list[RawMessage]) -> list[dict[str, Any]]:
    """What a decode of all of *messages* says of references."""
    found = []
    for message in messages:
        for event in codec.decode(message):
            if not isinstance(event, RowEvent | Undecodable) or event.reference is None:
                continue
            key = row_key(event) if isinstance(event, RowEvent) else (None, None)
            row = dict.fromkeys(REFERENCES.names) | {
                "object_name": event.reference.object_name,
                "pipeline": "shop",
                "topic": message.topic,
                "topic_id": "topic id",
                "partition": message.partition,
                "offset": message.offset,
                "ordinal": event.ordinal,
                "timestamp_ms": message.timestamp_ms,
                "commit_ts": event.commit_ts,
                "schema": event.schema,
                "table": event.table,
                "key_hash": key[0],
                "key": key[1],
                "status": "seen",
                "source": "scan",
            }
            found.append(row)
    return found


@pytest.mark.parametrize("name", CLAIM_CHECKED, ids=str)
def test_a_scan_finds_what_a_decode_finds(captures: CaptureSets, name: Committed) -> None:
    capture = Capture(captures.of(name))
    messages = list(capture.messages())
    lookup = lookup_in(capture, MAX_BYTES)
    scan = scan_of(codec_for(capture.changefeed(), MAX_BYTES, lookup), messages)
    expected = decoded(codec_for(capture.changefeed(), MAX_BYTES, lookup), messages)
    assert scan.table().to_pylist() == expected
    assert {row["object_name"] for row in expected} == {path.name for path in (capture.folder / "objects").iterdir()}
    assert all(row["key_hash"] for row in expected)
    assert scan.unsearched == ()
    assert scan.counts.decoded == len({(row["topic"], row["partition"], row["offset"]) for row in expected})


@pytest.mark.skipif("TICDC_REPLAY_CAPTURES" not in os.environ, reason="the full set of captures is not at hand")
def test_a_scan_finds_what_a_decode_finds_in_every_capture() -> None:
    for meta in sorted(Path(os.environ["TICDC_REPLAY_CAPTURES"]).rglob("meta.json")):
        capture = Capture(meta.parent)
        messages = list(capture.messages())
        lookup = lookup_in(capture, MAX_BYTES)
        scan = scan_of(codec_for(capture.changefeed(), MAX_BYTES, lookup), messages)
        expected = decoded(codec_for(capture.changefeed(), MAX_BYTES, lookup), messages)
        assert (str(meta), scan.table().to_pylist()) == (str(meta), expected)
        assert scan.unsearched == ()


@pytest.mark.parametrize("name", [each for each in COMMITTED if each not in CLAIM_CHECKED], ids=str)
def test_nothing_is_found_where_nothing_is_referred_to(captures: CaptureSets, name: Committed) -> None:
    capture = Capture(captures.of(name))
    scan = scan_of(codec_for(capture.changefeed(), MAX_BYTES), list(capture.messages()))
    assert (scan.counts.references, scan.unsearched) == (0, ())


@pytest.mark.parametrize("name", [each for each in CLAIM_CHECKED if each.archive.startswith("simple")], ids=str)
def test_references_are_found_without_the_tables_definition_but_for_their_keys(
    captures: CaptureSets, name: Committed
) -> None:
    capture = Capture(captures.of(name))
    messages = list(capture.messages())
    scan = scan_of(codec_for(capture.changefeed(), MAX_BYTES), messages)
    keyless = {"key": None, "key_hash": None}
    expected = decoded(codec_for(capture.changefeed(), MAX_BYTES, lookup_in(capture, MAX_BYTES)), messages)
    assert scan.table().to_pylist() == [row | keyless for row in expected]
    assert scan.missing_versions


@pytest.mark.parametrize("name", CLAIM_CHECKED, ids=str)
@pytest.mark.parametrize("compression", ["none", "lz4", "snappy"])
def test_references_are_found_although_the_configuration_names_another_compression(
    captures: CaptureSets, name: Committed, compression: str
) -> None:
    capture = Capture(captures.of(name))
    messages = list(capture.messages())
    changefeed = capture.changefeed()
    other = Changefeed(
        protocol=changefeed.protocol,
        topic=changefeed.topic,
        timezone=changefeed.timezone,
        compression=compression,  # type: ignore[arg-type]
        encoding_format=changefeed.encoding_format,
        enable_tidb_extension=changefeed.enable_tidb_extension,
    )
    found = found_by(codec_for(other, MAX_BYTES, lookup_in(capture, MAX_BYTES)), messages)
    names = {path.name for path in (capture.folder / "objects").iterdir()}
    assert {row["object_name"] for row in found} >= names


@pytest.mark.parametrize("name", CLAIM_CHECKED, ids=str)
@pytest.mark.parametrize("protocol", ["avro", "debezium", "debezium-avro"])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_references_are_found_although_the_changefeed_has_a_protocol_without_claim_checks_now(
    captures: CaptureSets, name: Committed, protocol: str, compression: Any
) -> None:
    capture = Capture(captures.of(name))
    other = Changefeed(protocol=protocol, topic="t", timezone="UTC", compression=compression)
    messages = list(capture.messages())
    found = found_by(codec_for(other, MAX_BYTES), messages)
    assert {row["object_name"] for row in found} >= {path.name for path in (capture.folder / "objects").iterdir()}


@pytest.mark.parametrize("value", [b"\0\0\0\0\1", b"\3\0" + bytes(16)], ids=["confluent", "glue"])
@pytest.mark.parametrize("protocol", ["avro", "debezium-avro"])
def test_of_a_row_in_avro_the_names_count_and_no_registry_is_asked(protocol: str, value: bytes) -> None:
    codec = codec_for(Changefeed(protocol=protocol, topic="t", timezone="UTC"), MAX_BYTES)
    names = f"claimCheckLocation a.json s3://b/{NAMES[0]}".encode()
    scan = scan_of(codec, [RawMessage("t", 0, 7, 0, value, value + names)])
    assert scan.unsearched == ()
    assert [row["object_name"] for row in scan.table().to_pylist()] == [NAMES[0]]


@pytest.mark.parametrize("protocol", ["avro", "debezium", "debezium-avro"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b'{"_tidb":{"claimCheckLocation":"s3:/'),
        (b'\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\x40{"ccl":"', bytes(8)),
        (b"\0\0\0\0\1", b"cut"),
        (None, b"\x16\6\6\2\2s\2t"),
    ],
    ids=["json", "open", "a key alone", "simple"],
)
def test_what_is_not_plainly_of_a_protocol_without_claim_checks_counts_as_unsearched(
    protocol: str, key: bytes | None, value: bytes
) -> None:
    codec = codec_for(Changefeed(protocol=protocol, topic="t", timezone="UTC"), MAX_BYTES)
    assert scan_of(codec, [RawMessage("t", 0, 7, 0, key, value)]).unsearched == (OffsetRange("t", 0, 7, 8),)


@cache
def _small(
    archive: str, architecture: str, variant: str, folder: Path
) -> tuple[Changefeed, RawMessage, frozenset[str]]:
    """A message with references, and their names."""
    capture = Capture(folder / architecture / variant)
    codec = codec_for(capture.changefeed(), MAX_BYTES)
    for message in capture.messages():
        names = {row["object_name"] for row in found_by(codec, [message])}
        if names:
            return capture.changefeed(), message, frozenset(names)
    raise AssertionError(f"{variant} of {archive} has no reference")


@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIM_CHECKED, ids=str)
def test_a_damaged_message_gives_its_references_or_is_told(captures: CaptureSets, name: Committed) -> None:
    """However it is cut, and whatever byte of it is lost or changed, unless a row can be read in it still."""
    changefeed, message, names = _small(*name, captures(name.archive))
    part = "key" if changefeed.protocol == "open-protocol" else "value"
    raw = getattr(message, part)
    codec = codec_for(changefeed, MAX_BYTES)
    place = OffsetRange(message.topic, message.partition, message.offset, message.offset + 1)
    damaged = [raw[:end] for end in range(1, len(raw))]
    damaged += [raw[:at] + changed + raw[at + 1 :] for at in range(len(raw)) for changed in (b"", b"\0", b"~")]
    for text in damaged:
        found = message._replace(**{part: text})
        if text == raw or any(isinstance(event, RowEvent) for event in codec.decode(found)):
            continue
        scan = scan_of(codec, [found])
        assert names <= {row["object_name"] for row in scan.table().to_pylist()} or scan.unsearched == (place,), text


@given(st.lists(st.sampled_from([*NAMES, None]), min_size=1, max_size=8), st.sampled_from(["none", "lz4", "snappy"]))
def test_every_reference_of_a_batch_is_found_at_its_place(names: list[str | None], compression: Any) -> None:
    events = []
    for at, name in enumerate(names):
        marker = {} if name is None else {"ccl": f"s3://bucket/{name}"}
        key, value = open_protocol.row(100 + at, new={"id": open_protocol.columns(at)["id"]}, **marker)
        events.append((key, {"none": bytes, "lz4": lz4.frame.compress, "snappy": _snappy}[compression](value)))
    changefeed = Changefeed(protocol="open-protocol", topic="t", timezone="UTC", compression=compression)
    found = found_by(codec_for(changefeed, MAX_BYTES), [open_protocol.message(events, 7)])
    expected = [(7, at, name, f'{{"id":{at}}}') for at, name in enumerate(names) if name is not None]
    assert [(row["offset"], row["ordinal"], row["object_name"], row["key"]) for row in found] == expected


ODD = [
    f"s3://bucket/{NAMES[0]}?versionId=7", f"s3://bucket/{NAMES[0].upper()}", f"s3://bucket/{NAMES[0]}/",
    f"s3://bucket/{NAMES[0][:-3]}", "s3://bucket/", f"s3://bucket/{NAMES[0]}#1", f"s3://bucket/{NAMES[0]}%20", " ", "",
    f"s3://bucket/{NAMES[0]}?endpoint=http://host/{NAMES[1]}",
]  # fmt: skip


@pytest.mark.parametrize("location", ODD)
@pytest.mark.parametrize("encoding", ["open-protocol", "canal-json", "json", "avro"])
def test_a_row_whose_location_is_not_understood_makes_its_message_unsearched(encoding: Any, location: str) -> None:
    codec, odd = _refers(encoding, location)
    scan = scan_of(codec, [odd])
    for _ in range(3):  # the second time, a codec knows the form
        events = codec.decode(odd)
        assert [(type(event), getattr(event, "partial", None)) for event in events] == [(RowEvent, True)] * len(events)
    assert scan.unsearched == (OffsetRange("topic", 0, 7, 8),)
    assert {row["object_name"] for row in scan.table().to_pylist()} == {""}


def _refers(encoding: Any, location: str) -> tuple[Codec, RawMessage]:
    """A message at offset 7 with the key of rows whose other columns are said to be at *location*, and its codec."""
    if encoding in ("json", "avro"):
        schema = simple_protocol.table_schema(simple_protocol.ID)
        data = {"id": simple_protocol.number(encoding, 1)}
        value = simple_protocol.row(encoding, data=data, claimCheckLocation=location)
        return simple_protocol.codec(encoding, schema), RawMessage("topic", 0, 7, 0, None, value)
    if encoding == "open-protocol":
        rows = [open_protocol.row(100, new={"id": open_protocol.columns(1)["id"]}, ccl=location) for _ in range(2)]
        odd = open_protocol.message(rows, 7)
    else:
        odd = RawMessage("topic", 0, 7, 0, None, canal_json.row(claimCheckLocation=location))
    changefeed = Changefeed(protocol=encoding, topic="topic", timezone="UTC", enable_tidb_extension=True)
    return codec_for(changefeed, MAX_BYTES), odd


def test_a_member_with_escaped_letters_is_a_reference_too() -> None:
    key, value = open_protocol.row(100, new={"id": open_protocol.columns(1)["id"]}, ccl=f"s3://bucket/{NAMES[0]}")
    escaped = open_protocol.message([(key.replace(b'"ccl"', b'"\\u0063cl"'), value)], 0)
    codec = codec_for(Changefeed(protocol="open-protocol", topic="t", timezone="UTC"), MAX_BYTES)
    assert [row["object_name"] for row in found_by(codec, [escaped])] == [NAMES[0]]


def test_a_message_of_another_protocol_gives_its_reference(captures: CaptureSets) -> None:
    """The changefeed was changed from Canal-JSON to Open, and its topic was not."""
    capture = Capture(captures("canal-json") / "new" / "canal-json-claim-check")
    changefeed = Changefeed(protocol="open-protocol", topic="t", timezone="UTC")
    scan = scan_of(codec_for(changefeed, MAX_BYTES, SchemaLookup()), list(capture.messages()))
    found = {row["object_name"] for row in scan.table().to_pylist()}
    assert found == {path.name for path in (capture.folder / "objects").iterdir()}
    assert scan.unsearched == ()


def _snappy(content: bytes) -> bytes:
    compressed: bytes = pa.compress(content, "snappy", asbytes=True)
    return compressed


def _open_twice(first: str, last: str) -> RawMessage:
    key, value = open_protocol.row(canal_json.TS, new=open_protocol.columns(1), ohk=True, ccl=last)
    return open_protocol.message([(key.replace(b'"ccl"', b'"ccl":"%b","ccl"' % first.encode()), value)], 0)


def _canal_twice(first: str, last: str, where: bytes, name: bytes = b"claimCheckLocation") -> RawMessage:
    """Both in one ``_tidb``, or the first in one of its own, before or behind the images."""
    value = canal_json.row(claimCheckLocation=last) if where == b"same" else canal_json.row()
    stated = b'"%b":"%b"' % (name, first.encode())
    extension = b'"_tidb":{"commitTs":%d,%b},' % (canal_json.TS, stated)
    if where == b"same":
        return canal_json.message(value.replace(b'"claimCheckLocation"', stated + b',"claimCheckLocation"'))
    before = {b"start": b'"id":0', b"middle": b'"sqlType"', b"end": b'"_tidb"'}[where]
    return canal_json.message(value.replace(before, extension + before))


def _simple_twice(first: str, last: str) -> RawMessage:
    value = simple_protocol.row("json", data={"id": "1"}, claimCheckLocation=last)
    stated = b'"claimCheckLocation":"%b",' % first.encode()
    return simple_protocol.message(value.replace(b'"claimCheckLocation"', stated + b'"claimCheckLocation"'))


@pytest.mark.parametrize(
    ("protocol", "message", "both"),
    [
        ("open-protocol", _open_twice, True),
        ("canal-json", lambda *each: _canal_twice(*each, b"same"), True),
        ("canal-json", lambda *each: _canal_twice(*each, b"start"), False),
        ("canal-json", lambda *each: _canal_twice(*each, b"middle"), False),
        ("canal-json", lambda *each: _canal_twice(*each, b"end"), False),
        ("canal-json", lambda *each: _canal_twice(*each, b"same", rb"claimCheckLo\u0063ation"), True),
        ("canal-json", lambda *each: _canal_twice(*each, b"middle", rb"claimCheckLo\u0063ation"), False),
        ("simple", _simple_twice, True),
    ],
)
def test_of_a_location_that_stands_twice_each_object_is_protected_or_the_message_counts_as_unsearched(
    protocol: str, message: Any, both: bool
) -> None:
    codec = codec_for(Changefeed(protocol=protocol, topic="t", timezone="UTC", enable_tidb_extension=True), MAX_BYTES)
    for _ in range(3):  # a form that was met
        assert codec.decode(canal_json.message(canal_json.row()))
    sent = message(f"s3://b/{NAMES[0]}", f"s3://b/{NAMES[1]}")
    for _ in range(3):
        scan = scan_of(codec, [sent])
        found = {row["object_name"] for row in scan.table().to_pylist()}
        assert found == ({NAMES[0], NAMES[1]} if both else {NAMES[0]})
    unnamed = message("s3://b/nobody knows", f"s3://b/{NAMES[1]}")
    assert scan_of(codec, [unnamed]).unsearched
    assert scan_of(codec, [message(f"s3://b/{NAMES[0]}", "")]).unsearched or not both
