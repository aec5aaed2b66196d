"""The table of the chart's values that need a decision, from the comments of values.yaml.

A value's comment begins with `# --`; mappings whose keys have comments of their own need none.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml
from markdown_pieces import code, table

VALUES = Path(__file__).resolve().parents[2] / "helm" / "distrain" / "values.yaml"
SHOWN = (
    *("mode", "clusters", "image.repository", "image.pullSecrets"),
    *("tls.enabled", "tls.source", "tls.existing.*", "tls.certManager.issuerRef.name"),
    *("tls.apiNames", "network.interface", "networkPolicy.enabled", "networkPolicy.*From"),
    *("networkPolicy.egress.enabled", "networkPolicy.egress.training"),
    *("networkPolicy.egress.service", "runs.url", "runs.existingClaim", "runs.size"),
    *("runs.storageClass", "runs.accessModes", "data.existingClaim"),
    *("cluster.allowedRoots", "cluster.modelPackages", "service.database.existingSecret"),
    *("service.replicas", "service.publicUrl", "service.admins", "service.projects"),
    *("service.persistence.size", "service.persistence.storageClass", "scheduler.tokenSecret"),
    *("workers.replicas", "workers.autoscale.*", "workers.image.repository", "workers.gpu.*"),
    *("workers.resources", "workers.shmSize", "workers.scratch.*", "workers.envFromSecrets"),
    *("workers.terminationGracePeriodSeconds", "apiService.type", "ingress.enabled"),
    *("ingress.hosts", "ingress.tlsSecret", "monitoring.serviceTokenSecret"),
)
"""Patterns of the values in the table; only values.yaml has the others."""
_KEY = re.compile(r"( *)([A-Za-z][A-Za-z0-9]*):( |$)")


def sections() -> str:
    """A table of the values that `SHOWN` names.

    Raises:
        LookupError: A value has no comment, or a pattern names no value.
    """
    about, values = comments(VALUES.read_text()), yaml.safe_load(VALUES.read_text())
    found = dict(leaves(values, about))
    if missing := found.keys() - about.keys():
        raise LookupError(f"{VALUES.name} has no comment for {', '.join(sorted(missing))}")
    shown = {pattern: [path for path in found if fnmatch(path, pattern)] for pattern in SHOWN}
    if unknown := [pattern for pattern, paths in shown.items() if not paths]:
        raise LookupError(f"{VALUES.name} has no value {', '.join(unknown)}")
    rows = [
        (code(path), code(_shown(found[path])), about[path])
        for paths in shown.values()
        for path in paths
    ]
    return table(["value", "default", "meaning"], rows)


def comments(text: str) -> dict[str, str]:
    """The comment above each key, by its path such as `workers.gpu.perPod`."""
    found, path, words = dict[str, str](), list[str](), list[str]()
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            words = [stripped.removeprefix("# -- ")]
        elif stripped.startswith("#"):
            words += [stripped.removeprefix("#").strip()] if words else []
        elif match := _KEY.match(line):
            path = [*path[: len(match[1]) // 2], match[2]]
            if words:
                found[".".join(path)] = " ".join(words)
            words = []
        else:
            words = []
    return found


def leaves(
    values: dict[str, Any], about: dict[str, str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Values with their paths; a mapping with a comment is one value."""
    for name, value in values.items():
        path = prefix + name
        if isinstance(value, dict) and value and path not in about:
            yield from leaves(value, about, f"{path}.")
        else:
            yield path, value


def _shown(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...").strip()
