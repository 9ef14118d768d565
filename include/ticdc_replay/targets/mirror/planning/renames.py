"""Renames of tables, some of which take the names of others: one after the other, for statements that know one table each."""

import hashlib
from collections.abc import Iterator, Mapping

from ticdc_replay.targets.mirror.planning.tables import Relation


def in_order(names: Mapping[Relation, Relation]) -> Iterator[tuple[Relation, Relation]]:
    """Renames that give each table of *names* its new name, each to a name that is free by then. Where names go round, one
    table is called ``between`` in the meantime."""
    left = dict(names)
    while left:
        old = next((old for old, new in left.items() if new not in left), None)
        if old is not None:
            yield old, left.pop(old)
        else:
            old = next(iter(left))
            yield old, between(old)
            left[between(old)] = left.pop(old)


def between(table: Relation) -> Relation:
    """A name that *table* has while others take theirs: the same for every attempt."""
    digest = hashlib.sha256(str(table).encode()).hexdigest()[:16]
    return Relation(table.schema, f"ticdc_renaming_{digest}")
