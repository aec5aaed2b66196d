"""The paths and URLs that a spec may name, by their text alone. Pure.

Links cannot be judged here: a link under an allowed root may lead anywhere, so operators keep
users from making links there, or give the workers' user no rights elsewhere.
"""

import posixpath
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from urllib.parse import unquote

from distrain.storage import is_remote, without_secrets

_LOCAL = ("file", "local")
_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs"}
_NEVER = ("/proc",)  # its links lead to everything, whatever a path looks like
_SECRET_NAME = re.compile(r"sig|token|secret|passw|pwd|key|credential|auth", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<user>[^/?#\s@]*)@")


def has_credentials(text: str) -> bool:
    """Whether a text has a URL with a password, a user of HTTP, or a signature in its query.

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
    """What is wrong with a path or URL of a spec; `None` if a root and no `closed` one holds it.

    >>> path_problem("/data/day_*", ["/data"]), path_problem("day_0", [])
    (None, 'is relative; the service and the workers have folders of their own')
    >>> path_problem("/data/../etc", ["/data"])
    "has '..'; name the folder itself"
    """
    if not path.strip() or path != path.strip() or not path.isprintable():
        return "is empty, or has blanks around it or characters that do not print"
    if "::" in path:
        return "chains filesystems with '::', which may lead anywhere"
    if path.startswith("~"):
        return "begins with '~'; the workers' user has another home"
    place = _place(path)
    if place is None:
        return "is relative; the service and the workers have folders of their own"
    if ".." in re.split(r"[/\\{},]", unquote(place)):
        return "has '..'; name the folder itself"
    holding = [root for root in roots if _holds(_place(root), place)]
    if roots and not holding:
        return "is outside the folders that the cluster allows: " + ", ".join(roots)
    for folder in (*closed, *_NEVER):
        if _may_reach(place, folder) and not any(_holds(folder, _place(r) or "") for r in holding):
            return "is in a folder of the service, or among the runs of other projects"
    return None


def _may_reach(place: str, folder: str) -> bool:
    """Whether a path, or what its glob may match, lies in a folder."""
    parts, wanted = place.rstrip("/").split("/"), folder.rstrip("/").split("/")
    for part, name in zip(parts, wanted, strict=False):
        if "**" in part:
            return True
        if part != name and not fnmatchcase(name, part):
            return False
    # `*` for the folder itself lists what is beside it, too: that is let pass.
    return len(parts) > len(wanted) or parts == wanted


def _place(path: str) -> str | None:
    """A path in a form that can be compared; `None` for a relative one."""
    scheme, _, rest = path.partition("://") if is_remote(path) else ("file", "", path)
    scheme = scheme.lower()
    scheme = _SAME.get(scheme, scheme)
    if scheme not in _LOCAL:
        return f"{scheme}://{rest}"
    if not rest.startswith("/"):
        return None
    if ".." in rest:
        return rest
    return "/" + posixpath.normpath(rest).lstrip("/")


def _holds(root: str | None, place: str) -> bool:
    if root is None:
        return False
    return place == root or place.startswith(root.rstrip("/") + "/")
