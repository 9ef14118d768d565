"""Each row version counts once, however often, wherever and in whichever shape it was sent."""

from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import lz4.frame
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.decoded_splits import WINDOW, decode, delete, insert, quarantine, versions
from tests.support.examples import examples
from tests.support.open_protocol import Columns, columns, ddl, message, row
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.changelog.files.writer import ChangelogWriter
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.messages import RawMessage
from ticdc_replay.schemas.history import SchemaHistory


def test_a_redelivered_row_is_written_once_within_a_split(tmp_path: Path) -> None:
    index, rows = decode(tmp_path, [[message([insert(150, 1)], 0), message([insert(150, 1)], 1)]])
    assert versions(rows) == [(150, 1, "a")]
    assert (index.report.events.duplicates, index.report.events.conflicts) == (1, 0)
    assert rows[0]["_offset"] == 0


def test_a_redelivered_row_is_written_once_across_splits(tmp_path: Path) -> None:
    index, rows = decode(tmp_path, [[message([insert(150, 1), insert(150, 2)], 0)], [message([insert(150, 1)], 7)]])
    assert versions(rows) == [(150, 1, "a"), (150, 2, "a")]
    assert index.report.events.duplicates == 1


def test_rows_of_one_commit_ts_with_different_keys_all_stay(tmp_path: Path) -> None:
    _, rows = decode(tmp_path, [[message([insert(150, key) for key in range(5)], 0)]])
    assert len(rows) == 5


def test_delete_and_put_of_one_key_at_one_commit_ts_are_two_versions(tmp_path: Path) -> None:
    _, rows = decode(tmp_path, [[message([delete(150, 1), insert(150, 1, "b")], 0)]])
    assert sorted(line["_op"] for line in rows) == ["delete", "insert"]


def test_the_same_put_as_insert_and_as_update_is_one_version_without_conflict(tmp_path: Path) -> None:
    update = row(150, new=columns(1, "b"), old=columns(1, "a"))
    index, rows = decode(tmp_path, [[message([insert(150, 1, "b")], 0)], [message([update], 1)]])
    assert versions(rows) == [(150, 1, "b")]
    assert (index.report.events.duplicates, index.report.events.conflicts) == (1, 0)


def test_copies_with_other_content_are_a_counted_conflict_and_the_first_place_wins(tmp_path: Path) -> None:
    index, rows = decode(tmp_path, [[message([insert(150, 1, "x")], 5)], [message([insert(150, 1, "y")], 2)]])
    assert versions(rows) == [(150, 1, "y")]
    assert (index.report.events.duplicates, index.report.events.conflicts) == (1, 1)


@pytest.mark.parametrize("values", ["abb", "abab", "aabc", "abcbc"])
def test_a_conflict_counts_once_however_its_copies_are_divided(tmp_path: Path, values: str) -> None:
    copies = [message([insert(150, 1, value)], at) for at, value in enumerate(values)]
    for number, cuts in enumerate(product([False, True], repeat=len(copies) - 1)):
        splits = [copies[:1]]
        for copy, cut in zip(copies[1:], cuts, strict=True):
            splits = [*splits, [copy]] if cut else [*splits[:-1], [*splits[-1], copy]]
        index, rows = decode(tmp_path / str(number), splits)
        assert versions(rows) == [(150, 1, "a")]
        events = index.report.events
        assert (events.duplicates, events.conflicts) == (len(values) - 1, len(set(values)) - 1), splits


def test_rows_whose_hashes_collide_stay_and_their_copies_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticdc_replay.changelog.files.identity._digest", lambda data, seed=0: b"x" * 16)
    rest = [message([insert(150, 1, "other"), insert(150, 2)], 5), message([delete(150, 1)], 6)]
    index, rows = decode(tmp_path, [[message([insert(150, 1), insert(150, 2), insert(150, 3)], 0)], rest])
    assert versions(rows) == [(150, 1, "a"), (150, 1, None), (150, 2, "a"), (150, 3, "a")]
    assert (index.report.events.duplicates, index.report.events.conflicts) == (2, 1)


def test_a_window_that_was_sent_twice_is_compared_and_written_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticdc_replay.changelog.files.data_file.ROW_GROUP_ROWS", 10)
    events = [insert(110 + key, key) for key in range(60)]
    # Members in another order, as from an old release: no fingerprint is equal, and one row really differs.
    again = [row(110 + key, new=dict(reversed(columns(key, "a" if key != 33 else "b").items()))) for key in range(60)]
    splits = [
        [message(part[at : at + 5], first + at) for at in range(0, 60, 5)]
        for first, part in ((0, events), (100, again))
    ]
    index, rows = decode(tmp_path, splits, bucket_rows=25)
    assert versions(rows) == sorted(((110 + key, key, "a") for key in range(60)), key=str)
    assert (index.report.events.duplicates, index.report.events.conflicts) == (60, 1)


