"""The job spec: all that a Spark job is given, in one immutable file. Airflow, the command line and Spark share it.

A spec holds no secret and no address that needs one: connections are named by id. A driver on the machine that submits gets them
in the private file that ``CONNECTIONS_FILE_VARIABLE`` names; elsewhere it finds them as ``CONNECTIONS_VARIABLE`` says.
"""

import msgspec

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.changefeed.rules import Dispatch
from ticdc_replay.changelog.files.layout import changelog_root
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.config.target_rules import DropColumn
from ticdc_replay.domain import canonical
from ticdc_replay.domain.events import SEARCH
from ticdc_replay.domain.former_names import FormerNames
from ticdc_replay.domain.messages import EventPlace, OffsetRange
from ticdc_replay.domain.tables import TableName
from ticdc_replay.domain.window import Window
from ticdc_replay.dumps.dialect import Dialect
from ticdc_replay.snapshot.manifest import SharedInput
from ticdc_replay.storage import ObjectStore

CONNECTIONS_FILE_VARIABLE = "TICDC_REPLAY_CONNECTIONS_FILE"

CONNECTIONS_VARIABLE = "TICDC_REPLAY_CONNECTIONS"
"""Environment variable of a driver on another machine than its submitter: where it finds connections. ``backends``;
``folder:<path>``; or ``envelope:<path>``, of a file with an ``EnvelopeKey``, or ``envelope:hadoop`` for Hadoop's credentials."""

ARTIFACTS_CONNECTION_VARIABLE = "TICDC_REPLAY_ARTIFACTS_CONNECTION"
"""Environment variable beside it, of ``backends`` and ``folder``: id of the connection that opens the store of the job spec."""

SPARK_CONNECTION_VARIABLE = "TICDC_REPLAY_SPARK_CONNECTION"
"""Environment variable of a driver: which connection of its private file is that of a Spark Connect server."""

SPARK_CONF_VARIABLE = "TICDC_REPLAY_SPARK_CONF"
"""Environment variable of a driver of Spark Connect: the pipeline's ``spark.conf``, as JSON."""

PROCESSES_VARIABLE = "TICDC_REPLAY_PROCESSES"
"""Environment variable of a driver without Spark: how many processes run its tasks; absent: as many as it may use cores."""

SUBMITTER_FILE = ".ticdc-replay-submitter"
"""A file beside the private one, which the submitting process holds an exclusive lock (flock) on for as long as it lives."""

EXIT_PERMANENT = 3
"""Exit code of a job that failed for good: a retry can't mend it."""
EXIT_TRANSIENT = 4
"""Exit code of a job that may succeed when it is tried again."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one worker holds; see ``config.pipeline.LimitsSection``. Sizes in bytes."""

    split_bytes: int
    claim_check_max_bytes: int
    claim_check_in_flight_bytes: int
    claim_check_connections: int
    decompressed_max_bytes: int
    file_rows: int


