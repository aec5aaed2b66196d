"""Tasks: the last block of a network, its loss and its scores."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.batch import Batch
from distrain.errors import ModelError
from distrain.models.blocks import Block, linear_over
from distrain.models.heads.targets import Target, label_of
from distrain.models.shapes import Flat, Shape, Value, flat, flat_parts, some_width
from distrain.spec import ValidationMetric


class Task(Block):
    """The last block of a network, with its loss and its scores.

    A subclass defines `build` and `forward`, as every block, and `loss` and `logits`; one whose
    target is not binary, or that has several, also `targets` and `scores`. It gives a `Flat` shape;
    an output of width 1 is `[rows]`, any other `[rows, width]`.

    Attributes:
        metrics: The spec's metrics that may judge its validations.
        name: The task's name in reports.
        target: The column of its labels; `None` for the first target.
    """

    metrics: tuple[ValidationMetric, ...] = ("auc", "log_loss", "normalised_entropy")
    name: str = ""
    target: str | None = None

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of the task, in the order of `scores`."""
        return (Target(self.name or self.target or "", self.target),)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """The SUM of the rows' losses, a scalar; a step divides it by the rows of all ranks.

        `output` is the result of `forward` for the rows of `batch`, fp32; the loss of no rows is 0.
        """
        raise NotImplementedError

    def logits(self, output: Tensor) -> Tensor:
        """The rows' scores, `[rows]`: higher for a more likely 1 of the first target."""
        raise NotImplementedError

    def scores(self, output: Tensor) -> tuple[Tensor, ...]:
        """The rows' scores of each target.

        Of a binary one logits, `[rows]`; of a regression predictions, `[rows]`, on the target's
        scale; of a multiclass one a logit for each class, `[rows, classes]`.
        """
        return (self.logits(output),)


def attach_pre(pre: Block | None, output: Shape) -> Shape:
    return output if pre is None else pre.attach(output)


def apply_pre(pre: Block | None, output: Tensor) -> Tensor:
    if pre is None:
        return output
    scaled: Tensor = pre(output)
    return scaled


class BinaryClassificationTask(Task):
    """A linear layer to one logit, and binary cross entropy; or to two, and cross entropy.

    Two outputs are fastai's way: the logit is then the second minus the first, and the two losses
    agree, but the layer has twice the parameters.

    Args:
        target: `None` for the first one.
        outputs: 1 or 2.
        layer: Without a layer the input is the output: the sum of several parts' logits, say, and
            as wide as `outputs`.
        pre: A block for the output before loss and scores, such as a `LogitsTemperatureScaler`.

    Shape:
        anything flat to `[rows]`, or `[rows, 2]`.

    Raises:
        ModelError: Neither 1 nor 2 outputs, or, without a layer, an input of another width.

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
        output = linear_over(self.logit, flat_parts(value)) if self.has_layer else flat(value)
        return apply_pre(self.pre, output.squeeze(1) if self.outputs == 1 else output)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        label = label_of(batch, self.target)
        if self.outputs == 2:
            return functional.cross_entropy(output, label.long(), reduction="sum")
        return functional.binary_cross_entropy_with_logits(output, label, reduction="sum")

    def logits(self, output: Tensor) -> Tensor:
        return output if self.outputs == 1 else output[:, 1] - output[:, 0]


class MulticlassTask(Task):
    """A linear layer to one logit a class, and cross entropy.

    Its score is that of class 1 against all others: with z the logits, the log of p_1 / (1 - p_1),
    which is z_1 - log(sum over the others of exp z_j).

    Args:
        target: A target of whole numbers `0 .. num_classes-1`; `None` for the first one.
        num_classes: 2 or more, else `ModelError`.
        pre: A block for the logits before loss and scores, such as a `LogitsTemperatureScaler`.

    Shape:
        anything flat to `[rows, num_classes]`.

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
        self.logit = nn.Linear(some_width(given, self.label), self.num_classes)
        return attach_pre(self.pre, Flat(self.num_classes))

    def forward(self, value: Value) -> Tensor:
        return apply_pre(self.pre, linear_over(self.logit, flat_parts(value)))

    @property
    def targets(self) -> tuple[Target, ...]:
        (target,) = super().targets
        return (replace(target, kind="multiclass", classes=self.num_classes),)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        labels = label_of(batch, self.target).long()
        return functional.cross_entropy(output, labels, reduction="sum")

    def logits(self, output: Tensor) -> Tensor:
        others = torch.cat([output[:, :1], output[:, 2:]], dim=1)
        return output[:, 1] - others.logsumexp(1)

    def scores(self, output: Tensor) -> tuple[Tensor, ...]:
        return (output,)


