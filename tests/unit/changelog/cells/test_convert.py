"""Rows become the image columns of the changelog: typed cells, what was not sent, what does not fit, what is bad."""

import tracemalloc

import pyarrow as pa
import pytest

from ticdc_replay.changelog.cells.convert import BatchTooLargeError, rows_to_batch, rows_to_batches
from ticdc_replay.changelog.cells.types import image_type
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.events import DdlEvent, Image, Operation, RowEvent, Shape, WireColumn
from ticdc_replay.schemas.history import SchemaHistory
from ticdc_replay.schemas.resolve import SchemaResolver

HISTORY = SchemaHistory().with_ddls(
    [DdlEvent(0, 1, "shop", "t", "CREATE TABLE `t` (`id` INT PRIMARY KEY, `name` VARCHAR(9), `day` DATE)", 3)]
)


def positive(values):
    """Neutral form of a column that holds no negative numbers."""
    if any(value is not None and value < 0 for value in values):
        raise ValueError(f"{min(value for value in values if value is not None)} is negative")
    return values


ID = WireColumn("id", ColumnType("int"), True, positive)
NAME = WireColumn("name", ColumnType("varchar"), False, lambda values: values)
DAY = WireColumn("day", ColumnType("date"), False, lambda values: values)
WHOLE, REVERSED, KEY_ONLY = Shape((ID, NAME, DAY)), Shape((DAY, NAME, ID)), Shape((ID,))


def row(after=None, before=None, unknown=()):
    partial = after is None and before.shape is KEY_ONLY
    return RowEvent(0, 5, "shop", "t", None, Operation.UPDATE, after, before, partial, None, None, unknown, b"")


def whole(*values):
    return Image(WHOLE, values)


def convert(rows, history=HISTORY):
    resolver = SchemaResolver(history)
    (resolved,) = {resolver.resolve(row) for row in rows}
    converted = rows_to_batch(rows, resolved, "UTC")
    for array in converted[:4]:
        array.validate(full=True)
        assert len(array) == len(rows)
    assert converted.before.type == converted.after.type == image_type(resolved.schema)
    return converted


def tuples(images):
    return [None if image is None else (image["id"], image["name"], str(image["day"])) for image in images.to_pylist()]


def exact_cells(converted):
    return [None if cells is None else dict(cells) for cells in converted.exact.to_pylist()]


def test_inserts_updates_and_deletes_stand_side_by_side():
    rows = [
        row(after=whole(1, "a", "2020-01-01")),
        row(after=whole(2, "b2", "2020-01-02"), before=whole(2, "b", "2020-01-02")),
        row(before=whole(3, None, "2020-01-03")),
    ]
    converted = convert(rows)
    assert tuples(converted.before) == [None, (2, "b", "2020-01-02"), (3, None, "2020-01-03")]
    assert tuples(converted.after) == [(1, "a", "2020-01-01"), (2, "b2", "2020-01-02"), None]
    assert converted.absent.to_pylist() == [None, None, None]
    assert converted.exact.to_pylist() == [None, None, None]
    assert converted.bad == {}


def test_rows_of_several_shapes_keep_their_order_and_name_what_was_not_sent():
    rows = [
        row(after=Image(REVERSED, ("2020-01-01", "a", 1))),
        row(before=Image(KEY_ONLY, (2,))),
        row(after=whole(3, "c", "2020-01-03"), before=Image(KEY_ONLY, (3,))),
        row(before=whole(4, "d", "2020-01-04")),
    ]
    converted = convert(rows)
    assert tuples(converted.after) == [(1, "a", "2020-01-01"), None, (3, "c", "2020-01-03"), None]
    assert tuples(converted.before) == [None, (2, None, "None"), (3, None, "None"), (4, "d", "2020-01-04")]
    assert converted.absent.to_pylist() == [None, ["before.name", "before.day"], ["before.name", "before.day"], None]


def test_null_is_not_absent():
    converted = convert([row(after=whole(1, None, None))])
    assert converted.absent.to_pylist() == [None]
    assert tuples(converted.after) == [(1, None, "None")]


def test_an_old_value_that_the_wire_garbled_counts_as_not_sent():
    converted = convert([row(after=whole(1, None, None), before=whole(1, None, "2020-01-01"), unknown=("name",))])
    assert converted.absent.to_pylist() == [["before.name"]]


def test_a_cell_that_does_not_fit_keeps_its_text_beside_the_row_it_belongs_to():
    rows = [
        row(after=whole(1, "a", "2020-01-01")),
        row(after=whole(2, b"\xff", "0000-00-00"), before=whole(2, "b", "2020-00-01")),
        row(before=Image(REVERSED, ("0000-00-00", "c", 3))),
    ]
    converted = convert(rows)
    assert exact_cells(converted) == [
        None,
        {"before.day": b"2020-00-01", "after.name": b"\xff", "after.day": b"0000-00-00"},
        {"before.day": b"0000-00-00"},
    ]
    assert tuples(converted.after)[1] == (2, None, "None")
    assert converted.bad == {}


