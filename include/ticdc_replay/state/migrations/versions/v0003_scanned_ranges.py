"""Which offsets were scanned for claim-check references."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "scanned_range",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("topic_id", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("start_offset", sa.BigInteger, nullable=False),
        sa.Column("end_offset", sa.BigInteger, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("file", sa.Text),
        sa.PrimaryKeyConstraint(
            "pipeline", "topic_id", "partition", "start_offset", "end_offset", name="pk_scanned_range"
        ),
    )
