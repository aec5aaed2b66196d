"""What blocks are made of: activations by name, linear layers, one-hot."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError
from distrain.models.shapes import GroupedRows, Value, all_parts, flat_parts

_LAYERS: dict[str, Callable[..., nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "selu": nn.SELU,
    "leaky_relu": nn.LeakyReLU,
    "none": nn.Identity,
}
# These can overwrite what they are given: their gradient follows from their output.
_IN_PLACE = {"relu", "selu", "leaky_relu"}

ACTIVATIONS = tuple(_LAYERS)


def activation_layer(name: str, *, inplace: bool = False) -> nn.Module:
    """A new layer of one of `ACTIVATIONS`, with torch's defaults (leaky_relu: a slope of 0.01).

    `inplace` overwrites the input, where the activation can: only where no gradient needs it.

    >>> activation_layer("relu", inplace=True)
    ReLU(inplace=True)
    """
    if name not in _LAYERS:
        raise ModelError(
            f"there is no activation {name!r}", hint=f"Take one of {', '.join(ACTIVATIONS)}."
        )
    return _LAYERS[name](inplace=True) if inplace and name in _IN_PLACE else _LAYERS[name]()


class Linear(nn.Linear):
    """torch's linear layer, in the form for a GPU there; see `linear_over`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear_over(self, [input])


def linear_over(layer: nn.Linear, parts: Sequence[Tensor]) -> Tensor:
    """`layer(torch.cat(parts, dim=1))` for one or more parts `[rows, width]`, without the copy.

    The weight is cut instead. The embeddings of a batch are its largest tensor by far, and a step
    that never copies them, nor their gradient, is about a tenth faster for it (docs/log.md).

    On a GPU the gradient of the bias is a product with a vector of ones, and where `pads` says so,
    parts and weights get columns of zeros.

    >>> layer, (a, b) = nn.Linear(5, 2), (torch.ones(4, 3), torch.ones(4, 2))
    >>> torch.allclose(linear_over(layer, [a, b]), layer(torch.cat([a, b], dim=1)))
    True
    """
    if len(parts) == 1:
        weights: Sequence[Tensor] = [layer.weight]
    else:
        weights = torch.split(layer.weight, [part.shape[1] for part in parts], dim=1)
    if parts[0].dim() == 2 and pads(parts[0]):
        added = [-part.shape[1] % ALIGNED for part in parts]
        parts = [padded([part]) if more else part for part, more in zip(parts, added, strict=True)]
        weights = [grown(one, 0, more) for one, more in zip(weights, added, strict=True)]
    output = _linear(parts[0], weights[0], layer.bias)
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        output = torch.addmm(output, part, weight.t())
    return output


def linear_of(layer: nn.Linear, value: Value) -> Tensor:
    """`layer(flat(value))`, without the copy; grouped rows stay in their groups."""
    parts = all_parts(value)
    if not any(isinstance(part, GroupedRows) for part in parts):
        return linear_over(layer, flat_parts(value))
    weights = torch.split(layer.weight, [part.shape[1] for part in parts], dim=1)
    found = [
        part.times(weight) if isinstance(part, GroupedRows) else functional.linear(part, weight)
        for part, weight in zip(parts, weights, strict=True)
    ]
    output: Tensor = sum(found[1:], found[0])
    return output if layer.bias is None else output + layer.bias


def linear_as_wide(layer: nn.Linear, value: Tensor, width: int) -> Tensor:
    """`layer(value)`, `[rows, width]`, where both may have columns of zeros after their own."""
    more = width - layer.out_features
    weight = grown(layer.weight, more, value.shape[1] - layer.in_features)
    return _linear(value, weight, layer.bias if layer.bias is None else grown(layer.bias, more))


def grown(values: Tensor, *added: int) -> Tensor:
    """With so many zeros after what each dimension has."""
    sizes = [size for more in reversed(added) for size in (0, more)]
    return functional.pad(values, sizes) if any(added) else values


def _linear(value: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None or value.dim() != 2 or not (bias.requires_grad and is_eager_gpu(value)):
        return functional.linear(value, weight, bias)
    output = functional.linear(value, weight, bias.detach())
    result: Tensor = _BiasGradient.apply(output, bias)  # type: ignore[no-untyped-call]
    return result


ALIGNED = 8
"""Matrix units take rows that begin at multiples of 16 bytes: 8 numbers of 16 bits."""


def pads(value: Tensor) -> bool:
    """Return True if columns of zeros are worth a copy of it: for products of 16 bits on a GPU.

    Without, these are four to ten times as slow (13, 367 or 429 columns, on an H200).
    """
    if not is_eager_gpu(value) or value.dtype == torch.float64:
        return False
    return torch.is_autocast_enabled(value.device.type)


def padded(parts: Sequence[Tensor]) -> Tensor:
    """Parts side by side in autocast's type, with zeros up to a multiple of `ALIGNED` columns."""
    if len(parts) == 1 and (whole := getattr(parts[0], "padded", None)) is not None:
        return cast(Tensor, whole)
    dtype = torch.get_autocast_dtype(parts[0].device.type)
    *others, last = (part.to(dtype) for part in parts)
    more = -sum(part.shape[1] for part in parts) % ALIGNED
    # The zeros go to the last part first: torch copies parts of whole 16 bytes three times as fast.
    last = torch.cat([last, last.new_zeros(len(last), more)], dim=1) if more else last
    return torch.cat([*others, last], dim=1) if others else last


def without_padding(value: Tensor, width: int) -> Tensor:
    """Return its first columns; `padded` finds the zeros after them again, without a copy."""
    if value.shape[1] == width:
        return value
    own = value[:, :width]
    own.padded = value  # type: ignore[attr-defined]
    return own


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """`torch.cat(parts, dim=1)`, made ready for products."""
    if pads(parts[0]):
        return without_padding(padded(parts), sum(part.shape[1] for part in parts))
    return torch.cat([*parts], dim=1)


def is_eager_gpu(value: Tensor) -> bool:
    """Return True if it lies on a GPU, and neither a compiler nor an exporter looks on."""
    return value.is_cuda and not torch.compiler.is_compiling()


class _BiasGradient(torch.autograd.Function):
    """Gives a linear layer's output, which has the bias in it, the gradient of the bias.

    torch sums the output's gradient over the rows. For 65,536 rows of 128 that takes an H200 0.06
    ms, and a product with ones, as wide as a head's, 0.01 ms.
    """

    @staticmethod
    def forward(output: Tensor, bias: Tensor) -> Tensor:
        return output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.mark_dirty(output)  # is passed on itself, for activations to overwrite

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        if grad.shape[1] == 1:  # a product of two vectors has one thread block
            return grad, grad.sum(0)
        return grad, (grad.new_ones(1, grad.shape[0]) @ grad)[0]


def one_hot(ids: Tensor, num_bins: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A 1 in the place of each id, 0 elsewhere, `[rows, num_bins]`; nothing waits for the device.

    A linear layer over it picks a column of its weight, which an embedding of the same ids does
    without the zeros: give `Embeddings` the cross or the column, with `dim` the layer's outputs.

    Args:
        ids: `[rows]`, integers; one outside `0 .. num_bins-1` gives zeros.

    >>> one_hot(torch.tensor([2, 0]), 3)
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    return (ids[:, None] == torch.arange(num_bins, device=ids.device)).to(dtype)
