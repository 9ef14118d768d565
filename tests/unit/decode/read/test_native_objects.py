"""Rows in claim-check objects: the native extension takes those that Python takes, and writes them the same."""

import base64
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from uuid import UUID

import msgspec
import pytest

from tests.support import canal_json, open_protocol
from tests.support.capture_sets import CaptureSets, Committed
from tests.support.native_decoding import LIMITS, Written, both
from ticdc_replay.captures import Capture
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.decode.plan.schema_pass import lookup_in
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitContext
from ticdc_replay.decode.read import split
from ticdc_replay.decode.read.native import NativeRows
from ticdc_replay.decode.read.redrive import RedriveDecoder
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import PermanentError
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.extension import native_extension
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.history import SchemaHistory

pytest.importorskip("ticdc_replay_native", reason="the native extension is not built here (no cargo)")

TS = canal_json.TS
CREATE = "CREATE TABLE t (id int PRIMARY KEY, v varchar(999))"
HISTORY = SchemaHistory().with_ddls([DdlEvent(0, 1, "s", "t", CREATE, "CREATE")])
OPEN_HISTORY = SchemaHistory().with_ddls([DdlEvent(0, 1, "s", "t", CREATE.replace("int", "bigint"), 3)])
CANAL = Changefeed(protocol="canal-json", topic="topic", timezone="UTC", enable_tidb_extension=True)
OPEN = Changefeed(protocol="open-protocol", topic="topic", timezone="UTC")

