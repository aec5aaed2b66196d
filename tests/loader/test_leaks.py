"""Runs `leaks.py` in a process of its own.

Tests before these may leave a Dask cluster running in their process, whose descriptors, threads and
memory come and go: nothing to measure a loader beside.
"""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("which", ["not slow", "slow"])
def test_loaders_leave_nothing_behind(which: str) -> None:
    leaks = Path(__file__).with_name("leaks.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", which, leaks]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
