"""Drop webhooks (clients read events instead) and leases (replaced by `store.locks`)."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.drop_table("webhooks")
    op.drop_table("leases")
    op.drop_column("jobs", "generation")
