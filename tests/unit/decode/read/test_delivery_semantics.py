"""How TiCDC delivers, case by case (guarantees, watermarks, order, dispatchers, topics, DDL), and what a changelog
makes of it. What of it shows only when a window is pinned is tested with pinning (tests/integration/snapshot)."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.decoded_splits import decode, delete, insert, versions
from tests.support.open_protocol import Columns, columns, ddl, message, resolved, row
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.domain.messages import RawMessage

Event = tuple[bytes, bytes]
Rows = list[dict[str, Any]]


def update(ts: int, key: int, value: str, old: str = "a", **more: Any) -> Event:
    return row(ts, new=columns(key, value), old=columns(key, old), **more)


def sent(*events: Event, partition: int = 0, first: int = 0, topic: str = "topic") -> list[RawMessage]:
    """Each event in a message of its own, one after the other."""
    return [message([event], first + at, partition=partition, topic=topic) for at, event in enumerate(events)]


def table_of(rows: Rows) -> dict[int, str | None]:
    """What a table holds when each version is applied in order of commitTs, delete before put."""
    found: dict[int, str | None] = {}
    for line in sorted(rows, key=lambda line: (line["_commit_ts"], line["_op"] != "delete")):
        image = line["after"] or line["before"]
        found.pop(image["id"], None)
        if line["_op"] != "delete":
            found[image["id"]] = image["v"]
    return found


def counts(index: ChangelogIndex) -> tuple[int, int, int]:
    events = index.report.events
    return events.written, events.duplicates, events.conflicts


# 1. Guarantees


@pytest.mark.parametrize("cut", range(1, 9))
def test_1_1_at_least_once_what_is_sent_again_after_a_restart_counts_once(tmp_path: Path, cut: int) -> None:
    first = [insert(110, 1, "v1"), update(120, 1, "v2"), update(130, 1, "v3")]
    stream = sent(*first, resolved(130), *first[1:], update(140, 1, "v4"), resolved(140))
    index, rows = decode(tmp_path, [stream[:cut], stream[cut:]])
    assert versions(rows) == [(110, 1, "v1"), (120, 1, "v2"), (130, 1, "v3"), (140, 1, "v4")]
    assert counts(index) == (4, 2, 0)


def test_1_1_at_least_once_copies_of_old_releases_may_differ_in_the_order_of_members(tmp_path: Path) -> None:
    other = dict(reversed(columns(1, "a").items()))
    copies = [insert(150, 1), row(150, new=other)]
    for at, splits in enumerate(([sent(*copies)], [sent(copies[0]), sent(copies[1], first=1)])):
        index, rows = decode(tmp_path / str(at), splits)
        assert versions(rows) == [(150, 1, "a")]
        assert counts(index) == (1, 1, 0)


def test_1_2_versions_of_a_row_that_step_back_end_at_the_last_one(tmp_path: Path) -> None:
    steps = [(110, "v1"), (120, "v2"), (130, "v3"), (120, "v2"), (130, "v3"), (140, "v4"), (120, "v2")]
    _, rows = decode(tmp_path, [sent(*(update(ts, 1, value) for ts, value in steps))])
    assert table_of(rows) == {1: "v4"}


@pytest.mark.parametrize("physical", [(71, 72), (None, None)], ids=["table partitions", "table split over nodes"])
def test_1_3_commit_ts_of_one_table_may_go_up_and_down_in_one_partition(
    tmp_path: Path, physical: tuple[int | None, int | None]
) -> None:
    one, other = ({} if number is None else {"ptn": number} for number in physical)
    stream = [
        row(150, new=columns(1, "a"), **one),
        row(120, new=columns(2, "b"), **other),
        row(160, new=columns(1, "c"), old=columns(1, "a"), **one),
        row(121, new=columns(2, "d"), old=columns(2, "b"), **other),
    ]
    index, rows = decode(tmp_path, [sent(*stream)])
    assert table_of(rows) == {1: "c", 2: "d"}
    assert counts(index) == (4, 0, 0)
    assert {line["_physical_table_id"] for line in rows} == set(physical)


def test_1_4_rows_of_equal_commit_ts_in_messages_partitions_and_tables_all_count(tmp_path: Path) -> None:
    # One transaction or several: nothing tells, and nothing needs to.
    streams = [sent(insert(150, 1), row(150, new=columns(1), table="u")), sent(insert(150, 2), partition=1)]
    index, _ = decode(tmp_path, streams)
    assert {str(table.schema.name): table.rows for table in index.tables} == {"s.t": 2, "s.u": 1}


def test_1_5_rows_at_and_below_a_watermark_that_came_before_them_are_kept(tmp_path: Path) -> None:
    stream = sent(insert(150, 1), resolved(150), insert(150, 2), insert(140, 3), insert(150, 1))
    index, rows = decode(tmp_path, [stream])
    assert versions(rows) == [(140, 3, "a"), (150, 1, "a"), (150, 2, "a")]
    assert counts(index) == (3, 1, 0)


def test_1_7_a_watermark_that_goes_back_changes_nothing(tmp_path: Path) -> None:
    index, rows = decode(tmp_path, [sent(insert(150, 1), resolved(160), resolved(140), insert(145, 2), resolved(170))])
    assert versions(rows) == [(145, 2, "a"), (150, 1, "a")]
    assert index.report.events.watermarks == 3


def test_1_8_several_changes_of_a_row_in_one_transaction_are_one_event_from_first_to_last_image(
    tmp_path: Path,
) -> None:
    _, rows = decode(tmp_path, [sent(update(150, 1, "last", old="first"))])
    assert [(line["before"]["v"], line["after"]["v"]) for line in rows] == [("first", "last")]


# 2. Watermarks


def test_2_a_ddl_may_come_after_the_watermark_that_equals_it(tmp_path: Path) -> None:
    index, _ = decode(tmp_path, [sent(insert(150, 1), resolved(150), ddl(150, "TRUNCATE TABLE `t`"), insert(151, 2))])
    assert [entry.commit_ts for entry in index.ddl] == [150]


def test_2_partitions_that_are_added_in_mid_stream_move_rows_and_lose_none(tmp_path: Path) -> None:
    before = [insert(110 + key, key, "v1") for key in range(6)]
    after = [update(130 + key, key, "v2") for key in range(6)]
    streams = [sent(*before[number::2], partition=number) for number in range(2)]
    # A restart sends some again, now to where they belong among three partitions.
    for number in range(3):
        streams.append(sent(*before[number::3], *after[number::3], partition=number, first=100))
    index, rows = decode(tmp_path, streams, partition_num=2)
    assert table_of(rows) == dict.fromkeys(range(6), "v2")
    assert counts(index) == (12, 6, 0)


# 3. Order inside one commitTs


def test_3_deletes_come_before_puts_of_a_commit_ts_however_they_arrive(tmp_path: Path) -> None:
    stream = [insert(150, 1, "new"), delete(150, 1, "old"), delete(150, 2), insert(150, 3)]
    _, rows = decode(tmp_path, [sent(*stream)])
    assert table_of(rows) == {1: "new", 3: "a"}


def test_3_1_halves_of_a_split_update_may_come_in_any_order_from_different_partitions(tmp_path: Path) -> None:
    streams = [sent(insert(150, 2, "b"), partition=1), sent(insert(110, 1), delete(150, 1), partition=0)]
    for at, splits in enumerate((streams, streams[::-1])):
        _, rows = decode(tmp_path / str(at), splits)
        assert table_of(rows) == {2: "b"}


def test_3_1_an_update_of_a_nullable_unique_key_is_split_although_the_row_keeps_its_key(tmp_path: Path) -> None:
    index, rows = decode(tmp_path, [sent(insert(110, 1, "u1"), delete(150, 1, "u1"), insert(150, 1, "u2"))])
    assert table_of(rows) == {1: "u2"}
    assert counts(index) == (3, 0, 0)


def test_3_1_unique_values_that_rows_exchange_are_deletes_and_puts_of_one_commit_ts(tmp_path: Path) -> None:
    exchange = [delete(150, 1, "x"), delete(150, 2, "y"), insert(150, 2, "x"), insert(150, 1, "y")]
    _, rows = decode(tmp_path, [sent(insert(110, 1, "x"), insert(110, 2, "y"), *exchange)])
    assert table_of(rows) == {1: "y", 2: "x"}


def test_3_1_raw_change_events_are_split_here_also_where_the_old_key_is_of_another_partition(tmp_path: Path) -> None:
    raw = row(150, new=columns(2, "b"), old=columns(1, "a"))
    streams = [sent(insert(110, 1), partition=1), sent(raw, partition=0), sent(raw, partition=0, first=50)]
    index, rows = decode(tmp_path, streams, output_raw_change_event=True)
    assert table_of(rows) == {2: "b"}
    assert (index.report.events.split_updates, counts(index)) == (2, (3, 2, 0))


def test_3_1_a_row_that_moves_to_another_table_partition_is_there_whatever_half_comes_first(tmp_path: Path) -> None:
    gone = row(150, old=columns(1, "a"), ptn=71)
    come = row(150, new=columns(1, "a"), ptn=72)
    for at, stream in enumerate(([gone, come], [come, gone])):
        _, rows = decode(tmp_path / str(at), [sent(*stream)])
        assert table_of(rows) == {1: "a"}


def test_3_2_a_soft_delete_that_became_a_delete_deletes_once(tmp_path: Path) -> None:
    # The real DELETE, when TiDB cleans up, is not sent; only the UPDATE that set the time is, as a DELETE of the old row.
    image: Columns = columns(1, "a", _tidb_softdelete_time={"t": 7, "f": 64, "v": None})
    _, rows = decode(tmp_path, [sent(row(110, new=image), row(150, old=image), row(150, old=image))])
    assert [line["_op"] for line in rows] == ["insert", "delete"]
    assert table_of(rows) == {}


def test_3_2_with_active_active_a_soft_delete_is_an_update_like_others(tmp_path: Path) -> None:
    alive = columns(1, "a", _tidb_softdelete_time={"t": 7, "f": 64, "v": None})
    gone = columns(1, "a", _tidb_softdelete_time={"t": 7, "f": 64, "v": "2026-01-01 00:00:00"})
    _, rows = decode(tmp_path, [sent(row(110, new=alive), row(150, new=gone, old=alive))])
    assert table_of(rows) == {1: "a"}


# 4. Dispatchers

HISTORY = [
    *((110 + key, key, "a", "a") for key in range(6)),
    *((120 + key, key, "b", "a") for key in range(6)),
    *((130 + key, key, "c", "b") for key in range(0, 6, 2)),
]
DISPATCHERS: dict[str, Callable[[int, int, str], int]] = {
    "default": lambda ts, key, value: 0,
    "table": lambda ts, key, value: 1,
    "index-value": lambda ts, key, value: key % 3,
    "columns": lambda ts, key, value: ord(value) % 3,
    "ts": lambda ts, key, value: ts % 3,
    "rowid": lambda ts, key, value: key % 3,
}


@pytest.mark.parametrize("dispatcher", DISPATCHERS)
@pytest.mark.parametrize("again", [0, 7])
def test_4_rows_are_the_same_wherever_a_dispatcher_sends_them(tmp_path: Path, dispatcher: str, again: int) -> None:
    partitions: dict[int, list[Event]] = defaultdict(list)
    for ts, key, value, old in [*HISTORY, *HISTORY[-again:]] if again else HISTORY:
        place = DISPATCHERS[dispatcher](ts, key, value)
        partitions[place].append(update(ts, key, value, old) if value != "a" else insert(ts, key))
    splits = []
    for number, events in partitions.items():
        stream = sent(*events, partition=number)
        splits += [stream[: len(stream) // 2], stream[len(stream) // 2 :]]
    index, rows = decode(tmp_path, splits)
    assert table_of(rows) == {0: "c", 1: "b", 2: "c", 3: "b", 4: "c", 5: "b"}
    assert counts(index) == (len(HISTORY), again, 0)


# 5. Topics


def test_5_a_table_whose_rule_sends_it_to_another_topic_goes_on_there(tmp_path: Path) -> None:
    streams = [sent(insert(110, 1), update(120, 1, "b")), sent(update(120, 1, "b"), update(130, 1, "c"), topic="other")]
    index, rows = decode(tmp_path, [[*streams[0], *streams[1]]])
    assert table_of(rows) == {1: "c"}
    assert counts(index) == (3, 1, 0)
    assert {(line["_topic"], line["_commit_ts"]) for line in rows} >= {("topic", 110), ("other", 130)}
    assert {file.topic for table in index.tables for file in table.files} == {"topic", "other"}


def test_5_tables_whose_names_become_one_topic_stay_apart(tmp_path: Path) -> None:
    stream = sent(row(150, new=columns(1), table="a-b"), row(150, new=columns(1), table="a_b"), topic="cdc_a_b")
    index, _ = decode(tmp_path, [stream])
    assert [str(table.schema.name) for table in index.tables] == ["s.a-b", "s.a_b"]


def test_5_1_rows_of_which_selectors_drop_columns_are_whole(tmp_path: Path) -> None:
    index, rows = decode(tmp_path, [sent(row(150, new={"id": columns(1)["id"]}))])
    assert [(line["after"], line["_partial"]) for line in rows] == [({"id": 1}, False)]
    assert index.report.quarantine_reasons == {}


# 6. DDL


def test_6_a_ddl_that_is_sent_to_all_partitions_and_again_counts_once(tmp_path: Path) -> None:
    one = ddl(150, "ALTER TABLE `t` ADD COLUMN `n` INT")
    streams = [sent(one, insert(151, number), one, partition=number) for number in range(3)]
    index, _ = decode(tmp_path, streams)
    assert len(index.ddl) == 1
    assert index.report.events.ddl == 6


def test_6_several_ddl_of_one_statement_share_a_commit_ts_and_all_count(tmp_path: Path) -> None:
    pieces = [
        ddl(150, f"RENAME TABLE `s`.`{old}` TO `s`.`{new}`", table=new, kind=14)
        for old, new in (("a", "b"), ("c", "d"))
    ]
    index, _ = decode(tmp_path, [sent(*pieces), sent(*pieces, partition=1)])
    assert [(entry.commit_ts, entry.table) for entry in index.ddl] == [(150, "b"), (150, "d")]


def test_6_a_ddl_may_stand_in_another_topic_than_the_rows_it_is_about(tmp_path: Path) -> None:
    rename = ddl(150, "RENAME TABLE `s`.`t` TO `s`.`u`", table="u", kind=14)
    streams = [sent(insert(110, 1), rename, topic="cdc_t"), sent(row(160, new=columns(2), table="u"), topic="cdc_u")]
    index, _ = decode(tmp_path, streams)
    assert [(entry.table, entry.topic) for entry in index.ddl] == [("u", "cdc_t")]
    assert [str(table.schema.name) for table in index.tables] == ["s.t", "s.u"]


def test_6_rows_of_other_tables_may_come_before_a_ddl_of_a_smaller_commit_ts(tmp_path: Path) -> None:
    stream = [row(170, new=columns(1), table="u"), ddl(150, "TRUNCATE TABLE `t`"), insert(160, 1)]
    index, rows = decode(tmp_path, [sent(*stream)])
    assert sorted(line["_commit_ts"] for line in rows) == [160, 170]
    assert [entry.commit_ts for entry in index.ddl] == [150]


def test_6_truncate_brings_no_deletes_and_the_changes_tell_of_it(tmp_path: Path) -> None:
    index, rows = decode(tmp_path, [sent(insert(110, 1), ddl(150, "TRUNCATE TABLE `t`", kind=11))])
    assert [line["_op"] for line in rows] == ["insert"]
    (change,) = index.changes
    assert (change.commit_ts, str(change.table)) == (150, "s.t")


# 8. Tables without a key


def test_8_rows_without_a_key_have_no_copies(tmp_path: Path) -> None:
    keyless = row(150, new={"v": {"t": 15, "f": 64, "v": "a"}})
    index, rows = decode(tmp_path, [sent(keyless, keyless), sent(keyless, first=9)])
    assert len(rows) == index.report.events.unkeyed == 3
