"""A task whose prediction is the mean of several members' predictions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from distrain.loader.batch import Batch
from distrain.models.heads.scores import mean_scores, one_against_rest
from distrain.models.heads.targets import Target
from distrain.models.heads.tasks import Task
from distrain.models.shapes import Flat, Shape, Value, stacked, vectors_of


class MemberTask(Task):
    """Applies a task to each member's output of a `MemberMLP`.

    The loss is the mean of the members' losses, not the loss of their mean prediction, so each
    member learns to predict alone. The scores are those of the mean prediction (`mean_scores`).

    Shape:
        `[rows, members, width]` to `[rows, members * outputs]`.
    """

    def __init__(self, task: Task):
        super().__init__()
        self.task = task
        self.metrics, self.name, self.target = task.metrics, task.name, task.target
        self.takes_weights = task.takes_weights

    def build(self, input_shape: Shape) -> Shape:
        vectors = vectors_of(input_shape, self.label)
        self.members = vectors.count
        self._targets = self.task.targets  # torch.compile cannot read a property here
        self.outputs = self.task.attach(Flat(vectors.dim, vectors.made_by)).width
        return Flat(self.members * self.outputs)

    def forward(self, value: Value) -> Tensor:
        of_members = stacked(value)
        output: Tensor = self.task(of_members.flatten(0, 1))
        return output.view(of_members.shape[0], self.members * self.outputs)

    @property
    def targets(self) -> tuple[Target, ...]:
        return self.task.targets

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return self.losses(output, batch).sum()

    def losses(self, output: Tensor, batch: Batch) -> Tensor:
        losses = [self.task.losses(one, batch) for one in self._by_member(output)]
        return torch.stack(losses).mean(0)

    def weight_sums(self, batch: Batch) -> Tensor | None:
        return self.task.weight_sums(batch)

    def logits(self, output: Tensor) -> Tensor:
        return one_against_rest(self.scores(output)[0])

    def scores(self, output: Tensor) -> tuple[Tensor, ...]:
        scores = [self.task.scores(one) for one in self._by_member(output)]
        return mean_scores(self._targets, scores)

    def _by_member(self, output: Tensor) -> Sequence[Tensor]:
        parts = output.view(output.shape[0], self.members, self.outputs).unbind(1)
        return [part.squeeze(1) if self.outputs == 1 else part for part in parts]
