"""Runs `fastai_cases.py` in a process of its own, with the folder that make fills for fastai.

fastai brings pandas, which pyarrow loads wherever it finds it: the other tests go without.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(sys.prefix) / "fastai"


@pytest.mark.release
def test_fastai_trains_on_the_loaders_batches() -> None:
    if importlib.util.find_spec("fastai") is None and not (FOLDER / "fastai").is_dir():
        pytest.skip("fastai is neither installed nor in .venv/fastai: run `make .venv/.fastai`")
    cases = Path(__file__).with_name("fastai_cases.py")
    # fastai's learning-rate finder leaves a temporary folder to the collector.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::ResourceWarning"]
    command = [sys.executable, "-m", "pytest", *options, cases]
    ran = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
