"""What a reconciliation found, in numbers: small enough for a report, whatever the size of the store."""

from collections.abc import Mapping

import msgspec

from ticdc_replay.reconcile.judge.rules import ObjectClass, ReferenceClass


class ObjectsOfDay(msgspec.Struct, frozen=True, order=True):
    """Objects of one class that were last modified on one day (UTC, ``YYYY-MM-DD``)."""

    kind: ObjectClass
    day: str
    objects: int
    bytes: int
    deletable: int
    deletable_bytes: int


class ObjectsOfTable(msgspec.Struct, frozen=True, order=True):
    """Objects of one class whose references are of one table; both names are empty for objects without one. ``needed``: how
    many of them a message refers to that can still be read."""

    kind: ObjectClass
    schema: str
    table: str
    objects: int
    bytes: int
    needed: int = 0


class ReferencesOfTable(msgspec.Struct, frozen=True, order=True):
    """References of one class of one table. ``protecting``: how many of them are of messages that can still be read."""

    kind: ReferenceClass
    schema: str
    table: str
    references: int
    protecting: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of both sides. Its size is classes × (days + tables)."""

    by_day: tuple[ObjectsOfDay, ...]
    objects_by_table: tuple[ObjectsOfTable, ...]
    references_by_table: tuple[ReferencesOfTable, ...]

    def objects(self, kind: ObjectClass) -> int:
        """How many objects are of class *kind*."""
        return sum(found.objects for found in self.by_day if found.kind == kind)

    def bytes(self, kind: ObjectClass) -> int:
        """Bytes of all objects of class *kind*."""
        return sum(found.bytes for found in self.by_day if found.kind == kind)

    def references(self, kind: ReferenceClass) -> int:
        """How many references are of class *kind*."""
        return sum(found.references for found in self.references_by_table if found.kind == kind)

    def with_present(self, found: Mapping[tuple[str, str], tuple[int, int]]) -> "Summary":
        """This summary with references that are no longer missing but present: by schema and table how many, and how many of them
        are protecting."""
        moved = {(each.kind, each.schema, each.table): each for each in self.references_by_table}
        for (schema, table), (references, protecting) in found.items():
            for kind, sign in ((ReferenceClass.MISSING, -1), (ReferenceClass.PRESENT, 1)):
                of = (kind, schema, table)
                before = moved.get(of, ReferencesOfTable(*of, references=0, protecting=0))
                moved[of] = ReferencesOfTable(
                    *of, before.references + sign * references, before.protecting + sign * protecting
                )
        return msgspec.structs.replace(
            self, references_by_table=tuple(sorted(each for each in moved.values() if each.references))
        )

    @property
    def deletable(self) -> int:
        """How many objects may be put on a plan."""
        return sum(found.deletable for found in self.by_day)

    @property
    def lost_rows(self) -> int:
        """References whose object is missing although their message can still be read."""
        return sum(found.protecting for found in self.references_by_table if found.kind == ReferenceClass.MISSING)
