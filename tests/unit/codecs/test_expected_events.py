"""The comparison with expected events sees every kind of mistake, whatever the protocol."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.expected import match
from tests.expected.cells import same_cell
from tests.expected.wire import Wire
from tests.support.capture_differences import decode
from tests.support.capture_sets import CaptureSets, Committed
from ticdc_replay.captures import Capture
from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.codecs.canonical import line
from ticdc_replay.domain.events import RowEvent

Json = dict[str, Any]

OPEN = Committed("open", "classic", "open-2part-index")
WITHOUT_COMMIT_TS = Committed("canal-json", "new", "canal-json")
TOMBSTONES = Committed("avro", "classic", "avro-ext")
VARIANTS = (
    OPEN,
    WITHOUT_COMMIT_TS,
    Committed("canal-json", "classic", "canal-json-updated-columns"),
    TOMBSTONES,
    Committed("avro", "new", "avro-before-value"),
    Committed("simple-json", "new", "simple-json"),
)


class Judged:
    """The right lines of a capture, and what is found wrong with others."""

    def __init__(self, captures: CaptureSets, which: Committed) -> None:
        self.folder = captures.of(which)
        self.capture = Capture(self.folder)
        located = decode(self.capture)
        self.lines: list[Json] = [json.loads(line(*one)) for one in located]
        self._unknown = {one.place: one.event.before_unknown for one in located if isinstance(one.event, RowEvent)}

    def complaints(self, lines: list[Json]) -> list[str]:
        return match(lines, self.folder, self.capture.changefeed(), self._unknown).problems

    def rows(self) -> list[Json]:
        """Row lines to be changed at will; those of a table that known deviations are about are left out."""
        deviating = {"gen_t"}
        return [copy.deepcopy(row) for row in self.lines if row["kind"] == "row" and row["table"] not in deviating]


_judged: dict[Committed, Judged] = {}


@pytest.fixture
def judged(captures: CaptureSets, request: pytest.FixtureRequest) -> Judged:
    which = request.param
    if which not in _judged:
        _judged[which] = Judged(captures, which)
    return _judged[which]


every_variant = pytest.mark.parametrize("judged", VARIANTS, ids=str, indirect=True)


def image(row: Json) -> Json:
    """The image that has something to change, the old one in every other row where there are two."""
    sides: list[Json] = [row[side] for side in ("pre", "columns") if row[side]]
    return sides[row["offset"] % len(sides)] if sides else {}


def cell(row: Json) -> Json:
    """One cell of *row*, another one in each row."""
    cells = list(image(row).values())
    chosen: Json = cells[(row["offset"] * 7 + row["index"]) % len(cells)]
    return chosen


def another_value(row: Json) -> None:
    changed = cell(row)
    there = [name for name in ("value", "index", "value_utc") if changed.get(name) is not None]
    name = there[0] if there else "value"
    changed[name] = f"9{changed.get(name) or ''}"


def null_or_not(row: Json) -> None:
    changed = cell(row)
    found = changed.get("value") is not None or "index" in changed or "value_utc" in changed
    changed.clear()
    changed["value"] = None if found else ""


def flipped(name: str) -> Callable[[Json], Any]:
    return lambda row: row.update({name: not row[name]})


MISTAKES: dict[str, Callable[[Json], Any]] = {
    "another value": another_value,
    "null for a value, or the other way": null_or_not,
    "binary for text, or the other way": lambda row: cell(row).update(is_binary=not cell(row).get("is_binary")),
    "lossy where the wire has all": lambda row: cell(row).update(lossy=True),
    "a column too few": lambda row: image(row).popitem(),
    "a column too many": lambda row: image(row).update({"no such": {"value": "1"}}),
    "another operation": lambda row: row.update(type="update" if row["type"] == "delete" else "delete"),
    "partial or not": flipped("partial"),
    "another table": lambda row: row.update(table="x"),
    "another time": lambda row: row.update(commit_ts=(row["commit_ts"] or 0) + 1),
    "the images swapped": lambda row: row.update(columns=row["pre"], pre=row["columns"]),
}


@every_variant
def test_right_lines_have_no_difference(judged: Judged) -> None:
    assert judged.complaints(judged.lines) == []


@pytest.mark.slow
@every_variant
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_in_whatever_row(judged: Judged, mistake: str) -> None:
    if mistake == "a column too few" and judged.capture.changefeed().only_output_updated_columns:
        pytest.skip("unchanged columns may be missing")
    rows = judged.rows()
    assert len(rows) > 300
    if mistake == "binary for text, or the other way":
        rows = [row for row in rows if cell(row).get("value") is not None]
    if mistake == "the images swapped":
        rows = [row for row in rows if row["pre"] != row["columns"]]
    for row in rows:
        MISTAKES[mistake](row)
    told = judged.complaints(rows)
    for row in rows:
        place = str((row["topic"], row["partition"], row["offset"], row["index"]))
        assert any(complaint.startswith(place) for complaint in told), row


def first(lines: list[Json], **members: Any) -> Json:
    return next(one for one in lines if all(one.get(name) == value for name, value in members.items()))


def lose_a_version(lines: list[Json]) -> None:
    """Drop every copy of one row version, and double another so that the counts still fit."""
    gone = first(lines, kind="row", table="all_types", type="update")
    for number, other in enumerate(lines):
        if other["kind"] == "row" and (other["table"], other["columns"]) == (gone["table"], gone["columns"]):
            lines[number] = first(lines, kind="row", type="delete")


LOSSES: dict[str, Callable[[list[Json]], Any]] = {
    "a row too few": lambda lines: lines.remove(first(lines, kind="row")),
    "a row twice": lambda lines: lines.append(first(lines, kind="row")),
    "a version lost": lose_a_version,
    "a DDL's type": lambda lines: first(lines, kind="ddl").update(type=99),
    "a DDL's table": lambda lines: first(lines, kind="ddl", table="all_types").update(table="x"),
    "a DDL's time": lambda lines: first(lines, kind="ddl").update(commit_ts=1),
    "a DDL too few": lambda lines: lines.remove(first(lines, kind="ddl")),
    "a watermark too few": lambda lines: lines.remove(first(lines, kind="watermark")),
    "a bootstrap too few": lambda lines: lines.remove(first(lines, kind="bootstrap")),
    "a foreign bootstrap": lambda lines: first(lines, kind="bootstrap").update(table="x"),
}


@pytest.mark.parametrize("judged", [Committed("simple-avro", "new", "simple-avro")], ids=str, indirect=True)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_found(judged: Judged, loss: str) -> None:
    lines = copy.deepcopy(judged.lines)
    LOSSES[loss](lines)
    assert judged.complaints(lines) != []


@pytest.mark.parametrize("judged", [WITHOUT_COMMIT_TS], ids=str, indirect=True)
def test_without_commit_ts_a_version_before_an_earlier_one_is_found(judged: Judged) -> None:
    lines = copy.deepcopy(judged.lines)
    rows = [row for row in lines if row["kind"] == "row" and row["table"] == "acct"]
    key = rows[0]["columns"]["id"]
    earlier, later = [row for row in rows if row["columns"] and row["columns"]["id"] == key][:2]
    for name in ("type", "columns", "pre"):
        earlier[name], later[name] = later[name], earlier[name]
    assert any("earlier versions" in complaint for complaint in judged.complaints(lines))


@pytest.mark.parametrize("judged", [TOMBSTONES], ids=str, indirect=True)
def test_a_tombstone_says_no_more_than_its_key(judged: Judged) -> None:
    tombstones = [copy.deepcopy(row) for row in judged.lines if row["kind"] == "row" and row["type"] == "delete"]
    for row in tombstones:
        row["pre"]["v"] = {"value": "1"}
    told = judged.complaints(tombstones)
    assert sum("columns [" in complaint for complaint in told) == len(tombstones) > 20


DEBEZIUM = Wire(Changefeed(protocol="debezium", topic="t", timezone="UTC"), new=True)


def stored(mysql_type: str, value: str | None, flag: str = "", **more: Any) -> Json:
    return {"mysql_type": mysql_type, "flag": flag, "value": value, **more}


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (stored("decimal(65,30)", "1.100000000000000000000000000000"), "1.1"),
        (stored("decimal(65,0)", "9" * 65), "1" + "0" * 65),
        (stored("bigint(20) unsigned", str(2**64 - 1)), "-1"),
        (stored("int(11)", None), "42"),
        (stored("varchar(10) charset utf8mb4", None), "dflt"),
        (stored("date", "0000-00-00"), None),
        (stored("date", "0000-00-00", "not_null"), "1970-01-01"),
        (stored("datetime", "2023-10-00 01:02:03"), None),
        (stored("date", "0018-01-01"), "2018-01-01"),
        (stored("datetime(6)", "0070-01-01 00:00:00.000000"), "1970-01-01 00:00:00.000000"),
        (stored("datetime", "2020-01-01 00:00:00"), "2020-01-01 00:00:00.000"),
        (stored("date", "1970-01-11"), "10"),
        (stored("datetime(3)", "1970-01-01 00:00:01.500"), "1500"),
        (stored("time", "-01:00:00"), "-3600000000"),
        (stored("timestamp", "0000-00-00 00:00:00"), "1970-01-01 00:00:00"),
        (stored("varbinary(8)", "AAE=", is_binary=True), "AAE="),
        (stored("bit(9)", "257"), "AQE="),
        (stored("bit(1)", "1"), "true"),
    ],
)
def test_what_debezium_can_not_carry_has_to_be_marked(wanted: Json, shown: str | None) -> None:
    assert same_cell({"value": shown, "lossy": True}, wanted, DEBEZIUM)
    decimals_compare_as_numbers = wanted["mysql_type"] == "decimal(65,30)"
    assert same_cell({"value": shown}, wanted, DEBEZIUM) is decimals_compare_as_numbers
    assert not same_cell({"value": shown, "lossy": True}, wanted, Wire(Changefeed(**OF_SIMPLE), new=True))


OF_SIMPLE: Any = {"protocol": "simple", "topic": "t", "timezone": "UTC"}


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (stored("decimal(10,2)", "1.10"), "1.2"),
        (stored("bigint(20) unsigned", str(2**64 - 1)), "-2"),
        (stored("bigint(20)", "-1"), "18446744073709551615"),
        (stored("int(11)", "42"), "43"),
        (stored("int(11)", None, "not_null"), "42"),
        (stored("int(11)", "42"), None),
        (stored("varchar(10) charset utf8mb4", "a"), "b"),
        (stored("date", "2023-10-01"), None),
        (stored("date", "2023-10-01"), "1970-01-01"),
        (stored("date", "2023-10-01"), "2023-10-02"),
        (stored("datetime(3)", "2020-01-01 00:00:00.500"), "2020-01-01 00:00:00"),
        (stored("time", "-01:00:00"), "3600000000"),
        (stored("timestamp", "2024-01-01 08:00:00", value_utc="2024-01-01 00:00:00"), "2024-01-01 01:00:00"),
        (stored("varbinary(8)", "AAE=", is_binary=True), "AAI="),
        (stored("bit(9)", "257"), "AQI="),
    ],
)
def test_the_mark_excuses_nothing_else(wanted: Json, shown: str | None) -> None:
    assert not same_cell({"value": shown, "lossy": True}, wanted, DEBEZIUM)
