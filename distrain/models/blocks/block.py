"""Blocks, and their composition: chains, branches and aggregation."""

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from distrain.errors import ModelError
from distrain.models.blocks.functional import activation_layer
from distrain.models.shapes import (
    Branches,
    Flat,
    Shape,
    Value,
    flat,
    some_width,
    stacked,
    vectors_of,
    vectors_of_branch,
)


class Block(nn.Module):
    """A part of a network whose sizes follow from its input.

    A subclass defines `build(input_shape)`, which creates the parameters for an input of that shape
    and returns the output's shape, and `forward(value)`. Only `attach` calls `build`. Parameters
    are drawn from torch's default generator.

    Attributes:
        input_shape: The input's shape; `None` until the block is attached.
        output_shape: The output's shape; `None` until the block is attached.
        only_multiplies: Whether embeddings are used only in matrix products, so that under
            autocast it does not matter where they are rounded.
    """

    input_shape: Shape | None = None
    output_shape: Shape | None = None
    only_multiplies: bool = False

    @property
    def label(self) -> str:
        """The block's name in error messages."""
        return type(self).__name__

    def attach(self, input_shape: Shape) -> Shape:
        """Create the parameters for an input of a shape; return the shape of the output.

        Raises:
            ModelError: The block does not accept the shape, or was attached before.
        """
        if self.input_shape is not None:
            raise ModelError(
                f"{self.label} is already connected to {self.input_shape.made_by} "
                f"({self.input_shape}), and cannot be connected to {input_shape.made_by} "
                f"({input_shape})",
                hint="Create a second block.",
            )
        self.output_shape = replace(self.build(input_shape), made_by=self.label)
        self.input_shape = input_shape
        return self.output_shape

    def build(self, input_shape: Shape) -> Shape:
        """Create the parameters and return the output's shape; see the class."""
        raise NotImplementedError

    def connect(self, *blocks: "Block") -> "Chain":
        """Return a chain of this block and the given blocks."""
        return Chain([self, *blocks])

    def connect_branch(self, *branches: "Block", aggregation: str | None = "concat") -> "Chain":
        """Return a chain of this block and parallel branches on its output; see `ParallelBlock`."""
        return self.connect(ParallelBlock(*branches, aggregation=aggregation))

    def connect_with_shortcut(
        self,
        block: "Block",
        aggregation: str | None = "concat",
        shortcut_filter: "Block | None" = None,
    ) -> "Chain":
        """Return a chain of this block and `block` with a shortcut; see `with_shortcut`."""
        return self.connect(with_shortcut(block, aggregation, shortcut_filter))

    def connect_with_residual(
        self, block: "Block", activation: str | Callable[..., Any] | None = None
    ) -> "Chain":
        """Return a chain of this block and `block` with a residual; see `with_residual`."""
        return self.connect(with_residual(block, activation))


class Chain(Block):
    """Blocks one after another; an empty chain is the identity."""

    def __init__(self, blocks: Sequence[Block] = ()):
        super().__init__()
        flattened = [
            b for block in blocks for b in (block if isinstance(block, Chain) else [block])
        ]
        self.blocks = nn.ModuleList(flattened)
        self._passes_on = "an empty chain"

    def __iter__(self) -> Iterator[Block]:
        return (block for block in self.blocks if isinstance(block, Block))

    @property
    def label(self) -> str:
        """The label of the last block, or of the input for an empty chain."""
        *_, last = [self._passes_on, *(block.label for block in self)]
        return last

    def build(self, input_shape: Shape) -> Shape:
        self._passes_on = input_shape.made_by
        shape = input_shape
        for block in self:
            shape = block.attach(shape)
        return shape

    def forward(self, value: Value) -> Value:
        for block in self.blocks:
            value = block(value)
        return value


def _added(pieces: Sequence[Tensor]) -> Tensor:
    return functools.reduce(operator.add, pieces)


def _averaged(pieces: Sequence[Tensor]) -> Tensor:
    return _added(pieces) / len(pieces)