class DecodeJob(msgspec.Struct, frozen=True, kw_only=True, tag="decode"):
    """Decode the ranges of one manifest into the changelog ``<artifacts>/runs/<run_hash>/``."""

    library_version: str
    pipeline: str
    artifacts: str
    """Root URI of the pipeline's artefacts (``<artifacts>/<pipeline>``)."""
    artifacts_connection: str | None
    kafka_connection: str
    claim_check_connection: str | None
    schema_registry_connection: str | None = None
    source_connection: str | None = None
    """The upstream database, if rows for which only the key was sent are to be read again."""
    accept_damaged: bool = False
    """Whether rows that are known to be damaged are used as they are."""
    set_aside: tuple[EventPlace, ...] = ()
    """Messages of the input whose rows are to be set aside, whatever is in them."""
    filters_ddl: bool = False
    """Whether the changefeed leaves out DDL of tables whose rows it sends: then no row is compared with the DDL."""
    manifest: str
    """Name of the manifest below the root."""
    input_hash: str
    changefeed: Changefeed
    tables: tuple[str, ...]
    shared_tables: tuple[str, ...] = ()
    """The patterns that an input which several windows share is decoded for: the pipeline's own."""
    limits: Limits
    clock_skew_ms: int = 0
    """What clocks of TiDB, TiCDC and brokers differ by, at most."""

    @property
    def run_hash(self) -> str:
        """Names the changelog: input, what decoding depends on, and the library's version; not how work is divided."""
        return canonical.hash_of({**self._decided_by(), "tables": sorted(self.tables)})

    @property
    def rows_hash(self) -> str:
        """Names the rows that are decoded, whatever the selection of tables: ``run_hash`` without it."""
        return canonical.hash_of(self._decided_by())

    def _decided_by(self) -> dict[str, object]:
        parts: dict[str, object] = {
            "input": self.input_hash,
            "changefeed": self.changefeed.hash,
            "claim_check_max_bytes": self.limits.claim_check_max_bytes,
            "decompressed_max_bytes": self.limits.decompressed_max_bytes,
            "library": self.library_version,
        }
        if self.source_connection is not None:
            parts["handle_key_only"] = "reread"
        if self.accept_damaged:
            parts["damaged"] = "accept"
        if self.set_aside:
            parts["set_aside"] = sorted(self.set_aside)
        if self.filters_ddl:
            parts["filters_ddl"] = True
        return parts

    @property
    def variant(self) -> tuple[str, ...]:
        """The settings that decide which rows can be used, where they are not the defaults."""
        handle_key_only = "" if self.source_connection is None else "reread"
        return variant_of(handle_key_only, "accept" if self.accept_damaged else "")

    def decoding(self, shared: SharedInput) -> "DecodeJob":
        """The job that decodes what this job's window shares with others."""
        return msgspec.structs.replace(
            self, manifest=shared.manifest, input_hash=shared.input_hash, tables=self.shared_tables
        )

    @property
    def changelog_root(self) -> str:
        """The folder of the changelog, below the root of the artefacts."""
        return changelog_root(self.run_hash)


def variant_of(handle_key_only: str, damaged: str) -> tuple[str, ...]:
    """The settings that decide which rows a decode can use, where these policies are not the defaults."""
    reread = ("handle_key_only=reread",) if handle_key_only == "reread" else ()
    return (*reread, "damaged=accept") if damaged == "accept" else reread


class SourceWindow(msgspec.Struct, frozen=True):
    """A window that a load takes rows from, and its newest generation when the load was prepared: of that input they are."""

    window: Window
    generation: int


class LoadJob(msgspec.Struct, frozen=True, kw_only=True, tag="load"):
    """Load one changelog into one target."""

    library_version: str
    pipeline: str
    artifacts: str
    artifacts_connection: str | None
    index: str
    """Name of the changelog's index below the root."""
    run_hash: str
    window: Window
    target: dict[str, object]
    """The target's section of the pipeline, as configured."""
    tables: tuple[str, ...]
    """Patterns; only tables that match are loaded."""
    target_value: str
    ddl: str
    truncate: str = "apply"
    drop: str = "stop"
    drop_column: DropColumn | None = None
    reload: bool = False
    """Apply again although the ledger says that this window is done."""
    generation: int = 0
    """Which of the window's runs is newer (``state.generations``); 0 where nobody gave the run one."""
    sources: tuple[SourceWindow, ...] = ()
    """Of a changelog that is taken from others; none of one that is loaded because a person says so."""
    former_names: tuple[FormerNames, ...] = ()
    """Of its tables and their columns, at the window's end. Empty for a target without ``shape``."""


class ScanFeed(msgspec.Struct, frozen=True, kw_only=True):
    """What of one pipeline's changefeed is scanned for references."""

    pipeline: str
    changefeed: Changefeed
    kafka_connection: str
    schemas: str | None
    """Name of the known table schemas (``SchemaHistory.encode``) below the job's root; None where none is known."""
    topic_ids: dict[str, str]
    """Kafka's id of each topic in ``ranges``, by name."""
    cluster_id: str = ""
    """Kafka's own; empty in jobs of earlier versions, whose scans count for nothing."""
    ranges: tuple[OffsetRange, ...]
    split_bytes: int
    decompressed_max_bytes: int


class ScanJob(msgspec.Struct, frozen=True, kw_only=True, tag="scan"):
    """Scan retained offsets that no decode has covered for claim-check references into one store."""

    library_version: str
    store: str
    artifacts: str
    """Root URI of the store's artefacts (``<artifacts>/<store>``)."""
    artifacts_connection: str | None
    feeds: tuple[ScanFeed, ...]

    @property
    def scan_hash(self) -> str:
        """Names the scan: what is read, with which library; not how work is divided."""
        feeds = [
            {
                "pipeline": feed.pipeline,
                "changefeed": feed.changefeed.hash,
                "schemas": feed.schemas,
                "cluster_id": feed.cluster_id,
                "topic_ids": feed.topic_ids,
                "ranges": sorted(feed.ranges),
                "decompressed_max_bytes": feed.decompressed_max_bytes,
            }
            for feed in self.feeds
        ]
        return canonical.hash_of({"feeds": feeds, "library": self.library_version, "search": SEARCH})

    @property
    def report(self) -> str:
        """Name of the report (``reconcile.look.scan_report.ScanReport``) below the root; once it is there, the scan is done."""
        return f"scans/{self.scan_hash}.json"


