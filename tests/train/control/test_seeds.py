"""What a rank draws: the same again, and not what its peers draw."""

import random

import numpy as np
import torch

from distrain.train.control.rank_setup import seed_everything

CPU = torch.device("cpu")


def drawn(seed, rank):
    """The first numbers of every generator, which are left as they were."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        seed_everything(seed, rank, CPU)
        told = (
            torch.nn.functional.dropout(torch.ones(64)).tolist(),
            np.random.random(),
            random.random(),
        )
    random.setstate(states[0])
    np.random.set_state(states[1])
    return told


def test_ranks_drop_out_other_units_and_the_same_ones_again():
    pairs = [(0, 0), (0, 1), (1, 0), (2**32, 0), (2**63 - 1, 1)]
    first = [drawn(*pair) for pair in pairs]
    assert first == [drawn(*pair) for pair in pairs]
    for place in range(3):
        assert len({str(one[place]) for one in first}) == len(pairs)
