"""The sample keeps the promises of a TiCDC changefeed, and its expected outcome is about the same history."""

import gzip
import json
import os
import re
import uuid
from base64 import b64decode
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from demo.sample import build, contents, expected, open_protocol
from demo.sample.open_protocol import DDL, RESOLVED, ROW
from ticdc_replay.domain import tso

MAX_BATCH_SIZE, MAX_MESSAGE_BYTES = 16, 4000
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def messages():
    """(message, its events) in send order."""
    return [(each, open_protocol.split(each.key, each.value)) for each in contents.messages()]


@pytest.fixture(scope="module")
def partitions(messages):
    """Events with their heads by partition, in offset order."""
    found = defaultdict(list)
    for message, events in messages:
        found[message.partition] += [(event, event.head) for event in events]
    return found


@pytest.fixture(scope="module")
def rows(messages):
    """(partition, table, key, commitTs, event) of every row event, in send order."""
    return [
        (message.partition, event.head["tbl"], identity(event), event.head["ts"], event)
        for message, events in messages
        for event in events
        if event.head["t"] == ROW
    ]


def identity(event):
    return tuple(sorted((name, value.decode("latin-1")) for name, value in open_protocol.row_key(event).items()))


def is_delete(event):
    return expected.operation(event) == "delete"


def test_offsets_count_up_without_gaps_and_record_times_never_step_back(messages):
    ends, clocks = Counter(), Counter()
    for message, _ in messages:
        assert message.offset == ends[message.partition]
        assert message.timestamp_ms >= clocks[message.partition]
        ends[message.partition] += 1
        clocks[message.partition] = message.timestamp_ms
    assert len(ends) == contents.meta()["partitions"] == 3


def test_every_message_is_sent_after_its_events_commit(messages):
    margins = [
        message.timestamp_ms - tso.physical_ms(event.head["ts"]) for message, events in messages for event in events
    ]
    assert min(margins) == 350


def test_a_watermark_comes_after_every_row_and_older_ddl_it_covers(partitions):
    for events in partitions.values():
        first_at = {}
        for at, (event, head) in enumerate(events):
            if head["t"] != RESOLVED:
                first_at.setdefault((head["t"], head["ts"], event.value), at)
        for at, (_, head) in enumerate(events):
            if head["t"] == RESOLVED:
                late = [
                    key
                    for key, sent_at in first_at.items()
                    if sent_at > at and (key[1] <= head["ts"] if key[0] == ROW else key[1] < head["ts"])
                ]
                assert late == []


def test_after_a_watermark_steps_back_everything_since_is_sent_again(partitions):
    for events in partitions.values():
        highest, steps_back = 0, 0
        for at, (_, head) in enumerate(events):
            if head["t"] != RESOLVED:
                continue
            if head["ts"] < highest:
                steps_back += 1
                before = {(e.value, h["ts"]) for e, h in events[:at] if h["t"] != RESOLVED and h["ts"] > head["ts"]}
                after = {(e.value, h["ts"]) for e, h in events[at:] if h["t"] != RESOLVED}
                assert before <= after
            highest = max(highest, head["ts"])
        assert steps_back > 0


def test_every_partition_has_watermarks_every_few_minutes_and_past_the_last_window(messages):
    marks = defaultdict(list)
    for message, events in messages:
        marks[message.partition] += [event.head["ts"] for event in events if event.head["t"] == RESOLVED]
    last_window = contents.windows()[-1]
    for sent in marks.values():
        moments = [tso.physical_ms(ts) for ts in sorted(set(sent))]
        assert max(after - before for before, after in pairwise(moments)) <= 5 * MINUTE_MS
        assert sent[-1] >= last_window.to_ts


def test_every_partition_shows_that_the_changefeed_ran_before_the_first_window(messages):
    first = {}
    for message, events in messages:
        first.setdefault(message.partition, events[0].head)
    start = contents.windows()[0].from_ts
    assert [head["t"] for head in first.values()] == [RESOLVED] * 3
    assert all(head["ts"] < start for head in first.values())


def test_some_watermarks_equal_the_commit_of_a_row_and_one_that_of_a_ddl(partitions):
    kinds = defaultdict(set)
    for events in partitions.values():
        for _, head in events:
            kinds[head["t"]].add(head["ts"])
    assert kinds[RESOLVED] & kinds[ROW]
    assert kinds[RESOLVED] & kinds[DDL]


def test_all_versions_of_a_row_are_in_the_partition_that_its_key_hashes_to(rows):
    for partition, _, _, _, event in rows:
        assert open_protocol.index_value_partition(event, 3) == partition
    assert len({partition for partition, table, *_ in rows if table == "orders"}) == 3


def test_the_dispatcher_hash_is_that_of_the_protocol_notes():
    event = open_protocol.Event(b'{"ts":1,"scm":"test","tbl":"t","t":1}', b'{"u":{"id":{"t":3,"h":true,"f":11,"v":1}}}')
    assert [open_protocol.index_value_partition(event, n) for n in (3, 2**32)] == [0, 1678569177]


def test_batches_keep_the_limits_of_the_changefeed_and_mix_commits(messages):
    sizes = [len(events) for _, events in messages]
    assert max(sizes) <= MAX_BATCH_SIZE
    assert all(len(events) == 1 or sum(e.size for e in events) <= MAX_MESSAGE_BYTES for _, events in messages)
    assert all(len(events) == 1 for _, events in messages if events[0].head["t"] != ROW)
    assert any(len({event.head["ts"] for event in events}) > 1 for _, events in messages)
    assert any(len({event.head["tbl"] for event in events}) > 1 for _, events in messages if len(events) > 1)
    claims = [{"ccl" in event.head for event in events} for _, events in messages]
    assert {True, False} in claims


