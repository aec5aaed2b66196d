"""Gates and masks on a row's features: the parts of MaskNet and FinalMLP."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError
from distrain.models.blocks.block import Block
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.functional import Linear
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.shapes import (
    Branches,
    Columns,
    Features,
    Flat,
    Shape,
    Value,
    flat,
    some_width,
)


class MaskNetBlock(Block):
    """Mask blocks, in parallel or in series (arXiv:2102.07619, section 3).

    With e a row's flattened embeddings, a mask block has the mask m = U relu(V e + b) + c. Its
    output is relu(LN(W (m * N(e)))), where N normalises each embedding separately. If "serial", the
    output of later blocks is relu(LN(W (m * h))), with h the output of the block before. LN is a
    layer norm, and * works element by element. Continuous columns are appended to the embeddings,
    and N does not change them.

    Args:
        widths: The output width of each mask block.
        reduction: The width of V's output, relative to that of e, or of h for later blocks.
        structure: "parallel": all read e, and outputs are concatenated; or "serial".

    Shape:
        columns to `[rows, sum(widths)]`, or `[rows, widths[-1]]` if serial.

    Raises:
        ModelError: There are no mask blocks, or the structure is unknown.
    """

    def __init__(self, widths: Sequence[int], reduction: float = 1.0, structure: str = "parallel"):
        super().__init__()
        self.widths = tuple(widths)
        self.reduction = reduction
        self.structure = structure
        if not self.widths:
            raise ModelError("a MaskNetBlock needs at least 1 mask block")
        if structure not in ("parallel", "serial"):
            raise ModelError(
                f"unknown MaskNetBlock structure {structure!r}", hint="Use parallel or serial."
            )

    def build(self, input_shape: Shape) -> Shape:
        if not isinstance(input_shape, Columns):
            raise ModelError(
                f"{self.label} needs columns, but {input_shape.made_by} returns {input_shape}"
            )
        every = width = some_width(input_shape, self.label)
        self.norms = nn.ModuleList(_VectorNorm(len(g.columns), g.dim) for g in input_shape.groups)
        self.blocks = nn.ModuleList()
        for next_width in self.widths:
            self.blocks.append(_MaskBlock(every, width, next_width, self.reduction))
            width = next_width if self.structure == "serial" else every
        return Flat(sum(self.widths) if self.structure == "parallel" else self.widths[-1])

    def forward(self, value: Features) -> Tensor:
        every = flat(value)
        groups = zip(self.norms, value.embedded, strict=True)
        normed = flat(Features(tuple(norm(group) for norm, group in groups), value.continuous))
        if self.structure == "parallel":
            return torch.cat([block(every, normed) for block in self.blocks], dim=1)
        for block in self.blocks:
            normed = block(every, normed)
        return normed


class _MaskBlock(nn.Module):
    def __init__(self, every: int, width: int, outputs: int, reduction: float):
        super().__init__()
        inner = max(1, round(width * reduction))
        self.mask = nn.Sequential(Linear(every, inner), nn.ReLU(), Linear(inner, width))
        self.hidden = nn.Sequential(
            nn.Linear(width, outputs, bias=False), nn.LayerNorm(outputs), nn.ReLU()
        )

    def forward(self, every: Tensor, value: Tensor) -> Tensor:
        result: Tensor = self.hidden(self.mask(every) * value)
        return result


class _VectorNorm(nn.Module):
    """A layer norm of each vector; each of the `count` vectors has its own scale and shift."""

    def __init__(self, count: int, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(count, dim))
        self.bias = nn.Parameter(torch.zeros(count, dim))

    def forward(self, vectors: Tensor) -> Tensor:
        normed = functional.layer_norm(vectors, (vectors.shape[2],))
        return torch.addcmul(self.bias, normed, self.weight)


class FeatureGate(Block):
    """Multiplies each feature value by a gate between 0 and 2 (arXiv:2304.00902, eq. 5).

    Gates are twice the sigmoid of an MLP of the context: some columns of the row, or by default a
    learnt vector, initially 0.

    Args:
        hidden: Widths of the MLP's hidden layers.
        context: Names of the context's columns; without any, the learnt vector.

    Shape:
        columns to `[rows, width]`.
    """

    def __init__(self, hidden: Sequence[int], context: Sequence[str] = ()):
        super().__init__()
        self.hidden = tuple(hidden)
        self.context = Filter(*context) if context else None

    def build(self, input_shape: Shape) -> Shape:
        width = some_width(input_shape, self.label)
        self.gates = MLPBlock([*self.hidden, width], no_activation_last_layer=True)
        if self.context is None:
            self.learnt = nn.Parameter(torch.zeros(1, width))
            self.gates.attach(Flat(width))
        else:
            self.gates.attach(self.context.attach(input_shape))
        return Flat(width)

    def forward(self, value: Value) -> Tensor:
        gates = self.gates(self.learnt if self.context is None else self.context(value))
        return flat(value) * (2 * torch.sigmoid(gates))


class BilinearFusion(Block):
    """Computes a number from two vectors: a linear layer, plus x' W y (arXiv:2304.00902, eq. 7, 8).

    Args:
        heads: Number of pieces of both vectors; x' W y is the sum over pairs of pieces, each with
            its own W.

    Shape:
        two flat branches to `[rows, 1]`.

    Raises:
        ModelError: The input is not two branches, or a width is not a multiple of `heads`.
    """

    def __init__(self, heads: int = 1):
        super().__init__()
        self.heads = heads

    def build(self, input_shape: Shape) -> Shape:
        widths = (
            [one.width for one in input_shape.shapes.values()]
            if isinstance(input_shape, Branches)
            else []
        )
        if len(widths) != 2 or any(width % self.heads for width in widths):
            raise ModelError(
                f"{self.label} needs two branches whose widths are multiples of {self.heads} "
                f"(heads), but {input_shape.made_by} returns {input_shape}"
            )
        first, second = (width // self.heads for width in widths)
        self.linear = nn.Linear(sum(widths), 1)
        bound = first**-0.5
        self.products = nn.Parameter(torch.empty(self.heads, first, second).uniform_(-bound, bound))
        return Flat(1)

    def forward(self, value: Value) -> Tensor:
        assert isinstance(value, dict)
        first, second = (flat(one) for one in value.values())
        width = first.shape[1] // self.heads
        of_heads = first.view(first.shape[0], self.heads, 1, width) @ self.products
        product = (of_heads.squeeze(2).flatten(1) * second).sum(1, keepdim=True)
        result: Tensor = self.linear(torch.cat([first, second], dim=1)) + product
        return result
