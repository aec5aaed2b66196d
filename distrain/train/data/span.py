"""The extent of a job: its steps and their rows, over all windows and epochs."""

from dataclasses import dataclass

from distrain.errors import SpecError
from distrain.jobs.spec.job import JobSpec
from distrain.loader.loader import Loader
from distrain.loader.partition.epoch_plan import EpochSteps


@dataclass(frozen=True)
class JobSpan:
    """The steps of a job, the same on every rank.

    >>> from distrain.loader.partition.epoch_plan import EpochPlan
    >>> span = JobSpan(5, EpochSteps((EpochPlan(10, lanes=1, global_batch_size=4),)))
    >>> [span.rows_in(steps) for steps in range(6)]
    [0, 4, 8, 10, 14, 18]
    >>> [span.epoch_after(steps) for steps in range(5)]
    [0, 0, 0, 0, 1]
    """

    num_steps: int
    epoch: EpochSteps  # the steps of each epoch; the last step of a window may have fewer rows
    windows: tuple[str, ...] = ()  # the names of the windows; empty if the table is not split

    @classmethod
    def of(cls, spec: JobSpec, loader: Loader) -> "JobSpan":
        steps = spec.train.num_epochs * loader.num_steps
        if spec.train.max_steps is not None:
            steps = min(steps, spec.train.max_steps)
        if steps == 0:
            raise SpecError(
                "the job has no steps to take",
                where={
                    "rows": loader.num_rows,
                    "train.global_batch_size": spec.train.batch_rows,
                },
                hint="Lower the batch size, or set data.drop_last to false.",
            )
        windows = loader.dataset.table.windows
        return cls(steps, loader.steps, () if windows is None else windows.names)

    @property
    def steps_per_epoch(self) -> int:
        return self.epoch.num_steps

    @property
    def rows_per_epoch(self) -> int:
        return self.epoch.trained_rows

    def check_start(self, step: int, checkpoint: str) -> None:
        if step > self.num_steps:
            raise SpecError(
                f"the checkpoint is of step {step}, and the job has only {self.num_steps}",
                where={"checkpoint": checkpoint},
                hint="Raise train.epochs or train.max_steps.",
            )

    def rows_in(self, steps: int) -> int:
        epochs, rest = divmod(steps, self.steps_per_epoch)
        return epochs * self.rows_per_epoch + self.epoch.rows_before(rest)

    def epoch_after(self, steps: int) -> int:
        return max(0, steps - 1) // self.steps_per_epoch

    def window_at(self, step: int) -> int | None:
        """Return the window that begins with a step; `None` if none does."""
        of_epoch = step % self.steps_per_epoch
        window = self.epoch.window_of(of_epoch)
        begins = self.windows and step < self.num_steps and of_epoch == self.epoch.span(window)[0]
        return window if begins else None
