"""Datasets of a run, their facts, and their names in OpenLineage.

Names follow OpenLineage's naming conventions: ``kafka://host:port`` + topic, ``s3://bucket`` + key, ``file`` + path,
``postgres://host:port`` + database.schema.table. They are the same for every run, so that graphs of lineage join up.
"""

import re
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.messages import OffsetRange
from ticdc_replay.targets.base import TargetColumn

_IDENTIFIER = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


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
    version: str | None = None
    """Names the content, where the dataset grows by immutable parts."""
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


def kafka_namespace(bootstrap_servers: str) -> str:
    """The namespace of the cluster: its first bootstrap server."""
    return f"kafka://{bootstrap_servers.split(',')[0].strip()}"


def uri_name(uri: str) -> tuple[str, str]:
    """Namespace and name of a folder or object in a store or on this machine."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return "file", unquote(parts.path).rstrip("/") or "/"
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"


def table_name(connection: Connection, table: str) -> tuple[str, str]:
    """Namespace and name of *table* (``schema.table``, plain or quoted as in SQL) in the database of *connection*."""
    port = f":{connection.port}" if connection.port else ""
    parts = [quoted.replace('""', '"') or plain for quoted, plain in _IDENTIFIER.findall(table)]
    return f"{connection.conn_type}://{connection.host}{port}", ".".join((connection.schema or "", *parts))
