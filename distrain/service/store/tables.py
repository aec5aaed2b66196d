"""The tables of the database, for SQLite and PostgreSQL."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.types import JSON

metadata = MetaData()


def _alive(name: str, *columns: str) -> Index:
    """Return an index over the jobs that have not ended, which are few.

    `columns` are its columns.
    """
    where = text("finished_at_s IS NULL")
    return Index(name, *columns, sqlite_where=where, postgresql_where=where)


_Seq = BigInteger().with_variant(Integer, "sqlite")  # SQLite only autoincrements INTEGER keys

projects = Table(
    "projects",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("quota", JSON, nullable=False),
    Column("created_at_s", Float(53), nullable=False),
)

members = Table(
    "members",
    metadata,
    Column("project", String(64), nullable=False),
    Column("user", String(128), nullable=False),
    Column("role", String(16), nullable=False),
    PrimaryKeyConstraint("project", "user"),
    Index("members_by_user", "user"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("sha256", LargeBinary(32), nullable=False, unique=True),
    Column("user", String(128), nullable=False, index=True),
    Column("label", String(128), nullable=False, server_default=""),
    Column("scopes", JSON, nullable=False),
    Column("created_at_s", Float(53), nullable=False),
    Column("expires_at_s", Float(53), nullable=False),
    Column("revoked_at_s", Float(53)),
    Column("used_at_s", Float(53)),
)

# Browsers' sessions, each of a token.
sessions = Table(
    "sessions",
    metadata,
    Column("sha256", LargeBinary(32), primary_key=True),
    Column("token_id", String(16), nullable=False, index=True),
    Column("expires_at_s", Float(53), nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("seq", _Seq, primary_key=True, autoincrement=True),
    Column("id", String(160), nullable=False, unique=True),
    Column("project", String(64), nullable=False),
    Column("owner", String(128), nullable=False),
    Column("name", String(128), nullable=False),
    Column("cluster", String(64), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("num_ranks", Integer, nullable=False),
    Column("run_dir", Text, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("parent", String(160)),
    Column("rev", BigInteger, nullable=False, server_default="1"),
    Column("intent", String(16), nullable=False),
    Column("resumes", Integer, nullable=False, server_default="0"),
    Column("cancel_why", Text, nullable=False, server_default=""),
    Column("cancel_grace_s", Float(53)),
    Column("phase", String(16), nullable=False),
    Column("first_attempt", Integer, nullable=False, server_default="1"),
    Column("epoch", String(64)),
    Column("scheduler_losses", Integer, nullable=False, server_default="0"),
    Column("state", String(32), nullable=False),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("reason", String(64)),
    Column("message", Text),
    Column("why_pending", Text, nullable=False, server_default=""),
    Column("progress", JSON, nullable=False),
    Column("observed_at_s", Float(53)),
    Column("created_at_s", Float(53), nullable=False),
    Column("started_at_s", Float(53)),
    Column("finished_at_s", Float(53)),
    Column("queued_at_s", Float(53)),
    Index("jobs_by_project", "project", "seq"),
    Index("jobs_by_owner", "project", "owner", "seq"),
    Index("jobs_by_owner_alone", "owner", "seq"),
    Index("jobs_by_cluster", "cluster", "seq"),
    Index("jobs_by_state", "state", "seq"),
    Index("jobs_by_age", "created_at_s", "seq"),
    Index("jobs_by_end", "finished_at_s"),
    _alive("jobs_alive", "cluster", "seq"),
    _alive("jobs_alive_by_seq", "seq"),
    _alive("jobs_alive_by_project", "project", "owner", "state", "num_ranks"),  # quotas
    sqlite_autoincrement=True,
)

# The spec of a job's current submission; `resume {set}` replaces it.
specs = Table(
    "specs",
    metadata,
    Column("job_id", String(160), primary_key=True),
    Column("document", JSON, nullable=False),
    # Hash of the request that created the job; null for jobs of version 0.2.0.
    Column("request_sha256", String(64)),
)

job_tags = Table(
    "job_tags",
    metadata,
    Column("key", String(64), nullable=False),
    Column("value", String(256), nullable=False),
    Column("seq", BigInteger, nullable=False),
    PrimaryKeyConstraint("key", "value", "seq"),
    Index("job_tags_by_job", "seq"),
)

# Observed attempts, with the reasons why they ended.
attempts = Table(
    "attempts",
    metadata,
    Column("job_id", String(160), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("epoch", String(64), nullable=False),
    Column("started_at_s", Float(53), nullable=False),
    Column("ended_at_s", Float(53)),
    Column("reason", String(64)),
    Column("message", Text),
    Column("step", BigInteger),
    Column("ranks", Integer),
    Column("gpus", Integer),
    PrimaryKeyConstraint("job_id", "attempt"),
)

# Written in the transaction of the change itself; the publisher numbers and moves the rows.
outbox = Table(
    "outbox",
    metadata,
    Column("id", _Seq, primary_key=True, autoincrement=True),
    Column("job_id", String(160), nullable=False),
    Column("project", String(64), nullable=False),
    Column("owner", String(128), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("body", JSON, nullable=False),
    Column("at_s", Float(53), nullable=False),
    sqlite_autoincrement=True,
)

events = Table(
    "events",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("job_id", String(160), nullable=False),
    Column("project", String(64), nullable=False),
    Column("owner", String(128), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("body", JSON, nullable=False),
    Column("at_s", Float(53), nullable=False),
    Index("events_by_job", "job_id", "seq"),
)

# The reconcilers' last report of each cluster, for the API.
clusters = Table(
    "clusters",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("state", JSON, nullable=False),
    Column("observed_at_s", Float(53)),
)

# `service_id`: identifies this service at schedulers used by several services. `backup_s`: the time
# of the last backup.
facts = Table(
    "facts",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)
