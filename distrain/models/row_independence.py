"""Check whether a network computes each row from that row alone, so that batches can be split."""

from torch import nn
from torch.nn.modules import module as hooks

_LAYERS = (
    nn.Linear,
    nn.Identity,
    nn.Dropout,
    nn.LayerNorm,
    nn.Sequential,
    nn.ModuleList,
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.LeakyReLU,
    nn.LogSigmoid,
    nn.Mish,
    nn.PReLU,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Tanh,
)
"""Layers of torch that never use other rows, with any options."""

_GLOBAL_HOOKS = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
)
"""torch's hooks on all modules, by their names since torch 2.7 or earlier."""


def rows_are_independent(network: nn.Module) -> bool:
    """Return True if each row's outputs and loss are independent of the other rows in the batch.

    All modules of the network must be independent. For each module, the first rule that applies
    decides:

    1. A module with a hook (on it, on a parameter, or on all modules) is not independent, nor is an
       instance whose `forward`, `loss`, `logits` or `scores` was replaced.
    2. The attribute `rows_are_independent` of an instance or a class decides. A subclass inherits
       False; if it inherits True, it is not independent either unless it declares True itself.
    3. Classes of `distrain.models` and the usual layers of torch (`_LAYERS`) are independent.
       Other classes are not.

    >>> rows_are_independent(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
    True
    >>> rows_are_independent(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    False
    """
    if any(getattr(hooks, name) for name in _GLOBAL_HOOKS):
        return False
    return all(_is_independent(module) for module in network.modules())


def _is_independent(module: nn.Module) -> bool:
    kind, own = type(module), vars(module)
    if _is_hooked(module) or any(name in own for name in ("forward", "loss", "logits", "scores")):
        return False
    declared = getattr(module, "rows_are_independent", None)
    if declared is not None:
        return bool(declared) and (
            "rows_are_independent" in own or "rows_are_independent" in vars(kind)
        )
    return kind in _LAYERS or kind.__module__.startswith("distrain.models.")


def _is_hooked(module: nn.Module) -> bool:
    of_module = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return any(of_module) or any(
        parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
        for parameter in module.parameters(recurse=False)
    )
