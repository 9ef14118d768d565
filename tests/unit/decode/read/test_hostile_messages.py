"""A message that says what no upstream has is set aside, and takes no other with it: on into files and the state store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.decoded_splits import decode, insert, quarantine
from tests.support.native_decoding import Written, both
from tests.support.open_protocol import Columns, columns, ddl, message, row
from tests.support.schema_histories import history_of, schema_at
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changelog.files.writer import ChangelogWriter
from ticdc_replay.codecs.open.codec import OpenCodec
from ticdc_replay.codecs.registry import codec_for
from ticdc_replay.decode.plan.schema_pass import schemas_in
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.definition import DefinedColumn, Index, TableDefinition
from ticdc_replay.domain.events import DdlEvent, Event, Shape
from ticdc_replay.domain.messages import EventPlace, RawMessage
from ticdc_replay.domain.tables import TableName
from ticdc_replay.schemas.history import Epoch, SchemaHistory

OPEN = Changefeed(protocol="open-protocol", topic="topic", timezone="UTC")


def outcome(folder: Path, *bad: tuple[bytes, bytes], **changefeed: Any) -> set[str]:
    """Reasons of the events *bad*, which come between two good rows in one message and in others; the good ones are written."""
    sent = [message([insert(150, 1), *bad, insert(150, 2)], 0), message(bad, 1), message([insert(150, 3)], 2)]
    index, rows = decode(folder, [sent], **changefeed)
    assert sorted(line["after"]["id"] for line in rows) == [1, 2, 3]
    entries = quarantine(folder, index)
    assert len(bad) <= len(entries) <= 2 * len(bad)  # of copies of a row with a key one is enough
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


@pytest.mark.parametrize("part", ["element", "table"])
def test_a_text_that_a_codec_should_not_have_let_through_stops_no_row_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Half of a surrogate pair can't be written."""
    write = ChangelogWriter.write

    def forged(writer: ChangelogWriter, rows: Any, columnar: Any = ()) -> Any:
        return write(writer, [each._replace(row=replaced(each.row)) for each in rows], columnar)

    def replaced(event: Any) -> Any:
        if event.physical_table_id != 9:
            return event
        if part == "table":
            return event._replace(table="\udc80")
        of_key, other = event.after.shape.columns
        enum = ColumnType("enum", elements=("\udc80",), declared=True)
        return event._replace(after=event.after._replace(shape=Shape((of_key, other._replace(type=enum)))))

    monkeypatch.setattr(ChangelogWriter, "write", forged)
    events = [insert(150, 1), row(150, new=columns(9), ptn=9), insert(150, 2)]
    index, rows = decode(tmp_path, [[message(events, 0)]])
    assert sorted(line["after"]["id"] for line in rows) == [1, 2]
    (entry,) = quarantine(tmp_path, index)
    assert (entry["reason"], entry["table"]) == ("decoder_failed", "t" if part == "element" else r"\udc80")


LONG, LONG_COLUMN = "n" * 65, "n" * 81
INT = {"t": 3, "f": 0, "v": 1}


