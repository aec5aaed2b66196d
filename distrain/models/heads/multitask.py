"""Several tasks over one input: independent tasks, or events that each follow the previous."""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from distrain.errors import ModelError
from distrain.loader.batch import Batch
from distrain.models.blocks.block import Block
from distrain.models.heads.members import MemberTask
from distrain.models.heads.targets import Target
from distrain.models.heads.tasks import BinaryClassificationTask, Task
from distrain.models.shapes import Branches, Flat, Shape, Value


class MultiTask(Task):
    """Tasks over one input; the loss is the weighted sum of their losses.

    Args:
        tasks: The tasks by name. The first task provides the metrics and the logits of the whole.
        weights: Weights of the tasks' losses by name; the default is 1.
        sharing: A block between the input and the tasks, such as an `MMoEBlock`. If it returns
            branches with the tasks' names, each task receives its own.
        towers: Blocks for some tasks by name, between `sharing` and the task.

    Shape:
        a shape that all tasks accept to `[rows, sum of their widths]`, or `[rows]` if that is 1.

    Raises:
        ModelError: There are no tasks, a weight or a tower has no task, or a weight is below 0.

    >>> from distrain.models.heads.tasks import RegressionTask
    >>> both = MultiTask({"click": BinaryClassificationTask(), "price": RegressionTask("price")})
    >>> str(both.attach(Flat(5)))
    '[rows, 2]'
    """

    def __init__(
        self,
        tasks: Mapping[str, Task],
        weights: Mapping[str, float] | None = None,
        *,
        sharing: Block | None = None,
        towers: Mapping[str, Block] | None = None,
    ):
        super().__init__()
        self._check_tasks(tasks)
        self.names = tuple(tasks)
        self.metrics = next(iter(tasks.values())).metrics
        for name, task in tasks.items():
            task.name = name
        # A list, because torch's own dictionary of modules refuses names such as "items".
        self.tasks = nn.ModuleList(tasks.values())
        weight_by_task = dict(weights or {})
        wrong = [
            name for name, weight in weight_by_task.items() if name not in tasks or not weight >= 0
        ]
        if wrong:
            weighed = ", ".join(f"{name!r} by {weight_by_task[name]}" for name in wrong)
            raise ModelError(
                f"a MultiTask cannot use the weights {weighed}",
                where={"tasks": ", ".join(tasks)},
                hint="Give the weights by task name; each is 0 or more.",
            )
        self.weights = tuple(float(weight_by_task.get(name, 1.0)) for name in tasks)
        self.takes_weights = all(task.takes_weights for task in tasks.values())
        self.sharing = sharing
        self.towers = nn.ModuleList((towers or {}).values())
        self.tower_of = {name: place for place, name in enumerate(towers or {})}
        if unknown := self.tower_of.keys() - tasks.keys():
            raise ModelError(
                f"a MultiTask has towers for {', '.join(sorted(unknown))}, which are not tasks",
                where={"tasks": ", ".join(tasks)},
            )

    def _check_tasks(self, tasks: Mapping[str, Task]) -> None:
        if not tasks:
            raise ModelError("a MultiTask needs tasks")

    def build(self, input_shape: Shape) -> Shape:
        shared = input_shape if self.sharing is None else self.sharing.attach(input_shape)
        branches = shared.shapes if isinstance(shared, Branches) else {}
        self.is_parted = self.sharing is not None and branches.keys() == set(self.names)
        widths = []
        for name, task in zip(self.names, self._tasks(), strict=True):
            shape = branches[name] if self.is_parted else shared
            tower = self._tower(name)
            widths.append(task.attach(shape if tower is None else tower.attach(shape)).width)
        self.widths = tuple(widths)
        return Flat(sum(self.widths))

    def forward(self, value: Value) -> Tensor:
        outputs = self._outputs(value if self.sharing is None else self.sharing(value))
        if len(outputs) == 1:
            return outputs[0]
        return torch.cat([out[:, None] if out.dim() == 1 else out for out in outputs], dim=1)

    def _outputs(self, value: Value) -> list[Tensor]:
        outputs = []
        for name, task in zip(self.names, self.tasks, strict=True):
            own = value[name] if self.is_parted and isinstance(value, dict) else value
            tower = self._tower(name)
            outputs.append(task(own if tower is None else tower(own)))
        return outputs

    def _tower(self, name: str) -> Block | None:
        if name not in self.tower_of:
            return None
        tower = self.towers[self.tower_of[name]]
        assert isinstance(tower, Block)
        return tower

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        losses = [task.loss(out, batch) for task, out in self._with_outputs(output)]
        weighted = (weight * loss for weight, loss in zip(self.weights, losses, strict=True))
        return torch.stack(list(weighted)).sum()

    def losses(self, output: Tensor, batch: Batch) -> Tensor:
        pairs = zip(self.weights, self._with_outputs(output), strict=True)
        return torch.cat([weight * task.losses(out, batch) for weight, (task, out) in pairs])

    def weight_sums(self, batch: Batch) -> Tensor | None:
        sums = [task.weight_sums(batch) for task in self._tasks()]
        if all(one is None for one in sums):
            return None
        rows = torch.full((1,), batch.num_rows, dtype=torch.float64, device=batch.continuous.device)
        return torch.cat(
            [
                rows.expand(len(task.targets)) if one is None else one
                for task, one in zip(self._tasks(), sums, strict=True)
            ]
        )

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


