"""Tasks: the last block of a network, its loss and its scores."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError
from distrain.jobs.spec.tasks import RegressionLoss
from distrain.jobs.spec.training import JUDGING_METRICS, ValidationMetric
from distrain.loader.batch import Batch
from distrain.models.blocks.block import Block, Chain
from distrain.models.blocks.functional import linear_over
from distrain.models.heads.scores import one_against_rest
from distrain.models.heads.targets import Candidates, Target, label_of, weight_of
from distrain.models.shapes import Flat, Shape, Value, flat, flat_parts, some_width


class Task(Block):
    """The last block of a network, with its loss and its scores.

    A subclass defines `build` and `forward`, like every block, and `loss` and `logits`. If its
    target is not binary, or it has several, it also defines `targets` and `scores`. `build` returns
    a `Flat` shape; an output of width 1 is `[rows]`, any other is `[rows, width]`.

    Attributes:
        metrics: The validation metrics of a job spec that the task supports.
        name: The task's name in reports.
        target: The column of its labels; `None` for the first target.
        takes_weights: Whether its loss weighs rows.
    """

    metrics: tuple[ValidationMetric, ...] = JUDGING_METRICS["binary"]
    name: str = ""
    target: str | None = None
    takes_weights: bool = False

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of the task, in the order of `scores`."""
        return (Target(self.name or self.target or "", self.target),)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the sum (not the mean) of the rows' losses, a scalar; 0 without rows.

        A step divides it by the number of rows of all ranks, or by `weight_sums`. `output` is the
        result of `forward` for the rows of `batch`, fp32.
        """
        raise NotImplementedError

    def losses(self, output: Tensor, batch: Batch) -> Tensor:
        """Return each target's part of `loss`, `[targets]`."""
        return self.loss(output, batch).reshape(1)

    def weight_sums(self, batch: Batch) -> Tensor | None:
        """Return the sum of the rows' weights for each target, `[targets]`, float64.

        Returns `None` if the rows have no weights: neither a weight column nor class weights. This
        does not depend on values, so all ranks agree. A step divides each of `losses` by the sum of
        its target's weights over all ranks.
        """
        return None

    def candidates(self, output: Tensor, batch: Batch) -> Candidates | None:
        """Return the items of these rows, against which the rows of all ranks are scored.

        Returns `None` if the loss of a row depends on that row alone.
        """
        return None

    @property
    def compares_rows(self) -> bool:
        """Whether the loss of a row depends on other rows, on all ranks (`candidates`)."""
        return type(self).candidates is not Task.candidates

    def loss_against(
        self, output: Tensor, batch: Batch, candidates: Candidates, first: int
    ) -> Tensor:
        """Return `loss` of this rank's rows, given the candidates of all ranks.

        `first` is the index of this rank's first candidate in `candidates`.
        """
        raise NotImplementedError

    def observe(self, candidates: Candidates) -> None:
        """Update the task's statistics, such as item counts, after the loss of a step.

        `candidates` are those of all ranks, so all ranks make the same update.
        """

    def logits(self, output: Tensor) -> Tensor:
        """Return the rows' scores for the first target, `[rows]`.

        The higher the score, the likelier is label 1; for a regression it is the prediction.
        """
        raise NotImplementedError

    def scores(self, output: Tensor) -> tuple[Tensor, ...]:
        """Return the rows' scores of each target.

        For a binary target these are logits, `[rows]`; for a regression predictions on the target's
        scale, `[rows]`; for a multiclass target a logit for each class, `[rows, classes]`.
        """
        return (self.logits(output),)


class LabelTask(Task):
    """A task over one column of labels; a subclass defines `build`, `forward` and `compare`.

    A row's weight comes from the task's own column `weight`, otherwise from the batch. It is
    multiplied by the factor of the row's label if `weigh_classes` has set one. A row of weight 2
    counts like two rows, a row of weight 0 not at all. Rows with an unknown label have weight 0.

    Args:
        target: The column of labels; `None` for the first target.
        weight: A column of weights for this task only.
    """

    takes_weights = True
    class_weight: Tensor | None
    known: str | None = None

    def __init__(self, target: str | None, weight: str | None):
        super().__init__()
        self.target = target
        self.weight = weight
        # Class weights belong to the job, not the model: they are not saved, and predictions do
        # not need them.
        self.register_buffer("class_weight", None, persistent=False)

    def compare(self, output: Tensor, label: Tensor, reduction: str) -> Tensor:
        """Return the rows' losses, `[rows]`, with reduction "none"; their sum with "sum"."""
        raise NotImplementedError

    @property
    def targets(self) -> tuple[Target, ...]:
        (target,) = super().targets
        return (replace(target, weight=self.weight, known=self.known),)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        label, weights = label_of(batch, self.target), self._weights(batch)
        if weights is None:
            return self.compare(output, label, "sum")
        return (self.compare(output, label, "none") * weights).sum()

    def weight_sums(self, batch: Batch) -> Tensor | None:
        weights = self._weights(batch)
        return None if weights is None else weights.double().sum().reshape(1)

    def weigh_classes(self, factors: Mapping[int, float]) -> None:
        """Multiply the weights of rows by a factor for their label; 1 for labels without a factor.

        Raises:
            ModelError: The target does not have such a class, or has no classes.
        """
        (target,) = self.targets
        classes = 0 if target.kind == "regression" else target.classes
        wrong = [label for label in factors if not 0 <= label < classes]
        if wrong or not classes:
            raise ModelError(
                f"the target {target.name!r} has no class {', '.join(map(str, wrong or factors))}",
                where={"kind": target.kind},
                hint=f"Its labels are 0 to {classes - 1}."
                if classes
                else "Weigh the rows of a regression by a column: data.weight.",
            )
        by_label = torch.tensor([float(factors.get(label, 1.0)) for label in range(classes)])
        self.register_buffer("class_weight", by_label, persistent=False)

    def _weights(self, batch: Batch) -> Tensor | None:
        (target,) = self.targets
        weights = weight_of(batch, target)
        if self.class_weight is None:
            return weights
        factors = self.class_weight.index_select(0, label_of(batch, self.target).long())
        return factors if weights is None else weights * factors


