"""A rank that recorded operations of NCCL leaves its process group, on a GPU."""

import subprocess
import sys

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU"),
]

RANK = """
import torch
from torch import distributed as dist

from distrain.models.embeddings import Peers
from distrain.train.control.rank_setup import leave_peers
from distrain.train.step.recorder import Recorder

device = torch.device("cuda", 0)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=device)
recorder = Recorder(Peers(), gives_up=False)


def double(inputs):
    (values,) = inputs
    received = torch.empty_like(values)
    dist.all_reduce(values)
    dist.all_to_all_single(received, values)
    return (2 * received,)


for number in range(6):
    given = torch.full((3,), float(number), device=device)
    (result,) = recorder.call("double", 3, (given,), double)
    assert result.tolist() == 3 * [2.0 * number]
assert recorder.replays == 3
recorder.forget()
leave_peers()
print("left")
"""


def test_a_rank_with_recorded_collectives_leaves_its_group():
    """NCCL waits for ever for graphs that hold operations of a communicator that is to end."""
    rank = subprocess.run(
        [sys.executable, "-c", RANK], timeout=120, check=True, capture_output=True, text=True
    )
    assert rank.stdout.split() == ["left"]
