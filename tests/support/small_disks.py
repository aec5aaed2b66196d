"""Real filesystems of 1 MiB, for tests of full and read-only disks."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, options: str = "size=1m") -> Iterator[Path]:
    """Mount a filesystem in memory on a new folder, or skip the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        subprocess.run(mount, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"may not mount a filesystem here: {error}")
    try:
        yield folder
    finally:
        # Lazily: a failed test's traceback may still hold a file open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
