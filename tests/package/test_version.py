"""The version tells two states of the code apart, wherever they lie."""

import re
import runpy
import shutil
import tomllib
from pathlib import Path

from distrain import version


def build_in(folder: Path) -> str:
    return runpy.run_path(str(folder / "version.py"))["build"]()


def test_equal_code_is_one_build_wherever_it_lies_and_other_code_another(tmp_path: Path) -> None:
    here = Path(version.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.html")
    there = shutil.copytree(here, tmp_path / "distrain", ignore=ignored)
    assert build_in(there) == version.build()
    assert re.fullmatch(rf"{re.escape(version.__version__)}\+b[0-9a-f]{{12}}", version.build())
    (there / ".#batch.py").symlink_to("me@host.1:2")  # an editor's lock
    (there / ".ipynb_checkpoints").mkdir()
    (there / ".ipynb_checkpoints" / "batch-checkpoint.py").touch()
    assert build_in(there) == version.build()
    with (there / "batch.py").open("a") as file:
        file.write("\n")
    assert build_in(there) != version.build()


def test_everything_that_says_the_version_says_the_same() -> None:
    root = Path(version.__file__).parents[1]
    citation = (root / "CITATION.cff").read_text()
    assert f"\nversion: {version.RELEASE}\n" in citation
    chart = (root / "helm" / "distrain" / "Chart.yaml").read_text()
    assert (
        re.findall(r'^(?:version|appVersion): "?([\d.]+)"?$', chart, re.M) == [version.RELEASE] * 2
    )


def test_the_lowest_versions_are_those_of_the_bounds() -> None:
    root = Path(version.__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    bounds = dict(one.split(">=") for one in project["dependencies"])
    lines = (root / "constraints-lowest.txt").read_text().splitlines()[1:]
    lowest = dict(line.split("==") for line in lines)
    assert lowest.keys() == bounds.keys()
    for name, bound in bounds.items():
        assert lowest[name] == bound + ".0" * (2 - bound.count(".")), name
