"""Columns of lists on two and three real gloo ranks: replicated, row-wise and one process."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).with_name("lists_rank.py")


def load_script():
    spec = importlib.util.spec_from_file_location("lists_rank", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rank_side = load_script()
CASES = ["-".join(case) for case in rank_side.cases()]


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request, tmp_path_factory):
    """The tables that each rank of a gang ended with."""
    folder = tmp_path_factory.mktemp(f"lists{request.param}")
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(rank), str(request.param), str(folder)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(request.param)
    ]
    try:
        errors = [process.communicate(timeout=240)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    files = [folder / f"{rank}.pt" for rank in range(request.param)]
    assert all(file.exists() for file in files), "\n".join(errors)
    return [torch.load(file, weights_only=True) for file in files]


@pytest.mark.parametrize("case", CASES)
def test_ranks_and_placements_agree_bitwise(ranks, case):
    dtype, kind, _ = case.split("-")
    expected = ranks[0][f"{dtype}-{kind}-replicated"]
    for rank in ranks:
        for name, table in rank[case].items():
            assert torch.equal(table, expected[name]), name


@pytest.mark.parametrize("kind", rank_side.KINDS)
def test_ranks_equal_one_process_in_float64(ranks, kind):
    alone = rank_side.train("fp64", kind, "replicated", 0, 1, together=len(ranks))
    for name, table in ranks[0][f"fp64-{kind}-row_wise"].items():
        torch.testing.assert_close(table, alone[name], rtol=0, atol=1e-12)
