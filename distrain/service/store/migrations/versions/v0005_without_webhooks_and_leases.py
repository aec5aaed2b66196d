"""Webhooks and leases are gone: events are read, and locks end with their connections."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.drop_table("webhooks")
    op.drop_table("leases")
    op.drop_column("jobs", "generation")
