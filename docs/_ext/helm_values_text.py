"""The table of the chart's values, from the comments of values.yaml.

A value's comment begins with `# --`; those of mappings whose keys have comments of their own are
left out. Values that service, scheduler and workers have alike are listed once.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from markdown_pieces import code, table

VALUES = Path(__file__).resolve().parents[2] / "helm" / "distrain" / "values.yaml"
_PODS = ("service", "scheduler", "workers")
_KEY = re.compile(r"( *)([A-Za-z][A-Za-z0-9]*):( |$)")


def sections() -> str:
    """A table for each of the first keys that has keys of its own, and one of the others.

    Raises:
        LookupError: A value has no comment.
    """
    about, values = comments(VALUES.read_text()), yaml.safe_load(VALUES.read_text())
    found = dict(leaves(values, about))
    if missing := found.keys() - about.keys():
        raise LookupError(f"{VALUES.name} has no comment for {', '.join(sorted(missing))}")
    shared = {
        name
        for group, _, name in map(_split, found)
        if group == _PODS[0]
        and all(found.get(f"{pod}.{name}", ...) == found[f"{group}.{name}"] for pod in _PODS)
    }
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for path, value in found.items():
        group, dot, name = _split(path)
        row = (code(path), code(_shown(value)), about[path])
        if name in shared and group in _PODS:
            group, row = "service, scheduler and workers", (code(name), *row[1:])
            if path.startswith(f"{_PODS[0]}."):
                groups.setdefault(group, []).append(row)
        else:
            groups.setdefault(group if dot else "Mode, names, more clusters", []).append(row)
    parts = []
    for group, rows in groups.items():
        parts += [f"### {group}", table(["value", "default", "meaning"], rows)]
    return "\n\n".join(parts)


def _split(path: str) -> tuple[str, str, str]:
    """The first key, a dot if there are others, and the others."""
    return path.partition(".")


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
