"""Two ranks that share a GPU through gloo, against one."""

from datetime import timedelta
from pathlib import Path

import pytest
from devices import on_gpu
from rank_processes import LONG_S, HeldRank, assignment_of
from small_jobs import make_spec
from torch.distributed import TCPStore

from distrain.metrics import BinaryMetrics
from distrain.train.control.rank_setup import COLLECTIVES

STEPS = 20


def losses(
    prepared: Path, run_dir: Path, device: str, num_ranks: int, placement: str
) -> list[float]:
    """The mean loss of each step, over all ranks."""
    spec = make_spec(
        prepared,
        f"resources={{num_ranks: {num_ranks}, device: {device}}}",
        # Where an input of a ReLU comes as close to 0 as rounding reaches, rounding decides its
        # sign, and curves part; so the layer is narrow. Adagrad's first update of a value is its
        # rate times the gradient's sign: without a larger eps, noise becomes a whole step.
        "model={kind: mlp, embedding_dim: 4, hidden: [16]}",
        "train.optimizer={kind: adagrad, lr: 0.01, eps: 1.0e-6}",
        f"train.max_steps={STEPS}",
        "train.log_every_steps=1",
        f"embeddings.placement={placement}",
    )
    store = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=LONG_S))
    port = store.port if num_ranks > 1 else None
    ranks = [HeldRank(assignment_of(spec, run_dir, rank, port)) for rank in range(num_ranks)]
    try:
        for rank in ranks:
            rank.wait_for("rank_finished")
        assert [rank.end() for rank in ranks] == [0] * num_ranks
        assert all(device in rank.of_kind("rank_started")[0]["device"] for rank in ranks)
        steps = zip(*(rank.of_kind("steps_done") for rank in ranks), strict=True)
        return [merged_loss([event["metrics"] for event in of_step]) for of_step in steps]
    finally:
        for rank in ranks:
            rank.close()


def merged_loss(states: list[dict[str, object]]) -> float:
    merged = BinaryMetrics()
    for state in states:
        merged = merged.merge(BinaryMetrics.from_json(state))
    loss = merged.compute().log_loss
    assert loss is not None
    return loss


@on_gpu
@pytest.mark.parametrize("placement", ["replicated", "row_wise"])
def test_two_ranks_on_a_gpu_follow_the_curve_of_one(
    device: str,
    placement: str,
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(COLLECTIVES, "gloo")
    alone = losses(prepared, tmp_path / "1", device, 1, placement)
    together = losses(prepared, tmp_path / "2", device, 2, placement)
    assert len(alone) == STEPS
    assert alone[-1] < alone[0]
    assert together == pytest.approx(alone, rel=1e-4)
