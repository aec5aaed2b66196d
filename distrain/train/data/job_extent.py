"""The extent of a job: its steps and their rows, over all windows and epochs, and a refit."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

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
    def of(cls, spec: JobSpec, loader: Loader) -> JobSpan:
        """Return the steps of a job with this loader; `SpecError` if there are none."""
        steps = spec.train.num_epochs * loader.num_steps
        if spec.train.max_steps is not None:
            steps = min(steps, spec.train.max_steps)
        if steps == 0:
            raise SpecError(
                "the job would train 0 steps",
                where={
                    "rows": loader.num_rows,
                    "train.global_batch_size": spec.train.batch_rows,
                },
                hint="Lower the batch size, or set data.drop_last to false.",
            )
        windows = loader.dataset.table.windows
        return cls(steps, loader.steps, () if windows is None else windows.names)

    @property
    def first_step(self) -> int:
        """The number of this span's first step: 0, or the first training's steps in a refit."""
        return 0

    @property
    def steps_per_epoch(self) -> int:
        return self.epoch.num_steps

    @property
    def rows_per_epoch(self) -> int:
        return self.epoch.trained_rows

    def steps_from(self, step: int) -> range:
        """Return the numbers of the steps from `step` to the last one, counted from `first_step`.

        A loader counts steps in this way.
        """
        return range(step - self.first_step, self.num_steps - self.first_step)

    def epoch_and_step(self, step: int) -> tuple[int, int]:
        """Return the epoch of a step within this span, and the step's number in it, both from 0."""
        return divmod(step - self.first_step, self.steps_per_epoch)

    def schedule_position(self, step: int) -> tuple[int, int]:
        """Return a step's position in the learning rate's schedule, and the schedule's length.

        The position counts from 0; both are numbers of steps.
        """
        return step, self.num_steps

    def check_start(self, step: int, checkpoint: str) -> None:
        """Raise `SpecError` if a checkpoint, saved after `step` steps, is beyond the job's end."""
        if step > self.num_steps:
            raise SpecError(
                f"the checkpoint is from step {step}, but the job has only {self.num_steps} steps",
                where={"checkpoint": checkpoint},
                hint="Raise train.epochs or train.max_steps.",
            )

    def rows_in(self, steps: int) -> int:
        """Return the number of rows in the first `steps` steps; rows count once per epoch."""
        epochs, rest = divmod(steps, self.steps_per_epoch)
        return epochs * self.rows_per_epoch + self.epoch.rows_before(rest)

    def rank_rows(self, step: int, num_ranks: int) -> tuple[int, ...]:
        """Return the number of rows of each rank's batch in a step, in rank order."""
        return self.epoch.rank_rows(self.epoch_and_step(step)[1], num_ranks)

    def epoch_after(self, steps: int) -> int:
        """Return the epoch (from 0) of the last of `steps` steps; 0 if `steps` is 0."""
        return max(0, steps - 1) // self.steps_per_epoch

    def window_at(self, step: int) -> int | None:
        """Return the index of the window that begins with a step; `None` if no window does."""
        of_epoch = self.epoch_and_step(step)[1]
        window = self.epoch.window_of(of_epoch)
        begins = self.windows and step < self.num_steps and of_epoch == self.epoch.span(window)[0]
        return window if begins else None


@dataclass(frozen=True)
class RefitSpan(JobSpan):
    """The steps of a refit, whose numbers continue those of the first training.

    >>> from distrain.loader.partition.epoch_plan import EpochPlan
    >>> one = EpochSteps((EpochPlan(10, lanes=1, global_batch_size=2),))
    >>> more = EpochSteps((EpochPlan(12, lanes=1, global_batch_size=2),))
    >>> span = RefitSpan.after(JobSpan(10, one), taken=7, found=5, epoch=more)
    >>> span.num_steps, span.epoch_and_step(7), span.rows_in(8), span.epoch_after(8)
    (13, (0, 0), 16, 2)
    >>> [span.schedule_position(step) for step in (7, 12)]
    [(0, 10), (4, 10)]
    >>> [
    ...     RefitSpan.after(JobSpan(10, one), taken=9, found=found, epoch=one).num_steps - 9
    ...     for found in (2, 3, 7, 8)  # of 5 steps of a pass
    ... ]
    [2, 5, 5, 9]
    >>> uneven = EpochSteps((EpochPlan(13, lanes=1, global_batch_size=4),))
    >>> span = RefitSpan.after(JobSpan(10, one), taken=7, found=5, epoch=uneven)
    >>> [span.rank_rows(step, 1) for step in range(7, 11)]  # the loader's order of batches
    [(4,), (4,), (4,), (1,)]
    """

    _: KW_ONLY
    first: JobSpan
    taken: int  # steps of the first training

    @classmethod
    def after(cls, first: JobSpan, *, taken: int, found: int, epoch: EpochSteps) -> RefitSpan:
        """Return the steps of a refit with as many passes as the first training made until `found`.

        The number of passes is rounded to an integer, because completing a pass improves the
        model by more than the validations within a pass differ. A number below one half is not
        rounded. The result is never more passes than the first training made.

        Args:
            first: The span of the first training.
            taken: Steps of the first training.
            found: Steps of the first training until its best validation.
            epoch: The steps of a pass over training and validation rows.
        """
        passes = (2 * found + first.steps_per_epoch) // (2 * first.steps_per_epoch)
        of_first = min(passes * first.steps_per_epoch, taken) or found
        steps = -(-of_first * epoch.num_steps // first.steps_per_epoch)
        return cls(taken + steps, epoch, first=first, taken=taken)

    @property
    def first_step(self) -> int:
        return self.taken

    def schedule_position(self, step: int) -> tuple[int, int]:
        """Return a step's position in the first training's schedule, and the schedule's length.

        After the same number of passes, both trainings are at the same position. So the learning
        rate of the refit follows the schedule of the first training.
        """
        own = step - self.taken
        return own * self.first.steps_per_epoch // self.steps_per_epoch, self.first.num_steps

    def rows_in(self, steps: int) -> int:
        return self.first.rows_in(self.taken) + super().rows_in(steps - self.taken)

    def epoch_after(self, steps: int) -> int:
        """Return the epoch (from 0, counted over both trainings) of the last of `steps` steps."""
        return self.first.epoch_after(self.taken) + 1 + super().epoch_after(steps - self.taken)
