"""OpenLineage facets of our own, beside the standard ones."""

import attr
from openlineage.client.facet_v2 import InputDatasetFacet, RunFacet

_SCHEMA = "urn:ticdc-replay:facets:1:"


@attr.define
class ReplayRunFacet(RunFacet):
    """What was replayed: window (TSO), hashes, counts. See ``lineage.datasets.ReplayRun``."""

    pipeline: str
    fromTs: int  # noqa: N815
    toTs: int  # noqa: N815
    window: str
    grade: str
    manifest: str
    inputHash: str  # noqa: N815
    runHash: str  # noqa: N815
    libraryVersion: str  # noqa: N815
    messages: int | None = None
    events: int | None = None
    duplicates: int | None = None

    @staticmethod
    def _get_schema() -> str:
        return f"{_SCHEMA}ReplayRun"


@attr.define
class ReconciliationRunFacet(RunFacet):
    """What was reconciled: see ``lineage.datasets.ReconciliationRun``. Times are Unix ms."""

    store: str
    reconciliation: str
    report: str
    boundsMs: int  # noqa: N815
    listedMs: int  # noqa: N815
    complete: bool
    deletable: int
    alerts: int
    libraryVersion: str  # noqa: N815

    @staticmethod
    def _get_schema() -> str:
        return f"{_SCHEMA}ReconciliationRun"


@attr.define
class DeletionRunFacet(RunFacet):
    """What was deleted: see ``lineage.datasets.DeletionRun``."""

    store: str
    plan: str
    execution: str
    audit: str
    counts: dict[str, int]
    libraryVersion: str  # noqa: N815

    @staticmethod
    def _get_schema() -> str:
        return f"{_SCHEMA}DeletionRun"


@attr.define
class StoreClassesFacet(InputDatasetFacet):
    """Objects and references of a claim-check store by class, and bytes of the objects."""

    objects: dict[str, int]
    bytes: dict[str, int]
    references: dict[str, int]

    @staticmethod
    def _get_schema() -> str:
        return f"{_SCHEMA}StoreClasses"


@attr.define
class TopicRangesFacet(InputDatasetFacet):
    """Offsets that were read: ``partitions`` holds partition, start (included) and end (not included)."""

    topicId: str  # noqa: N815
    partitions: list[dict[str, int]]

    @staticmethod
    def _get_schema() -> str:
        return f"{_SCHEMA}TopicRanges"


@attr.define
class ClaimChecksFacet(InputDatasetFacet):
    """Objects of a claim-check store: the hash and size of the pinned listing, and what was read (bytes)."""

    inventory: str | None
    listed: int | None
    resolved: int
    bytes: int

    @staticmethod
    def _get_schema() -> str:
        return f"{_SCHEMA}ClaimChecks"