@pytest.mark.parametrize("count", [1, 2, 7])
def test_bad_rows_are_found_among_good_ones_whichever_half_says_so(count):
    rows = [row(after=whole(number, "a", "2020-01-01")) for number in range(count)]
    rows[count // 2] = row(after=whole(-5, "a", "2020-01-01"))  # the codec refuses it
    rows.append(row(before=whole(1, 7, "2020-01-01")))  # the typed column refuses it
    rows.append(row(after=whole(-1, "a", None), before=whole(1, "a", "no day")))
    converted = convert(rows)
    assert converted.bad == {
        count // 2: "after.id: -5 is negative",
        count: "before.name: a number (int) is not text",
        count + 1: "before.day: a text of 6 characters is not a date",
    }
    good = [image for at, image in enumerate(tuples(converted.after)) if at not in converted.bad]
    assert good == [(number, "a", "2020-01-01") for number in range(count) if number != count // 2]


def test_rows_of_another_schema_are_refused_rather_than_cut():
    resolver = SchemaResolver(HISTORY)
    resolved = resolver.resolve(row(after=whole(1, "a", None)))
    wider = Shape((ID, WireColumn("more", ColumnType("int"), False, list)))
    with pytest.raises(ValueError, match="columns more that schema"):
        rows_to_batch([row(after=Image(wider, (1, 2)))], resolved, "UTC")


def test_virtual_columns_that_a_protocol_sends_are_left_out():
    history = HISTORY.with_ddls([DdlEvent(0, 2, "shop", "t", "ALTER TABLE `t` ADD `v` INT AS (1) VIRTUAL", 5)])
    shape = Shape((ID, NAME, DAY, WireColumn("v", ColumnType("int"), False, list)))
    converted = convert([row(after=Image(shape, (1, "a", "2020-01-01", None)))], history)
    assert tuples(converted.after) == [(1, "a", "2020-01-01")]
    assert converted.absent.to_pylist() == [None]


MANY_BYTES = {
    "text": [row(after=whole(at, "x" * 100, None)) for at in range(40)],
    "text of both images": [row(whole(at, "x" * 50, None), whole(at, "y" * 50, None)) for at in range(40)],
    "names of absent cells": [row(before=Image(KEY_ONLY, (at,))) for at in range(199)],
    "names of lossy cells": [row(after=whole(at, "", None))._replace(lossy=("after.name",) * 9) for at in range(40)],
    "cells that do not fit": [row(after=whole(1 << 99, "", "0000-00-00")) for at in range(80)],
    "images that are not there": [row(after=whole(at, "", None)) for at in range(110)],
}


@pytest.mark.parametrize("what", MANY_BYTES)
def test_rows_of_too_many_bytes_are_several_batches(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    rows = MANY_BYTES[what]
    resolved = SchemaResolver(HISTORY).resolve(rows[0])
    together = rows_to_batch(rows, resolved, "UTC")
    monkeypatch.setattr("ticdc_replay.changelog.cells.convert.BATCH_MAX_BYTES", 2500)
    with pytest.raises(BatchTooLargeError, match="rows are more than 2500 bytes"):
        rows_to_batch(rows, resolved, "UTC")
    batches = list(rows_to_batches(rows, resolved, "UTC"))
    assert len(batches) > 1
    for at, array in enumerate(together[:5]):
        assert pa.concat_arrays([batch[at] for batch in batches]).equals(array)


@pytest.mark.slow
def test_rows_of_which_little_was_sent_take_no_more_memory_than_a_batch_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of 20 bytes names the 399 columns that it lacks, and each row lacks others."""
    names = [f"column_{at:03}" for at in range(400)]
    create = f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(f'{name} BIGINT' for name in names)})"
    history = SchemaHistory().with_ddls([DdlEvent(0, 1, "shop", "t", create, 3)])
    shapes = [Shape((ID, WireColumn(name, ColumnType("bigint"), False, list))) for name in names]
    rows = [row(before=Image(shapes[at % 400], (at, at)))._replace(partial=True) for at in range(4_000)]
    resolved = SchemaResolver(history).resolve(rows[0])
    monkeypatch.setattr("ticdc_replay.changelog.cells.convert.BATCH_MAX_BYTES", 2_000_000)
    written = 0
    tracemalloc.start()
    try:
        for converted in rows_to_batches(rows, resolved, "UTC"):
            written += len(converted.before)
            assert sum(array.nbytes for array in converted[:5]) < 2_500_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert written == 4_000
    assert peak < 16_000_000


def test_one_row_is_a_batch_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(after=whole(1, "x" * 9000, None)), row(after=whole(-1, "y" * 9000, None))]
    resolved = SchemaResolver(HISTORY).resolve(rows[0])
    monkeypatch.setattr("ticdc_replay.changelog.cells.convert.BATCH_MAX_BYTES", 100)
    first, second = rows_to_batches(rows, resolved, "UTC")
    assert first.after.to_pylist()[0]["name"] == "x" * 9000
    assert second.bad == {0: "after.id: -1 is negative"}


def test_no_rows_are_no_batch() -> None:
    resolved = SchemaResolver(HISTORY).resolve(row(after=whole(1, "a", None)))
    assert list(rows_to_batches([], resolved, "UTC")) == []
