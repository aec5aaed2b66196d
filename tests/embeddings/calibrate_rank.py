"""One real gloo rank of `test_calibrate.py`, run as a script: RANK NUM_RANKS FOLDER."""

import json
import os
import sys
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed as dist

from distrain.embeddings.calibrate import calibrate, least_over_ranks


def main(rank, num_ranks, folder):
    store = dist.FileStore(str(folder / "store"), num_ranks)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=num_ranks, timeout=timedelta(seconds=60)
    )
    cpu = torch.device("cpu")
    dist.barrier()
    began_s = time.perf_counter()
    costs = calibrate(None, cpu)
    found = asdict(costs) | {
        "took_s": time.perf_counter() - began_s,
        "least": least_over_ranks(2**40 + (7 - rank), None, cpu),
    }
    dist.destroy_process_group()
    (folder / f"{rank}.part").write_text(json.dumps(found))
    (folder / f"{rank}.part").rename(folder / f"{rank}.json")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    # gloo sometimes aborts at interpreter exit, after all work is done.
    os._exit(0)