def test_rows_of_many_tables_wait_for_no_more_bytes_than_those_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ticdc_replay.decode.read.split.BATCH_BYTES", 2_000)
    monkeypatch.setattr("ticdc_replay.changelog.files.writer.WAITING_BYTES", 10_000)
    stream = [message([row(150, new=columns(at, "x" * 1_000), table=f"t{at % 8}")], at) for at in range(40)]
    index, rows = decode(tmp_path, [stream])
    assert len(rows) == 40
    root = tmp_path / changelog_root(index.run_hash)
    files = [pq.ParquetFile(root / file.name).metadata for table in index.tables for file in table.files]
    groups = [file.row_group(at).num_rows for file in files for at in range(file.num_row_groups)]
    assert len(groups) == 8 * 4, "written whenever ten rows wait"


def test_a_raw_update_that_changes_the_key_is_a_delete_and_a_put(tmp_path: Path) -> None:
    update = row(150, new=columns(2, "b"), old=columns(1, "a"))
    index, rows = decode(tmp_path, [[message([update], 0)]])
    assert versions(rows) == [(150, 1, None), (150, 2, "b")]
    assert index.report.events.split_updates == 1
    assert all(line["_split"] for line in rows)


def test_a_raw_update_and_its_split_form_are_the_same_versions(tmp_path: Path) -> None:
    update = row(150, new=columns(2, "b"), old=columns(1, "a"))
    index, rows = decode(tmp_path, [[message([update], 0)], [message([delete(150, 1, "a"), insert(150, 2, "b")], 1)]])
    assert versions(rows) == [(150, 1, None), (150, 2, "b")]
    assert index.report.events.conflicts == 0


@pytest.mark.parametrize("cut", [1, 2])
def test_the_schema_of_a_row_does_not_depend_on_reduced_rows_of_the_same_columns(tmp_path: Path, cut: int) -> None:
    create = DdlEvent(0, 1, "s", "t", "CREATE TABLE t (id bigint PRIMARY KEY, v varchar(9), w int)", "CREATE")
    history = SchemaHistory().with_ddls([create])
    reduced = message([row(150, old=columns(1), ohk=True)], 0)
    stream = [reduced, message([delete(151, 2)], 1)]
    index, _ = decode(tmp_path, [stream[:cut], stream[cut:]] if cut < 2 else [stream], history=history)
    found = sorted((table.rows, [column.name for column in table.schema.columns]) for table in index.tables)
    assert found == [(1, ["id", "v"]), (1, ["id", "v", "w"])]


def test_the_window_is_half_open_and_by_commit_ts_alone(tmp_path: Path) -> None:
    index, rows = decode(tmp_path, [[message([insert(ts, ts) for ts in (99, 100, 199, 200)], 0)]])
    assert [line["_commit_ts"] for line in rows] == [100, 199]
    assert index.report.events.outside_window == 2


def test_tables_that_are_not_wanted_are_counted(tmp_path: Path) -> None:
    index, rows = decode(tmp_path, [[message([row(150, new=columns(1), schema="other")], 0)]])
    assert rows == []
    assert index.report.events.filtered == 1


def test_a_table_without_key_keeps_every_copy(tmp_path: Path) -> None:
    keyless = row(150, new={"v": {"t": 15, "f": 64, "v": "a"}})
    index, rows = decode(tmp_path, [[message([keyless, keyless], 0)], [message([keyless], 1)]])
    assert len(rows) == 3
    assert index.report.events.unkeyed == 3
    assert rows[0]["_key"] is None


def test_a_handle_key_only_row_goes_to_quarantine(tmp_path: Path) -> None:
    partial = row(150, new={"id": columns(1)["id"]}, ohk=True)
    index, rows = decode(tmp_path, [[message([partial], 0)]])
    assert rows == []
    assert index.report.quarantine_reasons == {"handle_key_only": 1}


@pytest.mark.parametrize("first", ["whole", "partial"])
def test_a_whole_copy_anywhere_in_the_range_replaces_a_partial_one(tmp_path: Path, first: str) -> None:
    partial = row(150, new={"id": columns(1)["id"]}, ohk=True)
    whole = insert(150, 1, "whole")
    order = [whole, partial] if first == "whole" else [partial, whole]
    index, rows = decode(tmp_path, [[message([event], at)] for at, event in enumerate(order)])
    assert versions(rows) == [(150, 1, "whole")]
    assert index.report.quarantine_reasons == {}
    assert index.quarantine_files == ()
    assert index.report.events.conflicts == 0


