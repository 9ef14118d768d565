"""A split resolves claim checks by what is known of the objects, and records every reference it meets."""

import base64
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.support.decoded_captures import LIMITS
from tests.support.open_protocol import columns, message, row
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.codecs.open.codec import OpenCodec
from ticdc_replay.decode.plan.known_objects import used_objects
from ticdc_replay.decode.plan.tasks import Attempt, Split, SplitContext, SplitResult
from ticdc_replay.decode.read.split import SplitDecoder
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.events import Event
from ticdc_replay.domain.messages import OffsetRange, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.jobspec import DecodeJob
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.snapshot.inventory import pin_inventory
from ticdc_replay.snapshot.request import PinRequest
from ticdc_replay.storage import ObjectStore, open_store
from ticdc_replay.storage.file import FileStore

WINDOW = Window(100, 200)
NAMES = [f"{UUID(int=number)}.json" for number in range(3)]


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "claims").as_uri())


@pytest.fixture
def artifacts(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "artifacts").as_uri())


@pytest.fixture
def changefeed(objects: ObjectStore) -> Changefeed:
    return Changefeed(protocol="open-protocol", topic="topic", timezone="UTC", claim_check_uri=objects.root)


@pytest.fixture
def job(artifacts: ObjectStore, changefeed: Changefeed) -> DecodeJob:
    return DecodeJob(
        library_version="1",
        pipeline="p",
        artifacts=artifacts.root,
        artifacts_connection=None,
        kafka_connection="kafka",
        claim_check_connection=None,
        manifest="manifests/m.json",
        input_hash="i" * 64,
        changefeed=changefeed,
        tables=("s.*",),
        limits=LIMITS,
    )


def small(number: int, ts: int = 150, **key: Any) -> tuple[bytes, bytes]:
    """A row whose other columns are in the object *number*."""
    return row(ts, new={"id": columns(number)["id"]}, ccl=f"s3://bucket/{NAMES[number]}", **key)


def put_object(objects: ObjectStore, number: int, value: str) -> None:
    whole = message([row(150, new=columns(number, value))], 0)
    parts = {"key": whole.key, "value": whole.value}
    encoded = {name: base64.b64encode(part or b"").decode() for name, part in parts.items()}
    objects.put(NAMES[number], json.dumps(encoded).encode())


def inventory(objects: ObjectStore, artifacts: ObjectStore, changefeed: Changefeed) -> str:
    """The path of the inventory of what the store holds now."""
    request = PinRequest(
        pipeline="p",
        changefeed=changefeed,
        window=WINDOW,
        tables=("s.*",),
        start_ts=None,
        pre_roll_ms=0,
        clock_skew_ms=0,
        lag_ms=0,
        claim_check_margin_ms=0,
        list_store=True,
        unproven="stop",
        decompressed_max_bytes=1 << 20,
        schemas=SchemaHistory(),
    )
    return pin_inventory(request, objects, artifacts).uri.removeprefix("file://")


def decode(job: DecodeJob, messages: list[RawMessage], *known_objects: str) -> SplitResult:
    split = Split(0, (OffsetRange("topic", 0, 0, 1),))
    decoder = SplitDecoder(
        split, SplitContext(Attempt("attempt", known_objects), job, WINDOW, SchemaHistory(), Connections())
    )
    decoder.add(messages)
    return decoder.finish()


def root(job: DecodeJob) -> Path:
    return Path(job.artifacts.removeprefix("file://")) / changelog_root(job.run_hash)


def references(job: DecodeJob, result: SplitResult) -> list[dict[str, Any]]:
    assert result.references_file is not None
    rows: list[dict[str, Any]] = pq.read_table(root(job) / result.references_file, partitioning=None).to_pylist()
    return rows


def test_an_object_that_was_replaced_since_pinning_is_set_aside_and_the_others_are_used(
    job: DecodeJob, objects: ObjectStore, artifacts: ObjectStore, changefeed: Changefeed
) -> None:
    for number in range(2):
        put_object(objects, number, "pinned")
    pinned = inventory(objects, artifacts, changefeed)
    put_object(objects, 0, "edited")
    result = decode(job, [message([small(0), small(1)], 0)], pinned)
    assert result.quarantine_reasons == {"claim_check_altered": 1}
    assert [row["status"] for row in references(job, result)] == ["claim_check_altered", "used"]
    (file,) = result.files
    (line,) = pq.read_table(root(job) / file.file.name, partitioning=None).to_pylist()
    assert line["after"] == {"id": 1, "v": "pinned"}


