"""Reconciliations of claim-check stores, plans to delete and their executions, leases."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "reconciliation",
        sa.Column("store", sa.Text, nullable=False),
        sa.Column("reconciliation_id", sa.Text, nullable=False),
        sa.Column("began_at_ms", sa.BigInteger, nullable=False),
        sa.Column("finished_at_ms", sa.BigInteger, nullable=False),
        sa.Column("report", sa.Text, nullable=False),
        sa.Column("totals", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("store", "reconciliation_id", name="pk_reconciliation"),
    )
    op.create_table(
        "deletion_plan",
        sa.Column("store", sa.Text, nullable=False),
        sa.Column("plan_hash", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("made_at_ms", sa.BigInteger, nullable=False),
        sa.Column("due_at_ms", sa.BigInteger, nullable=False),
        sa.Column("objects", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("decided_by", sa.Text, nullable=False),
        sa.Column("decided_why", sa.Text, nullable=False),
        sa.Column("decided_at_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("store", "plan_hash", name="pk_deletion_plan"),
    )
    op.create_table(
        "deletion_execution",
        sa.Column("store", sa.Text, nullable=False),
        sa.Column("plan_hash", sa.Text, nullable=False),
        sa.Column("execution_id", sa.Text, nullable=False),
        sa.Column("started_at_ms", sa.BigInteger, nullable=False),
        sa.Column("finished_at_ms", sa.BigInteger),
        sa.Column("audit", sa.Text),
        sa.Column("counts", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("store", "plan_hash", "execution_id", name="pk_deletion_execution"),
    )
    op.create_table(
        "lease",
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("acquired_at_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("resource", "holder", name="pk_lease"),
    )
    deletion = sa.text("kind = 'deletion'")
    op.create_index(
        "uq_lease_deletion",
        "lease",
        ["resource"],
        unique=True,
        sqlite_where=deletion,
        postgresql_where=deletion,
    )
