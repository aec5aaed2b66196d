"""A training's state goes from a CPU to a GPU and back without losing a bit."""

from pathlib import Path

import pytest
import torch
from checkpoint_states import read_all, save_together
from click_models import batches_for, model_over
from devices import on_gpu

from distrain.jobs.spec import TrainSpec
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, TableColumn
from distrain.train.checkpoint import CheckpointDir, TrainingState
from distrain.train.checkpoint.manifest import from_document
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

COLUMNS = [TableColumn("a", 500, 8), TableColumn("b", 3, 8), TableColumn("wide", 40, 20)]
NUMBERS = ("x", "y")


def new_step(device: str, kind: str, seed: int) -> TrainStep:
    tables = EmbeddingCollection(COLUMNS, generator=torch.Generator().manual_seed(seed))
    torch.manual_seed(seed)
    # A bias before it would have gradients of nothing but rounding.
    body = MLPBlock([8], normalisation="batch_norm", bias=False)
    model = model_over(tables, body, NUMBERS).to(device)
    # The larger eps keeps rounding noise around zero from becoming a whole step.
    return TrainStep(model, TrainSpec.model_validate({"optimizer": {"kind": kind, "eps": 1e-4}}), 1)


def take_steps(step: TrainStep, device: str, seed: int) -> None:
    for batch in batches_for(COLUMNS, NUMBERS, 64, 3, device, seed):
        step(batch, 64, 0.1, PhaseClock())


def state_of(step: TrainStep) -> TrainingState:
    return TrainingState(step.model, step.sparse_optimizer, step.dense.optimizer.torch_optimizer)


def values_of(step: TrainStep) -> dict[str, torch.Tensor]:
    """All weights and all that the optimizers remember, on the host."""
    model, dense = step.model, step.dense.optimizer.torch_optimizer
    found = {f"dense.{name}": value for name, value in model.dense.state_dict().items()}
    found |= {f"tables.{i}": weight.data for i, weight in enumerate(model.embeddings.weights)}
    found |= {f"sparse.{n}": value for n, value in step.sparse_optimizer.state_dict().items()}
    for number, of_parameter in enumerate(dense.state_dict()["state"].values()):
        found |= {f"optimizer.{number}.{name}": value for name, value in of_parameter.items()}
    return {name: value.detach().cpu().clone() for name, value in found.items()}


def carried(step: TrainStep, into: TrainStep, folder: Path) -> TrainStep:
    """Save one training's state and load it into another's."""
    place = CheckpointDir(str(folder))
    told, _ = save_together(place, [state_of(step)], step=step.sparse_optimizer.num_steps)
    assert told == [True]
    (name,) = [entry.name for entry in place.list()]
    assert from_document(place.read_manifest(name)).step == step.sparse_optimizer.num_steps
    read_all(place, name, [state_of(into)])
    return into


@on_gpu
@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
def test_from_the_cpu_to_the_gpu_and_back(device: str, kind: str, tmp_path: Path) -> None:
    first = new_step("cpu", kind, seed=0)
    take_steps(first, "cpu", seed=1)
    there = carried(first, new_step(device, kind, seed=5), tmp_path / "there")
    assert {p.device.type for p in there.model.parameters()} == {device}
    assert_same(values_of(there), values_of(first))
    take_steps(there, device, seed=2)
    back = carried(there, new_step("cpu", kind, seed=6), tmp_path / "back")
    assert_same(values_of(back), values_of(there))
    take_steps(first, "cpu", seed=2)  # the same steps on the CPU lead to the same place
    for name, value in values_of(back).items():
        torch.testing.assert_close(value, values_of(first)[name], rtol=1e-3, atol=1e-3)


def assert_same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert value.dtype == right[name].dtype, name
        assert torch.equal(value, right[name]), name
