"""The same history through every protocol and option gives the same typed rows, but for what ``LOSSES`` says.

Every variant of the committed captures is decoded, typed and converted as a changelog has it, and each cell is compared with
the one of every other variant that carries it (equality holds for all pairs where it holds for all and one reference) and with
what was in the database. A cell that a variant does not carry has to be in the table below, and each line of the table has to
be needed.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.expected import expected_events, known_deviations
from tests.expected.wire import Json, Wire
from tests.support.capture_differences import read
from tests.support.capture_sets import COMMITTED, CaptureSets, Committed
from tests.support.typed_cells import Cell, expected_value, image_of, typed_rows
from ticdc_replay.captures import Capture
from ticdc_replay.domain.events import RowEvent
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.lookup import SchemaLookup
from ticdc_replay.schemas.resolve import SchemaResolver

pytestmark = pytest.mark.slow


class Loss(NamedTuple):
    """Cells that a wire does not carry: ``takes(event, side, column)`` says which."""

    on: Callable[[Wire], bool]
    takes: Callable[[Wire, Json, str, str], bool]


def old_image_of_update(wire: Wire, event: Json, side: str, column: str) -> bool:
    return event["type"] == "update" and side == "before"


def all_but_the_key(wire: Wire, event: Json, side: str, column: str) -> bool:
    return column not in wire.key(event)


def all_but_the_key_of_delete(wire: Wire, event: Json, side: str, column: str) -> bool:
    return event["type"] == "delete" and column not in wire.key(event)


LOSSES = {
    "open without old values, avro: an UPDATE has no old image": Loss(
        lambda wire: not wire.old_values, old_image_of_update
    ),
    "avro: a DELETE is its key": Loss(lambda wire: wire.has_tombstones(), all_but_the_key_of_delete),
    "delete-only-output-handle-key-columns: a DELETE is its key": Loss(
        lambda wire: wire.changefeed.delete_only_output_handle_key_columns, all_but_the_key_of_delete
    ),
    "handle-key-only: a large row is its key": Loss(
        lambda wire: wire.changefeed.large_message == "handle-key-only", all_but_the_key
    ),
    "open of classic, updated columns: an UPDATE that changed nothing has no old image": Loss(
        lambda wire: wire.open and wire.updated_columns and not wire.new,
        lambda wire, event, side, column: (
            old_image_of_update(wire, event, side, column)
            and bool(event.get("no_visible_change") or wire.changefeed.large_message == "handle-key-only")
        ),
    ),
    "open of new, updated columns: of columns that turned NULL the old value has no name": Loss(
        lambda wire: wire.open and wire.updated_columns and wire.new,
        lambda wire, event, side, column: (
            old_image_of_update(wire, event, side, column) and event["columns"][column]["value"] is None
        ),
    ),
    "debezium: decimals are doubles": Loss(
        lambda wire: wire.debezium, lambda wire, event, side, column: base(event, side, column) == "decimal"
    ),
    "debezium: a NULL is shown as the column's default": Loss(
        lambda wire: wire.changefeed.protocol == "debezium",
        lambda wire, event, side, column: "not_null" not in flags(event, side, column) and has_default(event, column),
    ),
    "debezium-avro: no DDL tells which columns have a default": Loss(
        lambda wire: wire.changefeed.protocol == "debezium-avro",
        lambda wire, event, side, column: column not in event["handle_key"],
    ),
    "debezium: no dates, and years below 100, are shown as other dates": Loss(
        lambda wire: wire.debezium,
        lambda wire, event, side, column: base(event, side, column) in ("date", "datetime", "timestamp"),
    ),
}
"""What is lost, and where. ``tests/captures/known_deviations.json`` has the events that encoders fail on."""


def has_default(event: Json, column: str) -> bool:
    return column in event["with_default"]


def base(event: Json, side: str, column: str) -> str:
    type_ = (image_of(event, side) or {})[column]["mysql_type"]
    name = type_.split(" ")[0].split("(")[0]
    return str(name)


def flags(event: Json, side: str, column: str) -> str:
    return str((image_of(event, side) or {})[column]["flag"])


def columns_with_default(history: SchemaHistory) -> dict[tuple[str, str], set[str]]:
    """By table the columns that ever had a default."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for epoch in history.epochs:
        for column in epoch.definition.columns if epoch.definition is not None else ():
            if column.default is not None or column.computed_default:
                found[epoch.name.schema, epoch.name.table].add(column.name)
    return found


