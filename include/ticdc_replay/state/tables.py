"""The tables of the state store, as the newest migration leaves them. A test holds the two together."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    text,
)
from sqlalchemy.types import TypeEngine

from ticdc_replay.state.any_text import AnyText

REVISION = "0013"
"""The newest migration."""

metadata = MetaData(naming_convention={"pk": "pk_%(table_name)s"})

version = Table("alembic_version", MetaData(), Column("version_num", String(32), nullable=False))
"""Alembic's own: the migration that the tables are of."""
version.append_constraint(PrimaryKeyConstraint("version_num", name="alembic_version_pkc"))


def _key(kind: type[TypeEngine[Any]], *names: str, server_default: str | None = None) -> Iterator[Column[Any]]:
    """Columns of the primary key."""
    for name in names:
        yield Column(name, kind, primary_key=True, server_default=server_default)


def _value(kind: type[TypeEngine[Any]], *names: str, server_default: str | None = None) -> Iterator[Column[Any]]:
    """Columns that always have a value."""
    for name in names:
        yield Column(name, kind, nullable=False, server_default=server_default)


_ACTIVE = text("superseded_at_ms IS NULL")
_ALONE = text("kind <> 'replay'")

window_manifest = Table(
    "window_manifest",
    metadata,
    *_key(AnyText, "pipeline"),
    *_key(BigInteger, "from_ts", "to_ts"),
    *_key(AnyText, "input_hash"),
    *_key(BigInteger, "pinned_at_ms"),
    *_value(AnyText, "name"),
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
    *_key(AnyText, "pipeline", "run_hash"),
    *_value(BigInteger, "from_ts", "to_ts"),
    *_value(AnyText, "input_hash", "status"),
    *_value(BigInteger, "started_at_ms"),
    Column("finished_at_ms", BigInteger),
    Column("index", AnyText),
    *_value(JSON, "counts"),
)

generation = Table(
    "generation",
    metadata,
    *_key(AnyText, "pipeline"),
    *_key(BigInteger, "from_ts", "to_ts"),
    *_key(AnyText, "run_hash"),
    *_value(AnyText, "rows_hash"),
    *_value(BigInteger, "generation"),
)

coverage = Table(
    "coverage",
    metadata,
    *_key(AnyText, "pipeline", "target"),
    *_key(AnyText, "place", server_default=""),
    *_key(AnyText, "run_hash"),
    *_value(BigInteger, "from_ts", "to_ts"),
    *_value(JSON, "selection"),
    *_value(AnyText, "grade", "quality"),
    *_value(BigInteger, "loaded_at_ms"),
    *_value(BigInteger, "generation", server_default="0"),
    *_value(AnyText, "attempt", server_default=""),
)

begun_load = Table(
    "begun_load",
    metadata,
    *_key(AnyText, "pipeline", "target"),
    *_key(AnyText, "place", server_default=""),
    *_key(AnyText, "run_hash"),
    *_value(BigInteger, "from_ts", "to_ts"),
    *_value(JSON, "selection"),
    *_key(BigInteger, "generation"),
)

covered_table = Table(
    "covered_table",
    metadata,
    *_key(AnyText, "pipeline", "target"),
    *_key(AnyText, "place", server_default=""),
    *_key(AnyText, "run_hash", "schema", "table"),
    *_value(AnyText, "quality"),
)

schema_history = Table(
    "schema_history",
    metadata,
    *_key(AnyText, "pipeline", "schema", "table"),
    *_key(BigInteger, "after"),
    *_value(AnyText, "epoch", "source"),
)

table_version = Table(
    "table_version",
    metadata,
    *_key(AnyText, "pipeline", "schema", "table"),
    *_key(BigInteger, "version"),
    *_value(AnyText, "definition"),
)
"""Definitions that came over the wire with a version (Simple)."""

# Offsets of topics: an empty cluster_id or topic is of a record by an earlier version, which keeps nobody from reading.
schema_scan = Table(
    "schema_scan",
    metadata,
    *_key(AnyText, "pipeline"),
    *_key(AnyText, "cluster_id", "topic", server_default=""),
    *_key(AnyText, "topic_id"),
    *_key(Integer, "partition"),
    *_key(BigInteger, "start_offset"),
    *_value(BigInteger, "end_offset"),
)
"""What earlier versions searched, and put into ``schema_history``."""

ddl = Table(
    "ddl",
    metadata,
    *_key(AnyText, "pipeline", "cluster_id", "topic", "topic_id"),
    *_key(BigInteger, "commit_ts"),
    *_key(AnyText, "digest"),
    *_value(AnyText, "schema", "table", "query"),
    *_value(JSON, "type"),
    *_value(Boolean, "rounded"),
)
"""DDL as it was sent; ``digest`` is the SHA-256 of schema, table and query."""

