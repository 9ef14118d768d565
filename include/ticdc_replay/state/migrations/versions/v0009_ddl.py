"""DDL as it was sent, and where it was searched: definitions are worked out of it, so DDL that is found late counts."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "ddl",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("cluster_id", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("topic_id", sa.Text, nullable=False),
        sa.Column("commit_ts", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("schema", sa.Text, nullable=False),
        sa.Column("table", sa.Text, nullable=False),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("type", sa.JSON, nullable=False),
        sa.Column("rounded", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "cluster_id", "topic", "topic_id", "commit_ts", "digest", name="pk_ddl"),
    )
    op.create_table(
        "ddl_scan",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("cluster_id", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("topic_id", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("start_offset", sa.BigInteger, nullable=False),
        sa.Column("end_offset", sa.BigInteger, nullable=False),
        sa.Column("known_from", sa.BigInteger, nullable=False),
        sa.Column("resolved_ts", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "pipeline",
            "cluster_id",
            "topic",
            "topic_id",
            "partition",
            "start_offset",
            "end_offset",
            "known_from",
            "resolved_ts",
            name="pk_ddl_scan",
        ),
    )