class BinaryClassificationTask(LabelTask):
    """Predicts one label of 0 or 1.

    With one output, a linear layer to one logit is trained with binary cross entropy. With two
    outputs, as in fastai, a linear layer to two logits is trained with cross entropy, and the logit
    is the second minus the first. The two losses agree, but the layer has twice the parameters.

    Args:
        target: The column of labels; `None` for the first target.
        outputs: 1 or 2.
        layer: Whether there is a layer. Without it the input, such as the sum of several parts'
            logits, is the output, and must have the width `outputs`.
        pre: A block for the output before loss and scores, such as a `LogitsTemperatureScaler`.
        weight: A column of weights for this task only.
        mean: The share of ones. Its log odds are added to the network's logit; `None` adds nothing.
        label_smoothing: The share of each label that the loss spreads evenly over both classes.

    Shape:
        any flat shape to `[rows]` with one output (`attach` returns it as `[rows, 1]`), or to
        `[rows, 2]`.

    Raises:
        ModelError: `outputs` is not 1 or 2, or, without a layer, the input has another width.

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
        weight: str | None = None,
        mean: float | None = None,
        label_smoothing: float = 0.0,
    ):
        super().__init__(target, weight)
        self.mean = mean
        self.label_smoothing = label_smoothing
        if outputs not in (1, 2):
            raise ModelError(f"a BinaryClassificationTask must have 1 or 2 outputs, not {outputs}")
        self.outputs = outputs
        self.has_layer = layer
        self.pre = pre or Chain([])

    def build(self, input_shape: Shape) -> Shape:
        width = some_width(input_shape, self.label)
        if self.has_layer:
            self.logit = nn.Linear(width, self.outputs)
        elif width != self.outputs:
            raise ModelError(
                f"{self.label} without a layer needs {self.outputs} values per row, but "
                f"{input_shape.made_by} returns {input_shape}"
            )
        return self.pre.attach(Flat(self.outputs))

    def forward(self, value: Value) -> Tensor:
        output = linear_over(self.logit, flat_parts(value)) if self.has_layer else flat(value)
        output = cast(Tensor, self.pre(output.squeeze(1) if self.outputs == 1 else output))
        if self.mean is None:
            return output
        odds = math.log(self.mean / (1 - self.mean))
        if self.outputs == 1:
            return output + odds
        # A tensor made of numbers would have to be copied to the GPU: a wait, and an error in a
        # CUDA graph.
        return torch.stack([output[:, 0], output[:, 1] + odds], dim=1)

    def compare(self, output: Tensor, label: Tensor, reduction: str) -> Tensor:
        smooth = self.label_smoothing
        if self.outputs == 2:
            label = label.long()
            return functional.cross_entropy(
                output, label, reduction=reduction, label_smoothing=smooth
            )
        if smooth:
            label = label * (1 - smooth) + smooth / 2
        return functional.binary_cross_entropy_with_logits(output, label, reduction=reduction)

    def logits(self, output: Tensor) -> Tensor:
        return output if self.outputs == 1 else output[:, 1] - output[:, 0]


class MulticlassTask(LabelTask):
    """A linear layer to one logit a class, and cross entropy.

    `logits` compares class 1 with all others: with z the network's output, it is the log of
    p_1 / (1 - p_1), which is z_1 - log(sum over the other classes of exp z_j).

    Args:
        target: A target of integers `0 .. num_classes-1`; `None` for the first one.
        num_classes: 2 or more, otherwise `ModelError`.
        pre: A block for the logits before loss and scores, such as a `LogitsTemperatureScaler`.
        weight: A column of weights for this task only.
        label_smoothing: The share of each label that the loss spreads evenly over all classes.

    Shape:
        any flat shape to `[rows, num_classes]`.

    >>> str(MulticlassTask("genre", 20).attach(Flat(5)))
    '[rows, 20]'
    """

    def __init__(
        self,
        target: str | None,
        num_classes: int,
        *,
        pre: Block | None = None,
        weight: str | None = None,
        label_smoothing: float = 0.0,
    ):
        super().__init__(target, weight)
        self.label_smoothing = label_smoothing
        if num_classes < 2:
            raise ModelError(f"a MulticlassTask needs at least 2 classes, not {num_classes}")
        self.num_classes = num_classes
        self.pre = pre or Chain([])

    def build(self, input_shape: Shape) -> Shape:
        self.logit = nn.Linear(some_width(input_shape, self.label), self.num_classes)
        return self.pre.attach(Flat(self.num_classes))

    def forward(self, value: Value) -> Tensor:
        output: Tensor = self.pre(linear_over(self.logit, flat_parts(value)))
        return output

    @property
    def targets(self) -> tuple[Target, ...]:
        (target,) = super().targets
        return (replace(target, kind="multiclass", classes=self.num_classes),)

    def compare(self, output: Tensor, label: Tensor, reduction: str) -> Tensor:
        smooth = self.label_smoothing
        return functional.cross_entropy(
            output, label.long(), reduction=reduction, label_smoothing=smooth
        )

    def logits(self, output: Tensor) -> Tensor:
        return one_against_rest(output)

    def scores(self, output: Tensor) -> tuple[Tensor, ...]:
        return (output,)


class RegressionTask(LabelTask):
    """A linear layer to one number, and a loss of its error e = output - target.

        mse      e^2
        mae      |e|
        huber    e^2 / 2 where |e| <= delta, else delta * (|e| - delta / 2)
                 (Huber, "Robust Estimation of a Location Parameter", 1964)
        poisson  exp(output) - target * output: the negative log likelihood of a count, without the
                 term that depends on the target only; its targets are 0 or more

    With z the layer's number, the output is `mean + std * z`, for "poisson" `log(mean) + z`.
    The score is the output; for "poisson" the rate, exp(output). In the loss, errors and `delta`
    are divided by `std`.

    Args:
        target: The column of labels; `None` for the first target.
        kind: "mse", "mae", "huber" or "poisson", otherwise `ModelError`.
        delta: The error at which huber's loss becomes linear, above 0.
        weight: A column of weights for this task only.
        mean: The approximate initial prediction. `None` means 0, or 1 for "poisson".
        std: The unit of the layer's number, and of errors in the loss; `None` means 1. Not for
            "poisson", whose loss has no errors.

    Shape:
        any flat shape to `[rows]`.

    >>> str(RegressionTask("price").attach(Flat(5)))
    '[rows, 1]'
    """

    metrics = ("auc",)  # its score is not a logit

    def __init__(
        self,
        target: str | None = None,
        kind: RegressionLoss = "mse",
        *,
        delta: float = 1.0,
        weight: str | None = None,
        mean: float | None = None,
        std: float | None = None,
    ):
        super().__init__(target, weight)
        self.mean = mean
        self.std = std
        kinds = get_args(RegressionLoss)
        if kind not in kinds:
            raise ModelError(
                f"unknown loss {kind!r} of a RegressionTask",
                hint=f"Use one of {', '.join(kinds)}.",
            )
        if not delta > 0:
            raise ModelError(f"a RegressionTask's delta must be above 0, not {delta}")
        if kind == "poisson" and std is not None:
            raise ModelError(
                "a RegressionTask of kind poisson has no std: its loss has no errors",
                hint="Leave std out.",
            )
        self.kind = kind
        self.delta = delta

    def build(self, input_shape: Shape) -> Shape:
        self.number = nn.Linear(some_width(input_shape, self.label), 1)
        return Flat(1)

    def forward(self, value: Value) -> Tensor:
        output = linear_over(self.number, flat_parts(value)).squeeze(1)
        if self.std is not None:
            output = output * self.std
        if self.mean is None:
            return output
        return output + (math.log(self.mean) if self.kind == "poisson" else self.mean)

    @property
    def targets(self) -> tuple[Target, ...]:
        (target,) = super().targets
        return (replace(target, kind="regression", is_count=self.kind == "poisson"),)

    def compare(self, output: Tensor, label: Tensor, reduction: str) -> Tensor:
        delta = self.delta
        if self.std is not None:
            output, label, delta = output / self.std, label / self.std, delta / self.std
        match self.kind:
            case "huber":
                return functional.huber_loss(output, label, reduction=reduction, delta=delta)
            case "poisson":
                return functional.poisson_nll_loss(output, label, reduction=reduction)
            case "mae":
                return functional.l1_loss(output, label, reduction=reduction)
        return functional.mse_loss(output, label, reduction=reduction)

    def logits(self, output: Tensor) -> Tensor:
        return output.exp() if self.kind == "poisson" else output
