"""A pipeline: what a user writes in one YAML file."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ticdc_replay.targets.config import TargetConfig

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


class Section(BaseModel):
    """Base of every part of the file: unknown keys are errors, values don't change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ChangefeedSection(Section):
    """The changefeed, as its owner created it."""

    sink_uri: str = Field(description="The --sink-uri of `cdc cli changefeed create`, without any secret")
    config: str | None = Field(None, description="The changefeed's TOML, inline")
    config_file: Path | None = Field(None, description="The changefeed's TOML, by path relative to this file")
    timezone: str = Field(description="IANA zone of the TiCDC server (its `tz` option): TIMESTAMP cells are text in it")


class ConnectionsSection(Section):
    """Airflow connection ids. Addresses and secrets live there and nowhere else."""

    kafka: str = Field(description="Brokers and their credentials (type kafka)")
    claim_check: str | None = Field(None, description="Object store of the claim-check objects (type aws)")
    artifacts: str | None = Field(
        None, description="Object store of manifests and changelogs (type aws); none for file:"
    )
    state: str | None = Field(None, description="Database of the state store; SQLite below `artifacts` if absent")
    spark: str = Field("spark_default", description="Where Spark jobs are submitted")


class TableDefinition(Section):
    """A table whose definition is given here, for histories whose CREATE TABLE is not in Kafka any more."""

    name: str = Field(description="schema.table")
    create_table: str = Field(description="As SHOW CREATE TABLE prints it")


class ScheduleSection(Section):
    """When windows are replayed: each run loads the interval of the schedule that has just ended."""

    cron: str = "0 * * * *"
    timezone: str = "UTC"
    start: str = Field(description="ISO 8601 moment of the first interval")
    max_active_runs: int = Field(3, ge=1)
    paused: bool = True


class WindowSection(Section):
    """How the offsets of a window are found."""

    pre_roll_seconds: int = Field(60, ge=0, description="Read this much before the window's start")
    clock_skew_seconds: int = Field(30, ge=0, description="Clocks of TiDB, TiCDC and brokers differ by at most this")
    poll_seconds: int = Field(10, ge=6, description="How often the watermark is looked for")
    timeout_minutes: int = Field(240, ge=1, description="How long the watermark is waited for")
    claim_check_margin_hours: int = Field(24, ge=1, description="How long an object may be older than the window")
    list_claim_check_store: bool = Field(True, description="Pin the inventory of the store; off for huge stores")


class PoliciesSection(Section):
    """What happens when input is not as it should be. `stop` fails the run before a target is touched."""

    quarantine: Literal["stop", "continue"] = "stop"
    unproven: Literal["stop", "allow"] = "stop"
    handle_key_only: Literal["stop", "quarantine"] = "stop"
    claim_check_missing: Literal["stop", "quarantine"] = "stop"
    target_value: Literal["stop", "quarantine"] = "stop"
    ddl: Literal["apply", "stop"] = Field("apply", description="Additive DDL; each other kind always stops")


class LimitsSection(Section):
    """Bounds on what one worker holds at a time."""

    split_bytes: int = Field(128 * 1024 * 1024, ge=1024, description="Bytes of Kafka messages per split, about")
    claim_check_max_bytes: int = Field(64 * 1024 * 1024, ge=1024, description="Largest claim-check object")
    claim_check_in_flight_bytes: int = Field(128 * 1024 * 1024, ge=1024, description="Objects held at a time")
    claim_check_connections: int = Field(16, ge=1, le=256, description="Objects fetched at a time per worker")
    decompressed_max_bytes: int = Field(256 * 1024 * 1024, ge=1024, description="Largest event after decompression")
    file_rows: int = Field(1_000_000, ge=1, description="Rows per Parquet file, at most")


class Pipeline(Section):
    """One pipeline: a changefeed, the tables of it that are wanted, and where they go."""

    name: Name
    description: str = ""
    changefeed: ChangefeedSection
    connections: ConnectionsSection
    artifacts: str = Field(description="URI of the folder for manifests, changelogs and reports: s3://… or file:///…")
    tables: tuple[str, ...] = Field(("*.*",), min_length=1, description="schema.table patterns with * and ?")
    definitions: tuple[TableDefinition, ...] = ()
    schedule: ScheduleSection
    window: WindowSection = WindowSection()
    policies: PoliciesSection = PoliciesSection()
    limits: LimitsSection = LimitsSection()
    targets: tuple[TargetConfig, ...] = Field(min_length=1)
