"""A cluster in the service's settings: how it is reached or started, and its jobs' limits."""

import re
import ssl
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from distrain.errors import ClusterError, DistrainError
from distrain.jobs.addresses import is_loopback
from distrain.storage.objects import has_conditional_writes
from distrain.storage.urls import check_url, url_of

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class SettingsSection(BaseModel):
    """A section of the settings; unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class CertificateFiles(SettingsSection):
    """The service's certificate, as PEM files."""

    cert_file: Path | None = Field(None, description="The certificate.")
    key_file: Path | None = Field(None, description="The private key of `cert_file`.")

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: give both, or none")
        return self


class TlsFiles(CertificateFiles):
    """The service's certificate as a client, and the CA of the server's, as PEM files."""

    ca_file: Path | None = Field(
        None, description="The certificate of the CA that signed the server's certificate."
    )

    def context(self) -> ssl.SSLContext:
        """Return a client's TLS context; raises ClusterError for unusable files.

        Without `ca_file` the system's CAs are trusted; without `cert_file` the client has
        no certificate.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            files = {name: path for name, path in self.model_dump().items() if path is not None}
            raise ClusterError(
                f"the TLS files cannot be used: {error}",
                where=files,
                hint="They are PEM files: a CA's certificate; a certificate and its key.",
            ) from None
        return context


_WORKLOAD = re.compile(
    r"(?P<resource>[a-z]+)(?:\.(?P<version>v[a-z0-9]+)\.(?P<group>[a-z0-9.-]+))?"
    r"/(?P<name>[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)"
)
_WORKLOADS = {
    "statefulset": ("apps", "v1", "statefulsets"),
    "deployment": ("apps", "v1", "deployments"),
    "daskcluster": ("kubernetes.dask.org", "v1", "daskclusters"),
    "daskworkergroup": ("kubernetes.dask.org", "v1", "daskworkergroups"),
}


class Kubernetes(SettingsSection):
    """Workers in Kubernetes whose number the service sets, by the `scale` of their workload.

    Without `api_url` the service uses the Kubernetes API of the cluster that its own pod is in, as
    the pod's service account.
    """

    workload: str = Field(
        description="`statefulset/NAME`, `deployment/NAME`, `daskcluster/NAME`, "
        "`daskworkergroup/NAME`, or any scalable resource in kubectl's form: "
        "`RESOURCE.VERSION.GROUP/NAME`."
    )
    max_workers: int = Field(ge=1, description="The maximum number of workers.")
    min_workers: int = Field(
        0, ge=0, description="The number of workers that stay when no job needs any."
    )
    namespace: str | None = Field(
        None,
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        description="The namespace of the workload; null: the namespace of the service's pod.",
    )
    api_url: str | None = Field(
        None,
        description="The URL of the Kubernetes API; null: from the environment of the "
        "service's pod.",
    )
    token_file: Path | None = Field(
        None,
        description="A file with the API's bearer token, read again when it changes. Null without "
        "`api_url`: the token of the service account.",
    )
    ca_file: Path | None = Field(
        None,
        description="The certificate of the CA that signed the API's certificate. Null "
        "without `api_url`: that of the cluster.",
    )

    @property
    def resource(self) -> tuple[str, str, str, str]:
        """The group, version, plural resource and name of the workload.

        >>> Kubernetes(workload="deployment/a", max_workers=1).resource
        ('apps', 'v1', 'deployments', 'a')
        """
        found = _WORKLOAD.fullmatch(self.workload)
        assert found  # as validated
        name = found["name"]
        if found["group"]:
            return found["group"], found["version"], found["resource"], name
        return *_WORKLOADS[found["resource"]], name

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        found = _WORKLOAD.fullmatch(self.workload)
        if not found or not (found["group"] or found["resource"] in _WORKLOADS):
            raise ValueError(
                f"the workload {self.workload!r} is none of {', '.join(_WORKLOADS)}/NAME, and not "
                "RESOURCE.VERSION.GROUP/NAME"
            )
        if self.min_workers > self.max_workers:
            raise ValueError("min_workers is larger than max_workers")
        if self.api_url is not None:
            self._check_api(self.api_url)
        return self

    def _check_api(self, api_url: str) -> None:
        parts = urlsplit(api_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the api_url must be https://HOST:PORT")
        if parts.username or parts.password:
            raise ValueError("no credentials in the api_url: name a token_file")
        if self.namespace is None:
            raise ValueError("an api_url needs a namespace: set it")
        if is_loopback(parts.hostname):
            return  # perhaps of `kubectl proxy`
        if parts.scheme != "https" or self.token_file is None:
            raise ValueError(
                "an api_url on another machine must begin with https://, and needs a token_file"
            )


ClusterKind = Literal["address", "local", "kubernetes"]
"""The kinds of clusters; `clusters/choosing.py` names their launchers."""


class ClusterProfile(SettingsSection):
    """A cluster, started by the service or elsewhere.

    `address`: it runs already. `local`: the service starts it on this machine. `kubernetes`: its
    scheduler runs already, and the service sets the number of its workers.
    """

    kind: ClusterKind = Field("address", description="How the service gets the cluster, as above.")
    url: str | None = Field(
        None,
        description="For `address` and `kubernetes`: the HTTP address of the scheduler, which is "
        "that of its dashboard.",
    )
    tls: TlsFiles = TlsFiles()
    token_file: Path | None = Field(
        None,
        description="A file with the scheduler's token, the value of its DISTRAIN_DASHBOARD_TOKEN.",
    )
    run_root: Path | str | None = Field(
        None,
        description="The folder or URL of run folders, RUN_ROOT/PROJECT/JOB: a folder that "
        "workers and service access by the same path, or s3://BUCKET/PATH. Null: `runs` in "
        "`data_dir`.",
    )
    allowed_roots: tuple[str, ...] = Field(
        (),
        description="Prefixes of paths and URLs that job specs may use; empty: any absolute "
        "path, and any URL of an object store or of HDFS.",
    )
    model_packages: tuple[str, ...] = Field(
        (),
        description="Packages whose functions and classes job specs may name, such as for "
        "`custom` models.",
    )
    projects: tuple[Name, ...] = Field(
        (), description="Projects that may use the cluster; empty: all projects."
    )
    max_priority: int = Field(1000, description="The highest priority of jobs on the cluster.")
    num_workers: int | None = Field(
        None,
        ge=1,
        description="For `local`: the number of workers; null: one per GPU, or 2 on CPUs.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description="For `local`: the device of the workers. `auto`: GPUs if there are any.",
    )
    idle_stop_s: float | None = Field(
        None,
        ge=0,
        description="The idle time in seconds after which the service stops the workers, in "
        "Kubernetes down to `min_workers`; null: never.",
    )
    environment: dict[str, str] = Field(
        {},
        description="For `local`: additional environment variables of the cluster's processes.",
    )
    kubernetes: Kubernetes | None = None

    def _check_run_root(self) -> None:
        root = str(self.run_root or "")
        if url_of(root) is None:
            if root and not Path(root).is_absolute():
                raise ValueError(f"run_root {root} must be an absolute path, or begin with s3://")
            return
        if not has_conditional_writes(root):
            raise ValueError(
                f"run_root {root}: of URLs, only s3:// can hold run folders: other stores are not "
                "known to have conditional writes"
            )
        try:
            check_url(root)
        except DistrainError as error:
            raise ValueError(f"run_root: {error.message}") from None
        if not root.removeprefix("s3://").strip("/"):
            raise ValueError(f"run_root {root} names no bucket: write s3://BUCKET/PATH")

    @property
    def is_started(self) -> bool:
        """Whether the service starts the cluster, on its own machine."""
        return self.kind == "local"

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if not self.is_started and not self.url:
            raise ValueError(f"a cluster of the kind `{self.kind}` needs its url")
        if self.is_started and self.url:
            raise ValueError(
                f"the service starts a cluster of the kind `{self.kind}`: leave url out"
            )
        self._check_run_root()
        if self.url:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(
                    "the url must be that of the dashboard: http://HOST:PORT or https://"
                )
            if parts.username or parts.password:
                raise ValueError("no credentials in the url: name a token_file")
        if self.kind == "kubernetes" and not self.run_root:
            raise ValueError(
                "a cluster of the kind `kubernetes` needs a run_root that its pods share"
            )
        if (self.kind == "kubernetes") != (self.kubernetes is not None):
            raise ValueError(
                "the section `kubernetes` (workload and max_workers) and the kind `kubernetes` "
                f"belong together; the kind is `{self.kind}`"
            )
        if self.kubernetes and (self.num_workers or self.device != "auto" or self.environment):
            raise ValueError(
                "num_workers, device and environment: the workload's pods set these, and "
                "kubernetes.min_workers and max_workers their number"
            )
        return self
