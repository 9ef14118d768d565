"""Which topic offsets are of: its cluster and its name beside its id, which brokers without KIP-516 do not give.

What earlier versions recorded keeps both empty, so nobody takes it for searched or read.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_KEYS = {
    "schema_scan": ("partition", "start_offset"),
    "scanned_range": ("partition", "start_offset", "end_offset"),
    "sparse_index": ("partition", "start_offset", "end_offset"),
    "accepted_loss": ("partition", "offset", "ordinal", "reason"),
}


def upgrade() -> None:
    """Add the columns, and make them part of the keys."""
    for table, key in _KEYS.items():
        with op.batch_alter_table(table) as batch:
            batch.add_column(sa.Column("cluster_id", sa.Text, nullable=False, server_default=""))
            if table == "scanned_range":
                batch.alter_column("topic", existing_type=sa.Text, existing_nullable=False, server_default="")
            else:
                batch.add_column(sa.Column("topic", sa.Text, nullable=False, server_default=""))
            batch.drop_constraint(f"pk_{table}", type_="primary")
            batch.create_primary_key(f"pk_{table}", ["pipeline", "cluster_id", "topic", "topic_id", *key])
