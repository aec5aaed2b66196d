"""A dense part's state, whichever way its optimizer holds the parameters."""

import pytest
import torch
from torch import nn

from distrain.train.checkpoint.training_state import dense_tensors
from distrain.train.step.gradient_sync import FlatParameters

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.5),
}


class Training:
    """A small module and its optimizer, which holds parameters or one flat vector."""

    def __init__(self, kind, flat, seed):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))
        self.flat = FlatParameters(self.module) if flat else None
        held = [self.flat.vector] if flat else list(self.module.parameters())
        self.optimizer = OPTIMIZERS[kind](held)

    def steps(self, count):
        generator = torch.Generator().manual_seed(3)
        for _ in range(count):
            inputs = torch.randn(4, 3, generator=generator)
            self.optimizer.zero_grad(set_to_none=False)
            self.module(inputs).square().sum().backward()
            self.optimizer.step()

    def tensors(self):
        return dense_tensors(self.module, self.optimizer)


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("from_flat", [False, True])
@pytest.mark.parametrize("steps_before", [0, 2])
def test_a_state_goes_from_either_way_to_the_other(kind, from_flat, steps_before):
    old = Training(kind, from_flat, seed=1)
    old.steps(3)
    new = Training(kind, not from_flat, seed=2)
    new.steps(steps_before)
    saved = {name: values.clone() for name, values in old.tensors().items()}
    live = new.tensors()
    assert {n: v.shape for n, v in live.items()} == {n: v.shape for n, v in saved.items()}
    with torch.no_grad():
        for name, values in saved.items():
            live[name].copy_(values)
    for training in (old, new):
        training.steps(2)
    expected = old.tensors()
    for name, values in new.tensors().items():
        torch.testing.assert_close(values, expected[name], rtol=1e-6, atol=1e-7)
    assert (kind == "sgd") == (not any("optimizer" in name for name in saved))


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("flat", [False, True])
def test_looking_at_a_state_changes_nothing(kind, flat):
    one, other = (Training(kind, flat, seed=1) for _ in range(2))
    one.tensors()
    for _ in range(2):
        one.steps(1)
        other.steps(1)
        grads = [p.grad.clone() for p in one.module.parameters()]
        one.tensors()
        for parameter, same, grad in zip(
            one.module.parameters(), other.module.parameters(), grads, strict=True
        ):
            assert torch.equal(parameter, same)
            assert torch.equal(parameter.grad, grad)
