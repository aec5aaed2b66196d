"""Makes the local paths of a job spec absolute, for other processes and later runs."""

import os
from pathlib import Path
from typing import Any

from distrain.errors import SpecError
from distrain.jobs.spec.job import JobSpec
from distrain.storage.urls import is_remote

PATHS = (
    "data.train",
    "data.valid",
    "data.schema_path",
    "data.cache_dir",
    "checkpoint.dir",
    "train.init_from",
)
"""The fields that contain a path or URL, or a tuple of them."""

_NO_PATHS = {"data.schema_path": ("auto", "criteo")}


def with_absolute_paths(spec: JobSpec) -> JobSpec:
    """Return the job with absolute local paths; URLs are unchanged.

    Relative paths are resolved here, against this process's working directory, and `~` to its
    user's home, because workers and later commands may have others.

    Raises:
        SpecError: A path begins with `~NAME`, and there is no such user.
    """
    problems: list[str] = []
    for field in PATHS:
        section, _, name = field.partition(".")
        inner = getattr(spec, section)
        value = getattr(inner, name, None)
        if value is None or value in _NO_PATHS.get(field, ()):
            continue
        try:
            paths = tuple(map(absolute, value)) if isinstance(value, tuple) else absolute(value)
        except ValueError as error:
            problems.append(f"{field}: {error}")
            continue
        changed: dict[str, Any] = {section: inner.model_copy(update={name: paths})}
        spec = spec.model_copy(update=changed)
    if problems:
        raise SpecError("\n".join(problems), hint="Write ./~NAME for a file of that name.")
    return spec


def absolute(path: str) -> str:
    """Return a local path with `~` expanded, made absolute; URLs and blank texts are unchanged.

    >>> absolute("s3://bucket/run"), absolute("/data/./day_*")
    ('s3://bucket/run', '/data/day_*')

    Raises:
        ValueError: The path begins with `~NAME`, and there is no user of that name.
    """
    if is_remote(path) or not path.strip():
        return path
    return str(Path(with_home(path)).absolute())


def with_home(path: str) -> str:
    """Return a path with a leading `~` or `~NAME` expanded to a home folder, as a shell does.

    Raises:
        ValueError: There is no user of that name.
    """
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise ValueError(f"{path!r} begins with the home folder of an unknown user")
    return expanded
