"""Which load of a window a target got last, and which loads have begun since."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_GENERATIONS = """
UPDATE coverage SET generation = COALESCE(
    (SELECT max(g.generation) FROM generation g WHERE g.pipeline = coverage.pipeline AND g.run_hash = coverage.run_hash),
    (SELECT r.started_at_ms FROM run r WHERE r.pipeline = coverage.pipeline AND r.run_hash = coverage.run_hash),
    0)
"""


def upgrade() -> None:
    """Add the columns and the table. What was loaded before gets its run's generation, as a load of it would now."""
    op.add_column("coverage", sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("coverage", sa.Column("attempt", sa.Text, nullable=False, server_default=""))
    op.execute(_GENERATIONS)
    op.create_table(
        "begun_load",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("run_hash", sa.Text, nullable=False),
        sa.Column("from_ts", sa.BigInteger, nullable=False),
        sa.Column("to_ts", sa.BigInteger, nullable=False),
        sa.Column("selection", sa.JSON, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "target", "run_hash", "generation", name="pk_begun_load"),
    )
