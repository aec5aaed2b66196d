"""What ranks talk through: NCCL between GPUs, gloo elsewhere or where it is asked for."""

import pytest
import torch
from wording import Wording

from distrain.errors import SpecError
from distrain.train.control.rank_setup import COLLECTIVES, choose_backend


def test_what_ranks_talk_through(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    monkeypatch.delenv(COLLECTIVES, raising=False)
    gpu, cpu = torch.device("cuda", 0), torch.device("cpu")
    assert (choose_backend(gpu), choose_backend(cpu)) == ("nccl", "gloo")
    for asked, of_gpu in (("auto", "nccl"), ("gloo", "gloo")):
        monkeypatch.setenv(COLLECTIVES, asked)
        assert (choose_backend(gpu), choose_backend(cpu)) == (of_gpu, "gloo")
    monkeypatch.setenv(COLLECTIVES, "mpi")
    wording.refused(SpecError, lambda: choose_backend(gpu))
