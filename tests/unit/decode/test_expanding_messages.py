"""A message that is small on the wire and large when it is decompressed costs its split a bounded number of bytes at a time."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import lz4.frame
import pytest

from tests.decoded_splits import LIMITS, decode, quarantine, versions
from tests.native_decoding import LIMITS as NATIVE_LIMITS
from tests.native_decoding import Written, both
from tests.open_protocol import columns, message, row
from ticdc_replay.changelog.writer import ChangelogWriter
from ticdc_replay.config.changefeed import Changefeed
from ticdc_replay.decode import split
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.storage import ObjectStore, open_store

CAP = LIMITS.decompressed_max_bytes


def packed(event: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    return event[0], lz4.frame.compress(event[1])


def large(number: int, size: int) -> tuple[bytes, bytes]:
    return packed(row(150, new=columns(number, chr(ord("a") + number % 26) * size)))


def put_object(store: ObjectStore, number: int, size: int) -> str:
    name = f"{UUID(int=number)}.json"
    whole = message([large(number, size)], 0)
    parts = {"key": whole.key, "value": whole.value}
    store.put(name, json.dumps({part: base64.b64encode(text or b"").decode() for part, text in parts.items()}).encode())
    return f"s3://bucket/{name}"


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of the text of the rows of each batch that is written."""
    found: list[int] = []
    write = ChangelogWriter.write

    def watched(writer: ChangelogWriter, rows: Any, columnar: Any = ()) -> Any:
        rows = list(rows)
        found.append(sum(len(each.row.after.values[1] or "") for each in rows))
        return write(writer, rows, columnar)

    monkeypatch.setattr(ChangelogWriter, "write", watched)
    return found


def test_events_that_are_too_large_together_are_set_aside_one_by_one(tmp_path: Path, sizes: list[int]) -> None:
    events = [large(at, CAP * 2 // 5) for at in range(4)]
    index, rows = decode(tmp_path, [[message([*events, large(9, 1)], 0)]], compression="lz4")
    assert [key for _, key, _ in versions(rows)] == [0, 1, 9]
    assert [(entry["reason"], entry["ordinal"]) for entry in quarantine(tmp_path, index)] == [
        ("too_large", 2),
        ("too_large", 3),
    ]
    assert sum(sizes) <= CAP


def test_what_objects_expand_to_is_written_as_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    monkeypatch.setattr(split, "BATCH_BYTES", 250_000)
    store = open_store((tmp_path / "claims").as_uri())
    events = [
        packed(row(150, new={"id": columns(at)["id"]}, ccl=put_object(store, at, 100_000 + at))) for at in range(20)
    ]
    changefeed = {"compression": "lz4", "claim_check_uri": store.root}
    _, rows = decode(tmp_path, [[message(events, 0)]], **changefeed)
    assert sorted(len(line["after"]["v"]) for line in rows) == [100_000 + at for at in range(20)]
    assert max(sizes) < 250_000 + 100_020


def test_rows_that_are_too_many_bytes_for_one_batch_are_all_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = dict.fromkeys((0, 7, 30, 31, 89), "no date")
    events = [
        row(150, new=columns(at % 60, f"{at % 60}" * 40, d={"t": 10, "f": 0, "v": days.get(at, "2026-01-02")}))
        for at in range(90)
    ]
    sent = [[message(events[at : at + 5], at) for at in range(0, 90, 5)]]

    def outcome(folder: Path) -> tuple[Any, ...]:
        index, rows = decode(folder, sent)
        bad = [(entry["offset"], entry["ordinal"], entry["reason"]) for entry in quarantine(folder, index)]
        return index.report.events, bad, sorted((line["_offset"], line["_index"], line["after"]) for line in rows)

    together = outcome(tmp_path / "together")
    monkeypatch.setattr("ticdc_replay.changelog.convert.BATCH_MAX_BYTES", 1_000)
    assert outcome(tmp_path / "apart") == together
    assert {reason for _, _, reason in together[1]} == {"cell_type_mismatch"}


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_both_decoders_refuse_the_same_messages_as_too_large(write: Callable[..., Written], beyond: int) -> None:
    def filled(offset: int, size: int) -> Any:
        """A message of two rows whose value has *size* bytes."""
        first = row(150, new=columns(offset, "x" * (size // 2)))
        missing = size - len(message([first, row(150, new=columns(offset + 1, ""))], 0).value or b"")
        found = message([first, row(150, new=columns(offset + 1, "y" * missing))], offset)
        assert len(found.value or b"") == size
        return found

    cap = NATIVE_LIMITS.decompressed_max_bytes
    sent = [filled(10, 1000), filled(20, cap + beyond), filled(30, 2000)]
    fast = both(write, sent, Changefeed(protocol="open-protocol", topic="topic", timezone="UTC"), SchemaHistory())
    assert fast.result.quarantine_reasons == ({"too_large": 1} if beyond > 0 else {})
    assert fast.result.events.written == (4 if beyond > 0 else 6)
