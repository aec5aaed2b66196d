"""One, two and four gloo ranks, replicated and row-wise, against each other and one process."""

from functools import cache
from pathlib import Path

import pytest
import torch
from gloo_ranks import on_ranks
from loaded_scripts import load_script

rank_side = load_script(Path(__file__).with_name("exchange_rank.py"))


@cache
def ranks_of(num_ranks):
    """What each rank of a gang ended with."""
    return on_ranks(num_ranks, rank_side.results)


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


CASES = [
    (num_ranks, *case) for num_ranks in rank_side.SHARES for case in rank_side.cases(num_ranks)
]
KINDS = [(num_ranks, kind) for num_ranks in rank_side.SHARES for kind in rank_side.KINDS]


@pytest.mark.parametrize(("num_ranks", "dtype", "kind", "placement"), CASES)
def test_ranks_agree_bitwise(num_ranks, dtype, kind, placement):
    first, *others = ranks_of(num_ranks)
    name = rank_side.name_of(dtype, kind, placement)
    for other in others:
        assert_same_bits(first[name], other[name])


# Each case that has a replicated counterpart.
@pytest.mark.parametrize(
    ("num_ranks", "dtype", "kind", "other"),
    [case for case in CASES if case[3] != "replicated" and (*case[:3], "replicated") in CASES],
)
def test_placements_agree_bitwise(num_ranks, dtype, kind, other):
    first, *_ = ranks_of(num_ranks)
    replicated = first[rank_side.name_of(dtype, kind, "replicated")]
    assert_same_bits(replicated, first[rank_side.name_of(dtype, kind, other)])


@pytest.mark.parametrize(("num_ranks", "kind"), KINDS)
def test_ranks_equal_one_process_in_float64(num_ranks, kind):
    first, *_ = ranks_of(num_ranks)
    alone = rank_side.train("fp64", kind, "replicated", 0, 1, split=num_ranks)
    for name, ours in first[rank_side.name_of("fp64", kind, "row_wise")].items():
        torch.testing.assert_close(ours, alone[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("num_ranks", "dtype", "kind"),
    [case[:3] for case in CASES if case[1] != "fp64" and case[3] == "replicated"],
)
def test_ranks_equal_one_process_with_as_many_micro_batches_bitwise(num_ranks, dtype, kind):
    # A mean over ranks that somebody forgot to take, or took twice, would show here.
    first, *_ = ranks_of(num_ranks)
    alone = rank_side.train(dtype, kind, "replicated", 0, 1, split=num_ranks)
    assert_same_bits(first[rank_side.name_of(dtype, kind, "replicated")], alone)
