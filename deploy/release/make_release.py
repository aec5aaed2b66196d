"""Makes the files of a release out of the last commit: `make release`.

    python deploy/release/make_release.py dist/release

Equal commits give equal files: everything is made from `git archive` in one folder, and carries the
commit's time, or SOURCE_DATE_EPOCH.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("", "service", "s3")
"""Extras whose packages the SBOM lists; "" is the wheel without any."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the folder of the files; it is made anew")
    out: Path = parser.parse_args().out
    if out.is_dir() and any(out.iterdir()) and not (out / "SHA256SUMS").is_file():
        sys.exit(f"{out} holds other files than a release's: name a folder that is empty or absent")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "source"
        source.mkdir()
        archive = subprocess.run(
            ["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(source, filter="data")
        version = checked_version(source)
        sdist, wheel = distributions(source, Path(name), out, epoch)
        run(sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel))
        chart = source / "helm" / "distrain"
        write_tar(out / f"distrain-chart-{version}.tgz", chart, "distrain", packed(chart), epoch)
        files = image_context(source)
        context = f"distrain-{version}-image-context"
        write_tar(out / f"{context}.tar.gz", source, context, files, epoch)
        write_sbom(out / f"distrain-{version}.cdx.json", wheel, source, epoch)
        changes = changes_of(version, (source / "CHANGELOG.md").read_text())
        (out / f"distrain-{version}-changes.md").write_text(changes)
    sums = [f"{digest(path)}  {path.name}\n" for path in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("".join(sums))
    print(f"{out}:\n{''.join(sums)}", end="")


def checked_version(source: Path) -> str:
    """The version of a source tree; exits where its parts name different ones."""
    version = str(runpy.run_path(str(source / "distrain" / "version.py"))["__version__"])
    chart = (source / "helm" / "distrain" / "Chart.yaml").read_text()
    named = re.findall(r'^(?:version|appVersion): "?([^"\n]+)"?$', chart, re.M)
    if named != [version, version]:
        sys.exit(f"helm/distrain/Chart.yaml names {named}, distrain/version.py {version}")
    changes_of(version, (source / "CHANGELOG.md").read_text())
    return version


def changes_of(version: str, changelog: str) -> str:
    """The changelog's section of a version."""
    found = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.M | re.S
    )
    if found is None:
        sys.exit(f"CHANGELOG.md has no section [{version}]: give [Unreleased] this name and a date")
    return found[1].strip() + "\n"


def distributions(source: Path, work: Path, out: Path, epoch: int) -> tuple[Path, Path]:
    """The source distribution, and the manylinux wheel that is built from it."""
    environment = {
        **os.environ,
        "DISTRAIN_RELEASE": "1",
        "SOURCE_DATE_EPOCH": str(epoch),
        "CFLAGS": f"-g0 -ffile-prefix-map={work}=.",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir"]
    run(*build, str(work / "made"), "--sdist", str(source), env=environment)
    (made,) = (work / "made").glob("*.tar.gz")
    with tarfile.open(made) as tar:
        tar.extractall(work / "unpacked", filter="data")
    (folder,) = (work / "unpacked").iterdir()
    files = [path for path in folder.rglob("*") if path.is_file()]
    sdist = out / made.name
    write_tar(sdist, folder, folder.name, files, epoch)
    run(*build, str(work / "made"), "--wheel", str(folder), env=environment)
    (plain,) = (work / "made").glob("*.whl")
    if "-abi3-" not in plain.name:
        sys.exit(f"{plain.name} has no kernels: a C compiler is needed")
    repair = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(out), str(plain)]
    run(*repair, env=environment)
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


def packed(chart: Path) -> list[Path]:
    """The chart's files that its .helmignore leaves in."""
    return [
        path
        for path in chart.rglob("*")
        if path.is_file() and path.relative_to(chart).parts[0] not in ("ci", ".helmignore")
    ]


def image_context(source: Path) -> list[Path]:
    """The files that .containerignore leaves in."""
    lines = (source / ".containerignore").read_text().splitlines()
    kept = [source / line[1:] for line in lines if line.startswith("!")]
    files = [path for root in kept for path in (root.rglob("*") if root.is_dir() else [root])]
    return [*(path for path in files if path.is_file()), source / ".containerignore"]


def write_tar(path: Path, root: Path, prefix: str, files: Iterable[Path], epoch: int) -> None:
    """Write files in the order of their names, with one time and no owner."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=epoch) as packer,
        tarfile.open(fileobj=packer, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for file in sorted(files):
            entry = tarfile.TarInfo(f"{prefix}/{file.relative_to(root).as_posix()}")
            entry.size, entry.mtime = file.stat().st_size, epoch
            entry.mode = 0o755 if file.stat().st_mode & 0o100 else 0o644
            with file.open("rb") as content:
                tar.addfile(entry, content)


def write_sbom(path: Path, wheel: Path, source: Path, epoch: int) -> None:
    """Write a CycloneDX document of what the wheel and its extras need, in pinned versions."""
    with ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        about = message_from_bytes(archive.read(name))
    named = ("deploy/images/constraints-build.txt", "constraints.txt")  # torch needs setuptools
    lines = [line for file in named for line in (source / file).read_text().splitlines()]
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    versions = {str(canonicalize_name(name)): version for name, version in pins.items()}
    names = sorted(set(needed(about.get_all("Requires-Dist") or [], EXTRAS, set())))
    missing = [name for name in names if name not in versions]
    if missing:
        sys.exit(f"constraints.txt has no version of {', '.join(missing)}")
    listing = "".join(f"{name}=={versions[name]}\n" for name in names)
    pyproject = path.with_suffix(".toml")
    project = (
        f'[project]\nname = "distrain"\nversion = "{about["Version"]}"\nlicense = "Apache-2.0"\n'
    )
    pyproject.write_text(project)
    document = run(
        *(sys.executable, "-m", "cyclonedx_py", "requirements", "--output-reproducible"),
        *("--pyproject", str(pyproject), "--mc-type", "library", "-"),
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        stdin=listing,
    )
    pyproject.unlink()
    path.write_text(json.dumps(json.loads(document), indent=1, sort_keys=True) + "\n")


def needed(lines: list[str], extras: Iterable[str], seen: set[tuple[str, str]]) -> Iterator[str]:
    """The packages that requirements name on this platform, and what those need in turn.

    Their own requirements are read from this environment, which has them installed.
    """
    for line in lines:
        wanted = Requirement(line)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": one}) for one in extras):
            continue
        name = str(canonicalize_name(wanted.name))
        more = {extra for extra in ("", *sorted(wanted.extras)) if (name, extra) not in seen}
        if not more:
            continue
        seen.update((name, extra) for extra in more)
        try:
            further = requires(wanted.name) or []
        except PackageNotFoundError:
            sys.exit(f"{wanted.name} is not installed, so that what it needs cannot be listed")
        yield name
        yield from needed(further, sorted(more), seen)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(*words: str, env: dict[str, str] | None = None, stdin: str | None = None) -> str:
    """What a command prints; exits with its output where it fails."""
    done = subprocess.run(
        words, cwd=ROOT, env=env, input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