def _multiplied(pieces: Sequence[Tensor]) -> Tensor:
    # torch.prod's gradient searches for zeros, which waits for the device.
    return functools.reduce(operator.mul, pieces)


_ELEMENTWISE: dict[str, Callable[[Sequence[Tensor]], Tensor]] = {
    "sum": _added,
    "mean": _averaged,
    "product": _multiplied,
}

AGGREGATIONS = ("concat", "stack", *_ELEMENTWISE)


class Aggregate(Block):
    """Combines branches, or the vectors of a row, into one value.

    Args:
        how: "concat" flattens and concatenates everything. "stack" stacks all vectors of a row; a
            flat branch counts as one vector. "sum", "mean" and "product" work element by element on
            the flattened branches, or on the vectors. The product of a user's and an item's vector
            is generalised matrix factorisation (arXiv:1708.05031).

    Shape:
        branches or vectors to `[rows, width]`, or `[rows, count, dim]` if stacked.

    Raises:
        ModelError: The aggregation is unknown; or, at `attach`, branches for "stack", "sum", "mean"
            or "product" differ in width.

    >>> import torch
    >>> pair = {"user": torch.tensor([[1.0, 2.0]]), "item": torch.tensor([[3.0, 4.0]])}
    >>> product = Aggregate("product")
    >>> str(product.attach(Branches({"user": Flat(2), "item": Flat(2)})))
    '[rows, 2]'
    >>> product(pair)
    tensor([[3., 8.]])
    """

    def __init__(self, how: str):
        super().__init__()
        self.how = how
        if how not in AGGREGATIONS:
            raise ModelError(
                f"unknown aggregation {how!r}",
                hint=f"Use one of {', '.join(AGGREGATIONS)}; a ParallelBlock with None returns a "
                "dictionary.",
            )

    @property
    def label(self) -> str:
        return f"Aggregate({self.how!r})"

    def build(self, input_shape: Shape) -> Shape:
        some_width(input_shape, self.label)
        if self.how == "concat":
            return Flat(input_shape.width)
        if not isinstance(input_shape, Branches):
            vectors = vectors_of(input_shape, self.label)
            return vectors if self.how == "stack" else Flat(vectors.dim)
        if self.how == "stack":
            dims = {name: vectors_of_branch(one).dim for name, one in input_shape.shapes.items()}
            self._check_alike(input_shape, dims)
            return vectors_of(input_shape, self.label)
        widths = {name: some_width(one, self.label) for name, one in input_shape.shapes.items()}
        self._check_alike(input_shape, widths)
        return Flat(next(iter(widths.values())))

    def forward(self, value: Value) -> Tensor:
        if self.how == "concat":
            return flat(value)
        if self.how == "stack":
            return stacked(value)
        if isinstance(value, dict):
            return _ELEMENTWISE[self.how]([flat(one) for one in value.values()])
        vectors = stacked(value)
        if self.how == "product":
            return _multiplied(vectors.unbind(1))
        return vectors.sum(1) if self.how == "sum" else vectors.mean(1)

    def _check_alike(self, input_shape: Branches, widths: dict[str, int]) -> None:
        first, *others = widths
        for other in others:
            if widths[other] != widths[first]:
                one, two = (
                    f"{name!r} of {input_shape.shapes[name].made_by} is {widths[name]} wide"
                    for name in (first, other)
                )
                raise ModelError(
                    f"{self.how!r} needs branches of equal width: {one}, {two}",
                    hint="Use equal widths (for example an MLPBlock), or aggregation='concat'.",
                )


