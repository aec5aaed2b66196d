"""One class of several a row."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.batch import Batch
from distrain.errors import ModelError
from distrain.models.block import Block
from distrain.models.blocks.linear import linear_over
from distrain.models.heads.binary import label_of
from distrain.models.heads.task import Task, apply_pre, attach_pre
from distrain.models.shapes import Flat, Shape, Value, flat_parts, some_width


class MulticlassTask(Task):
    """A linear layer to one logit a class, and cross entropy.

    Its score is that of class 1 against all others: with z the logits, the log of p_1 / (1 - p_1),
    which is z_1 - log(sum over the others of exp z_j).

    Args:
        target: Which target, of whole numbers `0 .. num_classes-1`; `None` for the first one.
        num_classes: 2 or more.
        pre: What is done to the logits before loss and scores, such as a `LogitsTemperatureScaler`.

    Shape:
        anything flat to `[rows, num_classes]`.

    Raises:
        ModelError: Fewer than two classes.

    >>> str(MulticlassTask("genre", 20).attach(Flat(5)))
    '[rows, 20]'
    """

    def __init__(self, target: str | None, num_classes: int, *, pre: Block | None = None):
        super().__init__()
        if num_classes < 2:
            raise ModelError(f"a MulticlassTask has at least 2 classes, not {num_classes}")
        self.target = target
        self.num_classes = num_classes
        self.pre = pre

    def build(self, given: Shape) -> Shape:
        """See `Block`."""
        self.logit = nn.Linear(some_width(given, self.label), self.num_classes)
        return attach_pre(self.pre, Flat(self.num_classes))

    def forward(self, value: Value) -> Tensor:
        """The classes' logits."""
        return apply_pre(self.pre, linear_over(self.logit, flat_parts(value)))

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """See `Task`."""
        labels = label_of(batch, self.target).long()
        return functional.cross_entropy(output, labels, reduction="sum")

    def logits(self, output: Tensor) -> Tensor:
        """See `Task`."""
        others = torch.cat([output[:, :1], output[:, 2:]], dim=1)
        return output[:, 1] - others.logsumexp(1)
