"""Add the numbers of ranks and GPUs to attempts."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add columns that are null for attempts that ended before this version."""
    for name in ("ranks", "gpus"):
        op.add_column("attempts", sa.Column(name, sa.Integer(), nullable=True))