class ESMMTask(MultiTask):
    """Binary tasks whose events follow each other: click, then conversion.

    With p_i the probability of event i given the events before it, and z_i its logit, the output of
    task k is the logit of the product p_1 ... p_k, for all rows:

        z = -log((1 + exp(-z_1)) ... (1 + exp(-z_k)) - 1)

    So the label of the second task is 1 if both events happened, and each loss is over all rows:
    p(ctr) for the click, p(ctcvr) = p(ctr) p(cvr) for the conversion (Ma et al., "Entire Space
    Multi-Task Model", SIGIR 2018, eq. 2 and 3). The arguments are those of `MultiTask`.

    Raises:
        ModelError: There are fewer than two tasks, a task is not a `BinaryClassificationTask` with
            one output, or an error of `MultiTask`.

    >>> click, bought = (BinaryClassificationTask(name) for name in ("click", "bought"))
    >>> str(ESMMTask({"click": click, "bought": bought}).attach(Flat(5)))
    '[rows, 2]'
    """

    def _check_tasks(self, tasks: Mapping[str, Task]) -> None:
        super()._check_tasks(tasks)
        others = [
            name
            for name, task in tasks.items()
            if not isinstance(task, BinaryClassificationTask) or task.outputs != 1
        ]
        if others or len(tasks) < 2:
            raise ModelError(
                f"esmm needs at least two binary tasks, but has {', '.join(others or tasks)}",
                hint="Name the click first, then the tasks that only follow a click.",
            )

    def _outputs(self, value: Value) -> list[Tensor]:
        # Sums of exponentials need more precision than bfloat16 has.
        outputs = (
            out.float() if out.dtype == torch.bfloat16 else out for out in super()._outputs(value)
        )
        first, *others = outputs
        joined = [first]
        for own in others:
            before = joined[-1]
            joined.append(-torch.stack([-before, -own, -before - own]).logsumexp(0))
        return joined


_OF_TASKS = ("tasks", "towers", "gates", "experts")


def name_by_task(task: Task, name: str) -> str:
    """Return the name of a task's tensor in a checkpoint, with task names instead of numbers.

    These are parameters of the network and their optimizer state. A single task gets the name that
    it would have in a `MultiTask`. Names of other tensors are returned unchanged.

    >>> both = MultiTask({"click": BinaryClassificationTask(), "buy": BinaryClassificationTask()})
    >>> name_by_task(both, "dense.task.tasks.1.logit.bias")
    'dense.task.tasks.buy.logit.bias'
    >>> name_by_task(both, "dense_optimizer.task.tasks.0.logit.bias.sum")
    'dense_optimizer.task.tasks.click.logit.bias.sum'
    """
    prefix, mark, rest = name.partition(".task.")
    if not mark or prefix not in ("dense", "dense_optimizer"):
        return name
    if isinstance(task, MemberTask):
        return name_by_task(task.task, f"{prefix}.task.{rest.removeprefix('task.')}")
    if not isinstance(task, MultiTask):
        return f"{prefix}.task.tasks.{task.name}.{rest}"
    parts = rest.split(".")
    for place, (word, number) in enumerate(pairwise(parts), 1):
        names = tuple(task.tower_of) if word == "towers" else task.names
        if word in _OF_TASKS and number.isdecimal() and int(number) < len(names):
            parts[place] = names[int(number)]
    return ".".join([prefix, "task", *parts])