class Typed(NamedTuple):
    """One variant's share of the history."""

    wire: Wire
    trace: str
    events: dict[int, Json]
    values: dict[Cell, object]
    lossy: frozenset[Cell]
    rows: list[tuple[RowEvent, tuple[int, ...]]]
    lookup: SchemaLookup


@cache
def typed(folder: Path) -> Typed:
    capture = Capture(folder)
    reading = read(folder)
    events = {event["seq"]: event for event in expected_events(folder)}
    values: dict[Cell, object] = {}
    lossy: set[Cell] = set()
    for _, row in typed_rows(reading.rows, events, reading.lookup, capture.changefeed().timezone):
        for cell, value in row.values.items():
            assert values.setdefault(cell, value) == value, f"copies of one row differ: {cell}"
        lossy |= row.lossy
    wire = Wire(capture.changefeed(), new=folder.parent.name == "new")
    trace = "large" if len(events) < 100 else "main"
    return Typed(wire, trace, events, values, frozenset(lossy), reading.rows, reading.lookup)


def wrong(folder: Path) -> set[int]:
    """Numbers of events whose messages do not say what happened."""
    return {known["expected_seq"] for known in known_deviations(folder)["mismatch"] if "expected_seq" in known}


@pytest.fixture(scope="session")
def history(captures: CaptureSets) -> dict[Committed, Typed]:
    return {one: typed(captures.of(one)) for one in COMMITTED}


def test_every_cell_is_the_same_in_all_variants_and_in_the_database(history: dict[Committed, Typed]) -> None:
    compared: dict[tuple[str, Cell], int] = defaultdict(int)
    stored: dict[tuple[str, Cell], object] = {}
    for which, variant in history.items():
        for cell, value in variant.values.items():
            if (variant.trace, cell) not in stored:
                wanted = (image_of(variant.events[cell.seq], cell.side) or {})[cell.column]
                stored[variant.trace, cell] = expected_value(wanted)
            assert value == stored[variant.trace, cell], (str(which), cell)
            compared[variant.trace, cell] += 1
    assert len(compared) > 12_000
    assert min(compared.values()) > 1
    assert sum(times * (times - 1) // 2 for times in compared.values()) > 5_000_000  # pairs


def test_only_documented_cells_are_lost(history: dict[Committed, Typed], captures: CaptureSets) -> None:
    needed = set()
    defaults = columns_with_default(history[Committed("open", "classic", "open-default")].lookup.history)
    for which, variant in history.items():
        possible = {name: loss for name, loss in LOSSES.items() if loss.on(variant.wire)}
        sent = {seq for _, seqs in variant.rows for seq in seqs}
        assert not variant.lossy or variant.wire.debezium, str(which)
        for seq in sent - wrong(captures.of(which)):
            event = variant.events[seq]
            event = {**event, "with_default": defaults[event["schema"], event["table"]]}
            for side in ("before", "after"):
                for column, wanted in (image_of(event, side) or {}).items():
                    if wanted.get("virtual") or Cell(seq, side, column) in variant.values:
                        continue
                    why = [name for name, loss in possible.items() if loss.takes(variant.wire, event, side, column)]
                    assert why, f"{which}: {event['table']}.{column} ({side} of {seq}) is lost without being documented"
                    needed.update(why)
    assert needed == {name for name, loss in LOSSES.items() if any(loss.on(one.wire) for one in history.values())}


def test_every_event_is_in_every_variant_that_can_send_it(
    history: dict[Committed, Typed], captures: CaptureSets
) -> None:
    for which, variant in history.items():
        rows = {seq for seq, event in variant.events.items() if event["type"] != "ddl"}
        folder = captures.of(which)
        unsent = wrong(folder) | set(known_deviations(folder)["expected_seq_not_on_wire"])
        assert rows - {seq for _, seqs in variant.rows for seq in seqs} <= unsent, str(which)


def test_where_ddl_tells_the_types_they_are_the_same(history: dict[Committed, Typed]) -> None:
    types: dict[tuple[str, int, str], dict[str, str]] = defaultdict(dict)
    for which, variant in history.items():
        if which.archive == "avro" or which.variant.startswith("debezium-avro") or which.variant == "canal-json":
            continue  # typed by their own schemas, or by the wire: a row without commitTs has no place in the history
        resolver = SchemaResolver(variant.lookup.history)
        for row, seqs in variant.rows:
            for column in resolver.resolve(row).schema.columns:
                assert column.type.declared, (str(which), row.table, column)
                types[variant.trace, seqs[-1], column.name][f"{column.type} {column.nullable}"] = str(which)
    assert len(types) > 8_000
    assert {place: told for place, told in types.items() if len(told) > 1} == {}
