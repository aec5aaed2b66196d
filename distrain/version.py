"""The version of this package, in a module of its own that any package can import."""

# The slowest imports are inside the functions that need them.
import sys
from functools import cache
from pathlib import Path

__version__ = "0.3.0.dev0"
RELEASE = "0.2.0"
"""The last release. It equals `__version__` only in the commit of a release."""


def how_to_install(extra: str) -> str:
    """Return the command, in backticks, that installs an extra of this package, such as `gpu`.

    If a wheel is installed, the command uses the constraints file that the wheel contains.
    Otherwise, the command is for a checkout and uses the file in it.
    """
    name = "constraints-gpu.txt" if extra == "gpu" else "constraints.txt"
    shared = Path(sys.prefix) / "share" / "distrain" / name  # where a wheel installs it
    if shared.is_file():
        return f"`pip install -c {shared} 'distrain[{extra}]=={__version__}'`"
    place = f"deploy/images/{name}" if extra == "gpu" else name
    return f"`pip install -c {place} '.[{extra}]'` in a checkout of distrain"


@cache
def package_version(package: str) -> str:
    """Return the version of an installed package, or "" if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def build() -> str:
    """Return the version with a digest of the package's code, such as `0.3.0.dev0+b4f0c2e91a7d3`.

    Equal code gives equal text in a checkout, an editable install, an archive or a wheel. Without
    source files (a zip, or .pyc files alone) code changes are not detected.
    """
    import hashlib

    package = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=6)
    files = (path for kind in ("py", "c", "h") for path in package.rglob(f"*.{kind}"))
    for name, path in sorted((path.relative_to(package).as_posix(), path) for path in files):
        if "/." not in f"/{name}":  # not an editor's lock file (a dangling link) or backup
            code = path.read_bytes()
            digest.update(f"{name} {len(code)}\n".encode() + code)
    return f"{__version__}+b{digest.hexdigest()}"