class DecodedReferences(msgspec.Struct, frozen=True, kw_only=True):
    """Reference files of one pipeline's decodes (``changelog.files.side_files.REFERENCES``), which read the same topics."""

    pipeline: str
    artifacts: str
    """Root URI of the pipeline's artefacts."""
    artifacts_connection: str | None
    topic_ids: dict[str, str]
    """Kafka's id of each topic in the files, by name."""
    names: tuple[str, ...]


class ReconcileJob(msgspec.Struct, frozen=True, kw_only=True, tag="reconcile"):
    """Join objects of a claim-check store with all known references to them."""

    library_version: str
    store: str
    artifacts: str
    """Root URI of the store's artefacts (``<artifacts>/<store>``); names below are relative to it."""
    artifacts_connection: str | None
    survey: str
    """Name of the survey (``reconcile.look.survey.Survey``)."""
    evidence: str
    """Name of what is known beside objects and references (``reconcile.judge.rules.Evidence``)."""
    inventory: str | None
    """Name of the inventory (``reconcile.look.inventory.Inventory``); None for a recheck."""
    plan_hash: str | None
    """The deletion plan whose objects are judged again, without their references; None for a reconciliation."""
    objects: tuple[str, ...]
    """Files that begin with ``reconcile.judge.records.OBJECTS``."""
    scanned: tuple[str, ...]
    """Files of references (``reconcile.judge.records.REFERENCES``)."""
    decoded: tuple[DecodedReferences, ...]

    @property
    def reconciliation_id(self) -> str:
        """Names what the job leaves: the hash of the whole job, and so of its survey: no two reconciliations share one."""
        return canonical.hash_of(self)

    @property
    def folder(self) -> str:
        """Where the job leaves its files, below the root."""
        return f"{'reconciliations' if self.plan_hash is None else 'rechecks'}/{self.reconciliation_id}"


class MaintainJob(msgspec.Struct, frozen=True, kw_only=True, tag="maintain"):
    """Maintain the lake tables of one target: compact them, and remove what nothing needs."""

    library_version: str
    pipeline: str
    artifacts: str
    artifacts_connection: str | None
    target: dict[str, object]
    """The target's section of the pipeline, as configured."""
    tables: tuple[str, ...]
    """Patterns of upstream tables; only mirrors of those are maintained."""
    dry_run: bool
    asked_at_ms: int
    """So that no two jobs have one report."""

    @property
    def maintenance_id(self) -> str:
        """Names the report: the hash of the whole job."""
        return canonical.hash_of(self)

    @property
    def report(self) -> str:
        """Name of the report (``targets.lake.upkeep.MaintenanceReport``) below the root."""
        return f"maintenance/{self.target['name']}/{self.maintenance_id}.json"


class FollowTask(msgspec.Struct, frozen=True, kw_only=True, tag="follow"):
    """Do to mirrors what a DDL did upstream (``targets.base.StoppingDdl``); with *dry_run* only say how."""

    commit_ts: int
    changes: str
    """JSON of ``StoppingDdl.changes``, whose module needs the parser of DDL: Airflow reads job specs without it."""
    selection: tuple[str, ...]
    dry_run: bool


class ReplaceTask(msgspec.Struct, frozen=True, kw_only=True, tag="replace"):
    """Let a mirror that was filled anew take the place of the old one (``targets.base.ReplaceableMirror.replace``)."""

    superseded: tuple[str, ...]
    needed: tuple[str, ...]


class CountDeletedTask(msgspec.Struct, frozen=True, kw_only=True, tag="count_deleted"):
    """Count deleted rows that a mirror keeps (``targets.base.ReplaceableMirror.deleted_before``)."""

    before_ts: int


class WithdrawTask(msgspec.Struct, frozen=True, kw_only=True, tag="withdraw"):
    """Take back the swap of a mirror that is decided (``targets.base.ReplaceableMirror.withdraw_swap``)."""


