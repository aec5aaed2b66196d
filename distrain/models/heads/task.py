"""What every task is."""

from torch import Tensor

from distrain.batch import Batch
from distrain.models.block import Block
from distrain.models.shapes import Shape


class Task(Block):
    """The last block of a network: makes outputs, and says what they are worth.

    A subclass defines `build` and `forward`, as every block, and the two methods here. It gives a
    `Flat` shape; an output of width 1 is `[rows]`, any other `[rows, width]`.
    """

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """The SUM of the rows' losses, a scalar; a step divides it by the rows of all ranks.

        Args:
            output: What `forward` gave for the batch's rows, fp32.
            batch: The same rows, with labels; none are allowed, their loss is 0.
        """
        raise NotImplementedError

    def logits(self, output: Tensor) -> Tensor:
        """The rows' scores, `[rows]`: higher for a more likely 1 of the first target."""
        raise NotImplementedError


def attach_pre(pre: Block | None, output: Shape) -> Shape:
    """The shape of a task's output after the block that it is given to, if there is one."""
    return output if pre is None else pre.attach(output)


def apply_pre(pre: Block | None, output: Tensor) -> Tensor:
    """A task's output after the block that it is given to, if there is one."""
    if pre is None:
        return output
    scaled: Tensor = pre(output)
    return scaled
