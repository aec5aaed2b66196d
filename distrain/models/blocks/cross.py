"""Explicit feature crosses of bounded degree: the cross layers of DCN, DCN-v2 and GDCN."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from distrain.errors import ModelError
from distrain.models.blocks.block import Block
from distrain.models.blocks.functional import (
    grown,
    is_eager_gpu,
    linear_as_wide,
    padded,
    pads,
    without_padding,
)
from distrain.models.shapes import Flat, Shape, Value, flat, flat_parts, some_width


class CrossBlock(Block):
    """Layers that multiply a function of their input by the block's input, and add their input.

    With x0 the block's input and x the layer's, both `[rows, d]`, and * element by element, the
    layers are, by version,

        v1               x0 * (x . w) + b + x        w, b: [d]           arXiv:1708.05123, eq. 3
        v2               x0 * (W x + b) + x          W: [d, d], b: [d]   arXiv:2008.13535, eq. 1
        v2, low_rank r   x0 * (U (V x) + b) + x      U: [d, r], V: [r, d]                  eq. 2
        gated            x0 * (W x + b) * s(G x) + x  as v2, G: [d, d]   arXiv:2311.04635, eq. 4

    with s the sigmoid. After l layers an output is a polynomial of degree l + 1 in the inputs,
    except for the gates. Weights are initialised like those of torch's linear layers; biases
    are 0.

    Args:
        depth: Number of layers.
        version: "v1", "v2" or "gated".
        low_rank: The rank of W in v2; `None` for a full matrix. Below d / 2 it saves parameters.

    Shape:
        any flat shape to `[rows, the same width]`.

    Raises:
        ModelError: There are no layers, the version is unknown, or it does not support the rank.

    >>> cross = CrossBlock(2, low_rank=3)
    >>> str(cross.attach(Flat(8)))
    '[rows, 8]'
    >>> sum(p.numel() for p in cross.parameters())  # 2 * (8*3 + 3*8 + 8)
    112
    """

    def __init__(
        self,
        depth: int = 1,
        version: Literal["v1", "v2", "gated"] = "v2",
        low_rank: int | None = None,
    ):
        super().__init__()
        self.depth = depth
        self.version = version
        self.low_rank = low_rank
        if depth < 1:
            raise ModelError(f"a CrossBlock needs at least 1 layer, not {depth}")
        if version not in ("v1", "v2", "gated"):
            raise ModelError(f"unknown CrossBlock version {version!r}", hint="Use v1, v2 or gated.")
        if low_rank is not None and (version != "v2" or low_rank < 1):
            raise ModelError(
                f"a CrossBlock {version} has no rank {low_rank}",
                hint="low_rank is an option of v2, and at least 1; None means a full matrix.",
            )

    @property
    def label(self) -> str:
        rank = "" if self.low_rank is None else f", low_rank={self.low_rank}"
        return f"CrossBlock({self.depth}, {self.version!r}{rank})"

    def build(self, input_shape: Shape) -> Shape:
        width = some_width(input_shape, self.label)
        self.width = width
        layers = (self._layer(width) for _ in range(self.depth))
        self.layers = nn.ModuleList(layers)
        return Flat(width)

    def forward(self, value: Value) -> Tensor:
        parts = flat_parts(value)
        x0 = x = padded(parts) if pads(parts[0]) else flat(value)
        for layer in self.layers:
            x = layer(x0, x)
        return without_padding(x, self.width)

    def _layer(self, width: int) -> nn.Module:
        if self.version == "gated":
            return _GatedCross(width)
        return _CrossV1(width) if self.version == "v1" else _CrossV2(width, self.low_rank)


class _CrossV1(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Linear(width, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        bias = grown(self.bias, x.shape[1] - len(self.bias))
        return torch.addcmul(x + bias, x0, linear_as_wide(self.weight, x, 1))


class _CrossV2(nn.Module):
    def __init__(self, width: int, low_rank: int | None):
        super().__init__()
        self.down = None if low_rank is None else nn.Linear(width, low_rank, bias=False)
        self.up = nn.Linear(width if low_rank is None else low_rank, width)
        nn.init.zeros_(self.up.bias)

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        down = x if self.down is None else linear_as_wide(self.down, x, self.down.out_features)
        return _add_product(x, x0, linear_as_wide(self.up, down, x.shape[1]))


class _GatedCross(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.up = nn.Linear(width, width)
        self.gate = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.up.bias)

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        up, gate = (linear_as_wide(layer, x, x.shape[1]) for layer in (self.up, self.gate))
        return _add_product(x, x0, up * torch.sigmoid(gate))


def _add_product(x: Tensor, x0: Tensor, factor: Tensor) -> Tensor:
    if not is_eager_gpu(x):
        return torch.addcmul(x, x0, factor)
    result: Tensor = _AddProduct.apply(x, x0, factor)  # type: ignore[no-untyped-call]
    return result


class _AddProduct(torch.autograd.Function):
    """`torch.addcmul` with a faster backward pass: torch's own also multiplies factors by 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, x0: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(x0, factor)
        return torch.addcmul(x, x0, factor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x0, factor = ctx.saved_tensors
        return grad, grad * factor, grad * x0