Put = Callable[[bytes], str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The claim-check store."""
    folder = tmp_path / "claims"
    folder.mkdir()
    return folder


@pytest.fixture
def put(folder: Path) -> Put:
    """Stores an object; its location."""

    def put(content: bytes) -> str:
        name = f"{UUID(int=len(list(folder.iterdir())))}.json"
        (folder / name).write_bytes(content)
        return f"s3://bucket/{name}"

    return put


def wrapped(key: bytes | None, value: bytes) -> bytes:
    parts = {
        name: part if part is None else base64.b64encode(part).decode()
        for name, part in (("key", key), ("value", value))
    }
    return json.dumps(parts, separators=(",", ":")).encode()


def canal_row(at: int, type_: str = "INSERT", **more: object) -> bytes:
    old = {"id": str(at), "v": f"before {at}"} if type_ == "UPDATE" else None
    data = {"id": str(at), "v": f'{at} "é"'}
    return canal_json.row(type_, **{"data": data, "old": old, "ts": TS + at, **more})


def canal_small(at: int, location: str, type_: str = "INSERT", **more: object) -> RawMessage:
    """The message that has only the key of ``canal_row`` *at*."""
    key = {"id": str(at)}
    row = canal_json.row(
        type_,
        **{
            "data": key,
            "old": key if type_ == "UPDATE" else None,
            "ts": TS + at,
            "claimCheckLocation": location,
            **more,
        },
    )
    return canal_json.message(row, at)


def in_store(changefeed: Changefeed, folder: Path, **more: object) -> Changefeed:
    return msgspec.structs.replace(changefeed, large_message="claim-check", claim_check_uri=folder.as_uri(), **more)


@pytest.mark.parametrize("generation", ["classic", "new"])
@pytest.mark.parametrize(
    ("archive", "variant"), [("canal-json", "canal-json-claim-check"), ("open", "open-claim-check")]
)
def test_captures_give_the_same_files(
    write: Callable[..., Written], captures: CaptureSets, generation: str, archive: str, variant: str
) -> None:
    folder = captures.of(Committed(archive, generation, variant))
    found = Capture(folder)
    changefeed = msgspec.structs.replace(found.changefeed(), claim_check_uri=(folder / "objects").as_uri())
    history = lookup_in(found, LIMITS.decompressed_max_bytes).history
    # Twice, as the first time some forms are learnt.
    messages = [*found.messages(), *found.messages()]
    messages = [message._replace(topic="topic", partition=0, offset=at) for at, message in enumerate(messages)]
    fast = both(write, messages, changefeed, history)
    assert fast.objects >= fast.result.events.claim_checks_resolved / 2 > 0


def test_limits_fall_on_the_same_rows(
    write: Callable[..., Written], monkeypatch: pytest.MonkeyPatch, captures: CaptureSets
) -> None:
    monkeypatch.setattr(split, "BATCH_BYTES", 60_000)
    monkeypatch.setattr("ticdc_replay.changelog.files.data_file.ROW_GROUP_ROWS", 3)
    folder = captures.of(Committed("canal-json", "new", "canal-json-claim-check"))
    found = Capture(folder)
    changefeed = msgspec.structs.replace(found.changefeed(), claim_check_uri=(folder / "objects").as_uri())
    history = lookup_in(found, LIMITS.decompressed_max_bytes).history
    messages = [message._replace(topic="topic", partition=0, offset=at) for at, message in enumerate(found.messages())]
    fast = both(write, messages, changefeed, history, file_rows=5)
    assert fast.taken > 10
    assert fast.objects > 5


@pytest.mark.parametrize("raw", [False, True])
def test_a_table_all_of_whose_rows_are_in_objects_is_learnt_from_them(
    write: Callable[..., Written], folder: Path, put: Put, raw: bool
) -> None:
    types = ["INSERT", "UPDATE", "DELETE"] * 4
    rows = [canal_row(at, type_) for at, type_ in enumerate(types)]
    contents = rows if raw else [wrapped(None, row) for row in rows]
    messages = [canal_small(at, put(content), types[at]) for at, content in enumerate(contents)]
    fast = both(write, messages, in_store(CANAL, folder, claim_check_raw_value=raw), HISTORY)
    assert (fast.objects, fast.result.events.claim_checks_resolved) == (9, 12)


@pytest.mark.parametrize("key", [["id"], []], ids=["with key", "without key"])
def test_rows_that_refer_to_one_object_are_read_once_and_stay_the_same(
    write: Callable[..., Written], folder: Path, put: Put, key: list[str]
) -> None:
    messages = []
    for at in range(12):
        location = put(wrapped(None, canal_row(at, pk=key)))
        messages += [canal_small(at, location, pk=key)] * (1 + at % 6)
        messages += [canal_small(at + 100, location, pk=key)] * (at % 2)
    messages = [message._replace(offset=at) for at, message in enumerate(messages)]
    fast = both(write, messages, in_store(CANAL, folder), HISTORY)
    assert fast.result.quarantine_reasons["claim_check_mismatch"] == 6
    assert fast.result.events.claim_checks_resolved == len(messages) - 6
    assert 5 < fast.objects < 20


def test_rows_of_open_protocol_keep_their_place_in_the_message(
    write: Callable[..., Written], folder: Path, put: Put
) -> None:
    messages = []
    for at in range(4):
        events = []
        for ordinal in range(3):
            number = 3 * at + ordinal
            whole = open_protocol.message([open_protocol.row(TS + number, new=open_protocol.columns(number, "x"))], 0)
            location = put(wrapped(whole.key, whole.value or b""))
            key = {"id": open_protocol.columns(number)["id"]}
            events.append(open_protocol.row(TS + number, new=key, ccl=location))
        messages.append(open_protocol.message(events, at))
    fast = both(write, messages, in_store(OPEN, folder), OPEN_HISTORY)
    assert (fast.objects, fast.result.events.claim_checks_resolved) == (11, 12)


@pytest.mark.parametrize("change", ["inside", "outside"])
def test_an_object_that_is_refused_leaves_the_row_before_it_as_it_was(
    write: Callable[..., Written], folder: Path, put: Put, change: str
) -> None:
    """Beyond the window a row is read but not kept, so that the last row is another message's or event's."""
    window = Window(1, TS + 100)
    key = {"id": open_protocol.columns(7)["id"]}
    messages = []
    for at in range(6):
        events = []
        for ordinal in range(2):
            ts = TS + (200 if change == "outside" else 50) if ordinal and at > 2 else TS + at
            whole = open_protocol.message([open_protocol.row(ts, new=open_protocol.columns(7, "x"))], 0)
            location = put(wrapped(whole.key, whole.value or b""))
            events.append(open_protocol.row(TS + at, new=key, ccl=location))
        messages.append(open_protocol.message(events, at))
    fast = both(write, messages, in_store(OPEN, folder), OPEN_HISTORY, window=window)
    assert fast.objects >= 5
    assert fast.result.quarantine_reasons == {"claim_check_mismatch": 3}


@pytest.mark.parametrize("later", [50, 200])
def test_two_documents_in_one_message_keep_their_places(
    write: Callable[..., Written], folder: Path, put: Put, later: int
) -> None:
    messages = []
    for at in range(4):
        smalls = []
        for ordinal in range(2):
            ts = TS + later if ordinal and at > 1 else TS + at
            smalls.append(canal_small(at, put(wrapped(None, canal_row(at, ts=ts)))).value or b"")
        messages.append(canal_json.message(b"\n".join(smalls), at))
    fast = both(write, messages, in_store(CANAL, folder), HISTORY, window=Window(1, TS + 100))
    assert fast.objects >= 3
    assert fast.result.quarantine_reasons == {"claim_check_mismatch": 2}


OTHERS = {
    "of another time": wrapped(None, canal_row(5, ts=TS + 6)),
    "of another key": wrapped(None, canal_row(5, data={"id": "6", "v": "x"})),
    "of another table": wrapped(None, canal_row(5, table="u")),
    "of another kind": wrapped(None, canal_row(5, "DELETE")),
    "a reduced row": wrapped(None, canal_small(5, "s3://bucket/x.json").value or b""),
    "two rows": wrapped(None, canal_row(5) + canal_row(5)),
    "no row": wrapped(None, canal_json.ddl("CREATE TABLE u (id int)", ts=TS + 5)),
    "with a key": wrapped(b"key", canal_row(5)),
    "without value": b'{"key":null,"value":null}',
    "empty": wrapped(None, b""),
    "nothing": b"",
    "not base64": b'{"key":null,"value":"' + base64.b64encode(canal_row(5)).replace(b"e", b"*") + b'"}',
    "base64 cut short": b'{"key":null,"value":"' + base64.b64encode(canal_row(5))[:-1] + b'"}',
    "base64 of lines": b'{"key":null,"value":"' + base64.encodebytes(canal_row(5)).replace(b"\n", b"\\n") + b'"}',
    "bits left over": b'{"key":null,"value":"' + base64.b64encode(canal_row(5) + b"}")[:-3] + b'1=="}',
    "more behind it": wrapped(None, canal_row(5)) + b"x",
    "with spaces": json.dumps({"key": None, "value": base64.b64encode(canal_row(5)).decode()}).encode(),
    "the members turned round": json.dumps({"value": base64.b64encode(canal_row(5)).decode(), "key": None}).encode(),
    "a letter escaped": wrapped(None, canal_row(5)).replace(b'"value"', b'"v\\u0061lue"'),
    "too large": wrapped(None, canal_row(5, data={"id": "5", "v": "x" * LIMITS.decompressed_max_bytes})),
    "lost bytes": wrapped(None, canal_row(5, data={"id": "5", "v": "@"}).replace(b"@", b"\\ufffd")),
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS)
def test_objects_that_are_not_as_they_should_be_are_judged_by_python(
    write: Callable[..., Written], folder: Path, put: Put, content: bytes
) -> None:
    messages = [canal_json.message(canal_row(at), at) for at in range(5)]
    messages += [canal_small(at, put(content if at == 5 else wrapped(None, canal_row(at)))) for at in range(5, 8)]
    assert both(write, messages, in_store(CANAL, folder), HISTORY).objects == 2


def test_objects_with_bytes_changed_at_random_become_the_same(
    write: Callable[..., Written], folder: Path, put: Put
) -> None:
    chance = Random(2026)
    messages = [canal_json.message(canal_row(at), at) for at in range(2)]
    for at in range(2, 400):
        document, outside = bytearray(canal_row(at)), bytearray()
        if chance.random() < 0.5:
            document[chance.randrange(len(document))] = chance.randrange(256)
        outside += wrapped(None, bytes(document))
        if chance.random() < 0.2:
            outside[chance.randrange(len(outside))] = chance.randrange(256)
        messages.append(canal_small(at, put(bytes(outside))))
    fast = both(write, messages, in_store(CANAL, folder), HISTORY)
    assert 100 < fast.objects < 398
    assert fast.result.quarantine_reasons


def test_messages_out_of_quarantine_are_read_with_their_objects(tmp_path: Path, folder: Path, put: Put) -> None:
    """They are read in parts, which the extension can't; so it must not read their objects either."""
    job = DecodeJob(
        library_version="0",
        pipeline="pipeline",
        artifacts=(tmp_path / "artifacts").as_uri(),
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        manifest="",
        input_hash="0" * 64,
        changefeed=in_store(CANAL, folder),
        tables=("*.*",),
        limits=LIMITS,
    )
    decoder = RedriveDecoder(
        Split(0, ()), SplitContext(Attempt("attempt"), job, Window(1, TS + 100), HISTORY, Connections())
    )
    for at in range(20):
        decoder.add_part(canal_small(at, put(wrapped(None, canal_row(at)))), frozenset([0]))
    counts = decoder.finish().events
    assert (counts.rows, counts.claim_checks_resolved, counts.written) == (20, 20, 20)


def test_rows_that_go_nowhere_end_the_decode(
    write: Callable[..., Written], monkeypatch: pytest.MonkeyPatch, folder: Path, put: Put
) -> None:
    monkeypatch.setattr(NativeRows, "take", lambda self, topic, partition: [])
    messages = [canal_json.message(canal_row(at), at) for at in range(3)]
    with pytest.raises(PermanentError, match=r"^3 of 3 rows of split 0 were read but neither written nor left out"):
        write(messages, CANAL, HISTORY, on=True)


def test_a_small_row_whose_key_does_not_tell_the_row_is_left_to_python(
    write: Callable[..., Written], folder: Path, put: Put
) -> None:
    """The old key is another one than the new: whichever the object has, the extension can't tell that it is the right one."""
    content = wrapped(None, canal_row(5, "UPDATE"))
    small = canal_small(5, put(content), "UPDATE", old={"id": "6"})
    messages = [*(canal_json.message(canal_row(at, "UPDATE"), at) for at in range(5)), small]
    assert both(write, messages, in_store(CANAL, folder), HISTORY).objects == 0


def test_an_object_on_which_the_extension_panics_is_read_by_python(
    write: Callable[..., Written],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    folder: Path,
    put: Put,
) -> None:
    extension = native_extension()
    assert extension is not None
    monkeypatch.setattr(extension, "Decoder", partial(extension.Decoder, panic_at=3))
    messages = [canal_json.message(canal_row(at), at) for at in range(3)]
    messages += [canal_small(at, put(wrapped(None, canal_row(at)))) for at in range(3, 6)]
    assert both(write, messages, in_store(CANAL, folder), HISTORY).objects == 2
    assert "the native decoder failed on a claim-check object; Python reads it" in caplog.text
