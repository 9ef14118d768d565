"""The result of a join of objects with references: the file that marks it as done and names all others."""

import msgspec

from ticdc_replay.reconcile.judge.summary import Summary
from ticdc_replay.storage.base import ObjectStore

_NAME = "classified.json"


class ClassifiedFile(msgspec.Struct, frozen=True, order=True):
    """A Parquet file. ``name`` is below the store's artefacts."""

    name: str
    rows: int


class ClassifiedIndex(msgspec.Struct, frozen=True, kw_only=True):
    """A complete join, put once, last. Names are below the store's artefacts."""

    format: int = 1
    store: str
    id: str
    """``jobspec.ReconcileJob.reconciliation_id``."""
    survey: str
    evidence: str
    inventory: str | None
    """None for a recheck."""
    plan_hash: str | None
    """The plan that was rechecked; None for a reconciliation."""
    objects: tuple[ClassifiedFile, ...]
    """``records.CLASSIFIED_OBJECTS``."""
    references: tuple[ClassifiedFile, ...]
    """``records.CLASSIFIED_REFERENCES``; none for a recheck."""
    summary: Summary | None
    """None for a recheck."""


def classified_name(folder: str) -> str:
    """The name of the file, where *folder* is ``jobspec.ReconcileJob.folder``."""
    return f"{folder}/{_NAME}"


def reconciliation_folder(reconciliation_id: str) -> str:
    """The folder of a reconciliation below the store's artefacts, as ``jobspec.ReconcileJob.folder`` has it."""
    return f"reconciliations/{reconciliation_id}"


def recheck_folder(recheck_id: str) -> str:
    """The folder of a recheck below the store's artefacts, as ``jobspec.ReconcileJob.folder`` has it."""
    return f"rechecks/{recheck_id}"


def read_classified(artifacts: ObjectStore, folder: str) -> ClassifiedIndex:
    """What the join left in *folder*. Raises ArtifactNotFoundError where it did not come to its end."""
    return msgspec.json.decode(artifacts.get(classified_name(folder)), type=ClassifiedIndex)