def test_ddl_is_in_every_partition(partitions):
    found = [{(h["ts"], e.value) for e, h in events if h["t"] == DDL} for events in partitions.values()]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 8


def test_each_window_edge_has_a_commit_just_before_and_one_exactly_on_it(rows):
    commits = {ts for *_, ts, _ in rows}
    for window in contents.windows()[1:]:
        assert window.from_ts in commits
        assert any(tso.physical_ms(ts) == tso.physical_ms(window.from_ts) - 1 for ts in commits)


def test_every_claim_check_object_belongs_to_one_delivery_or_is_an_orphan(messages):
    stored = {each.name: each for each in contents.objects()}
    store = contents.meta()["replica_config"]["large-message-handle"]["claim-check-storage-uri"]
    referenced = []
    for message, events in messages:
        for event in events:
            location = event.head.get("ccl")
            if location is None:
                continue
            name = location.removeprefix(store + "/")
            referenced.append(name)
            wrapped = json.loads(stored[name].path.read_bytes())
            (whole,) = open_protocol.split(b64decode(wrapped["key"]), b64decode(wrapped["value"]))
            assert whole.head == {key: value for key, value in event.head.items() if key != "ccl"}
            assert identity(whole) == identity(event)
            assert whole.size > len(event.value)
            assert stored[name].written_ms <= message.timestamp_ms
    assert len(referenced) == len(set(referenced))
    assert {each.name for each in stored.values() if not each.orphan} == set(referenced)
    assert sum(each.orphan for each in stored.values()) >= 3
    assert all(
        re.fullmatch(r"[0-9a-f-]{36}\.json", name) and uuid.UUID(Path(name).stem).version == 4 for name in stored
    )


def test_some_large_rows_are_delivered_twice_with_an_object_each(messages):
    locations = defaultdict(set)
    for _, events in messages:
        for event in events:
            if "ccl" in event.head:
                locations[event.head["ts"], event.value].add(event.head["ccl"])
    assert sum(len(found) == 2 for found in locations.values()) >= 3


def test_expected_versions_per_window_are_those_that_were_sent(rows):
    versions = {}
    for _, table, key, ts, event in rows:
        versions[table, key, ts, is_delete(event)] = expected.operation(event)
    for window in contents.windows():
        counts = defaultdict(Counter)
        for (table, _, ts, _), kind in versions.items():
            if window.from_ts <= ts < window.to_ts:
                counts[table][kind] += 1
        assert {name.split(".")[1]: kinds for name, kinds in window.tables.items()} == counts
    sent = contents.summary()["sent"]
    assert (sent["row_versions"], sent["row_events"]) == (len(versions), len(rows))
    assert len(rows) - len(versions) > 500


def test_expected_rows_are_those_whose_last_version_is_not_a_delete(rows):
    last = {}
    for _, table, key, ts, event in rows:
        last[table, key] = max(last.get((table, key), (0, False)), (ts, not is_delete(event)))
    alive = {place: ts for place, (ts, lives) in last.items() if lives}
    wanted = {}
    for row in contents.rows():
        binary = {name for name in row.key if row.columns[name].get("is_binary")}
        key = {
            name: b64decode(text).decode("latin-1") if name in binary else text.encode().decode("latin-1")
            for name, text in row.key.items()
        }
        wanted[row.table, tuple(sorted(key.items()))] = row.commit_ts
    assert wanted == alive


def test_every_expected_row_has_all_columns_of_its_table_also_those_added_after_it_was_written():
    columns = defaultdict(set)
    for row in contents.rows():
        columns[row.table].add(frozenset(row.columns))
    assert {table: len(found) for table, found in columns.items()} == dict.fromkeys(columns, 1)
    assert {"5"} <= {row.columns["extra"]["value"] for row in contents.rows() if row.table == "big"}


def test_expected_orders_are_the_last_images_on_the_wire(rows):
    last = {}
    for _, table, key, ts, event in rows:
        if table == "orders" and ts >= last.get(key, (0,))[0]:
            last[key] = (ts, event)
    for row in contents.rows():
        if row.table != "orders":
            continue
        _, event = last[tuple(row.key.items())]
        image = json.loads(event.value)["u"]
        for name in ("cust_id", "amount", "created_at", "updated_at", "note", "attrs"):
            wire = image[name]["v"]
            assert row.columns[name]["value"] == (None if wire is None else str(wire))
        assert row.columns["status"]["index"] == str(image["status"]["v"])


def test_every_time_of_the_sample_lies_in_its_windows_or_just_behind(messages):
    windows = contents.windows()
    assert [after.from_ts - before.to_ts for before, after in pairwise(windows)] == [0, 0, 0]
    commits = [event.head["ts"] for _, events in messages for event in events if event.head["t"] != RESOLVED]
    assert windows[0].from_ts <= min(commits)
    assert max(commits) < windows[-1].to_ts


@pytest.mark.skipif("TICDC_REPLAY_CAPTURES" not in os.environ, reason="TICDC_REPLAY_CAPTURES names no captures")
def test_the_sample_is_what_its_script_makes_of_the_captures(tmp_path):
    build.build(Path(os.environ["TICDC_REPLAY_CAPTURES"]) / "dev", tmp_path / "data")
    made = {path.relative_to(tmp_path / "data"): path.read_bytes() for path in (tmp_path / "data").rglob("*.*")}
    assert set(made) == {path.relative_to(contents.DATA) for path in contents.DATA.rglob("*.*")}
    assert [
        str(name)
        for name, content in made.items()
        if unzipped(content) != unzipped((contents.DATA / name).read_bytes())
    ] == []


def unzipped(content):
    """Compressed bytes depend on the zlib at hand."""
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
