"""A lease for the decode of what several windows share: one holder at a time, like a deletion's."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Widen the index that lets one holder in."""
    alone = sa.text("kind <> 'replay'")
    op.drop_index("uq_lease_deletion", "lease")
    op.create_index("uq_lease_alone", "lease", ["resource"], unique=True, sqlite_where=alone, postgresql_where=alone)
