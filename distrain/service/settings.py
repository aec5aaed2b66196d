"""The operator's settings: `serve.yaml`, `DISTRAIN_SERVE_*` variables, and their defaults."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

from distrain.client.credentials import xdg_folder
from distrain.errors import InputError
from distrain.jobs.addresses import is_loopback
from distrain.jobs.spec.explain import unknown_key
from distrain.jobs.spec.paths import with_home
from distrain.service.profiles import (
    NAME_PATTERN as NAME_PATTERN,
    CertificateFiles,
    ClusterKind as ClusterKind,
    ClusterProfile as ClusterProfile,
    Name,
    SettingsSection,
    TlsFiles as TlsFiles,
)
from distrain.service.values import Quota
from distrain.storage.urls import is_remote


class Limits(SettingsSection):
    """The limits of one user, one token or one request."""

    body_bytes: int = Field(
        256 * 2**10, ge=1, description="The maximum size of a request's body, in bytes."
    )
    spec_bytes: int = Field(
        64 * 2**10, ge=1, description="The maximum size of a job spec as JSON, in bytes."
    )
    tags: int = Field(32, ge=0, description="The maximum number of tags of a job.")
    streams_per_token: int = Field(
        20, ge=1, description="The maximum number of open event streams of a token."
    )
    tokens: int = Field(
        100,
        ge=1,
        description="The maximum number of valid tokens of a user; admins may create more.",
    )


class Retention(SettingsSection):
    """Retention times of rows of the database, in days; 0 keeps them without limit."""

    jobs_days: float = Field(
        180, ge=0, description="Days for which jobs and tokens are kept after their end."
    )
    events_days: float = Field(
        7, ge=0, description="Days for which events are kept, so that streams can be resumed."
    )


class ProjectSettings(Quota):
    """A project: quota and members. Members of a project that is removed here lose their roles."""

    members: dict[str, Literal["viewer", "submitter", "operator"]] = Field(
        {}, description="Roles by user."
    )


class SignOn(SettingsSection):
    """Users identified by a proxy's header; accepted only over `listen.unix_socket`."""

    user_header: str = Field(
        "X-Forwarded-User", description="The header in which the proxy sends the user's name."
    )


WithoutSlash = Annotated[str, AfterValidator(lambda url: url.rstrip("/"))]
AbsolutePath = Annotated[Path, AfterValidator(lambda path: Path(with_home(str(path))).absolute())]


class Listen(SettingsSection):
    """The API's listening address: a Unix socket, or a host and a port."""

    host: str = Field("127.0.0.1", description="A name or address of this machine.")
    port: int = Field(8686, ge=0, le=65535, description="The port; 0: any free port.")
    unix_socket: Path | None = Field(
        None, description="The path of a Unix socket, used instead of host and port."
    )
    tls: CertificateFiles = CertificateFiles()
    public_url: WithoutSlash | None = Field(
        None, description="The URL that users open, if it differs because of a proxy."
    )
    insecure: bool = Field(
        False,
        description="Whether to accept connections from other machines without TLS, so that "
        "anyone on the network can read the traffic.",
    )

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        open_to_all = self.unix_socket is None and not is_loopback(self.host)
        if open_to_all and self.tls.cert_file is None and not self.insecure:
            raise ValueError(
                f"other machines can reach {self.host}, and there is no TLS: set tls.cert_file "
                "and tls.key_file, listen on 127.0.0.1 or a unix_socket behind a proxy, or set "
                "insecure: true on a network that you trust"
            )
        return self

    @property
    def url(self) -> str:
        if self.public_url:
            return self.public_url
        if self.unix_socket:
            return f"unix:{self.unix_socket}"
        scheme = "https" if self.tls.cert_file else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"

    def link_url(self, *, same_machine: bool) -> str | None:
        """Return the URL for links to the service's pages; `None` if it is not known.

        `same_machine` says whether the readers of the links are on the service's machine.
        """
        known = self.port and not self.unix_socket and self.host not in ("", "0.0.0.0", "::")
        if self.public_url or (known and (same_machine or not is_loopback(self.host))):
            return self.url
        return None


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix="DISTRAIN_SERVE_", env_nested_delimiter="__"
    )

    data_dir: AbsolutePath = Field(
        default_factory=lambda: xdg_folder("XDG_DATA_HOME", ".local/share") / "distrain" / "serve",
        description="The folder of the SQLite file, the state of started clusters and, by "
        "default, the run folders. Default: `~/.local/share/distrain/serve`, or below "
        "`XDG_DATA_HOME`.",
    )
    database_url: str | None = Field(
        None, description="`postgresql://...`; null: SQLite in `data_dir`."
    )
    listen: Listen = Listen()
    sign_on: SignOn | None = None
    clusters: dict[Name, ClusterProfile] = {"local": ClusterProfile(kind="local")}
    projects: dict[Name, ProjectSettings] = {}
    admins: tuple[str, ...] = Field(("operator",), description="Users who may do everything.")
    limits: Limits = Limits()
    retention: Retention = Retention()

    def run_root(self, cluster: str) -> Path:
        """Return the folder of a cluster's runs. Call it only if `run_place` is not a URL."""
        return Path(self.run_place(cluster))

    def run_place(self, cluster: str) -> str:
        """Return the path or URL of a cluster's runs."""
        root = self.clusters[cluster].run_root
        if isinstance(root, str) and is_remote(root):
            return root.rstrip("/")
        return str(Path(root) if root else self.data_dir / "runs")

    @model_validator(mode="after")
    def _signs_on_safely(self) -> Self:
        if self.sign_on and not self.listen.unix_socket:
            raise ValueError(
                "sign_on: anyone who reaches the port could claim to be any user: listen on a "
                "unix_socket"
            )
        return self


