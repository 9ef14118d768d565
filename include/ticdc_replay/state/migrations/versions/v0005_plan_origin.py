"""Which reconciliation a deletion plan is of, and under which policy it was made."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns. A plan of before has no policy, so a person must approve it."""
    op.add_column("deletion_plan", sa.Column("reconciliation_id", sa.Text))
    op.add_column("deletion_plan", sa.Column("policy", sa.Text))
    op.create_index("uq_deletion_plan_reconciliation", "deletion_plan", ["store", "reconciliation_id"], unique=True)
