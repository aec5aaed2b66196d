"""What an operator decides: `serve.yaml`, `DISTRAIN_SERVE_*` variables, and their defaults."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(_Section):
    """What one user or one request may take."""

    body_bytes: int = 256 * 2**10
    spec_bytes: int = 64 * 2**10
    spec_depth: int = 32
    tags: int = 32
    submits_per_s: float = 10.0
    reads_per_s: float = 50.0
    streams_per_token: int = 20
    log_read_bytes: int = 2**20
    page_jobs: int = 200


class Retention(_Section):
    """How long rows and files are kept, in days; 0 keeps them for ever."""

    jobs_days: float = 180
    events_days: float = 7
    audit_days: float = 400
    keys_days: float = 7
    run_dirs_days: float = 90


class TlsFiles(_Section):
    """Certificates, as PEM files."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


class ClusterProfile(_Section):
    """A cluster, whoever starts it.

    `address`: it runs already. `local`: the service starts it on this machine. `slurm`: the service
    starts it as a Slurm job when it is needed.
    """

    kind: Literal["address", "local", "slurm"] = "address"
    url: str | None = Field(
        None, description="The scheduler's HTTP address, as of its dashboard; for `address`."
    )
    tls: TlsFiles = TlsFiles()
    token_file: Path | None = Field(
        None, description="A file with the scheduler's token (DISTRAIN_DASHBOARD_TOKEN there)."
    )
    run_root: Path | None = Field(
        None,
        description="Run directories go to RUN_ROOT/PROJECT/JOB; workers and service must see it.",
    )
    allowed_roots: tuple[str, ...] = Field(
        (), description="Paths and URL prefixes that specs may name; empty: any absolute one."
    )
    model_packages: tuple[str, ...] = Field(
        (), description="Packages whose functions a spec's `custom` model may name."
    )
    projects: tuple[Name, ...] = Field((), description="Who may use it; empty: every project.")
    max_priority: int = 1000
    num_workers: int | None = Field(None, description="Workers of a cluster that is started.")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    idle_stop_s: float | None = Field(None, description="How long it may be idle; null: for ever.")
    environment: dict[str, str] = {}
    slurm: dict[str, str] = Field({}, description="Options of sbatch, such as partition, time.")


class ProjectSettings(_Section):
    """A project that the configuration declares; the API does not change it."""

    max_ranks: int | None = None
    max_queued: int | None = None
    max_queued_per_user: int | None = 100
    max_priority: int = 0
    members: dict[str, Literal["viewer", "submitter", "operator"]] = {}


class SignOn(_Section):
    """Users whom a proxy names in a header; taken over a Unix socket or mutual TLS alone."""

    user_header: str = "X-Forwarded-User"
    proxy_names: tuple[str, ...] = Field(
        (), description="Common names of the proxy's client certificate, with mutual TLS."
    )


class Listen(_Section):
    """Where the API listens: a Unix socket, or a host and a port."""

    host: str = "127.0.0.1"
    port: int = 8686
    unix_socket: Path | None = None
    tls: TlsFiles = TlsFiles()
    public_url: str | None = Field(None, description="Its address for people, behind a proxy.")


class Settings(BaseSettings):
    """All of it."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix="DISTRAIN_SERVE_", env_nested_delimiter="__"
    )

    data_dir: Path = Field(
        default_factory=lambda: Path.home() / ".local" / "share" / "distrain" / "serve",
        description="SQLite's file, started clusters' state, run directories by default.",
    )
    database_url: str | None = Field(
        None, description="`postgresql://...`; null: SQLite in the data folder."
    )
    listen: Listen = Listen()
    sign_on: SignOn | None = None
    clusters: dict[Name, ClusterProfile] = {"local": ClusterProfile(kind="local")}
    projects: dict[Name, ProjectSettings] = {}
    admins: tuple[str, ...] = ("operator",)
    limits: Limits = Limits()
    retention: Retention = Retention()
    api_processes: int = 1
    secrets_file: Path | None = Field(
        None,
        description="The service's own key, for cookies and webhooks; made in the data folder.",
    )

    def run_root(self, cluster: str) -> Path:
        """Where the runs of a cluster go."""
        return self.clusters[cluster].run_root or self.data_dir / "runs"