def load_settings(file: Path | None = None, **overrides: Any) -> Settings:
    """Return the settings; each value is from the first of several sources that has it.

    The sources are the overrides, `DISTRAIN_SERVE_*` variables, the file, and the defaults. Paths
    in the file are relative to its folder.

    Args:
        overrides: Nested like the file, such as `listen={"port": 0}`.

    Raises:
        InputError: The file cannot be read, or keys or values are wrong; the message lists all.
    """
    values = _values_of(file) if file else {}
    try:
        return Settings(**_merged(_merged(values, EnvSettingsSource(Settings)()), overrides))
    except (ValidationError, SettingsError) as error:
        raise _mistakes(error, file) from error


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(below[key], value)
        if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)
        else value
        for key, value in above.items()
    }
    return {**below, **both}


def _values_of(file: Path) -> dict[str, Any]:
    from distrain.jobs.spec.load import read_document

    where = {"file": str(file)}
    values = read_document(
        file, "configuration", "docs/operate.md lists its keys; `distrain serve` needs no file."
    )
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(
            "the configuration is not a mapping of sections",
            where=where,
            hint="docs/operate.md lists its keys.",
        )
    try:
        return {key: _placed(key, value, file.absolute().parent) for key, value in values.items()}
    except ValueError as error:
        raise InputError(str(error), where=where, hint="Correct the path.") from None


_PATHS = frozenset({"data_dir", "run_root", "unix_socket"})


def _placed(key: object, value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {name: _placed(name, inner, folder) for name, inner in value.items()}
    if isinstance(value, str) and "://" in value:
        return value
    if isinstance(value, str) and (key in _PATHS or str(key).endswith("_file")):
        return str(folder / with_home(value))
    return value


_NGINX = "nginx limits rates, see Request rates in docs/operate.md"
_SOCKET = "use listen.unix_socket, with a proxy on this machine"
_REMOVED = {
    "api_processes": "run `distrain serve api` several times, with PostgreSQL",
    "leases": "remove it",
    "webhooks": "read /v1/events, or send alerts through Alertmanager",
    "secrets_file": "sessions are in the database, so remove it",
    "limits.webhooks": "remove it",
    "limits.log_read_bytes": "remove it",
    "limits.page_jobs": "remove it",
    "limits.spec_depth": "a spec has at most 32 levels",
    "limits.reads_per_s": _NGINX,
    "limits.submits_per_s": _NGINX,
    "listen.tls.ca_file": _SOCKET,
    "sign_on.proxy_names": _SOCKET,
    "retention.audit_days": "the log of requests has the changes, so remove it",
    "retention.keys_days": "remove it",
    "retention.run_dirs_days": "see What retention deletes in docs/operate.md",
    "clusters.*.slurm": "see A cluster for the service in docs/install-slurm.md",
}
"""What replaces settings of version 0.2.0, by their keys."""


def _removed(mistake: Mapping[str, Any]) -> str:
    """Return the message for a setting of version 0.2.0; empty for other mistakes."""
    section, *names = map(str, mistake["loc"])
    key = ".".join([section, *(("*", *names[1:]) if section == "clusters" else names)])
    if (key, mistake["input"]) == ("clusters.*.kind", "slurm"):
        return f"the kind `slurm` was removed: {_REMOVED['clusters.*.slurm']}"
    if mistake["type"] == "extra_forbidden" and key in _REMOVED:
        return f"this key was removed: {_REMOVED[key]}"
    return ""


def _mistakes(error: ValidationError | SettingsError, file: Path | None) -> InputError:
    if isinstance(error, SettingsError):  # a variable that holds no JSON where it should
        return InputError(str(error), hint="Check the variables DISTRAIN_SERVE_*.")
    lines = []
    for mistake in error.errors(include_url=False):
        place = ".".join(map(str, mistake["loc"])) or "settings"
        text = mistake["msg"].removeprefix("Value error, ")
        if mistake["loc"] and (removed := _removed(mistake)):
            text = removed
        elif mistake["type"] == "extra_forbidden":
            text = unknown_key(mistake["loc"], Settings)
        lines.append(f"{place}: {text}")
    return InputError(
        "\n".join(lines),
        where={"file": str(file)} if file else None,
        hint="docs/operate.md lists the keys; `distrain serve check` checks a file.",
    )
