"""A store: one place of claim-check objects, and how it is reconciled. What a user writes in one YAML file."""

from typing import Literal, Self

from pydantic import Field, model_validator

from ticdc_replay.config.pipeline import AirflowSection, Name, RetriesSection, Section, SparkSection
from ticdc_replay.config.types import ConnectionId, Cron, FolderUri, Moment, Zone, check_place

_HOUR_MS = 3_600_000


class StoreConnections(Section):
    """Airflow connection ids. Kafka and schema registries are reached by the connections of the pipelines."""

    store: ConnectionId | None = Field(None, description="The store, to list and read (type aws); none for file:")
    deletion: ConnectionId | None = Field(
        None, description="The same store with the right to delete (type aws): used only to execute a plan"
    )
    undo: ConnectionId | None = Field(
        None,
        description="The same with the right to remove delete markers, to undo a deletion where versions are kept; else no undo",
    )
    inventory: ConnectionId | None = Field(None, description="Where S3 puts its reports (type aws); `store` if absent")
    artifacts: ConnectionId | None = Field(None, description="Object store of `artifacts` (type aws); none for file:")
    state: ConnectionId | None = Field(None, description="State store; if absent SQLite in `artifacts` (one machine)")
    spark: ConnectionId = Field("spark_default", description="Where Spark jobs are submitted")


class StoreSchedule(Section):
    """When the store is reconciled."""

    cron: Cron = Field("0 3 * * *", description="Five fields, or a preset such as @daily")
    timezone: Zone = Field("UTC", description="IANA zone in which the cron expression is read")
    start: Moment = Field(description="No run before this ISO 8601 moment with zone, such as 2026-03-01T00:00:00Z")
    paused: bool = Field(True, description="Whether the DAG is paused when Airflow sees it for the first time")


class InventorySection(Section):
    """Where the list of objects comes from."""

    source: Literal["listing", "s3_inventory"] = Field(
        "listing", description="listing: the store is listed; s3_inventory: S3's own reports are read"
    )
    manifest: FolderUri | None = Field(
        None, description="With s3_inventory: the folder with the reports' dated folders, s3://bucket/prefix/source/id"
    )
    max_age_hours: int = Field(48, ge=1, description="With s3_inventory: an older report is refused")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.source == "s3_inventory") != (self.manifest is not None):
            raise ValueError("manifest: give it where source is s3_inventory, and only there")
        return self


class RulesSection(Section):
    """The rules that objects are judged by."""

    young_hours: float = Field(24, gt=0, description="Younger objects are not judged: their message may still come")
    clock_skew_seconds: int = Field(300, ge=0, description="Clocks of all machines involved differ by at most this")

    @property
    def young_ms(self) -> int:
        """``young_hours`` in ms."""
        return int(self.young_hours * _HOUR_MS)


class DeletionSection(Section):
    """Who may delete objects that no message needs."""

    policy: Literal["never", "approval", "automatic"] = Field(
        "never",
        description="never: plan nothing; approval: a person releases each plan; automatic: execute it when its grace is over",
    )
    grace_hours: int = Field(168, ge=1, description="Objects must be this old to be planned, plans to be executed")
    max_objects_per_run: int = Field(1_000_000, ge=1, description="A plan names at most this many objects")


class Store(Section):
    """One claim-check store: the folder that one or several changefeeds write large messages to."""

    name: Name = Field(description="Names the DAG (ticdc_replay_store_<name>) and the folder of the artefacts")
    description: str = Field("", description="For people; shown in Airflow")
    uri: FolderUri = Field(description="The claim-check-storage-uri of its changefeeds: s3://… or file:///…")
    pipelines: tuple[Name, ...] = Field(
        min_length=1, description="Names of the pipelines whose changefeeds write to it, from the folder of pipelines"
    )
    owners_complete: bool = Field(
        False, description="true: a person's word that nobody else writes to it. Nothing may be deleted without it"
    )
    former_pipelines: tuple[Name, ...] = Field(
        (), description="Pipelines that once wrote to it: nobody will ever read their messages again"
    )
    former_clusters: tuple[str, ...] = Field(
        (), description="Ids of Kafka clusters that surveys have read: nobody will ever read messages there again"
    )
    former_topics: tuple[str, ...] = Field(
        (), description="Ids of topics that decodes read and no survey saw: nobody will read their messages again"
    )
    connections: StoreConnections = StoreConnections()
    artifacts: FolderUri = Field(description="Folder for reports and plans; files lie below <artifacts>/<name>")
    schedule: StoreSchedule
    inventory: InventorySection = InventorySection()
    rules: RulesSection = RulesSection()
    deletion: DeletionSection = DeletionSection()
    retries: RetriesSection = RetriesSection()
    spark: SparkSection = SparkSection()
    airflow: AirflowSection = AirflowSection()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ids, inventory = self.connections, self.inventory.manifest
        for name in self.pipelines:
            if self.pipelines.count(name) > 1:
                raise ValueError(f"pipelines: the name {name!r} occurs more than once; names must differ")
            if name in self.former_pipelines:
                raise ValueError(f"former_pipelines: {name!r} is listed in pipelines, too; it can't be both")
        if not self.uri.startswith(("s3:", "file:")):
            raise ValueError(
                f"uri: {self.uri} can't be reconciled: only s3:// and file:// have what is asked of such a store (versions, "
                "lifecycle rules, deletion under a condition)"
            )
        check_place("uri", self.uri, "connections.store", ids.store)
        check_place("artifacts", self.artifacts, "connections.artifacts", ids.artifacts)
        if inventory is not None:
            check_place("inventory.manifest", inventory, "connections.inventory", ids.inventory or ids.store)
        elif ids.inventory is not None:
            raise ValueError("connections.inventory: remove it; inventory.source is listing")
        if ids.undo is not None and not self.uri.startswith("s3://"):
            raise ValueError(f"connections.undo: remove it; {self.uri} keeps no versions")
        rights = [conn_id for conn_id in (ids.store, ids.deletion, ids.undo) if conn_id is not None]
        shared = next((conn_id for conn_id in rights if rights.count(conn_id) > 1), None)
        if shared is not None:
            raise ValueError(
                f"connections: store, deletion and undo must differ, and {shared!r} occurs more than once: what only reads must "
                "not be able to delete, and what deletes must not be able to destroy versions"
            )
        if self.deletion.policy == "never":  # what it does not use may stay: a stop must not need other changes
            return self
        check_place("uri", self.uri, "connections.deletion", ids.deletion)
        if not self.owners_complete:
            raise ValueError(
                f"owners_complete: must be true where deletion.policy is {self.deletion.policy}: objects of a changefeed that is "
                f"not listed look like left-overs"
            )
        return self
