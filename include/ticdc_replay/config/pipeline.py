"""A pipeline: what a user writes in one YAML file."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ticdc_replay.config.target_kinds import AnySection
from ticdc_replay.config.target_rules import DropColumn
from ticdc_replay.config.types import ConnectionId, Cron, FolderUri, Moment, Place, TablePattern, Tso, Zone, check_place
from ticdc_replay.domain.window import PinPolicy

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


class Section(BaseModel):
    """Base of every part of the file: unknown keys are errors, values don't change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ChangefeedSection(Section):
    """The changefeed, as its owner created it."""

    sink_uri: str | None = Field(None, description="The --sink-uri of `cdc cli changefeed create`, without secrets")
    info: str | None = Field(
        None,
        description="Instead of `sink_uri` and `config`: output of `cdc cli changefeed query`, inline or by relative path",
    )
    config: str | None = Field(None, description="The changefeed's TOML, inline")
    config_file: Path | None = Field(None, description="The changefeed's TOML, by path relative to this file")
    timezone: Zone = Field(description="IANA zone of the TiCDC server (option `tz`): TIMESTAMP cells are text in it")

    start_ts: Tso | None = Field(
        None, description="--start-ts of the changefeed (TSO): proves windows for which Kafka can't show that it ran"
    )
    target_ts: Tso | None = Field(None, description="The changefeed's --target-ts (TSO): later commits were not sent")
    sends_resolved_ts: bool = Field(True, description="false where none is sent: Debezium, TiDB extension, TiCDC v8")
    schema_registry: str | None = Field(None, description="Its --schema-registry; the connection has the used address")
    retired_topics: dict[str, Tso | None] = Field(
        {},
        description="Topics that look like the changefeed's but get no resolved-ts: with the TSO after which it sent nothing "
        "there, or null for a topic of another program, which is not read",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.sink_uri is None) == (self.info is None):
            raise ValueError("give the changefeed by `sink_uri` or by `info`, and not by both")
        if self.info is not None and not (self.config is None and self.config_file is None):
            raise ValueError("`info` holds the whole configuration: leave out `config` and `config_file`")
        return self

    @model_validator(mode="after")
    def _one_config(self) -> Self:
        if self.config is not None and self.config_file is not None:
            raise ValueError("`config` and `config_file` exclude each other: give the TOML inline or by path")
        return self


class ConnectionsSection(Section):
    """Airflow connection ids. Addresses and secrets live there and nowhere else."""

    kafka: ConnectionId = Field(description="Brokers and their credentials (type kafka)")
    claim_check: ConnectionId | None = Field(
        None, description="Store of claim-check objects (type aws, google_cloud_platform or wasb)"
    )
    schema_registry: ConnectionId | None = Field(
        None, description="Schema registry of avro and debezium-avro: type http (Confluent) or aws (AWS Glue)"
    )
    source: ConnectionId | None = Field(
        None,
        description="The changefeed's upstream (type tidb or mysql), for policies.handle_key_only: reread and for verify",
    )
    dumps: ConnectionId | None = Field(
        None, description="Store of dumps, for the base load of mirrors (type aws, google_cloud_platform or wasb)"
    )
    artifacts: ConnectionId | None = Field(
        None, description="Store of the artefacts (type aws, google_cloud_platform or wasb); none for file:"
    )
    state: ConnectionId | None = Field(None, description="State store; if absent SQLite in `artifacts` (one machine)")
    spark: ConnectionId = Field("spark_default", description="How Spark is reached: type spark, or spark_connect")


class DeclaredTable(Section):
    """A table whose definition is given here, for histories whose CREATE TABLE is no longer in Kafka."""

    name: str = Field(pattern=r"^[^.]+\..+$", description="schema.table")
    create_table: str = Field(min_length=1, description="As SHOW CREATE TABLE prints it")


class ScheduleSection(Section):
    """When windows are replayed: each run loads the interval of the schedule that has just ended."""

    cron: Cron = Field("0 * * * *", description="Five fields, or a preset such as @daily; its intervals are windows")
    timezone: Zone = Field("UTC", description="IANA zone in which the cron expression is read")
    start: Moment = Field(description="First interval: an ISO 8601 moment with zone, such as 2026-03-01T00:00:00Z")
    end: Moment | None = Field(None, description="No interval starts after this moment: for changefeeds that ended")
    catchup: bool = Field(False, description="Run every interval since `start`; else only from unpausing on")
    max_active_runs: int = Field(3, ge=1, le=64, description="Windows replayed at the same time")
    paused: bool = Field(True, description="Whether the DAG is paused when Airflow sees it for the first time")


