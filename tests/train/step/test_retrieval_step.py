"""Retrieval in a step: candidates of all ranks, so that ranks change nothing."""

from pathlib import Path

import pytest
import torch
from gloo_ranks import on_ranks
from loaded_scripts import load_script
from torch_checks import one_torch_thread

rank_side = load_script(Path(__file__).with_name("retrieval_ranks.py"))
NEAR = {"rtol": 1e-11, "atol": 1e-12}


@pytest.mark.slow
def test_ranks_train_as_one_does():
    """Also in a step of one row, in which the others have none."""
    with one_torch_thread():
        alone = rank_side.train_all(0, 1)
    for gang in rank_side.GANGS:
        found = on_ranks(gang, rank_side.train_all)
        for place, (state, losses) in enumerate(alone):
            of_ranks = [rank[place] for rank in found]
            for ours, _ in of_ranks:
                for one, other in zip(ours, of_ranks[0][0], strict=True):
                    assert torch.equal(one, other)
                for one, other in zip(ours, state, strict=True):
                    torch.testing.assert_close(one, other, **NEAR)
            torch.testing.assert_close(sum(loss for _, loss in of_ranks), losses, **NEAR)