class AbandonTask(msgspec.Struct, frozen=True, kw_only=True, tag="abandon"):
    """Drop what was filled anew of a mirror."""


MirrorTask = FollowTask | ReplaceTask | CountDeletedTask | WithdrawTask | AbandonTask


class MirrorJob(msgspec.Struct, frozen=True, kw_only=True, tag="mirror"):
    """Change a mirror that only Spark can change, outside of loads. Who repeats a change has the same job: in cluster mode an
    application that still runs is taken over."""

    library_version: str
    pipeline: str
    artifacts: str
    artifacts_connection: str | None
    target: dict[str, object]
    """The target's section of the pipeline, as configured."""
    table: TableName
    """The upstream's."""
    task: MirrorTask

    @property
    def report(self) -> str:
        """Name below the root of what the task gave, as JSON: ``targets.base.Followed``, ``Replaced``, how many rows
        it counted, whether there was anything to abandon, or null."""
        return f"mirror_tasks/{self.target['name']}/{canonical.hash_of(self)}.json"


class SeedJob(msgspec.Struct, frozen=True, kw_only=True, tag="seed"):
    """Make the changelog ``<artifacts>/runs/<run_hash>/`` of a dump: the base of mirrors."""

    library_version: str
    pipeline: str
    artifacts: str
    """Root URI of the pipeline's artefacts."""
    artifacts_connection: str | None
    dump: str
    """URI of the dump's folder."""
    dump_connection: str | None
    """Connection of the store that the dump lies in; None for a folder, or the machine's own identity."""
    manifest: str
    """Name of the manifest below the root; its ``base`` is the dump."""
    input_hash: str
    window: Window
    """The dump's TSO alone."""
    dialect: Dialect
    zone: str | None
    """The time zone of the session that Dumpling read in, for TIMESTAMP; None if no table has such a column."""
    dispatch: Dispatch
    """Which names and columns the changefeed's events have."""
    tables: tuple[str, ...]
    """Patterns; only tables that match are read."""
    file_rows: int
    """How many rows a file of the changelog has at most, about."""

    @property
    def run_hash(self) -> str:
        """Names the changelog: input, what reading depends on, and the library's version; not how work is divided."""
        return canonical.hash_of(
            {
                "input": self.input_hash,
                "dialect": self.dialect,
                "zone": self.zone,
                "dispatch": self.dispatch,
                "tables": sorted(self.tables),
                "library": self.library_version,
            }
        )

    @property
    def changelog_root(self) -> str:
        """The folder of the changelog, below the root of the artefacts."""
        return changelog_root(self.run_hash)


class ComparedMirror(msgspec.Struct, frozen=True):
    """A mirror that is compared: that of the upstream's ``table``, as of ``at`` (TSO)."""

    table: TableName
    at: int
    loads: str
    """Hash of all loads up to ``at``: a comparison that broke goes on only if it is the same."""


class VerifyJob(msgspec.Struct, frozen=True, kw_only=True, tag="verify"):
    """Compare mirrors of one target with the upstream, or one with a mirror that was filled beside it."""

    library_version: str
    pipeline: str
    artifacts: str
    """Root URI of the pipeline's artefacts."""
    artifacts_connection: str | None
    target: dict[str, object]
    """The target's section of the pipeline, as configured."""
    beside: dict[str, object] | None = None
    """The section of the mirror beside; None to compare with the upstream."""
    source_connection: str | None
    """The upstream."""
    dispatch: Dispatch
    """Which names and columns the changefeed's events have."""
    mirrors: tuple[ComparedMirror, ...]
    selection: tuple[str, ...]
    """The patterns that were asked for: the upstream's tables that match, and have no mirror, are listed."""
    pipeline_tables: tuple[str, ...]
    """The pipeline's own patterns, which these tables match, too."""
    share: float
    """The share of the time that the upstream may work for the comparison, above 0, at most 1."""
    range_rows: int
    """Rows of one checksum."""
    restart: bool
    """Whether to begin again where an attempt broke."""
    asked_at_ms: int
    """So that no two jobs have one result."""

    @property
    def comparison_id(self) -> str:
        """Names the result: the hash of the whole job."""
        return canonical.hash_of(self)

    @property
    def folder(self) -> str:
        """The folder of the target's comparisons, below the root."""
        return f"verifications/{self.target['name']}"

    @property
    def result(self) -> str:
        """Name of the result (``targets.mirror.verify.Compared``) below the root; once it is there, the job is done."""
        return f"{self.folder}/results/{self.comparison_id}.json"