class WindowSection(Section):
    """How the offsets of a window are found."""

    pin: PinPolicy = Field(
        "first",
        description="first: up to the resolved-ts that completes the window; head: to the end of its topics, with later copies",
    )
    pre_roll_seconds: int = Field(60, ge=0, description="Read this much before the window's start")
    clock_skew_seconds: int = Field(30, ge=0, description="Clocks of TiDB, TiCDC and brokers differ by at most this")
    lag_seconds: int = Field(
        600, ge=0, description="Where the protocol has no resolved-ts: a window's rows are in Kafka this long after it"
    )
    poll_seconds: int = Field(10, ge=6, description="How often the watermark is looked for")
    timeout_minutes: int = Field(240, ge=1, description="How long the watermark is waited for")
    claim_check_margin_hours: int = Field(24, ge=1, description="How long an object may be older than the window")
    from_changelog: Literal["never", "expired", "prefer"] = Field(
        "expired",
        description="When changelogs that hold a window replace Kafka: never, once Kafka has expired it, or whenever they can",
    )
    decode_hours: int | None = Field(
        None, ge=1, le=24 * 31, description="Windows within so many hours (UTC) share one decode, once they are over"
    )
    list_claim_check_store: bool = Field(True, description="Pin the inventory of the store; off for huge stores")
    schema_look_back_hours: int = Field(
        168, ge=0, description="How far before a window DDL is looked for; each stretch of a topic is read once only"
    )


class PoliciesSection(Section):
    """What happens to bad input. `stop` of the first five fails the run before any target, of the others one load."""

    quarantine: Literal["stop", "continue"] = Field(
        "stop", description="Messages that can't be decoded, and rows that no key below decides on"
    )
    unproven: Literal["stop", "allow"] = Field("stop", description="Windows whose completeness can't be shown")
    handle_key_only: Literal["stop", "quarantine", "reread"] = Field(
        "stop", description="Rows without a whole copy; reread: read them again from connections.source"
    )
    claim_check_missing: Literal["stop", "quarantine"] = Field("stop", description="Missing or unusable objects")
    damaged: Literal["quarantine", "accept", "stop"] = Field(
        "quarantine",
        description="Rows with a wrong checksum, or NULL in a NOT NULL column; accept: load them as they are",
    )
    target_value: Literal["stop", "quarantine"] = Field("stop", description="Values that a target can't hold")
    ddl: Literal["apply", "stop"] = Field("apply", description="DDL that a mirror can follow; stop: none is followed")
    truncate: Literal["apply", "stop"] = Field("apply", description="TRUNCATE TABLE empties the mirror as well")
    drop: Literal["apply", "stop"] = Field(
        "stop", description="DROP TABLE and DROP DATABASE drop the mirror as well, DROP COLUMN its column"
    )
    drop_column: DropColumn | None = Field(
        None, description="DROP COLUMN drops the column of the mirror, or keeps it with its values; as `drop` if absent"
    )


class RetriesSection(Section):
    """How tasks are tried again after errors that may pass, such as a server that is away. Others fail at once."""

    attempts: int = Field(3, ge=0, le=20, description="Further attempts after the first")
    delay_seconds: int = Field(30, ge=1, description="Pause before the second attempt; doubled for each next one")


class LimitsSection(Section):
    """Bounds on what one worker holds at a time."""

    split_bytes: int = Field(128 * 1024 * 1024, ge=1024, description="Approximate size of a split, objects included")
    claim_check_max_bytes: int = Field(64 * 1024 * 1024, ge=1024, description="Largest claim-check object")
    claim_check_in_flight_bytes: int = Field(128 * 1024 * 1024, ge=1024, description="Objects held at a time")
    claim_check_connections: int = Field(16, ge=1, le=256, description="Objects fetched at a time per worker")
    decompressed_max_bytes: int = Field(256 * 1024 * 1024, ge=1024, description="Largest message, also decompressed")
    file_rows: int = Field(1_000_000, ge=1, description="Rows per Parquet file, at most")


MAX_KEEP_DAYS = 36_500
"""A hundred years."""


class ChangelogSection(Section):
    """How long changelogs are kept."""

    keep_days: float | None = Field(
        None, ge=0, le=MAX_KEEP_DAYS, description="Days until `changelog prune` may remove one; for ever if absent"
    )


