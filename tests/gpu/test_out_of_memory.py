"""What a rank says when memory runs out, and how it ends."""

from pathlib import Path

import pytest
import torch
from devices import HAS_GPU, on_gpu
from rank_processes import HeldRank, assignment_of
from small_jobs import make_spec, write_prepared

from distrain.models.embeddings.kernels import on_torch as kernels_torch
from distrain.train.rank.failures import explain_failure

LIMIT_BYTES = 256 * 2**20
LITTLE_MEMORY = f"""
import torch
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction({LIMIT_BYTES} / total, 0)
"""


@on_gpu
def test_who_asked_for_too_much_is_named_and_what_to_do(device: str) -> None:
    weight = torch.zeros(2, 8, device=device)
    keys = torch.zeros(1, dtype=torch.int64, device=device).expand(2**45)
    with pytest.raises(RuntimeError) as caught:
        kernels_torch.gather(weight, keys)
    failure = explain_failure(caught.value, rank=3)
    assert failure.reason == "OutOfMemory"
    first, asker, hint = failure.message.splitlines()[-3:]
    assert failure.message.startswith("rank 3: ")
    assert "tried to allocate" in first.lower()
    assert asker.startswith("  allocated by: distrain/models/embeddings/kernels/on_torch.py:")
    assert "in gather: rows = weight.index_select(0, keys)" in asker
    assert "train.micro_batches" in hint


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="torch finds no NVIDIA GPU")
def test_a_step_that_does_not_fit_ends_its_rank_in_order(tmp_path: Path) -> None:
    """Tables, network and Adagrad's memory take half of it, the first layer's outputs the rest."""
    spec = make_spec(
        write_prepared(tmp_path / "prepared"),
        "resources={num_ranks: 1, device: cuda}",
        "model={kind: mlp, embedding_dim: 64, hidden: [4096]}",
        "train.global_batch_size=10000",
    )
    rank = HeldRank(assignment_of(spec, tmp_path / "run"), LITTLE_MEMORY)
    try:
        failed = rank.wait_for("rank_failed")
        assert rank.end() == 1
        assert rank.events[-1]["kind"] in ("rank_failed", "heartbeat")
        assert rank.of_kind("training_started")
    finally:
        rank.close()
    assert failed["reason"] == "OutOfMemory"
    assert failed["message"].startswith("rank 0: OutOfMemoryError: CUDA out of memory.")
    assert "allocated by: distrain/" in failed["message"]
    assert "train.micro_batches" in failed["message"]
    assert "Traceback" in failed["traceback"]