def test_two_partial_copies_leave_one_quarantine_entry(tmp_path: Path) -> None:
    partial = row(150, new={"id": columns(1)["id"]}, ohk=True)
    index, _ = decode(tmp_path, [[message([partial], 0)], [message([partial], 1)]])
    assert index.report.quarantine_reasons == {"handle_key_only": 1}
    assert index.report.events.duplicates == 1


def with_date(ts: int, date: str, **old: Columns) -> tuple[bytes, bytes]:
    """A put of row 1 with a DATE column, which holds any text on the wire."""
    return row(ts, new=columns(1, "a", d={"t": 10, "f": 0, "v": date}), **old)


@pytest.mark.parametrize("splits", [1, 2, 3])
def test_copies_of_a_row_with_a_bad_cell_leave_one_quarantine_entry_however_they_are_split(
    tmp_path: Path, splits: int
) -> None:
    copies = [message([with_date(150, "no date")], at) for at in range(3)]
    index, rows = decode(tmp_path, [copies[number::splits] for number in range(splits)])
    assert rows == []
    assert index.report.quarantine_reasons == {"cell_type_mismatch": 1}
    assert (index.report.events.quarantined, index.report.events.duplicates) == (1, 2)
    (entry,) = quarantine(tmp_path, index)
    assert entry["offset"] == 0


@pytest.mark.parametrize("together", [True, False])
def test_a_good_copy_clears_one_with_a_bad_cell(tmp_path: Path, together: bool) -> None:
    # Bad is the old image; TiCDC may send the same put as an insert later.
    old = columns(1, "z", d={"t": 10, "f": 0, "v": "no date"})
    copies = [message([with_date(150, "2026-01-02", old=old)], 0), message([with_date(150, "2026-01-02")], 1)]
    index, rows = decode(tmp_path, [copies] if together else [[copy] for copy in copies])
    assert [line["_offset"] for line in rows] == [1]
    assert index.report.quarantine_reasons == {}
    assert index.quarantine_files == ()
    assert (index.report.events.duplicates, index.report.events.conflicts) == (1, 0)


def test_a_key_only_delete_counts_before_a_whole_one_that_can_not_be_used(tmp_path: Path) -> None:
    bad = row(150, old=columns(1, "a", d={"t": 10, "f": 0, "v": "no date"}))
    key_only = row(150, old={"id": columns(1)["id"]}, ohk=True)
    index, rows = decode(tmp_path, [[message([bad], 0)], [message([key_only], 1)]])
    assert [line["_op"] for line in rows] == ["delete"]
    assert index.report.quarantine_reasons == {}


def test_rows_of_a_table_without_key_that_have_a_bad_cell_all_stay_in_quarantine(tmp_path: Path) -> None:
    bad = row(150, new={"d": {"t": 10, "f": 0, "v": "no date"}})
    index, _ = decode(tmp_path, [[message([bad, bad], 0)], [message([bad], 1)]])
    assert index.report.quarantine_reasons == {"cell_type_mismatch": 3}


def test_a_broken_message_is_kept_with_its_bytes_and_the_others_go_on(tmp_path: Path) -> None:
    broken = RawMessage("topic", 0, 1, 0, b"\0" * 7, b"xyz")
    index, rows = decode(tmp_path, [[message([insert(150, 1)], 0), broken, message([insert(150, 2)], 2)]])
    assert len(rows) == 2
    assert index.report.messages.quarantined == 1
    (entry,) = quarantine(tmp_path, index)
    assert (entry["offset"], entry["key"], entry["value"], entry["ordinal"]) == (1, b"\0" * 7, b"xyz", None)


def test_bad_events_of_one_message_keep_its_bytes_once(tmp_path: Path) -> None:
    # Two ways to be bad: what can't be read, and what can't be typed. Text that zstd can't shrink makes the message large.
    texts = Random(5).randbytes(250 * 1024).hex()
    unreadable = [row(150, new={"id": {"t": 8, "h": True, "f": 11, "v": "no number"}}) for _ in range(500)]
    dates = [{"t": 10, "f": 0, "v": texts[at * 1000 : at * 1000 + 1000]} for at in range(500)]
    mistyped = [row(150, new=columns(at, d=date)) for at, date in enumerate(dates)]
    sent = message([*unreadable, *mistyped], 7)
    index, rows = decode(tmp_path, [[sent]])
    entries = quarantine(tmp_path, index)
    assert rows == []
    assert len(entries) == 1000
    assert {(entry["offset"], entry["key"], entry["value"]) for entry in entries} == {(7, sent.key, sent.value)}
    root = tmp_path / changelog_root(index.run_hash)
    assert sum((root / name).stat().st_size for name in index.quarantine_files) < len(sent.value or b"")