class Series(msgspec.Struct, frozen=True, kw_only=True, tag="series"):
    """Jobs of several windows that one driver runs in their order: decodes, or loads into one target.

    Each leaves what it would leave by itself. The first one that fails ends the series.
    """

    jobs: tuple[DecodeJob | LoadJob, ...]
    """At least one."""


TargetJob = LoadJob | MaintainJob | MirrorJob | VerifyJob
"""Jobs of one target, whose section they have."""
OneJob = DecodeJob | LoadJob | ScanJob | ReconcileJob | MaintainJob | MirrorJob | SeedJob | VerifyJob
JobSpec = OneJob | Series


def decode(content: bytes) -> JobSpec:
    """A job spec from its JSON. Raises msgspec.ValidationError with the path inside the document."""
    job: JobSpec = msgspec.json.decode(content, type=OneJob | Series)
    return job


def first_of(job: JobSpec) -> OneJob:
    """*job*, of a series the first: the others are as it is but for their windows."""
    return job.jobs[0] if isinstance(job, Series) else job


def kind_of(job: JobSpec) -> str:
    """``decode``, ``load``, ``scan``, ``reconcile``, ``maintain``, ``mirror``, ``seed`` or ``verify``: also the name of the entry
    script."""
    return str(first_of(job).__struct_config__.tag)


def title_of(job: JobSpec) -> str:
    """What a Spark application that runs *job* is called."""
    match job:
        case DecodeJob():
            return f"decode {job.pipeline} {job.run_hash[:12]}"
        case LoadJob():
            return f"load {job.pipeline} {job.target['name']} {job.run_hash[:12]}"
        case ScanJob():
            return f"scan {job.store} {job.scan_hash[:12]}"
        case ReconcileJob():
            return f"reconcile {job.store} {job.reconciliation_id[:12]}"
        case MaintainJob():
            return f"maintain {job.pipeline} {job.target['name']}"
        case MirrorJob():
            return f"mirror {job.pipeline} {job.target['name']}"
        case SeedJob():
            return f"seed {job.pipeline} {job.run_hash[:12]}"
        case VerifyJob():
            return f"verify {job.pipeline} {job.target['name']}"
        case Series():
            return f"{title_of(first_of(job))} and {len(job.jobs) - 1} more"


def connections_of(job: JobSpec) -> list[str]:
    """Ids of the connections that *job* needs, and of no other, sorted."""
    first = first_of(job)
    named: list[object] = [first.artifacts_connection]
    match job:
        case DecodeJob():
            named += [job.kafka_connection, job.claim_check_connection]
            named += [job.schema_registry_connection, job.source_connection]
        case LoadJob() | MaintainJob() | MirrorJob():
            named += read_section(job.target).connection_ids
        case VerifyJob():
            named += [job.source_connection, *read_section(job.target).connection_ids]
        case ScanJob():
            named += [feed.kafka_connection for feed in job.feeds]
        case ReconcileJob():
            named += [files.artifacts_connection for files in job.decoded]
        case SeedJob():
            named.append(job.dump_connection)
        case Series():
            return sorted({conn_id for each in job.jobs for conn_id in connections_of(each)})
    return sorted({str(conn_id) for conn_id in named if conn_id})


def put(store: ObjectStore, job: JobSpec) -> str:
    """Keep *job* in *store*, that of its artefacts; its URI."""
    content = canonical.encode(job)
    name = f"jobs/{canonical.digest(content)}.json"
    store.put_once(name, content)
    return store.uri(name)


def read(store: ObjectStore, uri: str) -> JobSpec:
    """The job spec at *uri*, which is below *store*. Raises ArtifactNotFoundError, and what ``decode`` raises."""
    return decode(store.get(uri.removeprefix(f"{store.root}/")))


class SharedDecode(msgspec.Struct, frozen=True):
    """What a decode job takes its window from: the manifest that is decoded for several windows (its name), and the run."""

    manifest: str
    run_hash: str


class WrittenJob(msgspec.Struct, frozen=True):
    """A job spec in the artefact store, as it is handed to whoever runs it."""

    uri: str
    run_hash: str
    """Names what the job leaves: a run; of a scan, a join, a maintenance and a comparison these."""
    shared: SharedDecode | None = None
