"""Where the content of a target lies, beside what it is called.

Which place that is of what earlier versions recorded stands in the pipeline file alone: it stays empty until a pipeline is opened
(``CoverageOfTargets.settle_places``).
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_KEYS = {
    "coverage": ("pipeline", "target", "place", "run_hash"),
    "covered_table": ("pipeline", "target", "place", "run_hash", "schema", "table"),
    "begun_load": ("pipeline", "target", "place", "run_hash", "generation"),
    "redrive": ("pipeline", "run_hash", "redrive_hash", "target", "place"),
}


def upgrade() -> None:
    """Add the column, and make it part of the keys."""
    for table, key in _KEYS.items():
        with op.batch_alter_table(table) as batch:
            batch.add_column(sa.Column("place", sa.Text, nullable=False, server_default=""))
            batch.drop_constraint(f"pk_{table}", type_="primary")
            batch.create_primary_key(f"pk_{table}", list(key))
