"""A message that is small on the wire and large when it is decompressed costs its split a bounded number of bytes at a time."""

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import lz4.frame
import pyarrow.parquet as pq
import pytest

from tests.support.decoded_splits import LIMITS, decode, quarantine, versions
from tests.support.native_decoding import LIMITS as NATIVE_LIMITS
from tests.support.native_decoding import Written, both
from tests.support.open_protocol import columns, message, row
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.reading import read_rows
from ticdc_replay.changelog.files.writer import ChangelogWriter
from ticdc_replay.decode.read import split
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.extension import native_extension
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
    monkeypatch.setattr("ticdc_replay.changelog.cells.convert.BATCH_MAX_BYTES", 1_000)
    assert outcome(tmp_path / "apart") == together
    assert {reason for _, _, reason in together[1]} == {"cell_type_mismatch"}


LONG = [f"column_{at:02}_{'x' * 53}" for at in range(40)]
WIDE = SchemaHistory().with_ddls(
    [
        DdlEvent(
            0, 1, "s", "t", f"CREATE TABLE t (id BIGINT PRIMARY KEY, {', '.join(f'{name} INT' for name in LONG)})", 3
        )
    ]
)


@pytest.mark.parametrize("natively", [False, True], ids=["in Python", "natively"])
def test_rows_that_lack_many_columns_of_long_names_are_written_in_bounded_pieces(
    write: Callable[..., Written], monkeypatch: pytest.MonkeyPatch, natively: bool
) -> None:
    """A delete of 100 bytes names 40 columns that were not sent: 3 KB of changelog."""
    monkeypatch.setattr("ticdc_replay.changelog.files.data_file.ROW_GROUP_BYTES", 100_000)
    if natively:
        pytest.importorskip("ticdc_replay_native", reason="the native extension is not built here (no cargo)")
    deletes = [row(150 + at, old={"id": columns(at)["id"]}) for at in range(1_000)]
    sent = [message(deletes[at : at + 100], at) for at in range(0, 1_000, 100)]
    changefeed = Changefeed(
        protocol="open-protocol", topic="topic", timezone="UTC", delete_only_output_handle_key_columns=True
    )

    def decoded(on: bool) -> tuple[Written, list[dict[str, Any]], list[int]]:
        """What was written, its rows, and the bytes of its row groups."""
        written = write(sent, changefeed, WIDE, on=on)
        (content,) = (content for name, content in written.files.items() if "/data/" in name)
        file = pq.ParquetFile(io.BytesIO(content))
        rows = sorted(file.read().to_pylist(), key=lambda line: (line["_offset"], line["_index"]))
        groups = [file.metadata.row_group(at).total_byte_size for at in range(file.num_row_groups)]
        return written, rows, groups

    together, rows, groups = decoded(on=natively)
    assert len(groups) == 1
    assert groups[0] > 2_500_000
    assert rows[7]["_absent"] == [f"before.{name}" for name in sorted(LONG)]
    monkeypatch.setattr("ticdc_replay.changelog.cells.convert.BATCH_MAX_BYTES", 700_000)
    apart, same, groups = decoded(on=natively)
    assert same == rows == decoded(on=False)[1]
    assert max(groups) < 2 * 700_000
    assert apart.result.events == together.result.events
    assert (together.taken, 0 < apart.taken < 10) == ((10, True) if natively else (0, False))


def test_who_reads_a_changelog_gets_rows_that_lack_many_columns_in_bounded_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deletes = [row(150, old={"id": columns(at)["id"]}) for at in range(1_000)]
    sent = [[message(deletes, 0)]]
    index, rows = decode(tmp_path, sent, history=WIDE, delete_only_output_handle_key_columns=True)
    monkeypatch.setattr("ticdc_replay.changelog.files.parts.BATCH_BYTES", 300_000)
    batches = [batch for _, batch in read_rows(open_store(tmp_path.as_uri()), index)]
    assert max(batch.nbytes for batch in batches) < 500_000
    assert sum(batch.num_rows for batch in batches) == len(rows) == 1_000


@pytest.mark.skipif(native_extension() is None, reason="the native extension is not built here (no cargo)")
def test_forms_of_too_many_absent_names_are_left_to_python(
    write: Callable[..., Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticdc_replay.decode.read.native.NAMES_MAX_BYTES", 7_000)
    tables = [f"t{at}" for at in range(4)]
    create = f"(id BIGINT PRIMARY KEY, {', '.join(f'{name} INT' for name in LONG)})"
    history = SchemaHistory().with_ddls(
        [DdlEvent(0, 1, "s", table, f"CREATE TABLE {table} {create}", 3) for table in tables]
    )
    sent = [message([row(150, old={"id": columns(1)["id"]}, table=table)], at) for at, table in enumerate(tables)]
    changefeed = Changefeed(
        protocol="open-protocol", topic="topic", timezone="UTC", delete_only_output_handle_key_columns=True
    )
    assert both(write, sent, changefeed, history).taken == 2


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
