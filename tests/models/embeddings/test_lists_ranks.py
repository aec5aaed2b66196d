"""Tables on two and three real gloo ranks: each placement, and one process."""

from pathlib import Path

import pytest
import torch
from gloo_ranks import on_ranks
from loaded_scripts import load_script

rank_side = load_script(Path(__file__).with_name("lists_rank.py"))
CASES = ["-".join(case) for case in rank_side.cases()]


@pytest.fixture(scope="module", params=rank_side.NUM_RANKS)
def ranks(request):
    """What each rank of a gang ended with."""
    return on_ranks(request.param, rank_side.results)


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
