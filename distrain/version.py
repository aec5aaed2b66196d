"""The version of this package, by itself, so that rooms can write it down."""

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__version__ = "0.1.0"


def how_to_install(extra: str) -> str:
    """The command that installs an extra of this package, which no index of packages has."""
    gpu = "deploy/images/constraints-gpu.txt"
    constraints = gpu if extra == "gpu" else "constraints.txt"
    return f"`pip install -c {constraints} '.[{extra}]'` in a checkout of distrain"


@cache
def package_version(package: str) -> str:
    """The version of an installed package; "" for one that is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def build() -> str:
    """The version with a digest of the package's code, such as `0.1.0+b4f0c2e91a7d3`.

    Equal code gives equal text, in a checkout, an editable install, an archive or a wheel. Without
    sources, as in a zip or with .pyc files alone, other code is not told apart.
    """
    package = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=6)
    files = (path for kind in ("py", "c", "h") for path in package.rglob(f"*.{kind}"))
    for name, path in sorted((path.relative_to(package).as_posix(), path) for path in files):
        if "/." not in f"/{name}":  # else it is an editor's lock, which leads nowhere, or copy
            code = path.read_bytes()
            digest.update(f"{name} {len(code)}\n".encode() + code)
    return f"{__version__}+b{digest.hexdigest()}"
