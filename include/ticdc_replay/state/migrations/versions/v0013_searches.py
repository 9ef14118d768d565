"""Which search for references a scan made.

What earlier versions scanned counts as searched no more: they did not look into messages of an earlier protocol of the changefeed
where the declared one has no claim checks.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the column."""
    with op.batch_alter_table("scanned_range") as batch:
        batch.add_column(sa.Column("search", sa.Integer, nullable=False, server_default="0"))
