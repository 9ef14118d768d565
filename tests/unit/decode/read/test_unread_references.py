"""The object of a message that can't be read is found in its bytes, or the message is told as one that may have one."""

import lz4.frame
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import canal_json, open_protocol
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.read.unread_references import UnreadReferences, unread_references
from ticdc_replay.domain.events import Reference, Undecodable
from ticdc_replay.domain.messages import RawMessage

NAME = "04504b9f-7ddc-41ea-bd96-c0e4d82b1770.json"
CODEC = codec_for(Changefeed(protocol="canal-json", topic="t", timezone="UTC"), 1 << 20)
OTHER = "14504b9f-7ddc-41ea-bd96-c0e4d82b1770.json"
BAD = Undecodable(None, "bad", "bad")
FOUND = UnreadReferences((Reference(NAME, NAME),), complete=True)
CUT = UnreadReferences((Reference(NAME, NAME),), complete=False)
NOTHING = UnreadReferences((), complete=True)
UNKNOWN = UnreadReferences((), complete=False)


def search(value: bytes | None, key: bytes | None = None, *known: Undecodable) -> UnreadReferences:
    return unread_references(RawMessage("t", 0, 0, 0, key, value), [BAD, *known], CODEC)


def snappy(content: bytes) -> bytes:
    compressed: bytes = pa.compress(content, "snappy", asbytes=True)
    return compressed


CANAL = canal_json.row(claimCheckLocation=f"s3:/b/{NAME}")
PLAIN = canal_json.row()


@pytest.mark.parametrize("written", [bytes, lz4.frame.compress, snappy], ids=["plain", "lz4", "snappy"])
def test_a_location_is_found_however_its_message_was_compressed(written: type[bytes]) -> None:
    assert search(written(CANAL)) == FOUND
    assert search(written(PLAIN)) == NOTHING


@pytest.mark.parametrize(
    "spelling",
    [
        f"s3:\\/\\/b\\/{NAME}",
        f"s3://b/{NAME.replace('0', chr(92) + 'u0030')}",
        f"s3://b/{NAME.replace('.', chr(92) + 'u002e')}",
    ],
)
def test_a_location_is_found_in_every_spelling_of_json(spelling: str) -> None:
    assert search(b'{"_tidb":{"claimCheckLocation":"' + spelling.encode() + b'"}}') == FOUND


def test_a_location_is_found_in_avro_where_there_may_be_others() -> None:
    assert search(b"\x16\x06\x06\x02\x02s\x02t\x00\x00" + f"s3://b/{NAME}".encode()) == CUT


def test_all_locations_of_a_batch_are_found_but_those_that_were_read() -> None:
    rows = [open_protocol.row(1, new=open_protocol.columns(1), ccl=f"s3://b/{name}") for name in (NAME, OTHER)]
    batch = open_protocol.message(rows, 0)
    assert [found.object_name for found in search(batch.value, batch.key).references] == [NAME, OTHER]
    read = Undecodable(1, "bad_value", "bad", reference=Reference(f"s3://b/{OTHER}", OTHER))
    assert search(batch.value, batch.key, read) == FOUND
    assert search(b"cut", batch.key, read) == CUT


def test_a_location_that_is_cut_off_may_be_of_any_object() -> None:
    assert search(CANAL[: CANAL.index(b".json")]) == UNKNOWN
    batch = open_protocol.message([open_protocol.row(1, new=open_protocol.columns(1), ccl=f"s3://b/{NAME}")], 0)
    assert batch.key is not None
    assert search(b"", batch.key[:-10]) == UNKNOWN


@pytest.mark.parametrize("odd", [f"s3://b/{NAME.upper()}", f"s3://b/{NAME}?versionId=7", f"s3://b/{NAME}/", "s3://b/"])
def test_a_location_that_is_not_understood_may_be_of_any_object(odd: str) -> None:
    """Names that stand elsewhere, such as in the row's key, don't make up for it."""
    document = b'{"data":[{"k":"' + OTHER.encode() + b'"}],"claimCheckLocation":"' + odd.encode() + b'"}'
    assert not search(document).complete
    rows = [open_protocol.row(1, new=open_protocol.columns(1), ccl=ccl) for ccl in (odd, f"s3://b/{OTHER}?{OTHER}")]
    batch = open_protocol.message(rows, 0)
    assert not search(batch.value, batch.key).complete


@pytest.mark.parametrize("document", [CANAL, PLAIN])
def test_what_is_cut_off_may_refer_to_any_object(document: bytes) -> None:
    """Also where a name stands in it, which may be a part of the row."""
    assert not any(search(document[:end]).complete for end in range(1, len(document)))
    row = open_protocol.row(1, new=open_protocol.columns(1), ccl=f"s3://b/{NAME}")
    batch = open_protocol.message([row, row], 0)
    assert batch.key is not None
    assert batch.value is not None
    assert not any(search(batch.value, batch.key[:end]).complete for end in range(8, len(batch.key)))
    assert not any(search(batch.value[:end], batch.key).complete for end in range(len(batch.value)))


@pytest.mark.parametrize("name", [b"t", b"\xb5"], ids=["UTF-8", "other bytes"])
def test_names_in_a_batch_may_be_of_any_bytes(name: bytes) -> None:
    batch = open_protocol.message([open_protocol.row(1, new=open_protocol.columns(1), ccl=f"s3://b/{NAME}")], 0)
    assert batch.key is not None
    key = batch.key.replace(b'"tbl":"t"', b'"tbl":"' + name + b'"')
    assert search(batch.value, key) == FOUND


@given(st.binary(max_size=60))
def test_bytes_that_say_nothing_may_refer_to_any_object(value: bytes) -> None:
    assert search(b"\x16" + value) == UNKNOWN


def test_messages_that_were_read_completely_are_not_searched() -> None:
    read = Undecodable(0, "claim_check_unreadable", "bad", reference=Reference(f"s3://b/{NAME}", NAME))
    assert unread_references(RawMessage("t", 0, 0, 0, None, CANAL), [read], CODEC) == NOTHING
