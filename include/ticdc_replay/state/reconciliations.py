"""The reconciliations of claim-check stores that came to their end."""

import msgspec
from sqlalchemy import select

from ticdc_replay.state import tables
from ticdc_replay.state.rows import Subject


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """A reconciliation of a claim-check store that came to its end."""

    store: str
    """Name of the store."""
    reconciliation_id: str
    began_at_ms: int
    finished_at_ms: int
    report: str
    """Name of the report below the store's artefacts."""
    totals: dict[str, int]
    """What the trend shows, such as ``objects.orphaned`` or ``bytes.orphaned``."""


class Reconciliations(Subject):
    """The reconciliations of claim-check stores."""

    def record(self, done: Reconciliation) -> None:
        """Keep what a reconciliation came to."""
        self._replace(tables.reconciliation, [done])

    def all(self, store: str) -> list[Reconciliation]:
        """The reconciliations of *store*, oldest first."""
        columns = tables.reconciliation.c
        wanted = select(tables.reconciliation).where(columns.store == store)
        return self._records(Reconciliation, wanted.order_by(columns.began_at_ms, columns.reconciliation_id))
