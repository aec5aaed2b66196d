"""Columns of lists on two and three real gloo ranks: replicated, row-wise and one process."""

from pathlib import Path

import pytest
import torch
from gloo_ranks import load_script, ran

SCRIPT = Path(__file__).with_name("lists_rank.py")


rank_side = load_script(SCRIPT)
CASES = ["-".join(case) for case in rank_side.cases()]


@pytest.fixture(scope="module")
def gangs(tmp_path_factory):
    """What the ranks of all gangs ended with."""
    return ran(SCRIPT, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module", params=rank_side.NUM_RANKS)
def ranks(request, gangs):
    """What each rank of a gang ended with."""
    return gangs.of(request.param)


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
