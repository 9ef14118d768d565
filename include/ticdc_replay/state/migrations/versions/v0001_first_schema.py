"""The first schema: manifests of windows, runs, coverage, schema history, sparse index, reference files."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "window_manifest",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("from_ts", sa.BigInteger, nullable=False),
        sa.Column("to_ts", sa.BigInteger, nullable=False),
        sa.Column("input_hash", sa.Text, nullable=False),
        sa.Column("pinned_at_ms", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("superseded_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint(
            "pipeline", "from_ts", "to_ts", "input_hash", "pinned_at_ms", name="pk_window_manifest"
        ),
    )
    active = sa.text("superseded_at_ms IS NULL")
    op.create_index(
        "uq_window_manifest_active",
        "window_manifest",
        ["pipeline", "from_ts", "to_ts"],
        unique=True,
        sqlite_where=active,
        postgresql_where=active,
    )
    op.create_table(
        "run",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("run_hash", sa.Text, nullable=False),
        sa.Column("from_ts", sa.BigInteger, nullable=False),
        sa.Column("to_ts", sa.BigInteger, nullable=False),
        sa.Column("input_hash", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("started_at_ms", sa.BigInteger, nullable=False),
        sa.Column("finished_at_ms", sa.BigInteger),
        sa.Column("index", sa.Text),
        sa.Column("counts", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "run_hash", name="pk_run"),
    )
    op.create_table(
        "coverage",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("run_hash", sa.Text, nullable=False),
        sa.Column("from_ts", sa.BigInteger, nullable=False),
        sa.Column("to_ts", sa.BigInteger, nullable=False),
        sa.Column("selection", sa.JSON, nullable=False),
        sa.Column("grade", sa.Text, nullable=False),
        sa.Column("quality", sa.Text, nullable=False),
        sa.Column("loaded_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "target", "run_hash", name="pk_coverage"),
    )
    op.create_table(
        "covered_table",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("run_hash", sa.Text, nullable=False),
        sa.Column("schema", sa.Text, nullable=False),
        sa.Column("table", sa.Text, nullable=False),
        sa.Column("quality", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "target", "run_hash", "schema", "table", name="pk_covered_table"),
    )
    op.create_table(
        "schema_history",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("schema", sa.Text, nullable=False),
        sa.Column("table", sa.Text, nullable=False),
        sa.Column("after", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "schema", "table", "after", name="pk_schema_history"),
    )
    op.create_table(
        "table_version",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("schema", sa.Text, nullable=False),
        sa.Column("table", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "schema", "table", "version", name="pk_table_version"),
    )
    op.create_table(
        "schema_scan",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("topic_id", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("start_offset", sa.BigInteger, nullable=False),
        sa.Column("end_offset", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "topic_id", "partition", "start_offset", name="pk_schema_scan"),
    )
    op.create_table(
        "sparse_index",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("topic_id", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("start_offset", sa.BigInteger, nullable=False),
        sa.Column("end_offset", sa.BigInteger, nullable=False),
        sa.Column("min_commit_ts", sa.BigInteger),
        sa.Column("max_commit_ts", sa.BigInteger),
        sa.PrimaryKeyConstraint(
            "pipeline", "topic_id", "partition", "start_offset", "end_offset", name="pk_sparse_index"
        ),
    )
    op.create_table(
        "reference_file",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("run_hash", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "run_hash", "name", name="pk_reference_file"),
    )
