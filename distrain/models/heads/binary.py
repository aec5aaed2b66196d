"""One yes or no a row."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from distrain.batch import Batch
from distrain.errors import ModelError
from distrain.models.block import Block
from distrain.models.blocks.linear import linear_over
from distrain.models.heads.task import Task, apply_pre, attach_pre
from distrain.models.shapes import Flat, Shape, Value, flat, flat_parts, some_width


class BinaryClassificationTask(Task):
    """A linear layer to one logit, and binary cross entropy; or to two, and cross entropy.

    Two outputs are fastai's way: the logit is then the second minus the first, and the two losses
    agree, but the layer has twice the parameters.

    Args:
        target: Which target; `None` for the first one.
        outputs: 1 or 2.
        layer: Whether there is such a layer. Without, what comes in is the output: the sum of
            several parts' logits, say, and as wide as `outputs`.
        pre: What is done to the output before loss and scores, such as a `LogitsTemperatureScaler`.

    Shape:
        anything flat to `[rows]`, or `[rows, 2]`.

    Raises:
        ModelError: There are neither 1 nor 2 outputs, or, without a layer, not as many come in.

    >>> import torch
    >>> task = BinaryClassificationTask("clicked")
    >>> str(task.attach(Flat(5)))
    '[rows, 1]'
    >>> task(torch.zeros(7, 5)).shape
    torch.Size([7])
    """

    def __init__(
        self,
        target: str | None = None,
        outputs: Literal[1, 2] = 1,
        *,
        layer: bool = True,
        pre: Block | None = None,
    ):
        super().__init__()
        if outputs not in (1, 2):
            raise ModelError(f"a BinaryClassificationTask has 1 or 2 outputs, not {outputs}")
        self.target = target
        self.outputs = outputs
        self.has_layer = layer
        self.pre = pre

    def build(self, given: Shape) -> Shape:
        """See `Block`."""
        width = some_width(given, self.label)
        if self.has_layer:
            self.logit = nn.Linear(width, self.outputs)
        elif width != self.outputs:
            raise ModelError(
                f"{self.label} without a layer takes {self.outputs} values a row, and "
                f"{given.made_by} gives {given}"
            )
        return attach_pre(self.pre, Flat(self.outputs))

    def forward(self, value: Value) -> Tensor:
        """The output."""
        output = linear_over(self.logit, flat_parts(value)) if self.has_layer else flat(value)
        return apply_pre(self.pre, output.squeeze(1) if self.outputs == 1 else output)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """See `Task`."""
        label = label_of(batch, self.target)
        if self.outputs == 2:
            return functional.cross_entropy(output, label.long(), reduction="sum")
        return functional.binary_cross_entropy_with_logits(output, label, reduction="sum")

    def logits(self, output: Tensor) -> Tensor:
        """See `Task`."""
        return output if self.outputs == 1 else output[:, 1] - output[:, 0]


def label_of(batch: Batch, target: str | None) -> Tensor:
    """The labels of one target, `[rows]`, float32."""
    if target is not None:
        return batch[target]
    assert batch.label is not None, "rows without labels have no loss"
    return batch.label