def test_an_object_that_the_inventory_lacks_is_used_and_then_known(
    job: DecodeJob, objects: ObjectStore, artifacts: ObjectStore, changefeed: Changefeed
) -> None:
    # Older than the margin, or missing when the window was pinned and restored since.
    pinned = inventory(objects, artifacts, changefeed)
    put_object(objects, 0, "restored")
    result = decode(job, [message([small(0)], 0)], pinned)
    assert result.quarantine_reasons == {}
    assert result.references_file is not None
    filesystem, _ = artifacts.arrow_filesystem()
    content = used_objects(filesystem, str(root(job)), [result.references_file])
    assert content is not None
    artifacts.put("used/record.parquet", content)
    record = f"{artifacts.root.removeprefix('file://')}/used/record.parquet"
    assert decode(job, [message([small(0)], 0)], pinned, record).quarantine_reasons == {}
    put_object(objects, 0, "another")
    later = decode(job, [message([small(0)], 0)], pinned, record)
    assert later.quarantine_reasons == {"claim_check_altered": 1}


def test_every_reference_is_recorded_whatever_becomes_of_its_row(job: DecodeJob, objects: ObjectStore) -> None:
    put_object(objects, 0, "whole")
    outside, filtered = small(0, ts=99), small(1, schema="other")
    broken = [(key, b"no JSON") for key, _ in (small(2), small(2, ts=99), small(2, schema="other"))]
    result = decode(job, [message([small(0), small(1), outside, filtered, *broken], 0)])
    found = [(row["ordinal"], row["object_name"], row["status"]) for row in references(job, result)]
    assert sorted(found) == [
        (0, NAMES[0], "used"),
        (1, NAMES[1], "claim_check_missing"),
        (2, NAMES[0], "not_needed"),
        (3, NAMES[1], "not_needed"),
        (4, NAMES[2], "bad_value"),
        (5, NAMES[2], "not_needed"),
        (6, NAMES[2], "not_needed"),
    ]


def test_a_reference_without_a_table_is_recorded_too(job: DecodeJob) -> None:
    result = decode(job, [message([small(0, table="")], 0)])
    assert result.quarantine_reasons == {"bad_key": 1}
    (reference,) = references(job, result)
    assert (reference["object_name"], reference["schema"], reference["table"]) == (NAMES[0], "s", "")


def test_references_to_objects_of_one_row_version_have_one_key(job: DecodeJob) -> None:
    again = row(150, new={"id": columns(0)["id"]}, ccl=f"s3://bucket/{NAMES[1]}")
    result = decode(job, [message([small(0), small(2), again], 0, timestamp_ms=77)])
    first, other, second = sorted(references(job, result), key=lambda reference: int(reference["ordinal"]))
    assert first["key"] == second["key"] == '{"id":0}'
    assert first["key_hash"] == second["key_hash"] != other["key_hash"]
    assert first["timestamp_ms"] == 77


def test_the_object_of_a_message_that_can_not_be_read_is_recorded(job: DecodeJob) -> None:
    sound = message([small(0)], 5)
    result = decode(job, [sound._replace(value=b"cut")])
    assert result.quarantine_reasons == {"bad_framing": 1}
    (reference,) = references(job, result)
    assert (reference["object_name"], reference["ordinal"], reference["status"]) == (NAMES[0], -1, "bad_framing")
    assert result.unsearched == (OffsetRange("topic", 0, 5, 6),)


def test_a_message_that_may_refer_to_an_object_that_can_not_be_told_is_told(job: DecodeJob) -> None:
    sound = message([small(0)], 5)
    assert sound.key is not None
    result = decode(job, [sound._replace(key=sound.key[:-10])])
    assert result.references_file is None
    assert result.unsearched == (OffsetRange("topic", 0, 5, 6),)


