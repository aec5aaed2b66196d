"""When a job was last resumed, since deadlines and the waiting time count from there."""

import time

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; resumed jobs that have not ended count from the upgrade."""
    op.add_column("jobs", sa.Column("queued_at_s", sa.Float(precision=53), nullable=True))
    resumed = "UPDATE jobs SET queued_at_s = :now_s WHERE resumes > 0 AND finished_at_s IS NULL"
    op.execute(sa.text(resumed).bindparams(now_s=time.time()))
