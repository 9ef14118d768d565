"""The generation of each run: which of a window's runs is newer."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table. Runs from before get a generation when they are loaded again: the time at which they started."""
    op.create_table(
        "generation",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("from_ts", sa.BigInteger, nullable=False),
        sa.Column("to_ts", sa.BigInteger, nullable=False),
        sa.Column("run_hash", sa.Text, nullable=False),
        sa.Column("rows_hash", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "from_ts", "to_ts", "run_hash", name="pk_generation"),
    )
