"""The two real gloo ranks of `test_calibration.py`, run as a script: FOLDER."""

import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from gloo_ranks import run_gangs
from torch import distributed as dist

from distrain.embeddings.sharding.calibration import calibrate, least_over_ranks


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


if __name__ == "__main__":
    run_gangs(Path(sys.argv[1]), [2], measured)
