"""The log of requests replaces the table of changes."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Drop the audit log. Each request is logged with its user, token, method and path."""
    op.drop_table("audit")
