"""Checks job specs against the limits of the service and a cluster, without opening any file.

Symbolic links cannot be checked here: a link under an allowed root may point anywhere. So operators
must prevent users from making links there, or give the workers' user no access elsewhere.
"""

import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, ValidationError

from distrain.jobs.requests import levels
from distrain.jobs.spec.explain import explained
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.paths import PATHS
from distrain.service.settings import ClusterProfile, Limits, Settings
from distrain.storage.urls import is_remote, without_secrets

_SPEC_DEPTH = 32  # the most levels of nesting
_TAGS = "/tags"  # the JSON pointer of the tags
_TAG_KEY, _TAG_VALUE = 64, 256
_PATH_LENGTH = 4096  # Linux's limit; long globs also take more time
_WRITTEN = ("checkpoint.dir", "data.cache_dir")
_NO_PATHS = {"data.schema_path": ("auto", "criteo")}


@dataclass(frozen=True)
class Mistake:
    """A mistake in a request, as the API reports it."""

    # a JSON pointer into the body, such as `/spec/train/epochs`; for a query parameter or header,
    # its name after `#`
    pointer: str
    detail: str


@dataclass(frozen=True)
class Judged:
    """The result of `judge`: a checked spec, or the mistakes in it."""

    spec: JobSpec | None  # with all defaults; `None` if it has mistakes
    mistakes: tuple[Mistake, ...] = ()  # with pointers into the spec, without secrets


def pointer(*keys: object) -> str:
    """Return a JSON pointer (RFC 6901).

    >>> pointer("spec", "data", "train", 0), pointer("a/b")
    ('/spec/data/train/0', '/a~1b')
    """
    return "".join("/" + str(k).replace("~", "~0").replace("/", "~1") for k in keys)


def judge(
    settings: Settings,
    closed: Sequence[str],
    cluster: str,
    project: str,
    document: Mapping[str, Any],
) -> Judged:
    """Check a project's spec, as JSON values, against the limits and the cluster's profile.

    `closed` is `closed_places(settings)`: paths in them are not allowed. Only the run folders of
    the project's jobs on the cluster may still be read.
    """
    limits, profile = settings.limits, settings.clusters[cluster]
    mistakes = _size_mistakes(document, limits) or _credential_mistakes(document)
    if mistakes:  # first, since later messages repeat values
        return Judged(None, tuple(mistakes))
    try:
        spec = JobSpec.model_validate(document)
    except ValidationError as error:
        lines = explained(error.errors())
        return Judged(None, tuple(Mistake(pointer(*keys), line) for keys, line in lines))
    own = f"{settings.run_place(cluster).rstrip('/')}/{project}"
    mistakes = [
        *_path_mistakes(spec, profile, own, closed),
        *_other_mistakes(spec, profile),
    ]
    mistakes += tag_mistakes(spec.tags, limits)
    return Judged(None if mistakes else spec, tuple(mistakes))


def closed_places(settings: Settings) -> tuple[str, ...]:
    """Return the folders, files and URLs of the service itself, which no spec may use.

    These are the run roots of all clusters, the data folder, and all files that the settings or the
    environment name: tokens, keys, certificates, passwords, SQLite's database. For each, its real
    path is returned, too, and its paths through symbolic links among the clusters' `allowed_roots`.
    """
    found = [settings.run_place(cluster) for cluster in settings.clusters]
    found += [str(settings.data_dir), str(settings.data_dir / "clusters")]
    found += map(str, _files_of(settings))
    found += [os.environ[name] for name in _SECRETS_OF_ENVIRONMENT if os.environ.get(name)]
    found += _files_of_database(settings.database_url or "")
    places = [_place(one if is_remote(one) else os.path.abspath(one)) for one in found]
    roots = {root for one in settings.clusters.values() for root in one.allowed_roots}
    return tuple(dict.fromkeys(name for one in places if one for name in _names_of(one, roots)))


def _names_of(place: str, roots: Iterable[str]) -> Iterator[str]:
    """Yield the paths by which a file or folder can be reached.

    These are `place` itself, its real path, and its path below each of `roots`. A root that does
    not contain it, directly or through links, is skipped. A URL has only one name.
    """
    yield place
    if is_remote(place):
        return
    real = os.path.realpath(place)
    yield real
    for root in map(_place, roots):
        if root and not is_remote(root) and _holds(real_root := os.path.realpath(root), real):
            yield posixpath.join(root, real[len(real_root) :].lstrip("/"))


def _files_of_database(url: str) -> list[str]:
    """Return the files that a database URL names: SQLite's, or PostgreSQL's secrets."""
    parts = urlsplit(url)
    if parts.scheme.startswith("sqlite"):
        name = url.partition("///")[2].partition("?")[0]
        return [name + end for end in ("", "-wal", "-shm", "-journal")] if name else []
    return [value for name, value in parse_qsl(parts.query) if name in _FILES_OF_POSTGRESQL]


