"""Two and three real gloo ranks against one process."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from distrain.embeddings import exchange_rows, merge_rows

SCRIPT = Path(__file__).with_name("exchange_rank.py")


def load_script():
    spec = importlib.util.spec_from_file_location("exchange_rank", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rank_side = load_script()


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request, tmp_path_factory):
    """What each rank of a gang ended with."""
    folder = tmp_path_factory.mktemp(f"ranks{request.param}")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(rank), str(request.param), str(folder)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(request.param)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    files = [folder / f"{rank}.pt" for rank in range(request.param)]
    assert all(file.exists() for file in files), "\n".join(errors)
    return [torch.load(file, weights_only=True) for file in files]


@pytest.mark.parametrize("kind", [*rank_side.KINDS, "exchanged"])
def test_ranks_agree_bitwise(ranks, kind):
    for other in ranks[1:]:
        assert all(torch.equal(a, b) for a, b in zip(ranks[0][kind], other[kind], strict=True))


@pytest.mark.parametrize("kind", rank_side.KINDS)
def test_ranks_equal_one_process(ranks, kind):
    alone = rank_side.train(kind, rank=0, num_ranks=1)
    for ours, expected in zip(ranks[0][kind], alone, strict=True):
        torch.testing.assert_close(ours, expected.detach(), rtol=0, atol=1e-12)


def test_sums_run_in_rank_order(ranks):
    parts = [rank_side.partial_sums(rank) for rank in range(len(ranks))]
    keys, sums = merge_rows(torch.cat([k for k, _ in parts]), torch.cat([s for _, s in parts]))
    assert torch.equal(ranks[0]["exchanged"][0], keys)
    assert torch.equal(ranks[0]["exchanged"][1], sums)


def test_one_process_exchanges_nothing():
    keys, sums = torch.tensor([3, 8]), torch.ones(2, 4)
    same_keys, same_sums = exchange_rows(keys, sums)
    assert same_keys is keys
    assert same_sums is sums
