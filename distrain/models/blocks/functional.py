"""Functions for blocks: activations by name, linear layers, one-hot."""

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
# These can overwrite their input: their gradient follows from their output.
_IN_PLACE = {"relu", "selu", "leaky_relu"}

ACTIVATIONS = tuple(_LAYERS)


def activation_layer(name: str, *, inplace: bool = False) -> nn.Module:
    """Return a new layer of one of `ACTIVATIONS`, with torch's defaults (leaky_relu: slope 0.01).

    `inplace` overwrites the input, if the activation can. Use it only if no gradient needs the
    input. Raises ModelError for an unknown name.

    >>> activation_layer("relu", inplace=True)
    ReLU(inplace=True)
    """
    if name not in _LAYERS:
        raise ModelError(
            f"unknown activation {name!r}", hint=f"Use one of {', '.join(ACTIVATIONS)}."
        )
    return _LAYERS[name](inplace=True) if inplace and name in _IN_PLACE else _LAYERS[name]()


class Linear(nn.Linear):
    """torch's linear layer, with a faster gradient on a GPU; see `linear_over`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear_over(self, [input])


def linear_over(layer: nn.Linear, parts: Sequence[Tensor]) -> Tensor:
    """Return `layer(torch.cat(parts, dim=1))` for parts `[rows, width]`, without the copy.

    The weight is split instead. The embeddings of a batch are by far its largest tensor. Without
    copies of them and their gradient, the step of an MLP is about a tenth faster (docs/log.md).

    If the function `pads` returns True for the first part, parts and weights are padded with
    columns of zeros. On a GPU outside of torch.compile, the gradient of the bias is computed as a
    product with a vector of ones, which is faster than torch's sum (see `_BiasGradient`).

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
    """Return `layer(flat(value))`, `[rows, out_features]`, without concatenating the value's parts.

    The parts are, for example, the embeddings of each width. `GroupedRows` are multiplied group by
    group, without their padding.
    """
    parts = all_parts(value)
    if not any(isinstance(part, GroupedRows) for part in parts):
        return linear_over(layer, flat_parts(value))
    weights = torch.split(layer.weight, [part.shape[1] for part in parts], dim=1)
    products = [
        part.times(weight) if isinstance(part, GroupedRows) else functional.linear(part, weight)
        for part, weight in zip(parts, weights, strict=True)
    ]
    output: Tensor = sum(products[1:], products[0])
    return output if layer.bias is None else output + layer.bias


def linear_as_wide(layer: nn.Linear, value: Tensor, width: int) -> Tensor:
    """Return `layer(value)`, padded with columns of zeros to `[rows, width]`.

    `value`, `[rows, in_features or more]`, may be padded with columns of zeros, too.
    """
    more = width - layer.out_features
    weight = grown(layer.weight, more, value.shape[1] - layer.in_features)
    return _linear(value, weight, layer.bias if layer.bias is None else grown(layer.bias, more))


def grown(values: Tensor, *added: int) -> Tensor:
    """Return a tensor that is larger by `added[i]` in dimension i, with zeros at the end."""
    sizes = [size for more in reversed(added) for size in (0, more)]
    return functional.pad(values, sizes) if any(added) else values


def _linear(value: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None or value.dim() != 2 or not (bias.requires_grad and is_eager_gpu(value)):
        return functional.linear(value, weight, bias)
    output = functional.linear(value, weight, bias.detach())
    result: Tensor = _BiasGradient.apply(output, bias)  # type: ignore[no-untyped-call]
    return result


ALIGNED = 8
"""The number of columns of a padded matrix is a multiple of this.

A GPU's matrix units need rows that begin at multiples of 16 bytes: 8 numbers of 16 bits.
"""


def pads(value: Tensor) -> bool:
    """Return True if padding with columns of zeros is worth a copy: for 16-bit products on a GPU.

    Unpadded, such products take four to ten times as long (13, 367 or 429 columns, on an H200).
    """
    if not is_eager_gpu(value) or value.dtype == torch.float64:
        return False
    return torch.is_autocast_enabled(value.device.type)


def padded(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate `parts`, `[rows, width]`, and append columns of zeros to a multiple of `ALIGNED`.

    The result has autocast's dtype.
    """
    if len(parts) == 1 and (whole := getattr(parts[0], "padded", None)) is not None:
        return cast(Tensor, whole)
    dtype = torch.get_autocast_dtype(parts[0].device.type)
    *others, last = (part.to(dtype) for part in parts)
    more = -sum(part.shape[1] for part in parts) % ALIGNED
    # The last part is padded first: torch copies parts of whole 16 bytes three times as fast.
    last = torch.cat([last, last.new_zeros(len(last), more)], dim=1) if more else last
    return torch.cat([*others, last], dim=1) if others else last


def without_padding(value: Tensor, width: int) -> Tensor:
    """Return the first `width` columns of a padded tensor, as a view; the others must be zeros.

    The view refers to the whole tensor, so `padded` of the view returns that without a copy.
    """
    if value.shape[1] == width:
        return value
    own = value[:, :width]
    own.padded = value  # type: ignore[attr-defined]
    return own


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Return `torch.cat(parts, dim=1)`, for a linear layer.

    If `pads` returns True, the memory is padded and the result a view; see `without_padding`.
    """
    if pads(parts[0]):
        return without_padding(padded(parts), sum(part.shape[1] for part in parts))
    return torch.cat([*parts], dim=1)


def is_eager_gpu(value: Tensor) -> bool:
    """Return True if a tensor is on a GPU, and torch is not compiling or exporting."""
    return value.is_cuda and not torch.compiler.is_compiling()


class _BiasGradient(torch.autograd.Function):
    """Returns a linear layer's output unchanged, and in the backward pass the bias's gradient.

    torch sums the output's gradient over the rows. For 65,536 rows of 128 that takes 0.06 ms on an
    H200, and a product with ones 0.01 ms.
    """

    @staticmethod
    def forward(output: Tensor, bias: Tensor) -> Tensor:
        return output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.mark_dirty(output)  # returned unchanged, so that activations can overwrite it

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        if grad.shape[1] == 1:  # a product of two vectors uses one thread block
            return grad, grad.sum(0)
        return grad, (grad.new_ones(1, grad.shape[0]) @ grad)[0]


def one_hot(ids: Tensor, num_bins: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return one-hot vectors of ids, `[rows, num_bins]`, without waiting for the device.

    A linear layer over the result selects a column of its weight. An embedding of the same ids has
    the same effect without the zeros: give `Embeddings` the cross or the column, with `dim` as the
    layer's number of outputs.

    Args:
        ids: `[rows]`, integers; an id outside `0 .. num_bins-1` gives zeros.

    >>> one_hot(torch.tensor([2, 0]), 3)
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    return (ids[:, None] == torch.arange(num_bins, device=ids.device)).to(dtype)
