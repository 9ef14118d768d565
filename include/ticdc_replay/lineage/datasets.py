"""Datasets of a run, and their facts. ``domain.dataset_names`` has the rules of their names."""

from typing import Literal

import msgspec

from ticdc_replay.domain.dataset_names import DatasetName
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.targets.base import TargetColumn


class TopicRanges(msgspec.Struct, frozen=True):
    """Which part of a topic was read. ``topic_id`` is Kafka's own id."""

    topic_id: str
    ranges: tuple[OffsetRange, ...]


class ClaimChecks(msgspec.Struct, frozen=True):
    """What was read of a claim-check store. ``inventory`` is the hash of the pinned listing, None where listing is off."""

    inventory: str | None
    listed: int | None
    resolved: int
    bytes: int


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A check of a dataset, and how many violations it found (``actual``), where there should be none."""

    name: str
    description: str
    actual: int
    severity: Literal["error", "warn"] = "error"


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """What a reconciliation found in a claim-check store. By class: counts, and bytes of objects."""

    objects: int
    bytes: int
    objects_by_class: dict[str, int]
    bytes_by_class: dict[str, int]
    references_by_class: dict[str, int]
    checks: tuple[Check, ...]


class Rows(msgspec.Struct, frozen=True):
    """How much was written. ``bytes`` and ``files`` are None where they are not known."""

    rows: int
    bytes: int | None = None
    files: int | None = None


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """One dataset of one run."""

    namespace: str
    name: str
    other_names: tuple[DatasetName, ...] = ()
    """As a table of a catalog, where the name is that of a folder."""
    version: str | None = None
    """Names the content, where the dataset grows by immutable parts or has snapshots."""
    topic: TopicRanges | None = None
    claim_checks: ClaimChecks | None = None
    quality: Quality | None = None
    fields: tuple[TargetColumn, ...] = ()
    written: Rows | None = None


class ReplayRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one run replayed: enough to read the same input again. TSO, and the same moments as text."""

    pipeline: str
    from_ts: int
    to_ts: int
    window: str
    grade: str
    manifest: str
    input_hash: str
    run_hash: str
    library_version: str
    messages: int | None = None
    """Messages read; with the next two only known once they were decoded."""
    events: int | None = None
    duplicates: int | None = None


class ReconciliationRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one run reconciled. Times are Unix ms."""

    store: str
    reconciliation: str
    report: str
    bounds_ms: int
    listed_ms: int
    complete: bool
    """Whether every retained offset of all owners was searched."""
    deletable: int
    alerts: int
    library_version: str


class DeletionRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one run deleted: how many objects of the plan had which outcome."""

    store: str
    plan: str
    execution: str
    audit: str
    counts: dict[str, int]
    library_version: str


class Lineage(msgspec.Struct, frozen=True):
    """What one task read and wrote."""

    run: ReplayRun | ReconciliationRun | DeletionRun
    inputs: tuple[Dataset, ...]
    outputs: tuple[Dataset, ...] = ()
