"""What a block is, and how blocks follow one another."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import nn

from distrain.errors import ModelError
from distrain.models.shapes import Shape, Value, made_by


class Block(nn.Module):
    """A part of a network whose sizes follow from what comes in.

    A subclass defines `build(given)`, which makes the parameters for an input of that shape and
    returns the shape of what comes out, and `forward(value)`. Nobody calls `build` but `attach`.
    Parameters are drawn from torch's default generator.

    Attributes:
        given: The shape that comes in; `None` until the block is attached.
        gives: The shape that comes out; `None` until then.
    """

    given: Shape | None = None
    gives: Shape | None = None

    @property
    def label(self) -> str:
        """What messages call it."""
        return type(self).__name__

    def attach(self, given: Shape) -> Shape:
        """Make the parameters for an input of a shape; returns the shape of the output.

        Raises:
            ModelError: The block cannot take it, or was attached before.
        """
        if self.given is not None:
            raise ModelError(
                f"{self.label} takes {self.given} of {self.given.made_by} already, and cannot take "
                f"{given} of {given.made_by} too",
                hint="Make a second block.",
            )
        self.given, self.gives = given, made_by(self.build(given), self.label)
        return self.gives

    def build(self, given: Shape) -> Shape:
        """Make the parameters; see the class."""
        raise NotImplementedError

    def connect(self, *blocks: "Block") -> "Chain":
        """This block, then those."""
        return Chain([self, *blocks])

    def connect_branch(self, *branches: "Block", aggregation: str | None = "concat") -> "Chain":
        """This block, then branches that all take what it gives; see `ParallelBlock`."""
        from distrain.models.blocks.parallel import ParallelBlock

        return self.connect(ParallelBlock(*branches, aggregation=aggregation))

    def connect_with_shortcut(
        self,
        block: "Block",
        aggregation: str | None = "concat",
        shortcut_filter: "Block | None" = None,
    ) -> "Chain":
        """This block, then what it gives, or some of it, beside what another makes of that."""
        from distrain.models.blocks.parallel import with_shortcut

        return self.connect(with_shortcut(block, aggregation, shortcut_filter))

    def connect_with_residual(
        self, block: "Block", activation: str | Callable[..., Any] | None = None
    ) -> "Chain":
        """This block, then what it gives plus what another makes of that."""
        from distrain.models.blocks.parallel import with_residual

        return self.connect(with_residual(block, activation))


class Chain(Block):
    """Blocks one after another.

    Args:
        blocks: At least none; a chain of none passes everything on.
    """

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
        """Of who gives what comes out: the last block's, or the one's before an empty chain."""
        *_, last = [self._passes_on, *(block.label for block in self)]
        return last

    def build(self, given: Shape) -> Shape:
        """See `Block`."""
        self._passes_on = given.made_by
        for block in self:
            given = block.attach(given)
        return given

    def forward(self, value: Value) -> Value:
        """The last block's output."""
        for block in self.blocks:
            value = block(value)
        return value
