"""A cluster in the service's settings: its source, and the limits of its jobs."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from distrain.errors import DistrainError
from distrain.storage import check_url, has_conditional_writes

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("::")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Section(BaseModel):
    """A part of the settings that takes the keys it names, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TlsFiles(Section):
    """Certificates, as PEM files."""

    ca_file: Path | None = Field(None, description="Of the authority that signed the peers.")
    cert_file: Path | None = Field(None, description="The own certificate.")
    key_file: Path | None = Field(None, description="Its key.")

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: give both, or none")
        return self


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


class Kubernetes(Section):
    """Workers in Kubernetes whose number the service sets, by the `scale` of their workload.

    Without `api_url` the service asks the Kubernetes API of the cluster that its own pod is in, as
    the pod's service account.
    """

    workload: str = Field(
        description="`statefulset/NAME`, `deployment/NAME`, `daskcluster/NAME`, "
        "`daskworkergroup/NAME`, or as kubectl names what can be scaled: "
        "`RESOURCE.VERSION.GROUP/NAME`."
    )
    max_workers: int = Field(ge=1, description="It never has more.")
    min_workers: int = Field(0, ge=0, description="It keeps so many when nobody needs any.")
    namespace: str | None = Field(
        None,
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        description="Of the workload; null: the pod's own.",
    )
    api_url: str | None = Field(
        None, description="Of the Kubernetes API; null: as the pod's environment says."
    )
    token_file: Path | None = Field(
        None,
        description="The API's bearer token, read again as it changes; null, and no api_url: the "
        "service account's.",
    )
    ca_file: Path | None = Field(
        None, description="Who signed the API's certificate; null, and no api_url: the cluster's."
    )

    @property
    def resource(self) -> tuple[str, str, str, str]:
        """Group, version, plural and name of the workload.

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
            raise ValueError("the api_url is https://HOST:PORT")
        if parts.username or parts.password:
            raise ValueError("no credentials in the api_url: name a token_file")
        if self.namespace is None:
            raise ValueError("with an api_url there is no own namespace: name it")
        if is_loopback(parts.hostname):
            return  # perhaps of `kubectl proxy`
        if parts.scheme != "https" or self.token_file is None:
            raise ValueError("an api_url beyond this machine is https://, with a token_file")


class ClusterProfile(Section):
    """A cluster, whoever starts it.

    `address`: it runs already. `local`: the service starts it on this machine. `slurm`: the service
    starts it as a Slurm job when it is needed. `kubernetes`: its scheduler runs already, and the
    service sets the number of its workers.
    """

    kind: Literal["address", "local", "slurm", "kubernetes"] = Field(
        "address", description="Where it comes from, as above."
    )
    url: str | None = Field(
        None,
        description="The scheduler's HTTP address, as of its dashboard; for `address` and "
        "`kubernetes`.",
    )
    tls: TlsFiles = TlsFiles()
    token_file: Path | None = Field(
        None, description="A file with the scheduler's token (DISTRAIN_DASHBOARD_TOKEN there)."
    )
    run_root: Path | str | None = Field(
        None,
        description="Run directories go to RUN_ROOT/PROJECT/JOB: a folder that workers and service "
        "see under the same path, or s3://BUCKET/PATH.",
    )
    allowed_roots: tuple[str, ...] = Field(
        (), description="Paths and URL prefixes that specs may name; empty: any absolute one."
    )
    model_packages: tuple[str, ...] = Field(
        (), description="Packages whose functions a spec's `custom` model may name."
    )
    projects: tuple[Name, ...] = Field((), description="Who may use it; empty: every project.")
    max_priority: int = Field(1000, description="The highest priority of any job on it.")
    num_workers: int | None = Field(None, description="Workers of a cluster that is started.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Of a cluster that is started; auto: GPUs where there are any."
    )
    idle_stop_s: float | None = Field(None, description="How long it may be idle; null: for ever.")
    environment: dict[str, str] = Field(
        {}, description="Variables that a cluster that is started gets besides."
    )
    slurm: dict[str, str] = Field({}, description="Options of sbatch, such as partition, time.")
    kubernetes: Kubernetes | None = None

    def _check_run_root(self) -> None:
        root = str(self.run_root or "")
        if not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", root):
            return
        if not has_conditional_writes(root):
            raise ValueError(
                f"run_root {root}: of URLs, run directories can lie at s3:// alone: other stores "
                "are not known to have conditional writes"
            )
        try:
            check_url(root)
        except DistrainError as error:
            raise ValueError(f"run_root: {error.message}") from None
        if not root.removeprefix("s3://").strip("/"):
            raise ValueError(f"run_root {root} names no bucket: write s3://BUCKET/PATH")
        if self.kind == "slurm":
            raise ValueError(
                f"run_root {root}: with the kind `slurm` it must be on a shared filesystem, since "
                "the job's scheduler writes there where it is"
            )

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        has_url = self.kind in ("address", "kubernetes")
        if has_url and not self.url:
            raise ValueError(f"a cluster of the kind `{self.kind}` needs its url")
        if not has_url and self.url:
            raise ValueError(f"the service starts a cluster of the kind `{self.kind}`: no url")
        self._check_run_root()
        if self.url:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("the url is that of the dashboard: http://HOST:PORT or https://")
            if parts.username or parts.password:
                raise ValueError("no credentials in the url: name a token_file")
        if self.kind in ("slurm", "kubernetes") and not self.run_root:
            raise ValueError(
                f"a cluster of the kind `{self.kind}` needs a run_root on a shared filesystem"
            )
        if self.slurm and self.kind != "slurm":
            raise ValueError(f"options of sbatch, and the kind is `{self.kind}`")
        if (self.kubernetes is None) == (self.kind == "kubernetes"):
            raise ValueError(
                "the section `kubernetes` and the kind `kubernetes` belong together; the section "
                "names workload and max_workers"
            )
        if self.kind == "kubernetes":
            self._is_the_pods_business()
        return self

    def _is_the_pods_business(self) -> None:
        given = [
            name
            for name in ("num_workers", "device", "environment")
            if getattr(self, name) != type(self).model_fields[name].get_default()
        ]
        if given:
            raise ValueError(
                f"{', '.join(given)}: the workload's pods say that, and kubernetes.min_workers and "
                "max_workers how many there are"
            )
