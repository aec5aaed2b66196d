"""Repeated requests are recognised by their job's id and a hash, without idempotency keys."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Drop the table of keys, and add the hash, which is null for earlier jobs."""
    op.drop_table("idempotency")
    op.add_column("specs", sa.Column("request_sha256", sa.String(length=64), nullable=True))