class ParallelBlock(Block):
    """Applies several blocks, its branches, to the same input.

    Args:
        blocks: The branches, or a mapping from names to branches; default names are "0", "1", ...
        aggregation: One of `AGGREGATIONS` (see `Aggregate`) for the outputs, or `None` for a
            dictionary. The next linear layer reads a dictionary in parts, without the copy of
            "concat".

    Shape:
        any shape that all branches accept, to branches, or to one value.

    Raises:
        ModelError: There are no branches, or the aggregation is unknown.

    >>> from distrain.models.blocks.mlp import MLPBlock
    >>> both = ParallelBlock({"wide": MLPBlock([2]), "deep": MLPBlock([8, 3])})
    >>> str(both.attach(Flat(5)))
    '[rows, 5]'
    """

    def __init__(self, *blocks: Block | Mapping[str, Block], aggregation: str | None = "concat"):
        super().__init__()
        named = _named(blocks)
        if not named:
            raise ModelError("a ParallelBlock needs branches")
        self.names = tuple(named)
        # A list, since torch's dictionary of modules rejects names such as "items".
        self.branches = nn.ModuleList(named.values())
        self.aggregate = None if aggregation is None else Aggregate(aggregation)

    def __getitem__(self, name: str) -> Block:
        """Return a branch by its name; ModelError for an unknown name."""
        if name not in self.names:
            raise ModelError(f"no branch {name!r}; there are {', '.join(self.names)}")
        branch = self.branches[self.names.index(name)]
        assert isinstance(branch, Block)
        return branch

    @property
    def label(self) -> str:
        return f"ParallelBlock({', '.join(self.names)})"

    def build(self, input_shape: Shape) -> Shape:
        shapes = {name: self[name].attach(input_shape) for name in self.names}
        branches = Branches(shapes, self.label)
        return branches if self.aggregate is None else self.aggregate.attach(branches)

    def forward(self, value: Value) -> Value:
        branches = zip(self.names, self.branches, strict=True)
        outputs = {name: branch(value) for name, branch in branches}
        return outputs if self.aggregate is None else self.aggregate(outputs)


class _Activation(Block):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function
        # A plain function may use other rows. A module is checked on its own.
        self.rows_are_independent = isinstance(function, nn.Module)

    def build(self, input_shape: Shape) -> Shape:
        return input_shape

    def forward(self, value: Value) -> Any:
        return self.function(value)


def with_shortcut(
    block: Block, aggregation: str | None = "concat", shortcut_filter: Block | None = None
) -> ParallelBlock:
    """Return a block that outputs both its input and the output of `block`.

    Args:
        aggregation: How the two are combined, see `ParallelBlock`.
        shortcut_filter: A block applied to the shortcut, such as a `Filter`.

    >>> from distrain.models.blocks.mlp import MLPBlock
    >>> str(with_shortcut(MLPBlock([3])).attach(Flat(5)))
    '[rows, 8]'
    """
    shortcut = Chain() if shortcut_filter is None else shortcut_filter
    return ParallelBlock({"shortcut": shortcut, "block": block}, aggregation=aggregation)


def with_residual(block: Block, activation: str | Callable[..., Any] | None = None) -> Chain:
    """Return a block that adds its input to the output of `block`, then applies an activation.

    This is a residual connection (arXiv:1512.03385).

    Args:
        block: A block with equal input and output widths.
        activation: One of `ACTIVATIONS`, or a function of a tensor; `None` for none.

    >>> from distrain.models.blocks.mlp import MLPBlock
    >>> str(with_residual(MLPBlock([8, 5]), "relu").attach(Flat(5)))
    '[rows, 5]'
    """
    both = ParallelBlock({"shortcut": Chain(), "block": block}, aggregation="sum")
    if activation is None:
        return Chain([both])
    function = activation_layer(activation) if isinstance(activation, str) else activation
    return Chain([both, _Activation(function)])


def _named(blocks: tuple[Block | Mapping[str, Block], ...]) -> dict[str, Block]:
    if len(blocks) == 1 and isinstance(blocks[0], Mapping):
        return dict(blocks[0])
    named = {}
    for number, block in enumerate(blocks):
        if isinstance(block, Mapping):
            raise ModelError("a ParallelBlock accepts blocks or one dictionary of blocks, not both")
        named[str(number)] = block
    return named
