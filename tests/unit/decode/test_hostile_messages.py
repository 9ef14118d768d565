"""A message that says what no upstream has is set aside, and takes no other with it: on into files and the state store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.decoded_splits import decode, insert, quarantine
from tests.native_decoding import Written, both
from tests.open_protocol import columns, ddl, message, row
from ticdc_replay.changelog.writer import ChangelogWriter
from ticdc_replay.config.changefeed import Changefeed
from ticdc_replay.schemas.history import SchemaHistory

OPEN = Changefeed(protocol="open-protocol", topic="topic", timezone="UTC")


def outcome(folder: Path, *bad: tuple[bytes, bytes], **changefeed: Any) -> set[str]:
    """Reasons of the events *bad*, which come between two good rows in one message and in others; the good ones are written."""
    sent = [message([insert(150, 1), *bad, insert(150, 2)], 0), message(bad, 1), message([insert(150, 3)], 2)]
    index, rows = decode(folder, [sent], **changefeed)
    assert sorted(line["after"]["id"] for line in rows) == [1, 2, 3]
    entries = quarantine(folder, index)
    assert len(entries) == 2 * len(bad)
    return {entry["reason"] for entry in entries}


@pytest.mark.parametrize("number", [1 << 63, 1 << 64, 10**400, -1, True, 1.5, "7"])
def test_a_physical_table_id_that_no_column_holds_is_quarantined(tmp_path: Path, number: object) -> None:
    assert outcome(tmp_path, row(150, new=columns(9), ptn=number)) == {"bad_key"}


@pytest.mark.parametrize("number", [1 << 63, 10**400, -1])
def test_a_kind_of_ddl_that_no_column_holds_is_quarantined(tmp_path: Path, number: int) -> None:
    assert outcome(tmp_path, ddl(150, "CREATE TABLE `t` (`id` BIGINT)", kind=number)) == {"bad_value"}


def test_both_decoders_read_the_same_physical_table_ids(write: Callable[..., Written]) -> None:
    ids = [0, 7, (1 << 63) - 1, 1 << 63, -1, 7.0]
    sent = [message([row(150, new=columns(at), ptn=number)], at) for at, number in enumerate(ids)]
    assert both(write, sent, OPEN, SchemaHistory()).result.events.written == 3


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, True, "7"])
def test_a_number_that_a_codec_should_not_have_let_through_stops_no_row_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: Any
) -> None:
    write = ChangelogWriter.write

    def forged(writer: ChangelogWriter, rows: Any, columnar: Any = ()) -> Any:
        return write(writer, [each._replace(row=replaced(each.row)) for each in rows], columnar)

    def replaced(event: Any) -> Any:
        return event._replace(physical_table_id=number) if event.physical_table_id == 9 else event

    monkeypatch.setattr(ChangelogWriter, "write", forged)
    events = [insert(150, 1), row(150, new=columns(9), ptn=9), insert(150, 2)]
    index, rows = decode(tmp_path, [[message(events, 0)]])
    assert sorted(line["after"]["id"] for line in rows) == [1, 2]
    assert [entry["reason"] for entry in quarantine(tmp_path, index)] == ["decoder_failed"]
