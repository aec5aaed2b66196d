"""The wheel that the image installs: its context holds all that it is made of."""

import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "deploy" / "images" / "Containerfile"


def copied():
    """What the stage `builder` copies from the context."""
    builder = FILE.read_text().partition(" AS builder")[2].partition("\nFROM ")[0]
    for words in re.findall(r"^COPY (.+)$", builder, re.MULTILINE):
        yield from words.split()[:-1]


def left_out(folder, names):
    lines = (ROOT / ".containerignore").read_text().splitlines()
    patterns = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    return {name for name in names if any(fnmatch.fnmatch(name, one) for one in patterns)}


@pytest.mark.release
def test_the_context_makes_the_whole_wheel(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here: apt-get install gcc")
    context = tmp_path / "context"
    context.mkdir()
    for name in copied():
        source, target = ROOT / name, context / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=left_out)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    # What `python -m build --wheel --no-isolation` calls.
    code = "from setuptools.build_meta import build_wheel; build_wheel('dist')"
    command = [sys.executable, "-c", code]
    made = subprocess.run(command, cwd=context, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (wheel,) = (context / "dist").glob("*.whl")
    assert "-abi3-" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    here = {str(path.relative_to(ROOT)) for path in (ROOT / "distrain").rglob("*.py")}
    assert here <= names
    kernels = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    expected = {one["name"].replace(".", "/") + ".abi3.so" for one in kernels["ext-modules"]}
    assert {name for name in names if name.endswith(".so")} == expected
    assert any(name.endswith("/LICENSE") for name in names)
    for kind in ("page/static/", "page/templates/", "py.typed"):
        assert any(kind in name for name in names), kind
    assert not [name for name in names if name.startswith(("tests/", "deploy/"))]
