"""Triton's kernels without a GPU: their logic in the interpreter, their compilation for one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytest.importorskip("triton", reason="triton is not installed", exc_type=ImportError)


def run(*command, **environment):
    done = subprocess.run(
        [sys.executable, *command],
        env=os.environ | environment,
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_in_the_interpreter():
    """In a process of its own: whether a kernel is interpreted is settled when it is imported."""
    out = run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "interpreted.py")),
        TRITON_INTERPRET="1",
        DISTRAIN_TRITON="1",
        OMP_NUM_THREADS="1",
    )
    assert " passed" in out
    assert "failed" not in out


@pytest.mark.slow
def test_all_compile_for_a_gpu(tmp_path):
    """Down to machine code of compute capability 9.0; what it does is for tests/gpu to see."""
    out = run(str(HERE / "compile_triton.py"), TRITON_CACHE_DIR=str(tmp_path))
    assert out.split() == ["compiled", "19"]
