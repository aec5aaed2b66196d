"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "attempts",
        sa.Column("job_id", sa.String(length=160), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.String(length=64), nullable=False),
        sa.Column("started_at_s", sa.Float(precision=53), nullable=False),
        sa.Column("ended_at_s", sa.Float(precision=53), nullable=True),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", "attempt"),
    )
    op.create_table(
        "audit",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at_s", sa.Float(precision=53), nullable=False),
        sa.Column("user", sa.String(length=128), nullable=False),
        sa.Column("token_id", sa.String(length=16), nullable=True),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.String(length=256), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_audit_at_s"), "audit", ["at_s"], unique=False)
    op.create_table(
        "clusters",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("observed_at_s", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.String(length=160), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("at_s", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_index("events_by_job", "events", ["job_id", "seq"], unique=False)
    op.create_table(
        "facts",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "idempotency",
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("body_sha256", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=160), nullable=False),
        sa.Column("created_at_s", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("owner", "key"),
    )
    op.create_index("idempotency_by_age", "idempotency", ["created_at_s"], unique=False)
    op.create_table(
        "job_tags",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.String(length=256), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", "value", "seq"),
    )
    op.create_index("job_tags_by_job", "job_tags", ["seq"], unique=False)
    op.create_table(
        "jobs",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=160), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("cluster", sa.String(length=64), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("num_ranks", sa.Integer(), nullable=False),
        sa.Column("run_dir", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("parent", sa.String(length=160), nullable=True),
        sa.Column("rev", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("intent", sa.String(length=16), nullable=False),
        sa.Column("resumes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("cancel_why", sa.Text(), server_default="", nullable=False),
        sa.Column("cancel_grace_s", sa.Float(precision=53), nullable=True),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("first_attempt", sa.Integer(), server_default="1", nullable=False),
        sa.Column("epoch", sa.String(length=64), nullable=True),
        sa.Column("scheduler_losses", sa.Integer(), server_default="0", nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("why_pending", sa.Text(), server_default="", nullable=False),
        sa.Column("progress", sa.JSON(), nullable=False),
        sa.Column("observed_at_s", sa.Float(precision=53), nullable=True),
        sa.Column("created_at_s", sa.Float(precision=53), nullable=False),
        sa.Column("started_at_s", sa.Float(precision=53), nullable=True),
        sa.Column("finished_at_s", sa.Float(precision=53), nullable=True),
        sa.Column("generation", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "jobs_alive",
        "jobs",
        ["cluster", "seq"],
        unique=False,
        sqlite_where=sa.text("finished_at_s IS NULL"),
        postgresql_where=sa.text("finished_at_s IS NULL"),
    )
    op.create_index(
        "jobs_alive_by_project",
        "jobs",
        ["project", "owner", "state", "num_ranks"],
        unique=False,
        sqlite_where=sa.text("finished_at_s IS NULL"),
        postgresql_where=sa.text("finished_at_s IS NULL"),
    )
    op.create_index(
        "jobs_alive_by_seq",
        "jobs",
        ["seq"],
        unique=False,
        sqlite_where=sa.text("finished_at_s IS NULL"),
        postgresql_where=sa.text("finished_at_s IS NULL"),
    )
    op.create_index("jobs_by_age", "jobs", ["created_at_s", "seq"], unique=False)
    op.create_index("jobs_by_cluster", "jobs", ["cluster", "seq"], unique=False)
    op.create_index("jobs_by_end", "jobs", ["finished_at_s"], unique=False)
    op.create_index("jobs_by_owner", "jobs", ["project", "owner", "seq"], unique=False)
    op.create_index("jobs_by_owner_alone", "jobs", ["owner", "seq"], unique=False)
    op.create_index("jobs_by_project", "jobs", ["project", "seq"], unique=False)
    op.create_index("jobs_by_state", "jobs", ["state", "seq"], unique=False)
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=96), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_s", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "members",
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=128), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("project", "user"),
    )
    op.create_index("members_by_user", "members", ["user"], unique=False)
    op.create_table(
        "outbox",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("job_id", sa.String(length=160), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("at_s", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "projects",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("quota", sa.JSON(), nullable=False),
        sa.Column("declared", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at_s", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "specs",
        sa.Column("job_id", sa.String(length=160), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("sha256", sa.LargeBinary(length=32), nullable=False),
        sa.Column("user", sa.String(length=128), nullable=False),
        sa.Column("label", sa.String(length=128), server_default="", nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at_s", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at_s", sa.Float(precision=53), nullable=False),
        sa.Column("revoked_at_s", sa.Float(precision=53), nullable=True),
        sa.Column("used_at_s", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("sha256"),
    )
    op.create_index(op.f("ix_tokens_user"), "tokens", ["user"], unique=False)
    op.create_table(
        "users",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("is_admin", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at_s", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
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
        sa.PrimaryKeyConstraint("id"),
    )