def _files_of(settings: Any) -> Iterator[Path]:
    if isinstance(settings, Path):
        yield settings
    elif isinstance(settings, BaseModel):
        for name in type(settings).model_fields:
            yield from _files_of(getattr(settings, name))
    elif isinstance(settings, Mapping):
        for value in settings.values():
            yield from _files_of(value)


def tag_mistakes(
    tags: Mapping[str, str],
    limits: Limits,
    old: Mapping[str, str] = MappingProxyType({}),
) -> list[Mistake]:
    """Return the mistakes in a job's tags, by the service's limits.

    The job may keep its `old` tags, and their number, if the limits no longer allow them.
    """
    found = []
    if len(tags) > max(limits.tags, len(old)):
        found.append(Mistake(_TAGS, f"{len(tags)} tags are more than {limits.tags}"))
    for key, value in tags.items():
        if old.get(key) == value:
            continue
        if not 0 < len(key) <= _TAG_KEY or "=" in key:
            detail = f"a tag's key has 1 to {_TAG_KEY} characters and no '='"
            found.append(Mistake(_TAGS, detail))
        elif len(value) > _TAG_VALUE:
            detail = f"a tag's value has at most {_TAG_VALUE} characters"
            found.append(Mistake(_TAGS + pointer(key), detail))
        elif has_credentials(value):
            found.append(Mistake(_TAGS + pointer(key), _CREDENTIALS))
    return found


_CREDENTIALS = (
    "has a URL with credentials, which would appear in logs and run folders; set credentials in "
    "the workers' environment"
)


def _size_mistakes(document: Mapping[str, Any], limits: Limits) -> list[Mistake]:
    if sum(1 for _ in islice(levels(document), _SPEC_DEPTH + 1)) > _SPEC_DEPTH:
        return [Mistake("", f"the spec is nested deeper than {_SPEC_DEPTH} levels")]
    size_bytes = len(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())
    if size_bytes > limits.spec_bytes:
        return [Mistake("", f"the spec has {size_bytes} bytes, more than {limits.spec_bytes}")]
    return []


def _credential_mistakes(value: Any, keys: tuple[object, ...] = ()) -> list[Mistake]:
    if isinstance(value, str):
        return [Mistake(pointer(*keys), _CREDENTIALS)] if has_credentials(value) else []
    if isinstance(value, Mapping):
        found = []
        for key, item in value.items():
            if has_credentials(str(key)):
                found.append(Mistake(pointer(*keys), "a key " + _CREDENTIALS))
            else:
                found += _credential_mistakes(item, (*keys, key))
        return found
    if isinstance(value, list):
        return [m for n, item in enumerate(value) for m in _credential_mistakes(item, (*keys, n))]
    return []


def _path_mistakes(
    spec: JobSpec, profile: ClusterProfile, own: str, closed: Sequence[str]
) -> list[Mistake]:
    allowed = profile.allowed_roots
    found = []
    for field in PATHS:
        section, _, name = field.partition(".")
        values = getattr(spec, section)
        value = getattr(values, name)
        if value is None or value in _NO_PATHS.get(field, ()):
            continue
        alias = type(values).model_fields[name].alias or name
        several = isinstance(value, tuple)
        for number, path in enumerate(value if several else (value,)):
            place = path.replace("{run_id}", "run-id")
            # Another job's run folder may be read, but not written.
            if field not in _WRITTEN and path_problem(place, (own,), closed) is None:
                continue
            problem = path_problem(place, allowed, closed)
            if problem:
                keys = (section, alias, *([number] if several else []))
                found.append(Mistake(pointer(*keys), f"the path {problem}"))
    return found


def _other_mistakes(spec: JobSpec, profile: ClusterProfile) -> list[Mistake]:
    found = []
    if spec.resources.backend != "dask":
        found.append(Mistake("/resources/backend", "the service runs jobs on clusters: use dask"))
    allowed: Sequence[str] = profile.model_packages
    for field, function in spec.functions.items():
        module = function.partition(":")[0]
        if not any(module == p or module.startswith(p + ".") for p in allowed):
            names = ", ".join(allowed) or "none"
            detail = f"the package is not one of those that the cluster allows ({names})"
            found.append(Mistake(pointer(*field.split(".")), detail))
    return found


