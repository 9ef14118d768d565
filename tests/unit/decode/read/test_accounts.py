"""Every message and every row of a range is in one of the counts."""

from pathlib import Path

from tests.support.decoded_splits import decode, delete, insert
from tests.support.open_protocol import columns, ddl, message, resolved, row
from ticdc_replay.domain.messages import RawMessage


def test_every_message_and_row_is_counted_where_it_went(tmp_path: Path) -> None:
    moved = row(150, new=columns(12, "b"), old=columns(2, "a"))
    partial = row(150, new={"id": columns(3)["id"]}, ohk=True)
    bad_cell = row(150, new=columns(4, "a", d={"t": 10, "f": 0, "v": "no date"}))
    unreadable = row(150, new={"id": {"t": 8, "h": True, "f": 11, "v": "not a number"}})
    elsewhere = row(150, new=columns(5), schema="other")
    splits = [
        [
            message([insert(150, 1), moved, insert(99, 6), insert(200, 7)], 0),
            RawMessage("topic", 0, 1, 0, b"\0" * 7, b"no message"),
            message([partial, bad_cell, unreadable, elsewhere], 2),
            message([resolved(160)], 3),
        ],
        [message([insert(150, 1), insert(150, 1, "other"), delete(151, 1)], 4), message([ddl(155, "DROP TABLE x")], 5)],
    ]
    index, rows = decode(tmp_path, splits)  # which itself holds that the counts add up
    messages, events = index.report.messages, index.report.events
    assert (messages.consumed, messages.decoded, messages.quarantined) == (6, 5, 1)
    assert (events.rows, events.split_updates) == (10, 1)
    assert (events.outside_window, events.filtered, events.quarantined, events.duplicates) == (2, 1, 2, 2)
    assert (events.conflicts, events.undecodable, events.ddl, events.watermarks) == (1, 1, 1, 1)
    assert events.written == len(rows) == 4
    assert sum(index.report.quarantine_reasons.values()) == 4
