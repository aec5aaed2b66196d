"""Triton's kernels without a GPU: their logic in the interpreter, their compilation for one."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
triton = pytest.importorskip("triton", reason="triton is not installed", exc_type=ImportError)


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


def of(package):
    return tuple(int(part) for part in package.__version__.split(".")[:2])


@pytest.mark.slow
@pytest.mark.skipif(
    of(triton) < (3, 7) and of(np) >= (2, 4), reason="this Triton's interpreter wants NumPy < 2.4"
)
def test_in_the_interpreter():
    """In a process of its own: whether a kernel is interpreted is settled when it is imported."""
    out = run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "interpreted.py")),
        *("-W", "ignore:Conversion of an array with ndim:DeprecationWarning"),  # Triton 3.6's own
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
    assert out.split() == ["compiled", "21"]
