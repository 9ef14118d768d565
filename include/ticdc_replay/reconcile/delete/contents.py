"""The contents of a deletion plan, for people who decide about it."""

import msgspec

from ticdc_replay.reconcile.delete.deletion_plan import DeletionPlan, read_planned
from ticdc_replay.storage.base import ObjectStore


class PlannedGroup(msgspec.Struct, frozen=True, order=True):
    """The objects of one class with one reason. Times (Unix ms, by the store's clock) are those of the oldest and the newest."""

    kind: str
    reason: str
    objects: int
    bytes: int
    oldest_ms: int
    newest_ms: int


class PlannedObject(msgspec.Struct, frozen=True, order=True):
    """One object of a plan. ``table``: ``schema.table`` of an expired message that referred to it; empty where none is known."""

    name: str
    size: int
    last_modified_ms: int
    kind: str
    reason: str
    table: str


def plan_contents(
    artifacts: ObjectStore, plan: DeletionPlan, shown: int
) -> tuple[tuple[PlannedGroup, ...], tuple[PlannedObject, ...]]:
    """The groups of *plan*, and its first *shown* objects by name; reads and verifies all its files.

    Raises ArtifactCorruptError where one was changed.
    """
    groups: dict[tuple[str, str], PlannedGroup] = {}
    first: list[PlannedObject] = []
    for number in range(len(plan.files)):
        table = read_planned(artifacts, plan, number)
        counted = table.group_by(["class", "reason"]).aggregate(
            [("size", "sum"), ("size", "count"), ("last_modified_ms", "min"), ("last_modified_ms", "max")]
        )
        for row in counted.to_pylist():
            key = row["class"], row["reason"]
            known = groups.get(key)
            oldest, newest = row["last_modified_ms_min"], row["last_modified_ms_max"]
            groups[key] = PlannedGroup(
                *key,
                row["size_count"] + (known.objects if known else 0),
                row["size_sum"] + (known.bytes if known else 0),
                min(oldest, known.oldest_ms) if known else oldest,
                max(newest, known.newest_ms) if known else newest,
            )
        if len(first) < shown:
            first += [_object(row) for row in table.slice(0, shown - len(first)).to_pylist()]
    return tuple(sorted(groups.values())), tuple(first)


def _object(row: dict[str, object]) -> PlannedObject:
    table = f"{row['schema']}.{row['table']}" if row["table"] else ""
    return msgspec.convert({**row, "kind": row["class"], "table": table}, PlannedObject)
