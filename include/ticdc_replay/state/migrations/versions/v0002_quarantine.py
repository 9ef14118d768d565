"""What became of quarantined messages: re-drives, and losses that people accepted."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "redrive",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("run_hash", sa.Text, nullable=False),
        sa.Column("redrive_hash", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("recorded_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "run_hash", "redrive_hash", "target", name="pk_redrive"),
    )
    op.create_table(
        "accepted_loss",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("topic_id", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("offset", sa.BigInteger, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("run_hash", sa.Text, nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("accepted_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "pipeline", "topic_id", "partition", "offset", "ordinal", "reason", name="pk_accepted_loss"
        ),
    )
