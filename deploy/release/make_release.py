"""Makes the files of a release from the last commit: `make release`.

    python deploy/release/make_release.py dist/release

Equal commits give equal files: everything is made from `git archive` in one folder, with the
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
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("", "service", "s3")
"""Extras whose packages the SBOM lists; "" is the wheel without any."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the output folder; it is replaced")
    out: Path = parser.parse_args().out
    if out.is_dir() and any(out.iterdir()) and not (out / "SHA256SUMS").is_file():
        sys.exit(f"{out} contains other files than a release's: choose an empty or new folder")
    if not os.environ.get("DISTRAIN_REPOSITORY"):
        sys.exit(
            "the repository's address is unknown: DISTRAIN_REPOSITORY=https://... make release"
        )
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
        check_tag(version, run("git", "tag", "--points-at", "HEAD").split())
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
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
    """Return the version of a source tree; exit unless it is a release."""
    facts = runpy.run_path(str(source / "distrain" / "version.py"))
    version = str(facts["__version__"])
    if version != facts["RELEASE"]:
        sys.exit(
            f"distrain/version.py has {version}, a version in development: set __version__ and "
            "RELEASE to the release's"
        )
    chart = (source / "helm" / "distrain" / "Chart.yaml").read_text()
    named = re.findall(r'^(?:version|appVersion): "?([^"\n]+)"?$', chart, re.M)
    if named != [version, version]:
        sys.exit(f"helm/distrain/Chart.yaml names {named}, distrain/version.py {version}")
    changelog = (source / "CHANGELOG.md").read_text()
    if "## [Unreleased]" in changelog and changes_of("Unreleased", changelog).strip():
        sys.exit(f"CHANGELOG.md has entries in [Unreleased]: move them to the section {version}")
    changes_of(version, changelog)
    return version


def check_tag(version: str, tags: list[str]) -> None:
    if f"v{version}" not in tags:
        sys.exit(f"the last commit has no tag v{version}: `git tag v{version}`")


def changes_of(version: str, changelog: str) -> str:
    """Return the changelog's section of a version."""
    found = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.M | re.S
    )
    if found is None:
        sys.exit(f"CHANGELOG.md has no section [{version}]: rename [Unreleased] to it, with a date")
    return found[1].strip() + "\n"


def distributions(source: Path, work: Path, out: Path, epoch: int) -> tuple[Path, Path]:
    """Build the source distribution, and from it the manylinux wheel."""
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
    """Return the chart's files that .helmignore does not exclude."""
    return [
        path
        for path in chart.rglob("*")
        if path.is_file() and path.relative_to(chart).parts[0] not in ("ci", ".helmignore")
    ]


def image_context(source: Path) -> list[Path]:
    """Return the files that .containerignore does not exclude."""
    lines = (source / ".containerignore").read_text().splitlines()
    kept = [source / line[1:] for line in lines if line.startswith("!")]
    files = [path for root in kept for path in (root.rglob("*") if root.is_dir() else [root])]
    return [*(path for path in files if path.is_file()), source / ".containerignore"]


def write_tar(path: Path, root: Path, prefix: str, files: Iterable[Path], epoch: int) -> None:
    """Write files in name order, with the same time and no owner."""
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
    """Write a CycloneDX document of a fresh install of the wheel, and of vendored files.

    pip only resolves the install, so that packages of this environment have no influence. The pins
    are those of docs/install.md; the release tools have other versions of some packages.
    """
    report = run(
        *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"),
        *("--report", "-", "--constraint", str(source / "constraints.txt")),
        f"{wheel}[{','.join(filter(None, EXTRAS))}]",
    )
    document = sbom(json.loads(report)["install"], [vendored(source)], epoch)
    unknown = [one["name"] for one in document["components"] if not one.get("licenses")]
    if unknown:
        sys.exit(
            f"these packages have no licence in their metadata: {', '.join(unknown)}. "
            "Use the pip of deploy/release/requirements.txt, or correct make_release.py"
        )
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


Component = dict[str, Any]


def vendored(source: Path) -> Component:
    """Describe uPlot, whose script is included in the page's files."""
    static = source / "distrain" / "service" / "page" / "static"
    [version] = re.findall(r"uPlot[^\n]*\bv(\d[\d.]*)", (static / "uPlot.iife.min.js").read_text())
    return {
        "bom-ref": f"pkg:npm/uplot@{version}",
        "type": "library",
        "name": "uplot",
        "version": version,
        "purl": f"pkg:npm/uplot@{version}",
        "licenses": [{"license": {"id": "MIT"}}],
        "hashes": [{"alg": "SHA-256", "content": digest(static / "uPlot.iife.min.js")}],
    }


def sbom(install: list[dict[str, Any]], more: list[Component], epoch: int) -> dict[str, Any]:
    """Return a CycloneDX document from pip's report of an install and further components."""
    about = {str(canonicalize_name(one["metadata"]["name"])): one for one in install}
    found = {name: _component(name, one) for name, one in about.items()}
    own = found.pop("distrain")
    needs = {name: _needs(one["metadata"], {*one.get("requested_extras", ())} | {""}, about)
             for name, one in about.items()}  # fmt: skip
    refs = {"distrain": own["bom-ref"], **{name: one["bom-ref"] for name, one in found.items()}}
    edges = [
        {"ref": refs[name], "dependsOn": sorted(refs[one] for one in needs[name])}
        for name in sorted(needs)
    ]
    edges[sorted(needs).index("distrain")]["dependsOn"] += [one["bom-ref"] for one in more]
    time = datetime.fromtimestamp(epoch, UTC).isoformat()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": time, "component": own},
        "components": [*(found[name] for name in sorted(found)), *more],
        "dependencies": [*edges, *({"ref": one["bom-ref"], "dependsOn": []} for one in more)],
    }


def _component(name: str, one: dict[str, Any]) -> Component:
    metadata, purl = one["metadata"], f"pkg:pypi/{name}@{one['metadata']['version']}"
    hashes = one.get("download_info", {}).get("archive_info", {}).get("hashes", {})
    component: Component = {
        "bom-ref": purl,
        "type": "library",
        "name": name,
        "version": metadata["version"],
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": hashes["sha256"]}] if "sha256" in hashes else [],
    }
    named = [one.rpartition(" :: ")[2] for one in metadata.get("classifier", ())
             if one.startswith("License ::")]  # fmt: skip
    text = (metadata.get("license") or "").strip()
    if expression := metadata.get("license_expression"):
        component["licenses"] = [{"expression": expression}]
    elif named or (text and "\n" not in text):
        component["licenses"] = [{"license": {"name": one}} for one in named or [text]]
    return component


def _needs(
    metadata: dict[str, Any], extras: set[str], installed: dict[str, dict[str, Any]]
) -> set[str]:
    lines = map(Requirement, metadata.get("requires_dist", ()))
    wanted = (
        str(canonicalize_name(line.name))
        for line in lines
        if not line.marker or any(line.marker.evaluate({"extra": extra}) for extra in extras)
    )
    return {name for name in wanted if name in installed}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(*words: str, env: dict[str, str] | None = None, stdin: str | None = None) -> str:
    """Run a command and return its output; exit with it on failure."""
    done = subprocess.run(
        words, cwd=ROOT, env=env, input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