def test_a_whole_delete_replaces_a_key_only_one(tmp_path: Path) -> None:
    key_only = row(150, old={"id": columns(1)["id"]}, ohk=True)
    _, rows = decode(tmp_path, [[message([key_only], 0)], [message([delete(150, 1, "gone")], 1)]])
    assert [(line["_op"], line["before"]["v"], line["_partial"]) for line in rows] == [("delete", "gone", False)]


def test_bad_events_of_other_windows_and_tables_do_not_concern_this_run(tmp_path: Path) -> None:
    bad = {"id": {"t": 8, "h": True, "f": 11, "v": "not a number"}}
    index, _ = decode(
        tmp_path, [[message([row(99, new=bad), row(150, new=bad, schema="other"), row(150, new=bad)], 0)]]
    )
    events = index.report.events
    assert (events.outside_window, events.filtered, events.undecodable) == (1, 1, 1)


def test_a_row_of_a_table_that_no_folder_can_be_named_after_is_quarantined_and_the_others_are_written(
    tmp_path: Path,
) -> None:
    longest = "表" * 64
    sent = [row(150, new=columns(key), table=table) for key, table in enumerate(("t" * 300, longest, "t"))]
    index, rows = decode(tmp_path, [[message(sent, 0)]])
    assert {entry["reason"] for entry in quarantine(tmp_path, index)} == {"name_too_long"}
    assert sorted(line["after"]["id"] for line in rows) == [1, 2]
    assert [table.schema.name.table for table in index.tables] == ["t", longest]


def test_ddl_is_kept_whatever_its_table_and_time(tmp_path: Path) -> None:
    rename = ddl(150, "RENAME TABLE `s`.`t` TO `archive`.`t`", table="t", schema="archive", kind=14)
    earlier = ddl(99, "CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(10))")
    index, _ = decode(tmp_path, [[message([earlier], 0), message([rename], 1)]])
    assert [entry.commit_ts for entry in index.ddl] == [150]
    assert [entry.commit_ts for entry in index.other_ddl] == [99]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_rows_are_written_in_batches_bounded_by_their_bytes_also_where_messages_are_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    sizes = []
    write = ChangelogWriter.write

    def watched(writer: ChangelogWriter, rows: Any, columnar: Any = ()) -> Any:
        sizes.append(len(rows) + sum(ready.batch.num_rows for _, ready in columnar))
        return write(writer, rows, columnar)

    monkeypatch.setattr(ChangelogWriter, "write", watched)
    monkeypatch.setattr("ticdc_replay.decode.read.split.BATCH_BYTES", 5_000)
    events = [insert(150, key, "x" * 1_000) for key in range(20)]
    if compression == "lz4":
        events = [(key, lz4.frame.compress(value)) for key, value in events]
    messages = [message([event], offset) for offset, event in enumerate(events)]
    _, rows = decode(tmp_path, [messages], compression=compression)
    assert len(rows) == sum(sizes) == 20
    assert max(sizes) <= 6


history = st.lists(
    st.tuples(st.integers(95, 205), st.integers(1, 6), st.sampled_from(["insert", "update", "delete", "move"])),
    max_size=25,
)


def event(ts: int, key: int, kind: str) -> tuple[bytes, bytes]:
    """One change; its content follows from its identity, as TiCDC's copies do."""
    if kind == "insert":
        return insert(ts, key, f"put{ts}")
    if kind == "update":
        return row(ts, new=columns(key, f"put{ts}"), old=columns(key, "before"))
    if kind == "delete":
        return delete(ts, key, "before")
    return row(ts, new=columns(key + 10, f"put{ts}"), old=columns(key, "before"))


@settings(max_examples=examples(0.6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=history, data=st.data())
def test_any_order_duplication_and_splitting_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, str]], data: st.DataObject
) -> None:
    expected = set()
    for ts, key, kind in changes:
        if ts not in WINDOW:
            continue
        if kind in ("delete", "move"):
            expected.add((ts, key, None))
        if kind != "delete":
            expected.add((ts, key + 10 if kind == "move" else key, f"put{ts}"))
    sent = [event(*change) for change in changes]
    again = data.draw(st.lists(st.sampled_from(sent), max_size=20)) if sent else []
    stream = data.draw(st.permutations(sent + again))
    splits: list[list[RawMessage]] = [[] for _ in range(data.draw(st.integers(1, 4)))]
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, 5))
        splits[data.draw(st.integers(0, len(splits) - 1))].append(message(stream[at : at + size], at))
        at += size
    index, rows = decode(tmp_path_factory.mktemp("run"), splits, bucket_rows=data.draw(st.integers(1, 40)))
    assert versions(rows) == sorted(expected, key=str)
    assert index.report.events.conflicts == 0
