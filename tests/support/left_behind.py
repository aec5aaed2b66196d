"""What loaders leave behind in this process: threads, and open parquet files."""

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

import pytest
from waiting import until


def left_behind() -> list[str]:
    """Return the names of the threads of loaders, and of the parquet files that are open."""
    found = [t.name for t in threading.enumerate() if t.name.startswith(("loader", "decode"))]
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            link = os.readlink(f"/proc/self/fd/{descriptor}")
            found += [link] if ".parquet" in link else []
    return found


def no_loader_left() -> None:
    """Wait until nothing is left; garbage is collected, by this thread or by another one.

    Raises:
        AssertionError: It names what is left. The paths of files have the names of their tests.
    """

    def all_gone() -> bool:
        if left_behind():
            gc.collect()  # does nothing while another thread collects
        return not left_behind()

    try:
        until(all_gone, within_s=30)
    except AssertionError:
        raise AssertionError(f"these are left behind: {left_behind()}") from None


@pytest.fixture(autouse=True, scope="module")
def nothing_left_behind() -> Iterator[None]:
    """Check a module's tests at their end."""
    yield
    no_loader_left()
