"""Rows that no row of their table can look like are set aside, whichever decoder reads the others."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import debezium_messages as debezium
from tests.support.decoded_splits import WINDOW, decode, insert, quarantine
from tests.support.open_protocol import columns, ddl, message, resolved, row
from ticdc_replay.changelog.files.index import ChangelogIndex
from ticdc_replay.decode.read import native
from ticdc_replay.domain.events import DdlEvent
from ticdc_replay.domain.messages import EventPlace, RawMessage
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.history import SchemaHistory

CREATE = "CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(100))"
WIDE: dict[str, Any] = columns(7, "x", w={"t": 3, "f": 65, "v": 1})
HISTORY = SchemaHistory().with_ddls([DdlEvent(0, 50, "s", "t", CREATE, 3)])


@pytest.fixture(params=["native", "python"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(native, "native_extension", lambda: None)


def set_aside(folder: Path, index: ChangelogIndex) -> list[tuple[int, int | None, str]]:
    return [(entry["offset"], entry["ordinal"], entry["reason"]) for entry in quarantine(folder, index)]


@pytest.mark.usefixtures("decoder")
def test_a_row_of_another_layout_is_set_aside_and_those_around_it_are_written(tmp_path: Path) -> None:
    messages = [message([insert(110 + number, number)], number) for number in range(20)]
    messages[9] = message([insert(120, 100), row(120, new=WIDE), insert(120, 101)], 9)
    index, rows = decode(tmp_path, [messages[:12], messages[12:]], history=HISTORY)
    assert set_aside(tmp_path, index) == [(9, 1, "row_unlike_definition")]
    (entry,) = quarantine(tmp_path, index)
    assert "it has no column w" in entry["detail"]
    assert sorted(line["after"]["id"] for line in rows) == [*range(9), *range(10, 20), 100, 101]
    assert len(index.tables) == 1, "no second version of the table"
    assert index.report.undeclared_tables == ()


@pytest.mark.usefixtures("decoder")
def test_every_row_of_that_layout_is_set_aside_but_one_after_ddl_that_makes_it_possible(tmp_path: Path) -> None:
    history = HISTORY.with_ddls([DdlEvent(0, 150, "s", "t", "ALTER TABLE `t` ADD COLUMN `w` INT", 5)])
    wide = [row(ts, new=columns(ts, "x", w={"t": 3, "f": 65, "v": 1})) for ts in (110, 120, 150, 151, 160)]
    index, rows = decode(tmp_path, [[message([each], at) for at, each in enumerate(wide)]], history=history)
    assert set_aside(tmp_path, index) == [(at, 0, "row_unlike_definition") for at in range(3)]
    assert [line["after"]["id"] for line in rows] == [151, 160]


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize(
    "index", ["UNIQUE KEY `u` (`id`) WHERE `v`='open'", "UNIQUE KEY `u` (`id`) WHERE `v`='open', UNIQUE KEY (`id`)"]
)
def test_rows_that_a_unique_index_with_a_condition_identifies_are_set_aside(tmp_path: Path, index: str) -> None:
    """Several rows may share such a key; TiCDC takes it for one of all rows (pkg/common/table_info_helper.go, 8.5.7)."""
    create = f"CREATE TABLE `t` (`id` BIGINT NOT NULL, `v` VARCHAR(100), {index})"
    history = SchemaHistory().with_ddls([DdlEvent(0, 50, "s", "t", create, 3)])
    sent = [message([insert(110, 1, "done"), insert(110, 2, "void")], 0), message([insert(120, 1, "void")], 1)]
    found, rows = decode(tmp_path, [sent], history=history)
    if index.count("UNIQUE") == 2:
        assert len(rows) == 3
        return
    assert rows == []
    assert {entry["reason"] for entry in quarantine(tmp_path, found)} == {"row_unlike_definition"}
    assert "has a condition" in quarantine(tmp_path, found)[0]["detail"]


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("index", ["(lower(`v`))", "(cast(`v` as signed array))", "`id`"])
def test_rows_of_a_table_without_key_are_written_whatever_its_unique_index_is_over(tmp_path: Path, index: str) -> None:
    create = f"CREATE TABLE `t` (`id` BIGINT, `v` VARCHAR(100), UNIQUE KEY `u` ({index}))"
    history = SchemaHistory().with_ddls([DdlEvent(0, 50, "s", "t", create, 3)])
    image = {"id": {"t": 8, "f": 64, "v": 1}, "v": {"t": 15, "f": 64, "v": "x"}}
    sent = [message([row(110 + at, new=image)], at) for at in range(5)]
    _, rows = decode(tmp_path, [sent], history=history, force_replicate=True)
    assert len(rows) == 5


@pytest.mark.usefixtures("decoder")
def test_rows_of_a_table_that_was_dropped_and_came_back_untold_are_set_aside(tmp_path: Path) -> None:
    """As after RECOVER DATABASE, of which TiCDC sends nothing."""
    history = HISTORY.with_ddls([DdlEvent(0, 150, "s", "", "DROP DATABASE `s`", 2)])
    messages = [message([insert(ts, ts)], at) for at, ts in enumerate((110, 150, 151, 160))]
    index, rows = decode(tmp_path, [messages], history=history)
    assert set_aside(tmp_path, index) == [(2, 0, "row_unlike_definition"), (3, 0, "row_unlike_definition")]
    assert sorted(line["after"]["id"] for line in rows) == [110, 150]


def test_debezium_tells_nothing_of_recover_table_so_rows_after_it_are_set_aside(tmp_path: Path) -> None:
    fields = [debezium.ID, debezium.field("v", "string", tidb_type="varchar")]
    history = debezium.history("CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(20))")
    history = history.with_ddls([DdlEvent(0, debezium.TS + 10, "s", "t", "DROP TABLE `s`.`t`", "")])
    first = {"id": 1, "v": "a"}
    messages = [
        debezium.row("c", after=first, fields=fields),
        debezium.ddl("DROP TABLE `s`.`t`", changes=("DROP",), ts=debezium.TS + 10),
        debezium.row("u", before=first, after={"id": 1, "v": "c"}, fields=fields, ts=debezium.TS + 20),
    ]
    window = Window(debezium.TS - 100, debezium.TS + 100)
    numbered = [each._replace(offset=offset) for offset, each in enumerate(messages)]
    index, rows = decode(
        tmp_path, [numbered], window=window, history=history, protocol="debezium", enable_tidb_extension=True
    )
    assert set_aside(tmp_path, index) == [(2, 0, "row_unlike_definition")]
    assert [line["after"] for line in rows] == [first]


def test_a_copy_of_the_row_that_can_be_used_clears_it(tmp_path: Path) -> None:
    odd, good = message([row(120, new=WIDE)], 3), message([insert(120, 7)], 9)
    index, rows = decode(tmp_path, [[odd], [good]], history=HISTORY)
    assert set_aside(tmp_path, index) == []
    assert [(line["_offset"], line["after"]["id"]) for line in rows] == [(9, 7)]


def test_without_a_definition_a_layout_can_not_be_told_from_a_change_of_the_table(tmp_path: Path) -> None:
    messages = [message([insert(110, 1)], 0), message([row(120, new=WIDE)], 1)]
    index, rows = decode(tmp_path, [messages])
    assert set_aside(tmp_path, index) == []
    assert len(rows) == len(index.tables) == 2
    assert index.window == WINDOW


@pytest.mark.usefixtures("decoder")
def test_rows_that_the_pipeline_file_names_are_set_aside_whatever_they_are(tmp_path: Path) -> None:
    messages = [message([insert(110 + at, 10 * at), insert(110 + at, 10 * at + 1)], at) for at in range(8)]
    places = tuple(map(EventPlace.parse, ("topic[0]@1", "topic[0]@6#1", "topic[1]@3", "other[0]@4", "topic[0]@7#2")))
    index, rows = decode(tmp_path, [messages[:5], messages[5:]], options={"set_aside": places})
    named = [(1, 0, "set_aside"), (1, 1, "set_aside"), (6, 1, "set_aside")]
    assert set_aside(tmp_path, index) == named
    left = [10 * at + ordinal for at in range(8) for ordinal in range(2) if (at, ordinal, "set_aside") not in named]
    assert sorted(line["after"]["id"] for line in rows) == left


def test_ddl_in_a_message_that_the_pipeline_file_names_counts_as_always(tmp_path: Path) -> None:
    messages = [message([insert(110, 1), ddl(120, CREATE), insert(130, 2)], 0)]
    index, rows = decode(tmp_path, [messages], options={"set_aside": (EventPlace("topic", 0, 0),)})
    assert [entry.query for entry in index.ddl] == [CREATE]
    assert rows == []


@pytest.mark.usefixtures("decoder")
def test_places_at_which_nothing_was_set_aside_are_told(tmp_path: Path) -> None:
    """A wrong ordinal, DDL alone, rows of another window or table, and an offset without message."""
    messages = [
        message([insert(110, 1)], 0),
        message([ddl(120, CREATE)], 1),
        message([insert(90, 2), insert(210, 3)], 2),
        message([row(130, schema="else", new=columns(4, "x"))], 3),
        message([resolved(140)], 4),
        message([insert(150, 5)], 6),
        message([insert(160, 6), insert(160, 7)], 7),
        RawMessage("topic", 0, 8, 1, b"?", b"?"),
    ]
    acting = ("topic[0]@6", "topic[0]@7#1", "topic[0]@8", "topic[0]@8#3")
    idle = ("topic[0]@0#1", "topic[0]@1", "topic[0]@2", "topic[0]@3", "topic[0]@4", "topic[0]@5", "topic[0]@7#2")
    places = tuple(sorted(map(EventPlace.parse, (*acting, *idle))))
    index, rows = decode(tmp_path, [messages[:4], messages[4:]], options={"set_aside": places})
    assert [line["after"]["id"] for line in rows] == [1, 6]
    assert index.set_aside == places
    assert tuple(map(str, index.report.idle_places)) == idle


def test_a_place_acts_also_where_a_copy_of_its_row_is_used(tmp_path: Path) -> None:
    place = EventPlace("topic", 0, 3)
    copies = [[message([insert(120, 7)], 3)], [message([insert(120, 7)], 9)]]
    index, rows = decode(tmp_path, copies, options={"set_aside": (place,)})
    assert [line["_offset"] for line in rows] == [9]
    assert index.report.idle_places == ()


@pytest.mark.parametrize("option", ["accept_damaged", "filters_ddl"])
def test_what_a_person_says_of_the_pipeline_ends_the_judgement(tmp_path: Path, option: str) -> None:
    messages = [message([insert(110, 1)], 0), message([row(120, new=WIDE)], 1)]
    index, rows = decode(tmp_path, [messages], history=HISTORY, options={option: True})
    assert set_aside(tmp_path, index) == []
    assert len(rows) == 2
