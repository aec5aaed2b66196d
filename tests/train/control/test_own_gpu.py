"""Ranks that take the same GPU are told so, before NCCL is asked."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from distrain.errors import SpecError
from distrain.jobs.assignment import World
from distrain.train.control.rank_setup import check_own_gpu

TIMEOUT = timedelta(seconds=120)


def told(gpus):
    """What each rank is told: an error, or `None`."""
    store = HashStore()

    def check(rank):
        try:
            check_own_gpu(store, World(rank, len(gpus)), gpus[rank], TIMEOUT)
        except SpecError as error:
            return error
        return None

    with ThreadPoolExecutor(len(gpus)) as ranks:
        return list(ranks.map(check, range(len(gpus))))


def test_ranks_with_gpus_of_their_own_go_on():
    assert told(["a", "b", "c"]) == [None] * 3


@pytest.mark.parametrize("gpus", [["a", "a"], ["a", "b", "a"]])
def test_every_rank_is_told_who_shares_a_gpu(gpus):
    errors = told(gpus)
    assert all(errors)
    for error in errors:
        assert f"ranks {[0, len(gpus) - 1]} have the same GPU" in str(error)
        assert "dask cuda worker" in error.hint
