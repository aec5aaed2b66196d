"""Add the time at which a token's browser sessions were ended."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add a nullable column: existing sessions continue until they expire."""
    op.add_column("tokens", sa.Column("signed_out_at_s", sa.Float(precision=53), nullable=True))
