"""One, two and four gloo ranks, replicated and row-wise, against each other and one process."""

from itertools import product
from pathlib import Path

import pytest
import torch
from gloo_ranks import load_script, ran

SCRIPT = Path(__file__).with_name("exchange_rank.py")


rank_side = load_script(SCRIPT)


@pytest.fixture(scope="module")
def gangs(tmp_path_factory):
    """What the ranks of all gangs ended with."""
    return ran(SCRIPT, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module", params=rank_side.SHARES)
def ranks(request, gangs):
    """What each rank of a gang ended with."""
    return gangs.of(request.param)


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("case", list(rank_side.cases()), ids="-".join)
def test_ranks_agree_bitwise(ranks, case):
    for other in ranks[1:]:
        assert_same_bits(ranks[0][rank_side.name_of(*case)], other[rank_side.name_of(*case)])


def pairs_of_placements():
    """Dtype, optimizer and placement of each case that has a replicated twin."""
    names = {rank_side.name_of(*case) for case in rank_side.cases()}
    for dtype, kind, placement in rank_side.cases():
        if placement != "replicated" and rank_side.name_of(dtype, kind, "replicated") in names:
            yield dtype, kind, placement


@pytest.mark.parametrize(("dtype", "kind", "other"), list(pairs_of_placements()))
def test_placements_agree_bitwise(ranks, dtype, kind, other):
    replicated = ranks[0][rank_side.name_of(dtype, kind, "replicated")]
    assert_same_bits(replicated, ranks[0][rank_side.name_of(dtype, kind, other)])


@pytest.mark.parametrize("kind", rank_side.KINDS)
def test_ranks_equal_one_process_in_float64(ranks, kind):
    alone = rank_side.train("fp64", kind, "replicated", 0, 1, split=len(ranks))
    for name, ours in ranks[0][rank_side.name_of("fp64", kind, "row_wise")].items():
        torch.testing.assert_close(ours, alone[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [*product(["fp32"], rank_side.KINDS), ("bf16", "sgd"), ("bf16", "adam")],
)
def test_two_ranks_equal_one_process_with_two_micro_batches_bitwise(ranks, dtype, kind):
    # A mean over ranks that somebody forgot to take, or took twice, would show here.
    alone = rank_side.train(dtype, kind, "replicated", 0, 1, split=len(ranks))
    assert_same_bits(ranks[0][rank_side.name_of(dtype, kind, "replicated")], alone)
