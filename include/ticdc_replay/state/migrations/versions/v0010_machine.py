"""Which machines have used the database, where it is a file."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "machine",
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("boot", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("first_seen_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_machine"),
    )