@pytest.mark.parametrize("protocol", ["avro", "debezium", "debezium-avro"])
def test_what_an_earlier_protocol_sent_is_searched_though_the_declared_one_has_no_claim_checks(
    job: DecodeJob, protocol: str
) -> None:
    now = msgspec.structs.replace(
        job, changefeed=msgspec.structs.replace(job.changefeed, protocol=protocol, large_message="none")
    )
    result = decode(now, [message([small(0)], 5), message([small(1)], 6)._replace(key=b"cut")])
    assert [each["object_name"] for each in references(now, result)] == [NAMES[0]]
    assert result.unsearched == (OffsetRange("topic", 0, 6, 7),)


@pytest.mark.parametrize(
    "location", [f"s3://bucket/{NAMES[0]}?versionId=7", f"s3://bucket/{NAMES[0].upper()}", "s3://b/", ""]
)
@pytest.mark.parametrize("ts", [150, 250], ids=["wanted", "of another window"])
def test_a_message_whose_location_is_not_understood_counts_as_unsearched(
    job: DecodeJob, objects: ObjectStore, location: str, ts: int
) -> None:
    put_object(objects, 1, "whole")
    odd = [row(ts, new={"id": columns(5)["id"]}, ccl=location) for _ in range(2)]
    result = decode(job, [message([*odd, small(1)], 7)])
    assert result.unsearched == (OffsetRange("topic", 0, 7, 8),)
    assert [each["object_name"] for each in references(job, result)].count("") == 2
    assert result.quarantine_reasons == ({"claim_check_bad_name": 2} if ts == 150 else {})


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the objects that are fetched."""
    names: list[str] = []
    fetch = FileStore.fetch

    def watched(store: FileStore, name: str, *more: Any) -> bytes:
        names.append(name)
        return fetch(store, name, *more)

    monkeypatch.setattr(FileStore, "fetch", watched)
    return names


def of_object(key: int, number: int, ts: int = 150) -> tuple[bytes, bytes]:
    """The row *key*, which refers to the object *number*."""
    return row(ts, new={"id": columns(key)["id"]}, ccl=f"s3://bucket/{NAMES[number]}")


def written(job: DecodeJob, result: SplitResult) -> list[dict[str, Any]]:
    return [
        line
        for file in result.files
        for line in pq.read_table(root(job) / file.file.name, partitioning=None).to_pylist()
    ]


def test_an_object_that_many_rows_name_is_fetched_and_read_once_for_the_row_that_it_is_of(
    job: DecodeJob, objects: ObjectStore, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    read_object = OpenCodec.read_object

    def watched(codec: OpenCodec, content: bytes) -> Event:
        read.append(len(content))
        return read_object(codec, content)

    monkeypatch.setattr(OpenCodec, "read_object", watched)
    put_object(objects, 1, "whole")
    others = [of_object(at, 1) for at in range(10, 60)]
    result = decode(job, [message([*others, small(1), of_object(1, 1, ts=151)], 0)])
    assert fetched == [NAMES[1]]
    assert len(read) == 1
    assert result.quarantine_reasons == {"claim_check_mismatch": 51}
    assert [line["after"] for line in written(job, result)] == [{"id": 1, "v": "whole"}]
    assert [each["status"] for each in references(job, result)].count("used") == 1
    assert len(references(job, result)) == 52


def test_messages_that_were_sent_again_find_their_object(
    job: DecodeJob, objects: ObjectStore, fetched: list[str]
) -> None:
    for number in range(2):
        put_object(objects, number, "whole")
    sent = [message([small(number)], at) for at, number in enumerate([0, 1, 0, 0, 1])]
    result = decode(job, sent)
    assert sorted(fetched) == NAMES[:2]
    assert result.quarantine_reasons == {}
    assert (result.events.claim_checks_resolved, result.events.duplicates, result.events.written) == (5, 3, 2)
    assert sorted(line["_offset"] for line in written(job, result)) == [0, 1]


def test_an_object_that_is_missing_is_missing_for_each_row_that_names_it(job: DecodeJob) -> None:
    result = decode(job, [message([small(0), of_object(1, 0), small(2), small(0)], 0)])
    assert [(each["ordinal"], each["status"]) for each in references(job, result)] == [
        (ordinal, "claim_check_missing") for ordinal in (0, 1, 3, 2)
    ]
    assert (result.events.quarantined, result.events.written) == (4, 0)
