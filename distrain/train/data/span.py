"""How far a job goes: its steps and their rows, over all epochs."""

from dataclasses import dataclass

from distrain.errors import SpecError
from distrain.loader import Loader
from distrain.spec import JobSpec


@dataclass(frozen=True)
class JobSpan:
    """The steps of a job, the same on every rank.

    Attributes:
        rows_per_step: Rows of a step over all ranks; an epoch's last one may have fewer.

    >>> span = JobSpan(num_steps=5, steps_per_epoch=3, rows_per_step=4, rows_per_epoch=10)
    >>> [span.rows_in(steps) for steps in range(6)], span.epoch_after(3), span.epoch_after(4)
    ([0, 4, 8, 10, 14, 18], 0, 1)
    """

    num_steps: int
    steps_per_epoch: int
    rows_per_step: int
    rows_per_epoch: int

    @classmethod
    def of(cls, spec: JobSpec, loader: Loader) -> "JobSpan":
        steps = spec.train.epochs * loader.num_steps
        if spec.train.max_steps is not None:
            steps = min(steps, spec.train.max_steps)
        rows_per_step = spec.train.global_batch_size
        if steps == 0:
            raise SpecError(
                "the job has no steps to take",
                where={"rows": loader.num_rows, "train.global_batch_size": rows_per_step},
                hint="Lower the batch size, or set data.drop_last to false.",
            )
        rows_per_epoch = min(loader.num_rows, loader.num_steps * rows_per_step)
        return cls(steps, loader.num_steps, rows_per_step, rows_per_epoch)

    def check_start(self, step: int, checkpoint: str) -> None:
        if step > self.num_steps:
            raise SpecError(
                f"the checkpoint is of step {step}, and the job has only {self.num_steps}",
                where={"checkpoint": checkpoint},
                hint="Raise train.epochs or train.max_steps.",
            )

    def rows_in(self, steps: int) -> int:
        epochs, rest = divmod(steps, self.steps_per_epoch)
        return epochs * self.rows_per_epoch + min(rest * self.rows_per_step, self.rows_per_epoch)

    def epoch_after(self, steps: int) -> int:
        return (steps - 1) // self.steps_per_epoch