class RegressionTask(Task):
    """A linear layer to one number, and a loss of its error e = output - target.

        mse      e^2
        huber    e^2 / 2 where |e| <= delta, else delta * (|e| - delta / 2)
                 (Huber, "Robust Estimation of a Location Parameter", 1964)

    Its score is the number itself.

    Args:
        target: `None` for the first one.
        kind: "mse" or "huber", else `ModelError`.
        delta: The error at which huber's loss becomes linear, above 0.

    Shape:
        anything flat to `[rows]`.

    >>> str(RegressionTask("price").attach(Flat(5)))
    '[rows, 1]'
    """

    metrics = ("auc",)  # its score is no logit

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
        self.number = nn.Linear(some_width(given, self.label), 1)
        return Flat(1)

    def forward(self, value: Value) -> Tensor:
        return linear_over(self.number, flat_parts(value)).squeeze(1)

    @property
    def targets(self) -> tuple[Target, ...]:
        (target,) = super().targets
        return (replace(target, kind="regression"),)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        target = label_of(batch, self.target)
        if self.kind == "huber":
            return functional.huber_loss(output, target, reduction="sum", delta=self.delta)
        return functional.mse_loss(output, target, reduction="sum")

    def logits(self, output: Tensor) -> Tensor:
        return output


class MultiTask(Task):
    """Tasks over one input; the loss is the weighted sum of theirs.

    Args:
        tasks: By name. The first one's score is that of all.
        weights: Of the tasks' losses; 1 for others.

    Shape:
        anything that all tasks take to `[rows, sum of their widths]`, or `[rows]` if that is 1.

    Raises:
        ModelError: No tasks, or a weight for none of them, or below 0.

    >>> both = MultiTask({"click": BinaryClassificationTask(), "price": RegressionTask("price")})
    >>> str(both.attach(Flat(5)))
    '[rows, 2]'
    """

    def __init__(self, tasks: Mapping[str, Task], weights: Mapping[str, float] | None = None):
        super().__init__()
        if not tasks:
            raise ModelError("a MultiTask needs tasks")
        self.names = tuple(tasks)
        self.metrics = next(iter(tasks.values())).metrics
        for name, task in tasks.items():
            task.name = name
        # A list, for torch's own dictionary of modules refuses names such as "items".
        self.tasks = nn.ModuleList(tasks.values())
        given = dict(weights or {})
        wrong = [name for name, weight in given.items() if name not in tasks or not weight >= 0]
        if wrong:
            weighed = ", ".join(f"{name!r} by {given[name]}" for name in wrong)
            raise ModelError(
                f"a MultiTask cannot weigh {weighed}",
                where={"tasks": ", ".join(tasks)},
                hint="Weights are of the tasks by name, and 0 or more.",
            )
        self.weights = tuple(float(given.get(name, 1.0)) for name in tasks)

    def build(self, given: Shape) -> Shape:
        self.widths = tuple(task.attach(given).width for task in self._tasks())
        return Flat(sum(self.widths))

    def forward(self, value: Value) -> Tensor:
        outputs = [task(value) for task in self.tasks]
        if len(outputs) == 1:
            only: Tensor = outputs[0]
            return only
        return torch.cat([out[:, None] if out.dim() == 1 else out for out in outputs], dim=1)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        losses = [task.loss(out, batch) for task, out in self._with_outputs(output)]
        weighted = (weight * loss for weight, loss in zip(self.weights, losses, strict=True))
        return torch.stack(list(weighted)).sum()

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(target for task in self._tasks() for target in task.targets)

    def logits(self, output: Tensor) -> Tensor:
        task, first = self._with_outputs(output)[0]
        return task.logits(first)

    def scores(self, output: Tensor) -> tuple[Tensor, ...]:
        pairs = self._with_outputs(output)
        return tuple(score for task, part in pairs for score in task.scores(part))

    def outputs(self, output: Tensor) -> dict[str, Tensor]:
        parts = (part for _, part in self._with_outputs(output))
        return dict(zip(self.names, parts, strict=True))

    def _with_outputs(self, output: Tensor) -> list[tuple[Task, Tensor]]:
        if len(self.widths) == 1:
            return [(self._tasks()[0], output)]
        parts = torch.split(output, list(self.widths), dim=1)
        own = (part.squeeze(1) if part.shape[1] == 1 else part for part in parts)
        return list(zip(self._tasks(), own, strict=True))

    def _tasks(self) -> list[Task]:
        return [task for task in self.tasks if isinstance(task, Task)]
