"""The chart rendered with each of its ci files, once in a process."""

import ast
import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import helm_tools
import jsonschema_rs
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "distrain"
TOOLS = ROOT / ".venv" / "helm"
NAMES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").iterdir())
NAMESPACE = "clicks"
_SCHEMAS = TOOLS / helm_tools.SCHEMAS["kubernetes-validate==1.37.0"]
_CRDS = TOOLS / helm_tools.SCHEMAS["dask-kubernetes==2026.3.0"]
DASK_CUDA = TOOLS / helm_tools.SCHEMAS["dask-cuda==26.10.0"]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Object = dict[str, Any]


def helm(tool: helm_tools.Helm = helm_tools.NEW) -> str:
    """The program; skips the test where it is not."""
    program: str | None = str(TOOLS / tool.name)
    if not Path(str(program)).exists():
        program = shutil.which("helm") if tool is helm_tools.NEW else None
    if program is None:
        pytest.skip(f"needs {tool.name}: `make .venv/.helm .venv/.helm-old`, or helm on the PATH")
    return program


def run_helm(
    *words: str, tool: helm_tools.Helm = helm_tools.NEW
) -> "subprocess.CompletedProcess[str]":
    """Run helm in the chart's folder."""
    return subprocess.run(
        [helm(tool), *words], cwd=CHART, capture_output=True, text=True, check=False, timeout=120
    )


def template(
    *words: str, tool: helm_tools.Helm = helm_tools.NEW, chart: Path = CHART
) -> list[Object]:
    """The objects that `helm template` makes with more options."""
    done = run_helm("template", "r", str(chart), "--namespace", NAMESPACE, *words, tool=tool)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.load_all(done.stdout, _LOADER) if found]


@functools.cache
def _rendered(name: str) -> str:
    return json.dumps(template("--values", f"ci/{name}-values.yaml"))


def rendered(name: str) -> list[Object]:
    """The objects of a ci file; one's own copy."""
    objects: list[Object] = json.loads(_rendered(name))
    return objects


def find(objects: list[Object], kind: str, end: str = "") -> Object:
    """The one object of a kind whose name ends so."""
    [found] = [
        each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(end)
    ]
    return found


def pods(objects: list[Object]) -> dict[str, Object]:
    """All pod templates by component: `metadata` and `spec`."""
    found = {}
    for each in objects:
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            pod = each["spec"]["template"]
            found[pod["metadata"]["labels"]["app.kubernetes.io/component"]] = pod
        if each["kind"] == "DaskCluster":
            found |= {part: each["spec"][part] for part in ("scheduler", "worker")}
    return found


def containers(pod: Object) -> list[Object]:
    """Those of a pod, with the ones that come first."""
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def cuda_options() -> set[str]:
    """The options of `dask cuda worker`, out of its source: it wants a GPU's libraries."""
    if not DASK_CUDA.exists():
        pytest.skip("needs the options of dask-cuda: `make .venv/.helm`")
    tree = ast.parse(DASK_CUDA.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [word.value for call in calls if ast.unparse(call.func) == "click.option"
             for word in call.args if isinstance(word, ast.Constant)]  # fmt: skip
    return {part for name in names for part in str(name).split("/")}


@functools.cache
def checker(api_version: str, kind: str) -> "jsonschema_rs.Validator":
    """Checks objects of a kind strictly, as Kubernetes or the Dask operator defines it."""
    if "dask" in api_version:
        return jsonschema_rs.validator_for(_dask_schema(kind))
    group, _, version = api_version.rpartition("/")
    prefix = f"{group.split('.')[0]}-" if group else ""
    schema = json.loads((_schemas() / f"{kind.lower()}-{prefix}{version}.json").read_text())
    return jsonschema_rs.validator_for(schema, registry=_definitions())


def faults(found: Object) -> list[str]:
    """What an object's schema says against it."""
    return [
        f"{found['kind']} {'.'.join(map(str, fault.instance_path))}: {fault.message}"
        for fault in checker(found["apiVersion"], found["kind"]).iter_errors(found)
    ]


def _schemas() -> Path:
    if not _SCHEMAS.exists():
        pytest.skip("needs the schemas of Kubernetes: `make .venv/.helm`")
    return _SCHEMAS


@functools.cache
def _definitions() -> "jsonschema_rs.Registry":
    definitions = json.loads((_schemas() / "_definitions.json").read_text())
    return jsonschema_rs.Registry([("https://kubernetes.io/api/_definitions.json", definitions)])


def _dask_schema(kind: str) -> Object:
    path = _CRDS / f"{kind.lower()}.yaml"
    if not path.exists():
        pytest.skip("needs the schemas of the Dask operator: `make .venv/.helm`")
    [version] = yaml.load(path.read_text(), _LOADER)["spec"]["versions"]
    schema: Object = version["schema"]["openAPIV3Schema"]
    schema["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}
    _close(schema)
    return schema


def _close(schema: Any) -> None:
    """Refuse what the API server would drop; take texts where it takes numbers or texts."""
    if isinstance(schema, list):
        for each in schema:
            _close(each)
    if not isinstance(schema, dict):
        return
    if schema.pop("x-kubernetes-int-or-string", False):
        schema.pop("type", None)
        schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    for each in schema.values():
        _close(each)
