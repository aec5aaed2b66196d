"""The changes of the tables after version 0.2.0."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Change the tables; new columns of existing rows are null.

    - Attempts get the numbers of ranks and GPUs.
    - Webhooks are dropped (clients read events instead), and leases (replaced by `store.locks`).
    - Repeated requests are recognised by a hash, without idempotency keys.
    - The users' table and `projects.declared` are dropped: the settings name admins and projects.
    - Browsers' sessions become rows. Earlier sessions end: their users log in again.
    """
    for name in ("ranks", "gpus"):
        op.add_column("attempts", sa.Column(name, sa.Integer(), nullable=True))
    for table in ("webhooks", "leases", "idempotency", "users"):
        op.drop_table(table)
    op.drop_column("jobs", "generation")
    op.drop_column("projects", "declared")
    op.add_column("specs", sa.Column("request_sha256", sa.String(length=64), nullable=True))
    op.create_table(
        "sessions",
        sa.Column("sha256", sa.LargeBinary(length=32), primary_key=True),
        sa.Column("token_id", sa.String(length=16), nullable=False, index=True),
        sa.Column("expires_at_s", sa.Float(precision=53), nullable=False),
    )
    op.execute("DELETE FROM facts WHERE name = 'key_fingerprint'")
