"""The most memory that a process has held."""

from loaded_scripts import run_script

GROWN_BYTES = 64 * 2**20
GROW = """
import sys
import torch
from distrain.train.loop.rank_events import peak_memory
before = peak_memory(torch.device("cpu"))["host_bytes"]
block = bytearray(b"x") * int(sys.argv[1])
del block
print(peak_memory(torch.device("cpu"))["host_bytes"] - before)
"""


def test_a_peak_stays_after_the_memory_is_gone(tmp_path):
    (tmp_path / "grow.py").write_text(GROW)
    done = run_script(tmp_path / "grow.py", GROWN_BYTES)
    assert 0.95 * GROWN_BYTES <= int(done.stdout) <= 1.5 * GROWN_BYTES
