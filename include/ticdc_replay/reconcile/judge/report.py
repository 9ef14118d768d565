"""The report of a reconciliation, for people, pages and lineage. Put once, as ``report.json`` in its folder."""

from typing import Literal

import msgspec

from ticdc_replay.reconcile.judge.classified import reconciliation_folder
from ticdc_replay.reconcile.judge.rules import Evidence, ObjectClass, ReferenceClass
from ticdc_replay.reconcile.judge.summary import Summary
from ticdc_replay.storage.base import ObjectStore

AlertKind = Literal["missing", "altered", "malformed", "lifecycle", "unread", "clock", "owners", "inventory"]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person has to attend to. What does not belong to its kind is empty."""

    kind: AlertKind
    text: str
    """One sentence with everything but ``still_from``."""
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    schema: str = ""
    table: str = ""
    key: str | None = None
    """The row's handle key as JSON."""
    commit_ts: int | None = None
    object_name: str = ""
    still_from: tuple[str, ...] = ()
    """Where the row of a missing object is still available, the best first."""


class Previous(msgspec.Struct, frozen=True, kw_only=True):
    """The reconciliation before. ``began_at_ms``: Unix ms."""

    reconciliation_id: str
    began_at_ms: int
    totals: dict[str, int]


class ReconciliationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a reconciliation found. Times are Unix ms; names are below the store's artefacts."""

    format: int = 1
    library_version: str
    store: str
    uri: str
    reconciliation_id: str
    finished_at_ms: int
    evidence: Evidence
    summary: Summary
    """References to objects that only the second look has found are present here, and missing in the files."""
    unlisted: int = 0
    """Objects that the second look has found and that the inventory should have had."""
    object_files: tuple[str, ...]
    """``records.CLASSIFIED_OBJECTS``."""
    reference_files: tuple[str, ...]
    """``records.CLASSIFIED_REFERENCES``."""
    alerts: tuple[Alert, ...]
    """Of missing objects at most ``alerts.MOST``; the files of references have all."""
    notes: tuple[str, ...]
    """What could not be found out."""
    previous: Previous | None

    @property
    def complete(self) -> bool:
        """Whether anything may be deleted at all."""
        return not self.obstacles

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why nothing may be deleted; empty where ``complete``."""
        lacks = f"the inventory lacks {self.unlisted:,} objects that exist and are older than it"
        return (*self.evidence.obstacles(), *([lacks] if self.unlisted else ()))

    def totals(self) -> dict[str, int]:
        """The counts that trends show."""
        summary = self.summary
        found = {f"objects.{kind}": summary.objects(kind) for kind in ObjectClass}
        found |= {f"bytes.{kind}": summary.bytes(kind) for kind in ObjectClass}
        found |= {f"references.{kind}": summary.references(kind) for kind in ReferenceClass}
        return found | {
            "deletable.objects": summary.deletable,
            "deletable.bytes": sum(day.deletable_bytes for day in summary.by_day),
            "lost_rows": summary.lost_rows,
            "unread_offsets": self.evidence.unread_offsets,
            "unlisted": self.unlisted,
        }


def report_name(reconciliation_id: str) -> str:
    """The name of a report, below the store's artefacts."""
    return f"{reconciliation_folder(reconciliation_id)}/report.json"


def read_report(artifacts: ObjectStore, name: str) -> ReconciliationReport:
    """The report called *name* in *artifacts*, the store's. Raises ArtifactNotFoundError."""
    return msgspec.json.decode(artifacts.get(name), type=ReconciliationReport)
