"""Whether a network computes each row from that row alone, so that a batch can go in slices."""

from torch import nn

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
"""Of torch's layers those that never look at other rows, whatever their options."""


def rows_are_independent(network: nn.Module) -> bool:
    """Whether no row's output or loss depends on the other rows of its batch.

    A module may say so by an attribute `rows_are_independent`. Of those that do not, this package's
    own and the usual layers of torch count as independent, and all others do not: what a user's
    class does is not known.

    >>> rows_are_independent(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
    True
    >>> rows_are_independent(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    False
    """
    return all(_is_independent(module) for module in network.modules())


def _is_independent(module: nn.Module) -> bool:
    said = getattr(module, "rows_are_independent", None)
    if said is not None:
        return bool(said)
    kind = type(module)
    if module._forward_hooks or module._forward_pre_hooks:
        return False
    return kind in _LAYERS or kind.__module__.startswith("distrain.models.")
