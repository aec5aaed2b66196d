"""What tests of torch modules share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Have torch compute in one thread.

    Small tensors take a hundred times as long where threads wait for each other, and two processes
    have the same bits only if they cut their sums alike.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def attached(part: Any, given: Any) -> Any:
    """Attach a block or a task, in float64, with the same parameters each time; what it gives."""
    torch.manual_seed(0)
    gives = part.attach(given)
    part.double()
    return gives


def check_gradients(
    module: nn.Module,
    inputs: Sequence[Tensor],
    result: Callable[..., Tensor],
) -> None:
    """Compare gradients with finite differences, of the inputs and of every parameter.

    Args:
        module: In float64.
        inputs: What it computes from.
        result: From the module, called with other parameters, and the inputs to what is
            differentiated.
    """
    parameters = dict(module.named_parameters())
    values = [value.detach().clone().requires_grad_() for value in parameters.values()]
    inputs = [tensor.detach().clone().requires_grad_() for tensor in inputs]

    def run(*tensors: Tensor) -> Tensor:
        own = dict(zip(parameters, tensors[len(inputs) :], strict=True))

        def call(*words: Any) -> Any:
            return torch.func.functional_call(module, own, words)

        return result(call, *tensors[: len(inputs)])

    assert torch.autograd.gradcheck(run, (*inputs, *values))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Have torch compute in one thread in a module's tests."""
    with one_torch_thread():
        yield
