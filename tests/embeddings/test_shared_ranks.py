"""Shared tables on one to three real gloo ranks, in all placements, and against one process."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).with_name("shared_rank.py")


def load_script():
    spec = importlib.util.spec_from_file_location("shared_rank", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rank_side = load_script()


@pytest.fixture(scope="module")
def gangs(tmp_path_factory):
    """A folder with what each gang's ranks ended with, and what they said."""
    folder = tmp_path_factory.mktemp("shared")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return folder, done.stderr


@pytest.fixture(scope="module", params=rank_side.NUM_RANKS)
def ranks(gangs, request):
    """The tables that each rank of a gang ended with."""
    folder, errors = gangs
    files = [folder / str(request.param) / f"{rank}.pt" for rank in range(request.param)]
    assert all(file.exists() for file in files), errors
    return [torch.load(file, weights_only=True) for file in files]


@pytest.mark.parametrize("case", ["-".join(case) for case in rank_side.cases()])
def test_ranks_and_placements_agree_bitwise(ranks, case):
    dtype, kind, _ = case.split("-")
    expected = ranks[0].get(f"{dtype}-{kind}-replicated", ranks[0][case])
    for rank in ranks:
        for name, table in rank[case].items():
            assert torch.equal(table, expected[name]), name
        assert torch.equal(rank[case]["seen"], rank[case]["item"])


@pytest.mark.parametrize("kind", rank_side.KINDS)
def test_ranks_equal_one_process_in_float64(ranks, kind):
    alone = rank_side.train("fp64", kind, "replicated", 0, 1, together=len(ranks))
    for name, table in ranks[0][f"fp64-{kind}-row_wise"].items():
        torch.testing.assert_close(table, alone[name], rtol=0, atol=1e-12)