class SparkSection(Section):
    """How Spark jobs are submitted, beside what the connection says."""

    conf: dict[str, str] = Field({}, description="Spark properties, such as spark.executor.memory: 4g; never a secret")
    connections: str = Field(
        "envelope",
        pattern=r"^(envelope|backends|folder:/.+)$",
        description="Where the driver finds connections in cluster mode: envelope, backends (of Airflow), or folder:<path>",
    )


class LocalSection(Section):
    """How jobs run where `runner` is local: in processes of the machine that submits, without Spark."""

    processes: int | None = Field(None, ge=1, le=256, description="How many; as many as it may use cores if absent")
    max_messages: int = Field(5_000_000, ge=1, description="A window with more messages is refused: it needs Spark")


_Dotted = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")]


class CallbacksSection(Section):
    """What Airflow calls when something ends: functions by dotted name, which get Airflow's context."""

    task_failed: _Dotted | None = Field(None, description="When a task has failed for good, on the worker")
    task_retried: _Dotted | None = Field(None, description="When a task has failed and will be retried, on the worker")
    run_failed: _Dotted | None = Field(None, description="When a run has failed, in the DAG processor")
    run_succeeded: _Dotted | None = Field(None, description="When a run has succeeded, in the DAG processor")


class AirflowSection(Section):
    """Airflow's settings for the DAGs and their tasks."""

    owner: str = Field("ticdc-replay", min_length=1, description="Who is responsible; shown and searchable in Airflow")
    tags: tuple[str, ...] = Field((), description="Further tags of the DAGs")
    queue: str | None = Field(None, description="Queue of the tasks, for executors that have queues")
    pool: str | None = Field(None, description="Pool of the tasks; it must exist. Airflow's default pool if absent")
    priority: int = Field(1, description="Weight of the tasks: where slots are short, larger ones come first")
    executor_config: dict[str, Any] | _Dotted = Field(
        {}, description="For the executor, such as Kubernetes: a mapping, or the dotted name of one"
    )
    access_control: dict[str, list[str] | dict[str, list[str]]] = Field(
        {}, description="What roles may do with the DAGs, as Airflow's FAB auth manager takes it: {Analyst: [can_read]}"
    )
    callbacks: CallbacksSection = CallbacksSection()


class Pipeline(Section):
    """One pipeline: a changefeed, its selected tables, and their targets."""

    name: Name = Field(description="Names the DAG (ticdc_replay_<name>) and the folder of the artefacts")
    description: str = Field("", description="For people; shown in Airflow")
    changefeed: ChangefeedSection
    connections: ConnectionsSection
    artifacts: FolderUri = Field(
        description="Folder for manifests, changelogs and reports: s3://…, gs://…, az://…, abfss://… or file:///…"
    )
    tables: tuple[TablePattern, ...] = Field(("*.*",), min_length=1, description="schema.table patterns with * and ?")
    definitions: tuple[DeclaredTable, ...] = Field((), description="Definitions of tables whose DDL Kafka lost")
    set_aside: tuple[Place, ...] = Field(
        (), description="Messages whose rows go to quarantine: topic[partition]@offset, #ordinal for one event"
    )
    schedule: ScheduleSection
    window: WindowSection = WindowSection()
    policies: PoliciesSection = PoliciesSection()
    retries: RetriesSection = RetriesSection()
    limits: LimitsSection = LimitsSection()
    changelog: ChangelogSection = ChangelogSection()
    runner: Literal["spark", "local"] = Field(
        "spark",
        description="What runs the jobs; local: no Spark, for small windows and targets that Spark does not write",
    )
    spark: SparkSection = SparkSection()
    local: LocalSection = LocalSection()
    airflow: AirflowSection = AirflowSection()
    targets: tuple[AnySection, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _unique("targets", [target.name for target in self.targets])
        _unique("definitions", [definition.name for definition in self.definitions])
        check_place("artifacts", self.artifacts, "connections.artifacts", self.connections.artifacts)
        if self.policies.handle_key_only == "reread" and self.connections.source is None:
            raise ValueError(
                "connections.source: name the Airflow connection (type tidb or mysql) of the changefeed's upstream, which "
                "policies.handle_key_only: reread reads"
            )
        for at, target in enumerate(self.targets):
            if self.runner == "local" and target.spark_properties:
                raise ValueError(f"targets[{at}]: Spark writes tables of type {target.type}: set runner to spark")
            target.check(f"targets[{at}]", self.name, self.tables, self.targets[:at])
        return self


def _unique(section: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{section}: the name {name!r} occurs more than once; names must differ")
