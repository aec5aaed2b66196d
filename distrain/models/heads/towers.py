"""A binary task that predicts clicks from a user's and an item's vector."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError
from distrain.models.heads.tasks import LabelTask
from distrain.models.shapes import Branches, Flat, Shape, Value, flat, some_width


def tower_width(input_shape: Shape, user: str, item: str, who: str) -> int:
    """Return the width of the branches `user` and `item` in the input of a task.

    `who` is the task's name in error messages. Raises ModelError if a branch is missing, or if the
    two differ in width.
    """
    shapes = input_shape.shapes if isinstance(input_shape, Branches) else {}
    if not {user, item} <= set(shapes):
        raise ModelError(
            f"{who} needs branches {user!r} and {item!r}, but {input_shape.made_by} returns "
            f"{input_shape}",
            hint="Use a ParallelBlock with aggregation=None.",
        )
    width = some_width(shapes[user], who)
    if width != shapes[item].width:
        one, two = (
            f"{name!r} of {shapes[name].made_by} is {shapes[name].width} wide"
            for name in (user, item)
        )
        raise ModelError(f"{who} multiplies vectors of equal width: {one}, {two}")
    return width


class DotProductTask(LabelTask):
    """Binary cross entropy of a user's vector times an item's: `logit = u . v / T + b`.

    The temperature is the only factor, so the items with the greatest products have the greatest
    probabilities. The bias b starts at 0.

    Args:
        user: The branch of users' vectors.
        item: The branch of items' vectors, of the same width.
        temperature: Above 0, otherwise `ModelError`.
        target: The column of labels; `None` for the first target.

    Shape:
        branches to `[rows]`.

    >>> task = DotProductTask()
    >>> shape = task.attach(Branches({"user": Flat(2), "item": Flat(2)}))
    >>> task({"user": torch.tensor([[1.0, 2.0]]), "item": torch.tensor([[3.0, 4.0]])}).tolist()
    [11.0]
    """

    def __init__(
        self,
        user: str = "user",
        item: str = "item",
        temperature: float = 1.0,
        target: str | None = None,
    ):
        super().__init__(target, None)
        if not temperature > 0:
            raise ModelError(f"a temperature must be above 0, not {temperature}")
        self.user, self.item = user, item
        self.temperature = temperature

    def build(self, input_shape: Shape) -> Shape:
        tower_width(input_shape, self.user, self.item, self.label)
        self.bias = nn.Parameter(torch.zeros(1))
        return Flat(1)

    def forward(self, value: Value) -> Tensor:
        assert isinstance(value, dict)
        products = (flat(value[self.user]) * flat(value[self.item])).sum(1)
        return products / self.temperature + self.bias

    def compare(self, output: Tensor, label: Tensor, reduction: str) -> Tensor:
        return functional.binary_cross_entropy_with_logits(output, label, reduction=reduction)

    def logits(self, output: Tensor) -> Tensor:
        return output
