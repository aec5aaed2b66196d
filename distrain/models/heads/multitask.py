"""Several tasks over the same input."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from distrain.batch import Batch
from distrain.errors import ModelError
from distrain.models.heads.task import Task
from distrain.models.shapes import Flat, Shape, Value


class MultiTask(Task):
    """Tasks that share what comes in; the loss is the weighted sum of theirs.

    Args:
        tasks: By name. The first one's score is that of all.
        weights: Of the tasks' losses; 1 for those that are not named.

    Shape:
        anything that all tasks take to `[rows, sum of their widths]`, or `[rows]` if that is 1.

    Raises:
        ModelError: There are no tasks, or a weight is for none of them, or below 0.

    >>> from distrain.models.heads.binary import BinaryClassificationTask
    >>> from distrain.models.heads.regression import RegressionTask
    >>> both = MultiTask({"click": BinaryClassificationTask(), "price": RegressionTask("price")})
    >>> str(both.attach(Flat(5)))
    '[rows, 2]'
    """

    def __init__(self, tasks: Mapping[str, Task], weights: Mapping[str, float] | None = None):
        super().__init__()
        if not tasks:
            raise ModelError("a MultiTask needs tasks")
        self.names = tuple(tasks)
        # A list, for torch's own dictionary of modules refuses names such as "items".
        self.tasks = nn.ModuleList(tasks.values())
        given = dict(weights or {})
        wrong = [name for name, weight in given.items() if name not in tasks or not weight >= 0]
        if wrong:
            told = ", ".join(f"{name!r} by {given[name]}" for name in wrong)
            raise ModelError(
                f"a MultiTask cannot weigh {told}",
                where={"tasks": ", ".join(tasks)},
                hint="Weights are of the tasks by name, and 0 or more.",
            )
        self.weights = tuple(float(given.get(name, 1.0)) for name in tasks)

    def build(self, given: Shape) -> Shape:
        """See `Block`."""
        self.widths = tuple(task.attach(given).width for task in self._tasks())
        return Flat(sum(self.widths))

    def forward(self, value: Value) -> Tensor:
        """The tasks' outputs, side by side."""
        outputs = [task(value) for task in self.tasks]
        if len(outputs) == 1:
            only: Tensor = outputs[0]
            return only
        return torch.cat([out[:, None] if out.dim() == 1 else out for out in outputs], dim=1)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """See `Task`."""
        losses = [task.loss(out, batch) for task, out in self._with_outputs(output)]
        weighted = (weight * loss for weight, loss in zip(self.weights, losses, strict=True))
        return torch.stack(list(weighted)).sum()

    def logits(self, output: Tensor) -> Tensor:
        """See `Task`."""
        task, first = self._with_outputs(output)[0]
        return task.logits(first)

    def outputs(self, output: Tensor) -> dict[str, Tensor]:
        """Each task's part of an output, by name."""
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
