"""The running statistics of batch norms on three real gloo ranks, against a naive mean."""

from pathlib import Path

import pytest
import torch
from gloo_ranks import on_ranks
from loaded_scripts import load_script

pytestmark = pytest.mark.slow  # tests/train/loop/test_resume.py has a model with batch norm too

MOMENTUM = 0.1


rank_side = load_script(Path(__file__).with_name("buffer_ranks.py"))


@pytest.fixture(scope="module")
def ranks():
    """What each rank told."""
    return on_ranks(rank_side.NUM_RANKS, rank_side.results)


def expected_statistics(least_rows):
    """Means and variances after each step: each rank's update, then the mean over the ranks."""
    mean = torch.full((rank_side.WIDTH,), 1.0)  # rank 0's, which all begin with
    var, count = torch.ones(rank_side.WIDTH), 0
    for step, counts in enumerate(rank_side.STEPS):
        means, variances = [], []
        for rank, own in enumerate(counts):
            rows = rank_side.rows_of(step, rank, max(own, least_rows))
            share = MOMENTUM if len(rows) > 1 else 0.0
            own_mean, own_var = (rows.mean(0), rows.var(0)) if share else (mean, var)
            means.append(mean + share * (own_mean - mean))
            variances.append(var + share * (own_var - var))
        count += any(max(own, least_rows) > 1 for own in counts)
        mean, var = torch.stack(means).mean(0), torch.stack(variances).mean(0)
        yield mean, var, count


@pytest.mark.parametrize(("norm", "least_rows"), [("BatchNorm", 0), ("BatchNorm1d", 2)])
def test_statistics_are_the_mean_of_the_ranks_and_the_same_bits(ranks, norm, least_rows):
    for step, (mean, var, count) in enumerate(expected_statistics(least_rows)):
        own = [rank[norm][step] for rank in ranks]
        torch.testing.assert_close(own[0]["norm.running_mean"], mean)
        torch.testing.assert_close(own[0]["norm.running_var"], var)
        assert int(own[0]["norm.num_batches_tracked"]) == count
        for other in own[1:]:
            for key in ("running_mean", "running_var", "num_batches_tracked"):
                assert torch.equal(other[f"norm.{key}"], own[0][f"norm.{key}"])


def test_buffers_that_are_not_saved_are_left_alone(ranks):
    for number, rank in enumerate(ranks):
        for step in rank["BatchNorm"]:
            assert torch.equal(step["constant"], torch.full((2,), float(number)))
