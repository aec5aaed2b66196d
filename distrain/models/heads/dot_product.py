"""One yes or no a row, from the dot product of two vectors."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.batch import Batch
from distrain.errors import ModelError
from distrain.models.heads.binary import label_of
from distrain.models.heads.task import Task
from distrain.models.heads.towers import tower_width
from distrain.models.shapes import Flat, Shape, Value, flat


class DotProductTask(Task):
    """Binary cross entropy of a user's vector times an item's: `logit = u . v / T + b`.

    There is no factor but the temperature, so that the items with the greatest products are those
    with the greatest probabilities. The bias b starts at 0.

    Args:
        user: The branch of users' vectors.
        item: The branch of items' vectors, as wide.
        temperature: Above 0.
        target: Which target; `None` for the first one.

    Shape:
        branches to `[rows]`.

    Raises:
        ModelError: The temperature is 0 or less.

    >>> from distrain.models.shapes import Branches
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
        super().__init__()
        if not temperature > 0:
            raise ModelError(f"a temperature is above 0, not {temperature}")
        self.user, self.item = user, item
        self.temperature = temperature
        self.target = target

    def build(self, given: Shape) -> Shape:
        """See `Block`.

        Raises:
            ModelError: There are no such branches, or their widths differ.
        """
        tower_width(given, self.user, self.item, self.label)
        self.bias = nn.Parameter(torch.zeros(1))
        return Flat(1)

    def forward(self, value: Value) -> Tensor:
        """The logits."""
        assert isinstance(value, dict)
        products = (flat(value[self.user]) * flat(value[self.item])).sum(1)
        return products / self.temperature + self.bias

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """See `Task`."""
        label = label_of(batch, self.target)
        return functional.binary_cross_entropy_with_logits(output, label, reduction="sum")

    def logits(self, output: Tensor) -> Tensor:
        """See `Task`."""
        return output
