"""Moving averages of weights against torch's, which averages all of them in every step."""

import pytest
import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from distrain.jobs.optimizers import OptimizerKind
from distrain.jobs.spec import MlpSpec, TrainSpec
from distrain.jobs.spec.training import OptimizerSpec
from distrain.loader.batch import Batch
from distrain.models import ClickModel, build_model
from distrain.models.embeddings.averaging import MOST_OF_START
from distrain.schema import ColumnSchema, Schema
from distrain.train.step.averages import averaged, take_averages
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", ("target", "binary_classification")),
        ColumnSchema("user", "int32", ("categorical",), 40),
        ColumnSchema("shop", "int32", ("categorical",), 7),
    )
)


def batch(number: int) -> Batch:
    generator = torch.Generator().manual_seed(number)
    ids = torch.stack([torch.randint(high, (6,), generator=generator) for high in (40, 7)], 1)
    label = torch.randint(2, (6,), generator=generator).float()
    return Batch(ids.int(), torch.zeros(6, 0), label, ("user", "shop"), ())


def values(model: ClickModel) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_averages_are_those_of_torch_also_of_rows_that_few_steps_touch(kind: OptimizerKind) -> None:
    train = TrainSpec(optimizer=OptimizerSpec(kind=kind), ema=0.5)
    model, plain = (build_model(SCHEMA, MlpSpec(hidden=(4,)), seed=1) for _ in range(2))
    step = TrainStep(model, train, 1)
    alone = TrainStep(plain, train.model_copy(update={"ema": None}), 1)
    average = get_ema_multi_avg_fn(0.5)
    expected = values(plain)
    for number in range(70):  # beyond the 66 steps of a period
        for one in (step, alone):
            one(batch(number), 6, 0.1, PhaseClock())
        average([expected], [values(plain)], number)
        assert torch.equal(values(model), values(plain))
        if number in (0, 1, 3, 4, 65, 66, 69):
            # The initial weights are too much of the first averages, so the weights are scored.
            wanted = expected if 0.5 ** (number + 1) <= MOST_OF_START else values(plain)
            with averaged(step):
                torch.testing.assert_close(values(model), wanted)
            assert torch.equal(values(model), values(plain))
    take_averages(step)
    torch.testing.assert_close(values(model), expected)
