"""The tensors of a dense module and of its torch optimizer, by the parameters' names.

An optimizer may hold a module's parameters one by one, or one vector of which they are views. What
it remembers is named by parameter either way, so a state saved from one is loaded into the other.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def dense_tensors(module: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The live tensors on which the module's training depends.

    An optimizer that has not stepped yet is made to create what it remembers.

    Args:
        module: On its device, not wrapped.
        optimizer: Of all its trainable parameters.

    Returns:
        `dense.NAME` for each parameter and buffer, `dense_optimizer.NAME.KEY` for what the
        optimizer remembers of a parameter: of its shape, or a scalar such as the number of steps.

    >>> layer = nn.Linear(2, 1)
    >>> tensors = dense_tensors(layer, torch.optim.Adagrad(layer.parameters()))
    >>> sorted(tensors)[:3]
    ['dense.bias', 'dense.weight', 'dense_optimizer.bias.step']
    """
    _create_memory(optimizer)
    tensors: dict[str, Tensor] = module.state_dict(prefix="dense.")
    for held in _held_by(optimizer):
        memory = {k: v for k, v in optimizer.state.get(held, {}).items() if isinstance(v, Tensor)}
        for name, parameter, place in _parts_of(held, module):
            for key, value in memory.items():
                if value.shape == held.shape:
                    value = value.view(-1)[place].view(parameter.shape)
                tensors[f"dense_optimizer.{name}.{key}"] = value
    return tensors


def _held_by(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _parts_of(held: Tensor, module: nn.Module) -> Iterator[tuple[str, Tensor, slice]]:
    """The module's parameters in what the optimizer holds, and where they stand in it."""
    memory = held.untyped_storage().data_ptr()
    for name, parameter in module.named_parameters():
        start = parameter.storage_offset() - held.storage_offset()
        inside = 0 <= start <= held.numel() - parameter.numel()
        if parameter.untyped_storage().data_ptr() == memory and inside:
            yield name, parameter, slice(start, start + parameter.numel())


def _create_memory(optimizer: Optimizer) -> None:
    """Have an optimizer create what it remembers, as it is before its first step.

    Some do so in their first step only. One with gradients of zero moves nothing, and what it
    creates is zeros but for the count of steps.
    """
    held = _held_by(optimizer)
    lacks = [not optimizer.state.get(parameter) for parameter in held]
    if not any(lacks):
        return
    grads = [parameter.grad for parameter in held]
    for parameter, lack in zip(held, lacks, strict=True):
        parameter.grad = torch.zeros_like(parameter) if lack else None
    optimizer.step()
    for parameter, grad, lack in zip(held, grads, lacks, strict=True):
        parameter.grad = grad
        for value in optimizer.state.get(parameter, {}).values() if lack else ():
            if isinstance(value, Tensor):
                value.zero_()
