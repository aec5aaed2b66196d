"""The two real gloo ranks of `test_calibration.py`."""

import time
from dataclasses import asdict

import torch
from torch import distributed as dist

from distrain.models.embeddings.sharding.calibration import calibrate, least_over_ranks


def measured(rank, num_ranks):
    """What a rank measures, how long it takes, and the least of the ranks' numbers."""
    cpu = torch.device("cpu")
    dist.barrier()
    began_s = time.perf_counter()
    costs = calibrate(None, cpu)
    return asdict(costs) | {
        "took_s": time.perf_counter() - began_s,
        "least": least_over_ranks(2**40 + (7 - rank), None, cpu),
    }
