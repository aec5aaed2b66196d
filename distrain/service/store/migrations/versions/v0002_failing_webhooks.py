"""Why a webhook fails, since when, and whether it was given up."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table anew: before this version no call made a webhook."""
    op.drop_table("webhooks")
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("kinds", sa.JSON(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_at_s", sa.Float(precision=53), nullable=True),
        sa.Column("created_at_s", sa.Float(precision=53), nullable=False),
        sa.Column("failing_since_s", sa.Float(precision=53), nullable=True),
        sa.Column("disabled_at_s", sa.Float(precision=53), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
