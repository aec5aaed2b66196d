"""Blocks side by side, over the same input."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from distrain.errors import ModelError
from distrain.models.block import Block, Chain
from distrain.models.blocks.activation import activation_layer
from distrain.models.blocks.aggregate import Aggregate
from distrain.models.shapes import Branches, Shape, Value


class ParallelBlock(Block):
    """Branches that all take the same input.

    Args:
        blocks: The branches, or one mapping from their names; those without names are "0", "1", ...
        aggregation: What becomes of what they give: one of `AGGREGATIONS` (see `Aggregate`), or
            `None` for a dictionary. The next linear layer takes a dictionary in parts, without the
            copy that "concat" makes.

    Shape:
        anything that all branches take, to branches, or to one value.

    Raises:
        ModelError: There are no branches, or no such aggregation.

    >>> from distrain.models.blocks.mlp import MLPBlock
    >>> from distrain.models.shapes import Flat
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
        # A list, for torch's own dictionary of modules refuses names such as "items".
        self.branches = nn.ModuleList(named.values())
        self.aggregate = None if aggregation is None else Aggregate(aggregation)

    def __getitem__(self, name: str) -> Block:
        """A branch by its name.

        Raises:
            ModelError: There is none.
        """
        if name not in self.names:
            raise ModelError(f"no branch {name!r}; there are {', '.join(self.names)}")
        branch = self.branches[self.names.index(name)]
        assert isinstance(branch, Block)
        return branch

    @property
    def label(self) -> str:
        """See `Block`."""
        return f"ParallelBlock({', '.join(self.names)})"

    def build(self, given: Shape) -> Shape:
        """See `Block`."""
        shapes = {name: self[name].attach(given) for name in self.names}
        branches = Branches(shapes, self.label)
        return branches if self.aggregate is None else self.aggregate.attach(branches)

    def forward(self, value: Value) -> Value:
        """What the branches give, by name, or made one."""
        branches = zip(self.names, self.branches, strict=True)
        given = {name: branch(value) for name, branch in branches}
        return given if self.aggregate is None else self.aggregate(given)


class _Activation(Block):
    """An activation by itself, for a residual."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def build(self, given: Shape) -> Shape:
        return given

    def forward(self, value: Value) -> Any:
        return self.function(value)


def with_shortcut(
    block: Block, aggregation: str | None = "concat", shortcut_filter: Block | None = None
) -> ParallelBlock:
    """A block's input beside what the block makes of it.

    Args:
        block: Takes the input.
        aggregation: See `ParallelBlock`.
        shortcut_filter: What to do to the input on its way past the block, such as a `Filter`.

    >>> from distrain.models.blocks.mlp import MLPBlock
    >>> from distrain.models.shapes import Flat
    >>> str(with_shortcut(MLPBlock([3])).attach(Flat(5)))
    '[rows, 8]'
    """
    shortcut = Chain() if shortcut_filter is None else shortcut_filter
    return ParallelBlock({"shortcut": shortcut, "block": block}, aggregation=aggregation)


def with_residual(block: Block, activation: str | Callable[..., Any] | None = None) -> Chain:
    """A block's input plus what the block makes of it, then an activation (arXiv:1512.03385).

    Args:
        block: Gives as much as it takes.
        activation: One of `ACTIVATIONS`, or a function of a tensor; none if `None`.

    >>> from distrain.models.blocks.mlp import MLPBlock
    >>> from distrain.models.shapes import Flat
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
            raise ModelError(
                "a ParallelBlock takes blocks, or one dictionary of blocks, and not both"
            )
        named[str(number)] = block
    return named
