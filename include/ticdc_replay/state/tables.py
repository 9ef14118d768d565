"""The tables of the state store, as the newest migration leaves them. A test holds the two together."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, Index, Integer, MetaData, Table, text

from ticdc_replay.state.any_text import AnyText

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s",
    }
)

_ACTIVE = text("superseded_at_ms IS NULL")
_ALONE = text("kind <> 'replay'")

window_manifest = Table(
    "window_manifest",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("from_ts", BigInteger, primary_key=True),
    Column("to_ts", BigInteger, primary_key=True),
    Column("input_hash", AnyText, primary_key=True),
    Column("pinned_at_ms", BigInteger, primary_key=True),
    Column("name", AnyText, nullable=False),
    Column("superseded_at_ms", BigInteger),
    # Two runs that pin one window at once: the second insert of an active manifest fails.
    Index(
        "uq_window_manifest_active",
        "pipeline",
        "from_ts",
        "to_ts",
        unique=True,
        sqlite_where=_ACTIVE,
        postgresql_where=_ACTIVE,
    ),
)

run = Table(
    "run",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("run_hash", AnyText, primary_key=True),
    Column("from_ts", BigInteger, nullable=False),
    Column("to_ts", BigInteger, nullable=False),
    Column("input_hash", AnyText, nullable=False),
    Column("status", AnyText, nullable=False),
    Column("started_at_ms", BigInteger, nullable=False),
    Column("finished_at_ms", BigInteger),
    Column("index", AnyText),
    Column("counts", JSON, nullable=False),
)

generation = Table(
    "generation",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("from_ts", BigInteger, primary_key=True),
    Column("to_ts", BigInteger, primary_key=True),
    Column("run_hash", AnyText, primary_key=True),
    Column("rows_hash", AnyText, nullable=False),
    Column("generation", BigInteger, nullable=False),
)

coverage = Table(
    "coverage",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("target", AnyText, primary_key=True),
    Column("place", AnyText, primary_key=True, server_default=""),
    Column("run_hash", AnyText, primary_key=True),
    Column("from_ts", BigInteger, nullable=False),
    Column("to_ts", BigInteger, nullable=False),
    Column("selection", JSON, nullable=False),
    Column("grade", AnyText, nullable=False),
    Column("quality", AnyText, nullable=False),
    Column("loaded_at_ms", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("attempt", AnyText, nullable=False),
)

begun_load = Table(
    "begun_load",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("target", AnyText, primary_key=True),
    Column("place", AnyText, primary_key=True, server_default=""),
    Column("run_hash", AnyText, primary_key=True),
    Column("from_ts", BigInteger, nullable=False),
    Column("to_ts", BigInteger, nullable=False),
    Column("selection", JSON, nullable=False),
    Column("generation", BigInteger, primary_key=True),
)

covered_table = Table(
    "covered_table",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("target", AnyText, primary_key=True),
    Column("place", AnyText, primary_key=True, server_default=""),
    Column("run_hash", AnyText, primary_key=True),
    Column("schema", AnyText, primary_key=True),
    Column("table", AnyText, primary_key=True),
    Column("quality", AnyText, nullable=False),
)

schema_history = Table(
    "schema_history",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("schema", AnyText, primary_key=True),
    Column("table", AnyText, primary_key=True),
    Column("after", BigInteger, primary_key=True),
    Column("epoch", AnyText, nullable=False),
    Column("source", AnyText, nullable=False),
)

table_version = Table(
    "table_version",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("schema", AnyText, primary_key=True),
    Column("table", AnyText, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("definition", AnyText, nullable=False),
)
"""Definitions that came over the wire with a version (Simple)."""

# Offsets of topics: an empty cluster_id or topic is of a record by an earlier version, which keeps nobody from reading.
schema_scan = Table(
    "schema_scan",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("cluster_id", AnyText, primary_key=True, server_default=""),
    Column("topic", AnyText, primary_key=True, server_default=""),
    Column("topic_id", AnyText, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("start_offset", BigInteger, primary_key=True),
    Column("end_offset", BigInteger, nullable=False),
)
"""What earlier versions searched, and put into ``schema_history``."""

ddl = Table(
    "ddl",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("cluster_id", AnyText, primary_key=True),
    Column("topic", AnyText, primary_key=True),
    Column("topic_id", AnyText, primary_key=True),
    Column("commit_ts", BigInteger, primary_key=True),
    Column("digest", AnyText, primary_key=True),
    Column("schema", AnyText, nullable=False),
    Column("table", AnyText, nullable=False),
    Column("query", AnyText, nullable=False),
    Column("type", JSON, nullable=False),
    Column("rounded", Boolean, nullable=False),
)
"""DDL as it was sent; ``digest`` is the SHA-256 of schema, table and query."""

ddl_scan = Table(
    "ddl_scan",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("cluster_id", AnyText, primary_key=True),
    Column("topic", AnyText, primary_key=True),
    Column("topic_id", AnyText, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("start_offset", BigInteger, primary_key=True),
    Column("end_offset", BigInteger, primary_key=True),
    Column("known_from", BigInteger, primary_key=True),
    Column("resolved_ts", BigInteger, primary_key=True),
)
"""Offsets all of whose DDL is in ``ddl``. Times are part of the key: one scan never takes the place of what another showed."""

scanned_range = Table(
    "scanned_range",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("cluster_id", AnyText, primary_key=True, server_default=""),
    Column("topic", AnyText, primary_key=True, server_default=""),
    Column("topic_id", AnyText, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("start_offset", BigInteger, primary_key=True),
    Column("end_offset", BigInteger, primary_key=True),
    Column("file", AnyText),
    Column("search", Integer, nullable=False, server_default="0"),
)

sparse_index = Table(
    "sparse_index",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("cluster_id", AnyText, primary_key=True, server_default=""),
    Column("topic", AnyText, primary_key=True, server_default=""),
    Column("topic_id", AnyText, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("start_offset", BigInteger, primary_key=True),
    Column("end_offset", BigInteger, primary_key=True),
    Column("min_commit_ts", BigInteger),
    Column("max_commit_ts", BigInteger),
)

reference_file = Table(
    "reference_file",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("run_hash", AnyText, primary_key=True),
    Column("name", AnyText, primary_key=True),
)

redrive = Table(
    "redrive",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("run_hash", AnyText, primary_key=True),
    Column("redrive_hash", AnyText, primary_key=True),
    Column("target", AnyText, primary_key=True),
    Column("place", AnyText, primary_key=True, server_default=""),
    Column("recorded_at_ms", BigInteger, nullable=False),
)

accepted_loss = Table(
    "accepted_loss",
    metadata,
    Column("pipeline", AnyText, primary_key=True),
    Column("cluster_id", AnyText, primary_key=True, server_default=""),
    Column("topic", AnyText, primary_key=True, server_default=""),
    Column("topic_id", AnyText, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("offset", BigInteger, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("reason", AnyText, primary_key=True),
    Column("run_hash", AnyText, nullable=False),
    Column("person", AnyText, nullable=False),
    Column("why", AnyText, nullable=False),
    Column("record", AnyText, nullable=False),
    Column("accepted_at_ms", BigInteger, nullable=False),
)

reconciliation = Table(
    "reconciliation",
    metadata,
    Column("store", AnyText, primary_key=True),
    Column("reconciliation_id", AnyText, primary_key=True),
    Column("began_at_ms", BigInteger, nullable=False),
    Column("finished_at_ms", BigInteger, nullable=False),
    Column("report", AnyText, nullable=False),
    Column("totals", JSON, nullable=False),
)

deletion_plan = Table(
    "deletion_plan",
    metadata,
    Column("store", AnyText, primary_key=True),
    Column("plan_hash", AnyText, primary_key=True),
    Column("name", AnyText, nullable=False),
    Column("made_at_ms", BigInteger, nullable=False),
    Column("due_at_ms", BigInteger, nullable=False),
    Column("objects", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("status", AnyText, nullable=False),
    Column("decided_by", AnyText, nullable=False),
    Column("decided_why", AnyText, nullable=False),
    Column("decided_at_ms", BigInteger),
    Column("reconciliation_id", AnyText),
    Column("policy", AnyText),
    # A reconciliation is planned once, whatever runs at the same time.
    Index("uq_deletion_plan_reconciliation", "store", "reconciliation_id", unique=True),
)

deletion_execution = Table(
    "deletion_execution",
    metadata,
    Column("store", AnyText, primary_key=True),
    Column("plan_hash", AnyText, primary_key=True),
    Column("execution_id", AnyText, primary_key=True),
    Column("started_at_ms", BigInteger, nullable=False),
    Column("finished_at_ms", BigInteger),
    Column("audit", AnyText),
    Column("counts", JSON, nullable=False),
)

lease = Table(
    "lease",
    metadata,
    Column("resource", AnyText, primary_key=True),
    Column("holder", AnyText, primary_key=True),
    Column("kind", AnyText, nullable=False),
    Column("subject", AnyText, nullable=False),
    Column("acquired_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    # Two deletions, or two shared decodes, that begin at once: the second insert does nothing.
    Index("uq_lease_alone", "resource", unique=True, sqlite_where=_ALONE, postgresql_where=_ALONE),
)

machine = Table(
    "machine",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("boot", AnyText, nullable=False),
    Column("host", AnyText, nullable=False),
    Column("first_seen_ms", BigInteger, nullable=False),
)
