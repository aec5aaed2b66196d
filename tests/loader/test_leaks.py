"""Runs `leaks.py` in a process of its own.

Tests before these may leave a Dask cluster running in their process, whose descriptors, threads and
memory come and go: nothing to measure a loader beside.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from loaded_scripts import run_script


@pytest.mark.slow
def test_loaders_leave_nothing_behind() -> None:
    leaks = Path(__file__).with_name("leaks.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", leaks]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout


_POOLS_ONE_AFTER_ANOTHER = """
import threading
import numpy as np
from distrain.loader.filling.batch_memory import BlockPool

def held_mb():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

kept = []

def use_a_pool(number):
    pool, blocks, arrays = BlockPool(40), [], []

    def borrow():
        for _ in range(8):
            blocks.append(pool.allocate(16_000))
            blocks[-1][:] = 1
            arrays.append(np.ones(40_000 + number))

    threads = [threading.Thread(target=borrow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept.append(arrays[number])

use_a_pool(0)
before = held_mb()
for number in range(1, 12):
    use_a_pool(number)
print(held_mb() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_pools_that_are_gone_hold_no_memory(tmp_path: Path) -> None:
    """Each had 80 MB, which threads took and others freed, with small arrays in between."""
    script = tmp_path / "pools.py"
    script.write_text(_POOLS_ONE_AFTER_ANOTHER)
    done = run_script(script)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 40