@pytest.mark.parametrize(
    ("more", "names", "reason"),
    [
        ({LONG_COLUMN: INT}, {}, "name_too_long"),
        ({"n" * 1_000_000: INT}, {}, "name_too_long"),
        ({"": INT}, {}, "bad_name"),
        ({"a\0b": INT}, {}, "bad_name"),
        ({f"c{at}": INT for at in range(4095)}, {}, "too_many_columns"),
        ({f"c{at}": INT for at in range(20_000)}, {}, "too_many_columns"),
        ({"a": INT, "A": INT}, {}, "bad_name"),
        ({"ID": INT}, {}, "bad_name"),
        ({}, {"table": LONG}, "name_too_long"),
        ({}, {"table": "表" * 65}, "name_too_long"),
        ({}, {"table": "_1" + "n" * 64}, "name_too_long"),
        ({}, {"table": "_" + "n" * 64}, "name_too_long"),
        ({}, {"table": "\U0001f600" * 64}, "name_too_long"),
        ({}, {"table": "a\0b"}, "bad_name"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value,
)
def test_a_row_of_what_no_table_is_is_quarantined(
    tmp_path: Path, more: Columns, names: dict[str, str], reason: str
) -> None:
    assert outcome(tmp_path, row(150, new=columns(9, **more), **names)) == {reason}


def test_two_columns_that_letter_case_alone_tells_apart_stop_no_row_of_a_known_table(tmp_path: Path) -> None:
    """Of a definition that somebody declared rows may have columns more; they are found in it in any letter case."""
    known = [DefinedColumn("id", ColumnType("bigint"), nullable=False), DefinedColumn("v", ColumnType("int"))]
    declared = TableDefinition(TableName("s", "t"), tuple(known), (Index("PRIMARY", ("id",), unique=True),))
    sent = [message([row(150, new=columns(1, v=INT)), row(150, new=columns(2, v=INT, V=INT))], 0)]
    index, rows = decode(tmp_path, [sent], history=history_of([declared]))
    assert [line["after"]["id"] for line in rows] == [1]
    assert [entry["reason"] for entry in quarantine(tmp_path, index)] == ["bad_name"]


def test_a_row_of_a_table_whose_name_avro_has_made_longer_is_written(tmp_path: Path) -> None:
    sent = [message([row(150, new=columns(1), table="_1" + "n" * 63)], 0)]
    index, rows = decode(tmp_path, [sent])
    assert (len(rows), quarantine(tmp_path, index)) == (1, [])


@pytest.mark.parametrize("count", [0, 4094])
def test_a_row_of_the_widest_table_and_the_longest_names_is_written(write: Callable[..., Written], count: int) -> None:
    more = {"_V$_" + "i" * 64 + "_0": INT} if count == 0 else {f"c{at}": INT for at in range(count)}
    sent = [message([row(150, new=columns(at, **more), table="表" * 64)], at) for at in range(3)]
    assert both(write, sent, OPEN, SchemaHistory()).result.events.written == 3


@pytest.mark.parametrize("name", [LONG, "a\0b", ""], ids=["long", "NUL", "none"])
@pytest.mark.parametrize(
    "query", ["CREATE TABLE `{}` (id INT)", "CREATE TABLE t (id INT, `{}` INT)", "DROP TABLE `{}`"]
)
def test_ddl_that_names_what_no_table_has_is_not_understood(query: str, name: str) -> None:
    history = SchemaHistory().with_ddls([DdlEvent(0, 120, "s", "t", query.format(name), 3)])
    assert [(str(epoch.name), epoch.definition) for epoch in history.epochs] == [("s.t", None)]
    assert "name" in (history.epochs[0].unparsed or "")


def test_rows_of_a_definition_with_columns_that_no_table_has_are_quarantined(tmp_path: Path) -> None:
    columns_ = (DefinedColumn("id", ColumnType("bigint")), DefinedColumn(LONG_COLUMN, ColumnType("int")))
    declared = TableDefinition(TableName("s", "t"), columns_, (Index("PRIMARY", ("id",), unique=True),), valid_from=120)
    history = SchemaHistory().with_epochs([Epoch(declared.name, 120, declared)])
    key_only = row(150, old={"id": columns(1)["id"]})
    index, rows = decode(
        tmp_path,
        [[message([key_only, insert(110, 7)], 0)]],
        history=history,
        delete_only_output_handle_key_columns=True,
    )
    assert [line["after"]["id"] for line in rows] == [7]
    assert [entry["reason"] for entry in quarantine(tmp_path, index)] == ["name_too_long"]


@pytest.mark.parametrize(
    ("names", "reason"), [({"table": "a\0"}, "bad_name"), ({"table": LONG}, "name_too_long"), ({"schema": LONG}, None)]
)
def test_ddl_about_what_no_table_is_is_set_aside_and_a_gap_in_what_is_known_of_that_alone(
    tmp_path: Path, names: dict[str, str], reason: str | None
) -> None:
    bad = ddl(150, "q", **names)
    if reason is not None:  # a schema that is not wanted is nobody's concern
        assert outcome(tmp_path, bad) == {reason}
    codec = codec_for(OPEN, 1 << 20)
    found = schemas_in([[message([ddl(140, "CREATE TABLE t (id INT)"), bad], 7)]], codec)
    assert [event.commit_ts for event in found.ddl] == [140]
    about = {"schema": "s", "table": "t"} | names
    assert [(unread.offset, unread.schema, unread.table) for unread in found.unread] == [(7, *about.values())]


DECIMAL = {"t": 246, "f": 65, "v": "1.50"}


@pytest.mark.parametrize("text", ["DECIMAL(10,20)", "DECIMAL(1,2)"])
def test_a_ddl_with_a_type_that_no_column_has_leaves_its_table_s_rows_to_the_wire(
    write: Callable[..., Written], text: str
) -> None:
    create = "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(20), d DECIMAL(10,2))"
    queries = {100: create, 120: f"ALTER TABLE t MODIFY d {text}"}
    history = SchemaHistory().with_ddls([DdlEvent(0, at, "s", "t", query, 3) for at, query in queries.items()])
    sent = [message([row(at, new=columns(at, d=DECIMAL))], at) for at in (110, 130, 131, 132)]
    assert both(write, sent, OPEN, history).result.events.written == 4


def test_a_stored_definition_with_a_type_that_no_column_has_tells_nothing(tmp_path: Path) -> None:
    name = TableName("s", "t")
    id_ = DefinedColumn("id", ColumnType("bigint", declared=True), nullable=False)
    wrong = DefinedColumn("d", ColumnType("decimal", length=10, scale=20, declared=True))
    bad = TableDefinition(name, (id_, wrong), (Index("PRIMARY", ("id",), unique=True),), valid_from=9)
    good = TableDefinition(name, (id_,), bad.indexes, valid_from=20)
    stored = SchemaHistory([Epoch(name, 9, bad), Epoch(name, 10, bad), Epoch(name, 20, good)]).with_versions(
        [bad, good]
    )
    history = SchemaHistory.decode(stored.encode())
    assert [schema_at(history, name, at) is None for at in (10, 11, 21)] == [True, True, False]
    assert ["decimal(10,20)" in (epoch.unparsed or "") for epoch in history.epochs] == [True, True, False]
    assert list(history.versions) == [good]
    unjudged = SchemaHistory([Epoch(name, 9, bad)])  # a second line: no such file can be written
    index, rows = decode(tmp_path, [[message([row(150, new=columns(1, d=DECIMAL))], 0)]], history=unjudged)
    assert (rows, index.report.quarantine_reasons) == ([], {"bad_type": 1})


def test_a_message_that_takes_more_memory_than_there_is_can_be_set_aside_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = OpenCodec._decode

    def short_of_memory(codec: OpenCodec, sent: RawMessage) -> list[Event]:
        if sent.offset == 1:
            raise MemoryError
        return read(codec, sent)

    monkeypatch.setattr(OpenCodec, "_decode", short_of_memory)
    sent = [message([row(150, new=columns(at, unheard=INT))], at) for at in range(3)]
    with pytest.raises(MemoryError):
        decode(tmp_path, [sent])
    index, rows = decode(tmp_path, [sent], options={"set_aside": (EventPlace("topic", 0, 1),)})
    assert [line["after"]["id"] for line in rows] == [0, 2]
    assert index.report.quarantine_reasons == {"set_aside": 1}


KEY = {"t": 8, "h": True, "f": 11, "v": 1}


@pytest.mark.parametrize(
    "key",
    [
        {"k": {"t": 245, "h": True, "f": 11, "v": "{}"}},
        {"k": KEY, "l": {"t": 245, "h": True, "f": 11, "v": "{}"}},
        {f"k{at}": KEY for at in range(17)},
        {f"k{at}": KEY for at in range(1500)},
    ],
    ids=["json", "with json", "17", "1500"],
)
def test_a_row_with_a_handle_key_that_no_table_has_is_quarantined(
    tmp_path: Path, write: Callable[..., Written], key: Columns
) -> None:
    sent = row(150, new={**key, "v": INT}, table="w")
    assert outcome(tmp_path, sent) == {"bad_key"}
    many = [message([sent], at) for at in range(3)]
    assert both(write, many, OPEN, SchemaHistory()).result.events.written == 0


def test_a_row_with_the_widest_handle_key_is_written(write: Callable[..., Written]) -> None:
    sent = [message([row(150, new={f"k{at}": KEY for at in range(16)}, table="w")], 0)]
    assert both(write, sent, OPEN, SchemaHistory()).result.events.written == 1
