"""From classified tables to the numbers of a ``Summary``, bucket by bucket."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ticdc_replay.reconcile.judge.rules import ObjectClass, ReferenceClass
from ticdc_replay.reconcile.judge.summary import ObjectsOfDay, ObjectsOfTable, ReferencesOfTable, Summary

Counted = tuple[tuple[str, ...], tuple[int, ...]]
"""What was counted (``day``, ``table`` or ``reference``, then class and day or table), and its numbers, which add up for equal
keys."""

_DAY_MS = 86_400_000


def count_objects(objects: pa.Table) -> Iterator[Counted]:
    """Of ``records.CLASSIFIED_OBJECTS``."""
    days = objects["last_modified_ms"].to_numpy() // _DAY_MS
    deletable = objects["deletable"].to_numpy()
    by_day = pa.table(
        {
            "class": objects["class"],
            "day": days,
            "size": objects["size"],
            "deletable": deletable.astype(np.int64),
            "deletable_size": np.where(deletable, objects["size"].to_numpy(), 0),
        }
    ).group_by(["class", "day"])
    sums = [("size", "count"), ("size", "sum"), ("deletable", "sum"), ("deletable_size", "sum")]
    for kind, day, *numbers in _rows(by_day.aggregate(sums)):
        yield ("day", kind, str(np.datetime64(day, "D"))), tuple(numbers)
    needed = (objects["protecting"].to_numpy() > 0).astype(np.int64)
    by_table = (
        objects.append_column("needed", pa.array(needed))
        .group_by(["class", "schema", "table"])
        .aggregate([("size", "count"), ("size", "sum"), ("needed", "sum")])
    )
    for kind, schema, table, *numbers in _rows(by_table):
        yield ("table", kind, schema or "", table or ""), tuple(numbers)


def count_references(references: pa.Table) -> Iterator[Counted]:
    """Of ``records.CLASSIFIED_REFERENCES``."""
    counted = references.group_by(["class", "schema", "table"]).aggregate(
        [("protecting", "count"), ("protecting", "sum")]
    )
    for kind, schema, table, *numbers in _rows(counted):
        yield ("reference", kind, schema, table), tuple(numbers)


def summary_of(counts: Iterable[Counted]) -> Summary:
    """The summary of *counts* with different keys."""
    by_day, objects_by_table, references_by_table = [], [], []
    for (what, kind, *names), numbers in counts:
        if what == "day":
            by_day.append(ObjectsOfDay(ObjectClass(kind), names[0], *numbers))
        elif what == "table":
            objects_by_table.append(ObjectsOfTable(ObjectClass(kind), names[0], names[1], *numbers))
        else:
            references_by_table.append(ReferencesOfTable(ReferenceClass(kind), names[0], names[1], *numbers))
    return Summary(
        by_day=tuple(sorted(by_day)),
        objects_by_table=tuple(sorted(objects_by_table)),
        references_by_table=tuple(sorted(references_by_table)),
    )


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