ddl_scan = Table(
    "ddl_scan",
    metadata,
    *_key(AnyText, "pipeline", "cluster_id", "topic", "topic_id"),
    *_key(Integer, "partition"),
    *_key(BigInteger, "start_offset", "end_offset", "known_from", "resolved_ts"),
)
"""Offsets all of whose DDL is in ``ddl``. Times are part of the key: one scan never takes the place of what another showed."""

scanned_range = Table(
    "scanned_range",
    metadata,
    *_key(AnyText, "pipeline"),
    *_key(AnyText, "cluster_id", "topic", server_default=""),
    *_key(AnyText, "topic_id"),
    *_key(Integer, "partition"),
    *_key(BigInteger, "start_offset", "end_offset"),
    Column("file", AnyText),
    *_value(Integer, "search", server_default="0"),
)

sparse_index = Table(
    "sparse_index",
    metadata,
    *_key(AnyText, "pipeline"),
    *_key(AnyText, "cluster_id", "topic", server_default=""),
    *_key(AnyText, "topic_id"),
    *_key(Integer, "partition"),
    *_key(BigInteger, "start_offset", "end_offset"),
    Column("min_commit_ts", BigInteger),
    Column("max_commit_ts", BigInteger),
)

reference_file = Table(
    "reference_file",
    metadata,
    *_key(AnyText, "pipeline", "run_hash", "name"),
)
"""Earlier versions wrote it. Nothing reads it: the index of a run names its reference files."""

redrive = Table(
    "redrive",
    metadata,
    *_key(AnyText, "pipeline", "run_hash", "redrive_hash", "target"),
    *_key(AnyText, "place", server_default=""),
    *_value(BigInteger, "recorded_at_ms"),
)

accepted_loss = Table(
    "accepted_loss",
    metadata,
    *_key(AnyText, "pipeline"),
    *_key(AnyText, "cluster_id", "topic", server_default=""),
    *_key(AnyText, "topic_id"),
    *_key(Integer, "partition"),
    *_key(BigInteger, "offset"),
    *_key(Integer, "ordinal"),
    *_key(AnyText, "reason"),
    *_value(AnyText, "run_hash", "person", "why", "record"),
    *_value(BigInteger, "accepted_at_ms"),
)

reconciliation = Table(
    "reconciliation",
    metadata,
    *_key(AnyText, "store", "reconciliation_id"),
    *_value(BigInteger, "began_at_ms", "finished_at_ms"),
    *_value(AnyText, "report"),
    *_value(JSON, "totals"),
)

deletion_plan = Table(
    "deletion_plan",
    metadata,
    *_key(AnyText, "store", "plan_hash"),
    *_value(AnyText, "name"),
    *_value(BigInteger, "made_at_ms", "due_at_ms", "objects", "bytes"),
    *_value(AnyText, "status", "decided_by", "decided_why"),
    Column("decided_at_ms", BigInteger),
    Column("reconciliation_id", AnyText),
    Column("policy", AnyText),
    # A reconciliation is planned once, whatever runs at the same time.
    Index("uq_deletion_plan_reconciliation", "store", "reconciliation_id", unique=True),
)

deletion_execution = Table(
    "deletion_execution",
    metadata,
    *_key(AnyText, "store", "plan_hash", "execution_id"),
    *_value(BigInteger, "started_at_ms"),
    Column("finished_at_ms", BigInteger),
    Column("audit", AnyText),
    *_value(JSON, "counts"),
)

lease = Table(
    "lease",
    metadata,
    *_key(AnyText, "resource", "holder"),
    *_value(AnyText, "kind", "subject"),
    *_value(BigInteger, "acquired_at_ms", "expires_at_ms"),
    # Two deletions, or two shared decodes, that begin at once: the second insert does nothing.
    Index("uq_lease_alone", "resource", unique=True, sqlite_where=_ALONE, postgresql_where=_ALONE),
)

machine = Table(
    "machine",
    metadata,
    *_key(BigInteger, "number"),
    *_value(AnyText, "boot", "host"),
    *_value(BigInteger, "first_seen_ms"),
)


def make_all(connection: Connection) -> None:
    """Make the tables in a database that has none. The migrations come to the same, in ten times the time."""
    metadata.create_all(connection, checkfirst=False)
    version.create(connection)
    connection.execute(version.insert().values(version_num=REVISION))
