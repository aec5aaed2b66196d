"""Webhooks are gone: who made any reads the events of `/v1/events` instead."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.drop_table("webhooks")
