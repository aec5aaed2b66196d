"""The version tells two states of the code apart, wherever they lie."""

import re
import runpy
import shutil
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
