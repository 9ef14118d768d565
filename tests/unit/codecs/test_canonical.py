"""Canonical lines: every event as one line of JSON, cells as text."""

import json
from typing import Any

import pytest

from ticdc_replay.codecs.canonical import line
from ticdc_replay.domain.column_types import BaseType, ColumnType
from ticdc_replay.domain.events import (
    BootstrapEvent,
    DdlEvent,
    Event,
    Image,
    Operation,
    RowEvent,
    Shape,
    Undecodable,
    WatermarkEvent,
    WireColumn,
)
from ticdc_replay.domain.messages import RawMessage

MESSAGE = RawMessage("topic", 3, 42, 0, None, None)
PLACE = {"topic": "topic", "partition": 3, "offset": 42, "index": 1}


def members(event: Event) -> Any:
    return json.loads(line(MESSAGE, event))


def image(base: BaseType, value: Any) -> Image:
    return Image(Shape((WireColumn("c", ColumnType(base), False, lambda values: values),)), (value,))


def row(after: Image | None, before: Image | None = None, **fields: Any) -> RowEvent:
    event = RowEvent(1, 5, "s", "t", None, Operation.INSERT, after, before, False, None, None, (), b"")
    return event._replace(**fields)


@pytest.mark.parametrize(
    ("base", "value", "cell"),
    [
        ("bigint", 18446744073709551615, {"value": "18446744073709551615"}), ("year", 0, {"value": "0"}),
        ("double", 3.0, {"value": "3"}), ("double", -0.0, {"value": "-0"}), ("double", 1e-07, {"value": "0.0000001"}),
        ("double", 1e21, {"value": "1000000000000000000000"}), ("double", 1.5e300, {"value": "15" + "0" * 299}),
        ("decimal", "1.500", {"value": "1.500"}), ("varchar", "é\n", {"value": "é\n"}), ("varchar", "", {"value": ""}),
        ("varchar", b"a\xff", {"value": "Yf8=", "is_binary": True}), ("blob", b"a\xff", {"value": "Yf8=", "is_binary": True}),
        ("enum", 2, {"index": "2"}), ("set", 5, {"index": "5"}), ("enum", "b", {"value": "b"}),
        ("int", None, {"value": None}), ("enum", None, {"value": None}), ("blob", None, {"value": None, "is_binary": True}),
    ],
)  # fmt: skip
def test_cells(base: BaseType, value: Any, cell: Any) -> None:
    assert members(row(image(base, value)))["columns"] == {"c": cell}


def test_a_line_is_one_line_for_every_reader() -> None:
    text = "a\nb\r\x0b\x0c\x1c\x85\u2028\u2029"
    shown = line(MESSAGE, row(image("varchar", text))).decode()
    assert len(shown.splitlines()) == 1
    assert json.loads(shown)["columns"]["c"]["value"] == text


def test_rows() -> None:
    update = row(image("int", 2), image("int", 1), operation=Operation.UPDATE, partial=True)
    assert members(update) == {
        "kind": "row", **PLACE, "commit_ts": 5, "schema": "s", "table": "t", "type": "update",
        "columns": {"c": {"value": "2"}}, "pre": {"c": {"value": "1"}}, "partial": True,
    }  # fmt: skip
    delete = members(row(None, image("int", 1), operation=Operation.DELETE, commit_ts=None))
    assert (delete["type"], delete["columns"], delete["commit_ts"]) == ("delete", None, None)


def test_other_events() -> None:
    ddl = DdlEvent(1, 5, "s", "", "DROP DATABASE s", 2)
    assert members(ddl) == {
        "kind": "ddl", **PLACE, "commit_ts": 5, "schema": "s", "table": "", "query": "DROP DATABASE s", "type": 2,
    }  # fmt: skip
    assert members(WatermarkEvent(1, 5)) == {"kind": "watermark", **PLACE, "commit_ts": 5}
    assert members(BootstrapEvent(1, "s", "t")) == {"kind": "bootstrap", **PLACE, "schema": "s", "table": "t"}


def test_what_can_not_be_shown_is_an_error() -> None:
    def refuse(values: Any) -> Any:
        raise ValueError("no such value")

    bad = Image(Shape((WireColumn("c", ColumnType("int"), False, refuse),)), (1,))
    with pytest.raises(ValueError, match="column 'c': no such value"):
        line(MESSAGE, row(bad))
    with pytest.raises(ValueError, match="topic\\[3\\]@42: broken"):
        line(MESSAGE, Undecodable(None, "bad_framing", "broken"))
