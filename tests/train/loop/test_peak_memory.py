"""The most memory that a process has held."""

import pytest
import torch
from loaded_scripts import run_script

from distrain.train.loop import rank_events as module
from distrain.train.loop.rank_events import peak_memory

CPU = torch.device("cpu")
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


def test_without_proc_the_system_is_asked(tmp_path, monkeypatch):
    told = peak_memory(CPU)["host_bytes"]
    monkeypatch.setattr(module, "STATUS_FILE", tmp_path / "none")
    assert peak_memory(CPU)["host_bytes"] == pytest.approx(told, rel=0.2)