_LOCAL = ("file", "local")
_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
_STORES = ("file", "s3", "gs", "abfs", "adl", "hdfs", "oss")
"""The URL schemes allowed if a cluster has no `allowed_roots`; other schemes might reach internal
services.
"""
# Links in /proc lead to any file; the other folders contain mounted secrets.
_NEVER = (
    *("/proc", "/dev/fd"),
    *("/run/secrets", "/run/credentials", "/var/run/secrets", "/var/run/credentials"),
)
_FILES_OF_POSTGRESQL = ("passfile", "sslkey", "sslcert")
_SECRETS_OF_ENVIRONMENT = ("PGPASSFILE", "CREDENTIALS_DIRECTORY")
_SECRET_NAME = re.compile(r"sig|token|secret|passw|pwd|key|credential|auth", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<user>[^/?#\s@]*)@")


def has_credentials(text: str) -> bool:
    """Return True if a text contains a URL with a password, an HTTP user, or a secret in its query.

    >>> has_credentials("s3://KEY:SECRET@bucket/x"), has_credentials("abfs://box@account/x")
    (True, False)
    >>> has_credentials("https://host/x?X-Amz-Signature=0"), has_credentials("s3://b/day_?")
    (True, False)
    """
    if "://" not in text:
        return False
    if without_secrets(text) != text:
        return True
    for found in _AUTHORITY.finditer(text):
        if ":" in found["user"] or found["scheme"].lower() in ("http", "https"):
            return True
    _, _, rest = text.partition("://")
    pairs = re.split(r"[?&#;]", rest)[1:]
    names = [unquote(pair.partition("=")[0]) for pair in pairs if "=" in pair]
    return any(_SECRET_NAME.search(name) for name in names)


def path_problem(path: str, roots: Sequence[str], closed: Iterable[str] = ()) -> str | None:
    """Return why a spec's path is not allowed, to be put after "the path"; `None` if it is allowed.

    It must be in one of `roots`; without roots, it must be an absolute path, or a URL with a scheme
    of `_STORES`. It must not lead to, into or above a path in `closed` or `_NEVER`, except below a
    root that is inside that path.

    >>> path_problem("/data/day_*", ["/data"]), path_problem("day_0", [])
    (None, 'is relative; write an absolute path')
    >>> path_problem("/data/../etc", ["/data"])
    "has '..'; name the folder itself"
    """
    if not path.strip() or path != path.strip() or not path.isprintable():
        return "is empty, or has leading or trailing blanks or unprintable characters"
    if len(path) > _PATH_LENGTH:
        return f"has {len(path)} characters, more than {_PATH_LENGTH}"
    if "::" in path:
        return "chains filesystems with '::', which is not allowed"
    if path.startswith("~"):
        return "begins with '~', but workers run as another user; write an absolute path"
    place = _place(path)
    if place is None:
        return "is relative; write an absolute path"
    if ".." in re.split(r"[/\\{},]", unquote(place)):
        return "has '..'; name the folder itself"
    holding = [root for root in roots if _holds(_place(root), place)]
    if roots and not holding:
        return "is outside the folders that the cluster allows: " + ", ".join(roots)
    scheme, is_url, rest = place.partition("://")
    if is_url and {"", "."} & set(rest.rstrip("/").split("/")[1:]):
        return "has '//' or '/./' after its host; name each folder once"
    if not roots and is_url and scheme not in _STORES:
        return f"has the scheme {scheme}; without allowed_roots these are allowed: " + ", ".join(
            _STORES
        )
    for folder in (*closed, *_NEVER):
        # A root inside a closed folder was allowed explicitly; one that contains it was not.
        if _may_reach(place, folder) and not any(_is_below(_place(r), folder) for r in holding):
            return "is in a folder of the service, or among the runs of other projects"
    return None


def _may_reach(place: str, folder: str) -> bool:
    """Return True if a match of the path or glob `place` is `folder`, is inside it, or contains it.

    A match that contains `folder` counts, since folders are read with their subfolders. A glob with
    `**` counts as matching everything from there on.
    """
    parts, wanted = _compared(place), _compared(folder)
    for part, name in zip(parts, wanted, strict=False):
        if "**" in part:
            return True
        if part != name and not fnmatchcase(name, part):
            return False
    return True


def _compared(place: str) -> list[str]:
    """Return the parts of a path or URL between slashes, for a comparison with other paths.

    For URLs, the first two parts are the scheme and the host. The host is empty for HDFS, and only
    the container for `abfs`, since the same storage may have several host names.
    """
    scheme, is_url, rest = place.rstrip("/").partition("://")
    if not is_url:
        return scheme.split("/")
    host, *inner = rest.split("/")
    if scheme == "hdfs":
        host = ""
    elif scheme == "abfs":
        host = host.partition("@")[0]
    return [scheme, host, *inner]


def _place(path: str) -> str | None:
    """Return a path or URL in a normal form for comparisons; `None` for a relative path.

    A local path with `..` is returned unchanged, since it may lead through a link.
    """
    scheme, _, rest = path.partition("://") if is_remote(path) else ("file", "", path)
    scheme = scheme.lower()
    scheme = _SAME.get(scheme, scheme)
    if scheme not in _LOCAL:
        return f"{scheme}://{rest}"
    if not rest.startswith("/"):
        return None
    if ".." in rest.split("/"):
        return rest
    return "/" + posixpath.normpath(rest).lstrip("/")


def _is_below(root: str | None, folder: str) -> bool:
    inner, outer = (root or "").rstrip("/"), folder.rstrip("/")
    return inner != outer and _holds(outer, inner)


def _holds(root: str | None, place: str) -> bool:
    if root is None:
        return False
    return place == root or place.startswith(root.rstrip("/") + "/")
