"""What the state store holds, as values. Times ending in ``_ms`` are milliseconds since the Unix epoch."""

from typing import Literal

import msgspec

from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.schemas.history import Epoch

RunStatus = Literal["running", "done", "failed"]
Quality = Literal["complete", "quarantine"]
SchemaSource = Literal["ddl", "declared"]


class WindowManifest(msgspec.Struct, frozen=True):
    """Which manifest a window of a pipeline has. ``name`` is the manifest's name in the artefact store."""

    pipeline: str
    window: Window
    input_hash: str
    name: str
    pinned_at_ms: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One changelog: a window's input, decoded with one configuration and library version."""

    pipeline: str
    run_hash: str
    window: Window
    input_hash: str
    status: RunStatus
    started_at_ms: int
    finished_at_ms: int | None = None
    index: str | None = None
    """Name of the changelog's index in the artefact store, once there is one."""
    counts: dict[str, int] = {}


class Coverage(msgspec.Struct, frozen=True, order=True):
    """A window of one table that a target holds. ``quarantine`` where a part of it was set aside by policy."""

    pipeline: str
    target: str
    table: TableName
    window: Window
    run_hash: str
    quality: Quality
    loaded_at_ms: int


class KnownSchema(msgspec.Struct, frozen=True):
    """One span of a table's schema history, and where it is known from."""

    epoch: Epoch
    source: SchemaSource


class SchemaScan(msgspec.Struct, frozen=True, order=True):
    """Offsets ``[start, end)`` of one partition whose DDL is in the schema history."""

    topic_id: str
    partition: int
    start: int
    end: int


class Stretch(msgspec.Struct, frozen=True, order=True):
    """Offsets ``[start, end)`` of one partition and the commitTs range (TSO) of all events in them.

    Both are None where the stretch holds no event with a commitTs. ``topic_id`` is Kafka's: offsets of a recreated topic say
    nothing about the one before.
    """

    topic_id: str
    partition: int
    start: int
    end: int
    min_commit_ts: int | None
    max_commit_ts: int | None


class ReferenceFile(msgspec.Struct, frozen=True, order=True):
    """A file of claim-check references that a run left. ``name`` is relative to the artefact store."""

    pipeline: str
    run_hash: str
    name: str
