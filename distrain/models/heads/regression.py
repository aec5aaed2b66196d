"""One number a row."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from distrain.batch import Batch
from distrain.errors import ModelError
from distrain.models.blocks.linear import linear_over
from distrain.models.heads.binary import label_of
from distrain.models.heads.task import Task
from distrain.models.shapes import Flat, Shape, Value, flat_parts, some_width


class RegressionTask(Task):
    """A linear layer to one number, and a loss of its error e = output - target.

        mse      e^2
        huber    e^2 / 2 where |e| <= delta, else delta * (|e| - delta / 2)
                 (Huber, "Robust Estimation of a Location Parameter", 1964)

    Its score is the number itself.

    Args:
        target: Which target; `None` for the first one.
        kind: "mse" or "huber".
        delta: Where huber's loss becomes linear, above 0.

    Shape:
        anything flat to `[rows]`.

    Raises:
        ModelError: There is no such loss, or no such delta.

    >>> str(RegressionTask("price").attach(Flat(5)))
    '[rows, 1]'
    """

    def __init__(
        self,
        target: str | None = None,
        kind: Literal["mse", "huber"] = "mse",
        *,
        delta: float = 1.0,
    ):
        super().__init__()
        if kind not in ("mse", "huber"):
            raise ModelError(f"a RegressionTask has no loss {kind!r}", hint="Take mse or huber.")
        if not delta > 0:
            raise ModelError(f"a RegressionTask's delta is above 0, not {delta}")
        self.target = target
        self.kind = kind
        self.delta = delta

    def build(self, given: Shape) -> Shape:
        """See `Block`."""
        self.number = nn.Linear(some_width(given, self.label), 1)
        return Flat(1)

    def forward(self, value: Value) -> Tensor:
        """The numbers, `[rows]`."""
        return linear_over(self.number, flat_parts(value)).squeeze(1)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """See `Task`."""
        target = label_of(batch, self.target)
        if self.kind == "huber":
            return functional.huber_loss(output, target, reduction="sum", delta=self.delta)
        return functional.mse_loss(output, target, reduction="sum")

    def logits(self, output: Tensor) -> Tensor:
        """See `Task`."""
        return output
