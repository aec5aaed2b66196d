"""What people get who do not clone: the source distribution and the wheel."""

import email
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from distrain.version import build

ROOT = Path(__file__).parents[2]
MADE = shutil.ignore_patterns(
    ".*_cache", ".git", ".hypothesis", ".venv", "__pycache__", "*.so", "*.egg-info", "_build"
)
MADE_AT_THE_TOP = {"build", "demo", "dist", "runs", "gpu-report", "test-output"}
BUILD = "import sys; from setuptools import build_meta; print(build_meta.{}(sys.argv[1]))"

pytestmark = pytest.mark.slow


def built(what: str, source: Path, out: Path, **environment: str) -> Path:
    """The file that a build gives, without a network and in this environment."""
    out.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(what), str(out)],
        cwd=source,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


def left_out(folder: str, names: list[str]) -> set[str]:
    """Files of a checkout's folder that are not the project's; the package has a `runs`, too."""
    return MADE(folder, names) | (MADE_AT_THE_TOP if Path(folder) == ROOT else set())


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the source distribution, unpacked."""
    pytest.importorskip("setuptools", reason="builds need setuptools in this environment")
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, folder / "checkout", ignore=left_out)
    with tarfile.open(built("build_sdist", folder / "checkout", folder / "out")) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.glob("distrain-*"))


def needed(
    lines: Iterable[str], extras: Iterable[str], seen: set[tuple[str, str]]
) -> Iterator[str]:
    """The packages that requirements name on this platform, and what those need in turn."""
    for line in lines:
        wanted = Requirement(line)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": one}) for one in extras):
            continue
        name = canonicalize_name(wanted.name)
        more = {(name, extra) for extra in ("", *wanted.extras)} - seen
        if more:
            seen |= more
            yield name
            yield from needed(requires(name) or [], [extra for _, extra in more], seen)


def with_the_needs_of(wheel: Path, environment: Path) -> None:
    """An environment that has what the wheel and its service ask for, and nothing else.

    The packages are those of this environment, whose files are linked: pip would need minutes.
    """
    venv.create(environment)
    with zipfile.ZipFile(wheel) as archive:
        [name] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        wanted = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    for package in {"pip", *needed(wanted, ("", "service"), set())}:
        for file in distribution(package).files or ():
            source, target = Path(file.locate()), site / file
            if ".." in file.parts or not source.is_file() or target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.hardlink_to(source)
            except OSError:  # another filesystem
                shutil.copy2(source, target)


@pytest.mark.release
@pytest.mark.timeout(600)
def test_a_wheel_alone_trains_and_serves_and_goes(compiled: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    with_the_needs_of(compiled, environment)
    done = subprocess.run(
        [sys.executable, ROOT / "deploy" / "release" / "try_wheel.py", compiled, environment],
        env={**os.environ, "PIP_NO_INDEX": "1", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_source_distribution_holds_all_that_the_documentation_names(unpacked: Path) -> None:
    for folder in ("benchmarks", "deploy", "distrain", "docs", "examples", "tests"):
        wanted = {
            path.relative_to(ROOT)
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".py", ".md", ".yaml", ".yml", ".json", ".c", ".h", ".png", ".svg")
            and not {"_build", "__pycache__"} & set(path.parts)
        }
        missing = [path for path in wanted if not (unpacked / path).is_file()]
        assert not missing
    for name in (
        "README.md",
        "LICENSE",
        "Makefile",
        "constraints.txt",
        "setup.py",
        ".importlinter",
    ):
        assert (unpacked / name).is_file()


@pytest.fixture(scope="module")
def compiled(unpacked: Path) -> Path:
    """The wheel with kernels that is built from the source distribution."""
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("there is no C compiler")
    return built("build_wheel", unpacked, unpacked.parent / "compiled")


def test_the_tag_of_a_wheel_says_whether_its_kernels_were_built(
    unpacked: Path, compiled: Path, tmp_path: Path
) -> None:
    assert "-cp311-abi3-" in compiled.name
    with zipfile.ZipFile(compiled) as wheel:
        names = wheel.namelist()
        wheel.extractall(tmp_path / "installed")
        version = tmp_path / "installed" / "distrain" / "version.py"
        # The checkout's and the archive's, too: pip takes a wheel of other code for an upgrade.
        assert compiled.name.split("-")[1] == runpy.run_path(str(version))["build"]() == build()
        assert sorted(n for n in names if n.endswith(".so")) == [
            "distrain/loader/filling/_fill.abi3.so",
            "distrain/loader/parquet_pages/_pages.abi3.so",
            "distrain/loader/partition/_order.abi3.so",
            "distrain/models/embeddings/kernels/_rows.abi3.so",
            "distrain/prep/_lines.abi3.so",
        ]
        assert "distrain/py.typed" in names
        shared = "distrain-" + compiled.name.split("-")[1] + ".data/data/share/distrain"
        for file in ("constraints.txt", "deploy/images/constraints-gpu.txt"):
            assert wheel.read(f"{shared}/{Path(file).name}") == (ROOT / file).read_bytes()
        assert not [name for name in names if name.startswith(("tests", "examples", "docs"))]
    [old] = (unpacked / "build").glob("lib*/distrain/loader/batch.py")
    old.with_name("deleted.py").touch()
    plain = built("build_wheel", unpacked, tmp_path / "plain", CC="false")
    assert plain.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(plain) as wheel:
        assert not [name for name in wheel.namelist() if name.endswith(".so")]
        assert "distrain/deleted.py" not in wheel.namelist()  # of a build before
        assert set(wheel.namelist()) >= {"distrain/cli/main.py", "distrain/loader/filling/_fill.c"}
        facts = next(name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL"))
        assert "Root-Is-Purelib: true" in wheel.read(facts).decode()


def test_metadata_leads_to_the_repository(monkeypatch):
    stated = {}
    monkeypatch.setattr("setuptools.setup", lambda **values: stated.update(values))
    monkeypatch.setenv("DISTRAIN_REPOSITORY", "https://git.example/distrain")
    monkeypatch.setenv("DISTRAIN_RELEASE", "1")
    runpy.run_path(str(ROOT / "setup.py"))
    assert stated["project_urls"]["Source"] == "https://git.example/distrain"
    assert {"Documentation", "Changelog", "Issues"} < set(stated["project_urls"])
    links = re.findall(r"\]\(([^)]+)\)", stated["long_description"])
    assert len(links) > 10
    assert not [link for link in links if not link.startswith("https://")]
    assert "/raw/" in next(link for link in links if link.endswith(".svg"))
